"""What every method keeps to, in every variant and scenario."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Method, MethodError, make_method
from ancl.extend import Anchor, Rule, WeightRegularizer, anchor_for
from tests.lab import COMPUTED, MemoryStore, patch_part, plan
from tests.lab import METHODS as ALL_METHODS

LAMBS: dict[str, dict[str, Any]] = {
    "ewc": {"lamb": 20.0},
    "mas": {"lamb": 0.5},
    "si": {"lamb": 0.5},
    "rwalk": {"lamb": 0.5},
    "lwf": {"lamb": 2.0},
    "lfl": {"lamb": 20.0},
    "lwm": {"lamb": 2.0},
    "icarl": {},
    "eeil": {"balanced_epochs": 2, "enlarge": False},
    "bic": {"bias_epochs": 3},
    "wa": {},
    "lucir": {},
    "podnet": {"balanced_epochs": 2, "proxies": 2},
    "dark-er-pp": {},
}
# Of AANets' hosts one is enough: tests/methods/test_branches.py shows each inside of it.
METHODS = {n: m for n, m in ALL_METHODS.items() if n == "aanets-lucir" or "aanets-" not in n}
# Those that train nothing keep to more than this: tests/methods/test_computed.py.
METHODS = {n: m for n, m in METHODS.items() if n not in COMPUTED}
# dark-er-pp without β, see tests/methods/test_replay_methods.py.
del METHODS["dark-er"]
LAMBS["aanets-lucir"] = LAMBS["lucir"]
SETTINGS: dict[str, dict[str, Any]] = {
    **LAMBS,
    "der": {"balanced_epochs": 2},
    "ccgn": {"hidden": 4},
    "gdumb": {"passes": 2},
}
WITHOUT_REGULARIZER = ("finetune", "alone", "joint", "freeze", "der", "connector", "ccgn")
WITHOUT_REGULARIZER += ("er", "er-ace", "agem", "mir", "gdumb", "fetril")
NO_BACKBONE_TO_HOLD = ("freeze",)
WITHOUT_VARIANTS = ("alone", "dmc", "der", "connector", "ccgn", "gdumb", "fetril")
READS_MAPS = ("lwm", "podnet")
NEED_RESNET = ("ccgn", "aanets-lucir")
VARIANTS = [
    f"a-{name}" for name in METHODS if name not in (*WITHOUT_REGULARIZER, *WITHOUT_VARIANTS)
]
VARIANTS += [
    f"afec-{name}" for name in METHODS if name not in (*NO_BACKBONE_TO_HOLD, *WITHOUT_VARIANTS)
]
NAMES = [*METHODS, *VARIANTS]
SCENARIOS = ("til", "cil", "dil")
REFUSED = {(name, "dil") for name in ("bic", "wa", "dmc", "der", "fetril", *NEED_RESNET)}
# With a memory they learn there as in cil.
LEFT_OUT = {(name, "til") for name in ("aanets-lucir", "er", "er-ace", "agem", "mir")}
LEFT_OUT |= {(name, "dil") for name in ("er-ace", "agem", "mir")}


def base_of(name: str) -> str:
    return name.removeprefix("afec-").removeprefix("a-")


def cases(names: list[str]) -> Any:
    """Every name in every scenario in which it has a meaning."""
    pairs = [(n, s) for n in names for s in SCENARIOS if (base_of(n), s) not in REFUSED | LEFT_OUT]
    return pytest.mark.parametrize(("name", "scenario"), pairs)


def method(name: str, **settings: Any) -> Method:
    """A method with a λ that suits the small stream."""
    return make_method(name, **{**SETTINGS.get(base_of(name), {}), **settings})


def network(name: str, lab: Any) -> Any:
    """A network that gives what the method reads."""
    if base_of(name) in NEED_RESNET:
        return lab.resnet()
    return lab.mapped() if base_of(name) in READS_MAPS else None


def stream(scenario: str, lab: Any) -> Any:
    """Three tasks of two classes, or all classes in three domains."""
    if scenario == "dil":
        return lab.tasks(scenario="dil", domains="permutation", per_class=8)
    return lab.tasks()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@dataclass(frozen=True)
class Nothing(Rule):
    """A rule that yields 0.0: the term is there and weighs nothing."""

    def at(self, old: int, new: int) -> float:
        return 0.0


def forced(made: Method) -> Method:
    assert made.auxiliary is not None
    return replace(made, auxiliary=replace(made.auxiliary, lamb_a=Nothing()))


@cases(NAMES)
def test_same_seed_same_bits_and_another_seed_others(name, scenario, lab) -> None:
    setting, tasks = (
        lab.setting(network(name, lab), task_aware=scenario == "til"),
        stream(scenario, lab),
    )

    first = lab.learn(method(name), setting, tasks)
    again = lab.learn(method(name), setting, tasks)
    other = lab.learn(method(name), replace(setting, seed=1), tasks)

    assert same(first.final, again.final)
    assert first.entry("evaluate", 2).meta["taw"] == again.entry("evaluate", 2).meta["taw"]
    assert not same(first.final, other.final)
    assert all(tensor.isfinite().all() for tensor in first.final.values())


@cases(VARIANTS)
def test_zero_lamb_a_is_the_base_method(name, scenario, lab) -> None:
    setting, tasks = (
        lab.setting(network(name, lab), task_aware=scenario == "til"),
        stream(scenario, lab),
    )

    base = lab.learn(method(base_of(name)), setting, tasks)
    number = lab.learn(method(name, lamb_a=0), setting, tasks)
    rule = lab.learn(forced(method(name)), setting, tasks)
    pulled = lab.learn(method(name, lamb_a=5.0), setting, tasks)

    assert number.names == base.names
    assert [s.key for s in number.stages] == [s.key for s in base.stages]
    # The term is there: ANCL trains its own stage, AFEC logs an auxiliary epoch.
    roles = {row["role"] for row in rule.entry("main", 1).meta["log"]}
    assert ("auxiliary", 1) in rule.names or roles == {"auxiliary", "main"}
    assert same(number.final, base.final)
    assert same(rule.final, base.final)
    assert not same(pulled.final, base.final)


def yielded(learned: Any, task: int) -> list[float]:
    """λ_a of every epoch of the main network."""
    return [row["lambs"]["lamb_a"] for row in learned.entry("main", task).meta["log"]]


@cases([name for name in VARIANTS if name.startswith("a-")])
def test_a_balance_finds_lamb_a_for_every_omega(name, scenario, lab) -> None:
    setting, tasks = (
        lab.setting(network(name, lab), task_aware=scenario == "til"),
        stream(scenario, lab)[:2],
    )

    learned = lab.learn(method(name, lamb_a="balance:0.5"), setting, tasks)

    found = yielded(learned, 1)
    assert all(0 < value < 1e5 for value in found)
    assert learned.entry("main", 1).meta["lambs"]["auxiliary"] > 0
    assert all(row["train"]["auxiliary"] > 0 for row in learned.entry("main", 1).meta["log"])
    on_weights = isinstance(method(name).old.regularizer, WeightRegularizer)
    assert (len(set(found)) == 1) is (on_weights or len(found) == 1)
    # Without ρ there is the method alone: the same stages, so the same bits.
    fitted = lab.fitted(method(name), setting)
    none, base = (method(name, lamb_a="balance:0"), method(base_of(name)))
    assert [s.key for s in plan(none, tasks, fitted)] == [s.key for s in plan(base, tasks, fitted)]


@cases([name for name in NAMES if base_of(name) in LAMBS and not name.startswith("afec-")])
def test_a_rule_finds_lamb_for_every_omega(name, scenario, lab) -> None:
    variant = name != base_of(name)
    made = method(name, lamb="auto", **({"lamb_a": "balance"} if variant else {}))
    setting = lab.setting(network(name, lab), task_aware=scenario == "til")

    learned = lab.learn(made, setting, stream(scenario, lab)[:2])

    log = [row for row in learned.entry("main", 1).meta["log"] if row["role"] == "main"]
    found = [row["lambs"]["lamb"] for row in log]
    end = learned.entry("main", 1).meta["lambs"]["old"]
    assert found[0] == made.old.lamb.start
    assert [*found, end] != [found[0]] * (len(found) + 1)
    assert all(0.49 < b / a < 2.01 for a, b in zip(found, [*found[1:], end], strict=True))
    if variant:
        assert all(row["lambs"]["lamb_a"] > 0 for row in log)


def test_stages_of_a_found_lamb_have_its_kappa_and_where_it_goes_on_from(lab) -> None:
    kinds = ("auto", "auto:0.4", "auto:0.5", 10.0)
    plans = [plan(method("lwf", lamb=kind), lab.tasks(), lab.setting()) for kind in kinds]
    main = [{stage.task: stage for stage in each if stage.name == "main"} for each in plans]

    assert main[0][1].key == main[1][1].key  # the default is a number in the key
    assert len({each[1].key for each in main}) == 3
    assert len({each[0].key for each in main}) == 1
    assert main[0][2].inputs["lamb"] == main[0][1].key
    assert not any("lamb" in stage.inputs for stage in (main[0][0], main[0][1], main[3][2]))


def test_a_stage_after_training_has_the_lamb_that_was_found(lab) -> None:
    made = method("eeil", lamb="auto", balanced_keeps="old")
    learned = lab.learn(made, lab.setting(task_aware=False), lab.tasks()[:2])

    main, tuning = learned.entry("main", 1).meta, learned.entry("balanced_tuning", 1).meta
    assert tuning["lambs"]["old"] == main["lambs"]["old"] != made.old.lamb.start


@pytest.mark.parametrize("name", ["a-ewc", "a-si"])
def test_on_weights_a_balance_is_the_number_it_finds(name, lab) -> None:
    """It stays what it is within a task, so it is judged like any other number."""
    tasks = lab.tasks()[:2]
    learned = lab.learn(method(name, lamb_a="balance"), tasks=tasks)
    again = lab.learn(method(name, lamb_a=yielded(learned, 1)[0]), tasks=tasks)

    assert same(learned.final, again.final)


def test_stages_of_a_balance_have_its_rho_and_share_the_auxiliary_network(lab) -> None:
    kinds = ("balance:0.3", "balance:0.1", 0.3)
    plans = [plan(method("a-lwf", lamb_a=kind), lab.tasks()[:2], lab.setting()) for kind in kinds]
    keys = [{(stage.name, stage.task): stage.key for stage in each} for each in plans]

    assert len({each["main", 1] for each in keys}) == 3
    assert len({each["auxiliary", 1] for each in keys}) == 1
    assert len({each["main", 0] for each in keys}) == 1


@pytest.mark.parametrize(
    "name", ["ewc", "mas", "si", "rwalk", "lwf", "lfl", "lwm", "a-ewc", "a-lwf"]
)
def test_zero_lamb_has_no_old_term(name, lab) -> None:
    made = method(name, lamb=0.0, **({"lamb_a": 0.0} if "-" in name else {}))

    learned, finetuned = lab.learn(made), lab.learn(method("finetune"))

    assert [s.key for s in learned.stages] == [s.key for s in finetuned.stages]
    assert same(learned.final, finetuned.final)
    if "-" in name:  # nothing pulls that the auxiliary network could be balanced with
        planned = plan(method(name, lamb=0.0, lamb_a="balance"), lab.tasks(), lab.setting())
        assert [s.key for s in planned] == [s.key for s in finetuned.stages]


@cases(NAMES)
def test_first_task_ignores_both_lambdas(name, scenario, lab) -> None:
    settings = {"lamb": 3.0} if base_of(name) in LAMBS else {}
    settings |= {"lamb_a": 7.0} if base_of(name) != name else {}
    setting = lab.setting(network(name, lab), task_aware=scenario == "til")
    tasks = stream(scenario, lab)[:1]

    one = lab.learn(method(name), setting, tasks)
    other = lab.learn(method(name, **settings), setting, tasks)

    assert one.stages[-1].key == other.stages[-1].key
    assert same(one.network(0), other.network(0))


@pytest.fixture
def anchors(monkeypatch) -> list[tuple[Anchor, list[Tensor]]]:
    """Every anchor made, with a copy of what it held then."""
    made: list[tuple[Anchor, list[Tensor]]] = []

    def recorded(*arguments: Any) -> Anchor:
        anchor = anchor_for(*arguments)
        made.append((anchor, [tensor.clone() for tensor in held(anchor)]))
        return anchor

    patch_part(monkeypatch, "stages_anchor_for", recorded)
    return made


def held(anchor: Anchor) -> list[Tensor]:
    """All tensors of an anchor: parameters and buffers, weights and importance."""
    found = [*anchor.weights.values()]
    found += [tensor for kind in anchor.importance.values() for tensor in kind.values()]
    if isinstance(anchor.forward, torch.nn.Module):
        found += [*anchor.forward.parameters(), *anchor.forward.buffers()]
    return found


@cases([n for n in NAMES if n not in WITHOUT_REGULARIZER])
def test_no_gradient_reaches_an_anchor(name, scenario, lab, anchors) -> None:
    setting = lab.setting(network(name, lab) or lab.conv(), task_aware=scenario == "til")

    lab.learn(method(name), setting, stream(scenario, lab))

    # Tasks 1 and 2: one for the old network, one for ANCL's, two (one an epoch) for AFEC's.
    expected = {"a": 4, "afec": 6, "dmc": 4}.get(name.partition("-")[0], 2)
    expected = 4 if base_of(name) in WITHOUT_REGULARIZER else expected
    stored = method(name).old is not None and method(name).old.stored  # made of no network
    assert len(anchors) == expected - 2 * stored
    for anchor, before in anchors:
        after = held(anchor)
        assert before
        assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
        assert not any(tensor.requires_grad or tensor.grad is not None for tensor in after)


def test_afec_on_ewc_renewed_once_a_task_is_ancl_on_ewc(lab) -> None:
    afec = lab.learn(method("afec-ewc", lamb_a=5.0, afec_renewed="task"))
    ancl = lab.learn(method("a-ewc", lamb_a=5.0))
    every_epoch = lab.learn(method("afec-ewc", lamb_a=5.0))

    assert same(afec.final, ancl.final)
    assert not same(every_epoch.final, ancl.final)


@pytest.mark.parametrize("name", ["afec-ewc", "afec-lwf"])
@pytest.mark.parametrize("renewed", ["epoch", "task"])
def test_a_carried_auxiliary_network_goes_on_from_the_last_task(name, renewed, lab) -> None:
    settings = {"lamb_a": 5.0, "afec_renewed": renewed}

    old = lab.learn(method(name, afec_start="old", **settings))
    carried = lab.learn(method(name, afec_start="carried", **settings))

    # In task 1 there is none to go on from yet.
    assert same(old.network(1), carried.network(1))
    assert not same(old.network(2), carried.network(2))


@pytest.mark.parametrize("name", ["finetune", "joint"])
def test_ancl_needs_a_regularizer(name) -> None:
    with pytest.raises(MethodError, match=f"'{name}' has no regularizer.*Use afec-{name}"):
        make_method(f"a-{name}")


def test_a_frozen_backbone_has_no_variant() -> None:
    with pytest.raises(MethodError, match=r"'freeze' has no regularizer.*Use a method"):
        make_method("a-freeze")
    with pytest.raises(MethodError, match="freeze trains no backbone after the first task"):
        make_method("afec-freeze")


@pytest.mark.parametrize("base", ["dmc", "connector"])
@pytest.mark.parametrize("form", ["a-{}", "afec-{}", "{}+ancl"])
def test_a_method_with_an_auxiliary_network_has_no_variant(base, form) -> None:
    with pytest.raises(MethodError, match=f"{base} already has an auxiliary network"):
        make_method(form.format(base))


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("a-der", {}, "no regularizer to hold to an auxiliary network, and its new extractor"),
        ("afec-der", {}, "every weight of it that learns is new"),
        ("a-ccgn", {}, "it has no regularizer; what old tasks use is frozen"),
        ("afec-ccgn", {}, "what old tasks use is frozen, and all other weights belong to none"),
        ("a-connector", {"stability": "projected"}, "already has its network for the new task"),
        ("afec-connector", {"stability": "projected"}, "already has its network for the new task"),
    ],
)
def test_a_variant_without_a_meaning_says_why(name, settings, reason) -> None:
    with pytest.raises(MethodError, match=f"{name} has no meaning: .*{reason}"):
        make_method(name, **settings)


@pytest.mark.parametrize("name", ["a-a-lwf", "afec-a-ewc", "a-lwf+ancl", "lwf+afec+ancl"])
def test_a_variant_of_a_variant_is_refused(name) -> None:
    with pytest.raises(MethodError, match="There is no method"):
        make_method(name)


@pytest.mark.parametrize("over", ["auto", "own_task"])
@pytest.mark.parametrize("task_aware", [True, False], ids=["til", "cil"])
def test_joint_learns_from_the_images_of_all_tasks(over, task_aware, lab) -> None:
    training = replace(lab.setting().training, epochs=20, schedule="constant")
    setting = lab.setting(training=training, task_aware=task_aware)

    learned = lab.learn(make_method("joint", loss_over=over), setting)

    assert min(learned.entry("evaluate", 2).meta["taw"]) > 0.9


# -- classes that come again ---------------------------------------------------------------------

NEW_ROWS = ("lucir", "podnet", "aanets-lucir")
NOT_AGAIN = {
    "dmc": "would both speak for",
    "lucir": "leaves rows of known classes alone",
    "podnet": "leaves rows of known classes alone",
    "aanets-lucir": "leaves rows of known classes alone",
    "ccgn": "path of a known class",
    "der": "extractors of earlier tasks rest",
}
LEARNING = [name for name in NAMES if base_of(name) not in ("dmc", "der", "ccgn")]


def again_method(name: str, **settings: Any) -> Any:
    """A method whose old rows learn."""
    rows = {"train_old_rows": True} if base_of(name) in NEW_ROWS else {}
    return method(name, **rows, **settings)


def again_tasks(lab: Any) -> Any:
    """Two new classes and a known one, then known ones alone, then two of each."""
    return lab.tasks(scenario="cir", tasks=None, classes="2,2,0,2", per_class=6)


@pytest.fixture(scope="module")
def shared() -> MemoryStore:
    """Methods share stages, and so do these tests."""
    return MemoryStore()


@pytest.mark.parametrize("name", LEARNING)
def test_every_method_learns_them_with_the_same_bits(name, lab, shared) -> None:
    setting = lab.setting(network(name, lab), task_aware=False)

    first = lab.learn(again_method(name), setting, again_tasks(lab), shared)
    stopped = MemoryStore()
    for stage in first.stages:
        if stage.task < 3:
            stopped.save(stage.key, first.entries[stage.key])
    again = lab.learn(again_method(name), setting, again_tasks(lab), stopped)

    assert same(first.final, again.final)
    assert all(tensor.isfinite().all() for tensor in first.final.values())
    rows = [first.entry("evaluate", index).meta["tag"] for index in range(4)]
    assert [len(row) for row in rows] == [1, 2, 2, 3]


@pytest.mark.parametrize("name", ["finetune", "a-lwf", "a-ewc", "afec-ewc", "a-icarl", "bic", "wa"])
def test_with_the_task_known_too(name, lab, shared) -> None:
    setting = lab.setting(network(name, lab), task_aware=True)

    known, unknown = (
        lab.learn(again_method(name), replace(setting, task_aware=each), again_tasks(lab), shared)
        for each in (True, False)
    )

    assert all(tensor.isfinite().all() for tensor in known.final.values())
    assert not same(known.final, unknown.final)


@pytest.mark.parametrize("name", VARIANTS)
def test_again_zero_lamb_a_is_the_base_method(name, lab, shared) -> None:
    setting, stream = lab.setting(network(name, lab), task_aware=False), again_tasks(lab)[:3]
    fitted = lab.fitted(again_method(name), setting)
    none, base = (
        plan(each, stream, fitted)
        for each in (again_method(name, lamb_a=0), again_method(base_of(name)))
    )

    assert [s.key for s in none] == [s.key for s in base]
    plain = lab.learn(again_method(base_of(name)), setting, stream, shared)
    rule = lab.learn(forced(again_method(name)), setting, stream, shared)
    assert same(plain.final, rule.final)


@pytest.mark.parametrize("name", [n for n in NAMES if base_of(n) in NOT_AGAIN])
def test_some_are_refused_with_the_reason(name) -> None:
    problems = make_method(name).problems("cir", make_method(name).memory, 4)

    assert len(problems) == 1
    assert NOT_AGAIN[base_of(name)] in problems[0]
    assert ("train_old_rows" in problems[0]) is (base_of(name) in NEW_ROWS)
    if base_of(name) in NEW_ROWS:
        assert again_method(name).problems("cir", again_method(name).memory, 4) == []


def test_no_other_method_is_refused() -> None:
    assert {n for n in METHODS if make_method(n).why_once} == {*NOT_AGAIN}
    assert "counts new classes" in make_method("connector", ratio="classes").why_once


def test_without_repetition_there_is_nothing_of_it_in_a_key(lab) -> None:
    bic = method("a-bic")
    history = plan(bic, lab.tasks(), lab.fitted(bic, lab.setting()))[-1].parts.history

    assert history.key_description() == {
        "is": "ClassHistory",
        "tasks": [[0, 2], [2, 4], [4, 6]],
    }
    again = plan(method("lwf"), again_tasks(lab), lab.setting())[-1].parts.history
    assert again.key_description()["present"] == list(again_tasks(lab)[-1].present)
    assert torch.tensor(again.present).max() == 5
