"""What a network never trains is made once, and shared by every network of a process."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Store, StoreError, make_method, run, spec
from ancl.extend import anchor_for, architecture, frozen
from tests.lab import ResNet, base_names, plan, plan_task, seeded
from tests.networks.test_frozen_parts import net

LORA = f"{Path(__file__).parents[2] / 'examples/lora.py'}:lora"
SETTINGS = {
    "network.name": LORA,
    "data.tasks": 2,
    "data.per_class": 12,
    "training.epochs": 2,
    "training.lr": 0.1,
    "threads": 1,
}


def parts(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def memory(tensors: Iterable[Tensor]) -> int:
    """The bytes of all storages together, each counted once."""
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()
    )


# -- what it is ----------------------------------------------------------------------------------


class Growing(nn.Sequential):
    def add_task(self, classes: int) -> None:
        """Grow by nothing."""


def test_weights_that_do_not_learn_and_buffers_of_frozen_parts_are_the_base() -> None:
    norm = {f"1.{name}" for name in nn.BatchNorm2d(1).state_dict()}
    whole = {"0.weight", "0.bias", *norm}

    assert base_names(net("")) == set()
    assert base_names(net("stem")) == {f"stem.{name}" for name in whole}
    assert base_names(net("stem body")) == set(net().state_dict())
    # The norm behind a frozen convolution learns, so that its statistics move.
    assert base_names(net("stem.0")) == {"stem.0.weight", "stem.0.bias"}
    assert base_names(Growing(nn.Linear(2, 2)).requires_grad_(False)) == set()


def test_a_tensor_with_two_names_has_both_in_the_base() -> None:
    one = nn.Linear(2, 2).requires_grad_(False)
    assert base_names(nn.Sequential(one, nn.Linear(2, 2), one)) == {
        *("0.weight", "0.bias", "2.weight", "2.bias")
    }


def test_a_method_that_freezes_the_backbone_or_grows_it_gives_no_base(lab: Any) -> None:
    setting = lab.setting(architecture(net(""), (1, 6, 6)), task_aware=True)
    learned = lab.learn(make_method("freeze"), setting)

    assert "base" not in {name for name, _ in learned.names}
    assert "network/backbone.stem.0.weight" in learned.final
    grown = make_method("der")
    assert architecture(net("stem"), (1, 6, 6), growth=grown.growth).base == set()


# -- one copy in memory --------------------------------------------------------------------------


def test_main_old_and_auxiliary_network_cost_one_base_and_three_adapters() -> None:
    made = architecture(LORA, (1, 8, 8))
    base = made.make_base()
    with torch.random.fork_rng([]):
        stored = made.build([2], base).tensors()
    main, old, auxiliary = (made.restore([2], stored, base) for _ in range(3))
    lwf = make_method("lwf").old
    assert lwf is not None
    anchors = [anchor_for(lwf.regularizer, each, slice(0, 2)).forward for each in (old, auxiliary)]

    networks = [main, *anchors]
    for name, tensor in base.items():
        places = {parts(network)[name].data_ptr() for network in networks}  # type: ignore[arg-type]
        assert places == {tensor.data_ptr()}
    shared, alone = memory(base.values()), sum(t.nbytes for t in stored.values())
    assert shared == 283_904
    assert alone == 4 * 3714
    every = [t for network in networks for t in parts(network).values()]  # type: ignore[arg-type]
    assert memory(every) == shared + 3 * alone
    assert memory([*main.weights().values()]) == alone - 4 * 2 * 65  # an Ω on weights copies B


def test_a_prototype_holds_no_second_copy_and_convolutions_keep_their_layout() -> None:
    made = architecture(net("stem"), (1, 6, 6))
    base = made.make_base()
    one, other = (made.build([2], base) for _ in range(2))

    name = "backbone.stem.0.weight"
    assert parts(one)[name].data_ptr() == parts(other)[name].data_ptr() == base[name].data_ptr()
    assert parts(one)[name].stride() == parts(made.build([2]))[name].stride()
    assert made.prototype is not None
    assert parts(made.prototype)["stem.1.weight"].data_ptr() == (
        base["backbone.stem.1.weight"].data_ptr()
    )


def test_what_a_copy_folds_is_its_own() -> None:
    torch.manual_seed(0)
    made = architecture(ResNet(8, 4, in_channels=1).requires_grad_(False), (1, 8, 8))
    base = made.make_base()
    network, before = made.build([2], base), made.make_base()
    x = torch.randn(3, 1, 8, 8)

    twin = frozen(network)

    torch.testing.assert_close(twin(x).logits, network.eval()(x).logits)
    for name, tensor in base.items():
        assert torch.equal(tensor, before[name])


# -- what is stored ------------------------------------------------------------------------------


def test_stored_networks_hold_what_changes_and_whole_ones_are_read() -> None:
    made = architecture(net("stem"), (1, 6, 6))
    base = made.make_base()
    network = made.build([2], base)
    stored = network.tensors()
    whole = {**stored, **base}

    assert whole.keys() == made.build([2]).tensors().keys()
    assert not stored.keys() & base.keys()
    for read in (
        *(made.restore([2], stored, base), made.restore([2], whole, base)),
        made.restore([2], whole),
    ):
        assert all(torch.equal(t, whole[n]) for n, t in read.state_dict().items())
    with pytest.raises(StoreError, match=r"missing: backbone\.stem\.0\.weight"):
        made.restore([2], stored)
    with pytest.raises(StoreError, match=r"another frozen base .*stem\.0\.bias differs"):
        made.restore([2], {**stored, "backbone.stem.0.bias": torch.ones(4)}, base)
    with pytest.raises(StoreError, match="unexpected: other"):
        made.restore([2], stored, {**base, "other": torch.ones(4)})


@pytest.mark.parametrize("method", ["a-lwf", "a-ewc", "afec-ewc", "connector-estimate"])
def test_no_stage_changes_the_base(method: str, lab: Any) -> None:
    name, _, norms = method.partition("-") if "connector" in method else (method, "", "")
    options = {"batch_norm": norms} if norms else {}
    given = architecture(net("stem"), (1, 6, 6))
    learned = lab.learn(make_method(name, **options), lab.setting(given, task_aware=True))

    base = learned.entry("base", 0).tensors
    for part, value in net().state_dict().items():
        if part.startswith("stem"):
            assert torch.equal(base[f"base/backbone.{part}"], value)
    for stage in learned.stages:
        tensors = learned.entries[stage.key].tensors
        assert stage.name == "base" or not any("stem" in each for each in tensors)
    assert not torch.equal(learned.final["network/backbone.body.0.weight"], net().body[0].weight)


def test_one_base_serves_all_heads_and_seeds_unless_it_is_random(lab: Any, tmp_path: Path) -> None:
    code = tmp_path / "drawn.py"
    code.write_text(
        "from torch import nn\n"
        "def make(shape):\n"
        "    made = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Linear(8, 4))\n"
        "    made[1].requires_grad_(False)\n"
        "    return made\n"
    )

    def key(network: Any, seed: int = 0) -> str:
        setting = replace(lab.setting(network, task_aware=True), seed=seed)
        (stage,) = (s for s in plan(make_method("lwf"), lab.tasks(), setting) if s.name == "base")
        return stage.key

    given = architecture(net("stem"), (1, 6, 6))
    assert key(given) == key(given, 1) == key(replace(given, head="cosine"))
    assert key(given) != key(architecture(net("body"), (1, 6, 6)))
    drawn = architecture(f"{code}:make", (1, 6, 6))
    assert key(drawn) != key(drawn, 1)
    learned = lab.learn(make_method("lwf"), replace(lab.setting(drawn, task_aware=True), seed=1))
    with seeded(1, 0, "grow"):  # as the first task's network is drawn
        weight = drawn.build([2]).backbone[1].weight  # type: ignore[index]
    assert torch.equal(learned.entry("base", 0).tensors["base/backbone.1.weight"], weight)


def test_a_state_without_a_base_gets_one(lab: Any) -> None:
    setting, tasks = lab.setting(architecture(net(), (1, 6, 6)), task_aware=True), lab.tasks()
    state = plan_task(make_method("lwf"), tasks[:1], setting, {})[1]
    older = {name: key for name, key in state.items() if name != "base"}

    stages, after = plan_task(make_method("lwf"), tasks[:2], setting, older)

    assert (stages[0].name, stages[0].key) == ("base", state["base"])
    assert after == plan_task(make_method("lwf"), tasks[:2], setting, state)[1]


def test_a_process_reads_the_base_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = spec("a-lwf", "digits/5", settings=SETTINGS)
    store = tmp_path / "store"
    result = run(given, runs=tmp_path, store=store)
    assert result.state is not None
    base, loads, read = result.state.keys["base"], list[str](), Store.load

    def load(self: Store, key: str) -> Any:
        loads.append(key)
        return read(self, key)

    monkeypatch.setattr(Store, "load", load)
    run(
        given.model_copy(update={"options": {**given.options, "lamb": 3.0}}),
        runs=tmp_path,
        store=store,
    )

    assert loads.count(base) == 0  # it is still there from the first run
    assert len(loads) > 5
