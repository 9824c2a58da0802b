"""A replay stream beside the task's batches, what a memory records, and DER++ made of both."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ancl
from ancl import (
    AnclError,
    Events,
    Learner,
    Memory,
    Method,
    MethodError,
    SpecError,
    Training,
    load_run,
    make_method,
)
from ancl.extend import (
    Anchor,
    CrossEntropy,
    LogitDistance,
    Objective,
    Output,
    PenaltyTerm,
    Record,
    Regularizer,
    Replayed,
    Step,
    StoredLogits,
    Term,
    architecture,
)
from tests.lab import (
    Batches,
    Exemplars,
    Fit,
    ReplayStream,
    Samples,
    StageResult,
    View,
    digits,
    generator,
    patch_part,
    plan,
    strip_prefix,
)
from tests.saved_learners import read_saved, write_saved

FILE = f"{Path(__file__).parents[2] / 'examples/dark_replay.py'}:dark_replay"
NAN = float("nan")
TASKS = (slice(0, 2), slice(2, 4), slice(4, 6))
Z = torch.tensor([[2, 1, 0, -1, 0.5, 0], [0, 1, 2, 3, -1, 0]])
M = torch.tensor([[1, 2, 0, 0.5, 0, 0], [0, 0, 1, 0, 2, 1], [3, 0, 1, -1, 0, 0.5]])
STORED = torch.tensor([[0.5, 1.5, NAN, NAN], [0, 0.5, 0.5, 0], [2.5, 0, 0.5, -0.5]])
SHORT = Training(epochs=2, lr=0.1, lr_first=0.1, batch_size=16, schedule="constant")


def stored_term(method: Method) -> list[PenaltyTerm]:
    """The old term of a method, as a task with two earlier ones makes it."""
    term = method.old
    if not term or not term.lamb:
        return []
    anchor = Anchor(slice(0, 4), stored=term.stored)
    return [PenaltyTerm("old", term.lamb, term.regularizer, anchor)]


def by_hand(lamb: float, beta: float) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """DER++'s loss of two task images and three replayed ones, and the gradients of logits."""
    z, m = Z.clone().requires_grad_(), M.clone().requires_grad_()
    empty = torch.zeros(3, 0)
    replay = Step(
        torch.zeros(3, 1),
        torch.tensor([0, 1, 2]),
        Output(m, empty),
        {},
        TASKS,
        rehearses=True,
        extra={"logits": STORED},
    )
    step = Step(
        torch.zeros(2, 1),
        torch.tensor([2, 3]),
        Output(z, empty[:2]),
        {},
        TASKS,
        rehearses=True,
        replay=replay,
    )
    method = make_method(FILE, lamb=lamb, beta=beta)
    terms = Objective(method.task_loss, stored_term(method), extras=method.extras).answers(step)
    sum(terms.values()).backward()
    assert z.grad is not None
    return terms, z.grad, torch.zeros_like(m) if m.grad is None else m.grad


def test_the_loss_of_one_batch_by_hand() -> None:
    terms, slope, replayed = by_hand(0.1, 0.5)

    # Squares a row over the 2, 4 and 4 known columns: .5/2, .5/4 and .75/4, of which the mean.
    found = {name: term.item() for name, term in terms.items()}
    expected = {"task": 1.565489, "old": 0.1 * 0.1875, "replay": 0.5 * 2.247482}
    assert found == pytest.approx(expected, abs=1e-6)
    wanted = (Z.softmax(1) - F.one_hot(torch.tensor([2, 3]), 6)) / 2
    torch.testing.assert_close(slope, wanted)
    entropy = (M.softmax(1) - F.one_hot(torch.tensor([0, 1, 2]), 6)) / 3
    near = torch.zeros(3, 6)
    near[0, :2] = 2 * 0.1 * 0.5 / (3 * 2)
    near[1, :4] = 2 * 0.1 * torch.tensor([0, -0.5, 0.5, 0]) / (3 * 4)
    near[2, :4] = 2 * 0.1 * torch.tensor([0.5, 0, 0.5, -0.5]) / (3 * 4)
    torch.testing.assert_close(replayed, near + 0.5 * entropy)


def test_a_term_of_weight_0_is_left_out() -> None:
    terms, _, replayed = by_hand(0, 0)

    assert set(terms) == {"task"}
    assert not replayed.any()


# -- what a memory records -------------------------------------------------------------------


def exemplars(count: int, task: int, width: int | None, start: float = 0) -> Exemplars:
    y = torch.arange(count) % 2 + 2 * task
    samples = Samples(torch.full((count, 3), float(task)), y)
    extra = {}
    if width is not None:
        extra["logits"] = torch.arange(float(count * width)).reshape(count, width) + start
    held = torch.arange(count) >= count - 1
    return Exemplars(samples, torch.full((count,), task), held, extra)


def test_what_was_recorded_stays_beside_its_image() -> None:
    joined = Exemplars.joined(
        [exemplars(4, 0, 2), exemplars(3, 1, 4, 100.0), exemplars(1, 2, None)]
    )
    rows = joined.extra["logits"]

    assert rows[:4, :2].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert rows[:4, 2:].isnan().all()
    assert rows[4:7].tolist() == [[100 + 4 * i + j for j in range(4)] for i in range(3)]
    assert rows[7].isnan().all()
    back = Exemplars.of(joined.tensors())
    assert set(joined.tensors()) == {"x", "y", "task", "held", "extra/logits"}
    torch.testing.assert_close(back.extra["logits"], rows, equal_nan=True)
    first = joined.of_classes([0, 2], inside=True).truncated(1, 1)
    assert first.extra["logits"][:, 0].tolist() == [0, 100, 108]
    assert joined.marked(held=True).extra["logits"][:2, 0].tolist() == [6, 108]
    assert set(exemplars(2, 0, None).tensors()) == {"x", "y", "task", "held"}


def test_rows_of_any_shape_are_joined() -> None:
    parts = [
        replace(exemplars(2, 0, None), extra={"one": torch.ones(2), "map": torch.ones(2, 1, 3)}),
        replace(exemplars(1, 1, None), extra={"map": torch.full((1, 2, 2), 5.0)}),
    ]
    joined = Exemplars.joined(parts).extra

    torch.testing.assert_close(joined["one"], torch.tensor([1, 1, NAN]), equal_nan=True)
    assert joined["map"].shape == (3, 2, 3)
    assert joined["map"][2].nan_to_num(-1).tolist() == [[5, 5, -1], [5, 5, -1]]


def test_the_memory_holds_the_logits_of_the_network_that_stored_them(lab) -> None:
    method = make_method(FILE)
    setting = lab.setting(task_aware=False, memory=Memory(per_class=3, batch=4))
    learned = lab.learn(method, setting)

    first, last = (
        Exemplars.of(strip_prefix("memory", learned.entry("memory", task).tensors))
        for task in (0, 2)
    )
    sizes = [2, 2, 2]
    for task in range(3):
        network = setting.architecture.build(sizes[: task + 1]).to("cpu")
        network.load(strip_prefix("network", learned.network(task)))
        images = last.take((last.task == task).nonzero().squeeze(1))
        answer = setting.images.answering(network, torch.device("cpu"))(images.samples).logits
        known = 2 * (task + 1)
        assert len(images.task) == 6
        torch.testing.assert_close(images.extra["logits"][:, :known], answer)
        assert images.extra["logits"][:, known:].isnan().all()
    assert torch.equal(first.extra["logits"], last.extra["logits"][:6, :2])


@dataclass(frozen=True)
class Whole(Record):
    """Not a row of floats for each image."""

    name = "whole"
    kind: str = "rows"

    def of(self, output: Output) -> Tensor:
        return output.logits[:-1] if self.kind == "rows" else output.logits.argmax(dim=1)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ((Whole(),), "'whole' is of shape"),
        ((Whole("labels"),), "torch.int64"),
        ((StoredLogits(), StoredLogits()), "two of one name"),
    ],
)
def test_a_wrong_record_is_refused(records, message: str, lab) -> None:
    setting = lab.setting(memory=Memory(per_class=2))

    with pytest.raises(MethodError, match=message):
        lab.learn(Method("own", memory=Memory(per_class=2), records=records), setting)


def keys(lab, method: Method, **memory: Any) -> dict[str, str]:
    setting = lab.setting(memory=Memory(per_class=2, **memory))
    stages = plan(method, lab.tasks()[:2], setting)
    return {f"{stage.name} {stage.task}": stage.key for stage in stages}


def test_keys_hold_the_batch_and_the_records_where_they_decide(lab) -> None:
    plain = Method("own", extras=(Replayed("replay", CrossEntropy()),))
    both = replace(plain, records=(StoredLogits(),))
    small, large, recorded = (
        keys(lab, method, batch=size) for method, size in ((plain, 4), (plain, 8), (both, 4))
    )

    assert {n for n in small if small[n] != large[n]} == {"main 1", "evaluate 1", "memory 1"}
    changed = {n for n in small if small[n] != recorded[n]}
    assert changed == {"memory 0", "main 1", "evaluate 1", "memory 1"}


# -- the replay stream -----------------------------------------------------------------------


def conv_network() -> Any:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    return architecture(nn.Sequential(*layers, nn.Flatten()), (1, 6, 6)).build([2, 2])


def pictures(count: int, first: int, size: int) -> Batches:
    draw = torch.Generator().manual_seed(first)
    x = torch.randint(0, 256, (count, 6, 6, 1), generator=draw, dtype=torch.uint8)
    return Batches(Samples(x, first + torch.arange(count) % 2), size, None, "flip")


def replaying(training: Training = SHORT, count: int = 20) -> Fit:
    method = make_method(FILE, lamb=0.3, beta=0.7)
    anchor = Anchor(TASKS[0], stored=True)
    old = PenaltyTerm("old", 0.3, LogitDistance(), anchor)
    fit = Fit(
        conv_network(),
        Objective(method.task_loss, [old], extras=method.extras),
        pictures(count, 2, 8),
        pictures(6, 2, 8),
        View(TASKS[:2], task_aware=False, rehearses=True),
        training,
        (0, 1, "main"),
    )
    fit.replay = ReplayStream(pictures(11, 0, 5), {"logits": torch.arange(22.0).reshape(11, 2) / 9})
    return fit


def test_a_step_passes_both_batches_together() -> None:
    training = replace(SHORT, momentum=0.0, weight_decay=0.0, clip=None, epochs=1)
    fit, network = replaying(training, count=8), conv_network().train()
    epoch = next(fit)

    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    again, index = pictures(11, 0, 5).drawn(generator(0, 1, "main", "replay", 0))
    logits = network(torch.cat([batch.x, again.x])).logits
    stored = (torch.arange(22.0).reshape(11, 2) / 9)[index]
    terms = {
        "task": F.cross_entropy(logits[:8], batch.y),
        "old": 0.3 * (logits[8:, :2] - stored).square().mean(),
        "replay": 0.7 * F.cross_entropy(logits[8:], again.y),
    }
    sum(terms.values()).backward()

    assert len(set(index.tolist())) == len(again.y) == 5
    assert epoch.train == pytest.approx({name: term.item() for name, term in terms.items()})
    assert set(epoch.val) == {"task"}
    for name, weight in network.named_parameters():
        after = fit.network.get_parameter(name)
        torch.testing.assert_close(after, weight - 0.1 * weight.grad, msg=name)
    for name, value in network.named_buffers():
        torch.testing.assert_close(fit.network.get_buffer(name), value)


def test_every_batch_of_every_epoch_has_a_draw_of_its_own() -> None:
    stream = pictures(11, 0, 5)
    draws = generator(0, 1, "main", "replay", 0)
    one, two = (stream.drawn(draws)[1].tolist() for _ in range(2))
    again = stream.drawn(generator(0, 1, "main", "replay", 0))[1].tolist()
    other = stream.drawn(generator(0, 1, "main", "replay", 1))[1].tolist()

    assert one == again
    assert len({tuple(each) for each in (one, two, other)}) == 3
    few = replace(stream, size=40).drawn(draws)[1]
    assert few.sort().values.tolist() == list(range(11))


def test_fixed_versions_are_replayed_too() -> None:
    stream = pictures(11, 0, 5).enlarged(torch.Generator().manual_seed(0))
    batch, index = stream.drawn(torch.Generator().manual_seed(1))
    versions = [
        stream.versions.of(stream.samples.x[index], index, torch.full((5,), number))
        for number in range(12)
    ]

    for row, image in enumerate(batch.x):
        shown = [v[row].permute(2, 0, 1).float() / 255 for v in versions]
        assert any(torch.allclose(image, version) for version in shown)


def test_a_training_goes_on_where_it_was_saved_to_the_bit() -> None:
    training = replace(SHORT, epochs=4)
    whole, first, second = (replaying(training) for _ in range(3))
    log = list(whole)
    for _ in range(2):
        next(first)
    second.restore(first.state())
    rest = list(second)

    assert [epoch.train for epoch in rest] == [epoch.train for epoch in log[2:]]
    for name, value in whole.tensors().items():
        assert torch.equal(value, second.tensors()[name]), name


@dataclass(frozen=True)
class Seen(Regularizer):
    """An Ω that asks the old network about the replay batch."""

    reads = "logits"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        if step.replay is None:
            return step.out.logits.sum() * 0
        assert step.replay.exemplars is not None
        assert step.replay.exemplars.all()
        assert step.exemplars is None
        assert bool((step.y >= step.current.start).all())
        assert bool((step.replay.y < step.current.start).all())
        old = step.replay.of(anchor).logits[:, anchor.classes]
        return (step.replay.out.logits[:, anchor.classes] - old).square().mean()


def test_an_omega_reads_the_replay_batch(lab) -> None:
    memory = Memory(per_class=3, batch=4)
    method = Method("own", old=Term(Seen(), 2.0), memory=memory)
    learned = lab.learn(method, lab.setting(task_aware=False, memory=memory))

    log = learned.entry("main", 2).meta["log"]
    assert all(epoch["train"]["old"] > 0 for epoch in log)
    assert "old" not in learned.entry("main", 0).meta["log"][-1]["train"]


@pytest.mark.parametrize("task_aware", [True, False], ids=["til", "cil"])
def test_a_frozen_backbone_is_asked_once(task_aware: bool, lab, monkeypatch) -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    memory = Memory(per_class=3, batch=4)
    net = architecture(module.requires_grad_(False), (1, 6, 6))
    method = Method("own", extras=(Replayed("replay", CrossEntropy()),), memory=memory)
    setting = lab.setting(net, task_aware=task_aware, memory=memory)

    kept = lab.learn(method, setting)
    patch_part(monkeypatch, "keeps_features", lambda method: False)
    plain = lab.learn(method, setting)

    assert "memory/features" in kept.entry("memory", 0).tensors
    for name, value in plain.final.items():
        torch.testing.assert_close(kept.final[name], value, rtol=1e-4, atol=1e-5)


# -- doors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "memory", "message"),
    [
        (FILE, {"batch": None}, "learns from replay batches, and there are none"),
        (FILE, {"per_class": None}, "learns from replay batches, and there are none"),
        (FILE, {"batch": 0}, "memory.batch"),
        ("lwf", {"per_class": 3, "batch": 8}, "reads no replay batches"),
        ("der", {"batch": 8}, "reads no replay batches"),
    ],
)
def test_a_batch_that_nothing_reads_or_that_lacks_is_refused(method, memory, message) -> None:
    settings = {f"memory.{name}": value for name, value in memory.items()}

    with pytest.raises(SpecError, match=message):
        ancl.specs([method], "digits/5", settings=settings)


def part(*classes: int) -> Samples:
    samples = digits().train
    return samples.take(torch.cat([samples.of_class(n)[:12] for n in classes]))


def taught(tasks: int = 2) -> Learner:
    learner = Learner(
        FILE,
        "mlp",
        training=SHORT,
        network_options={"hidden": (8,)},
        memory=Memory(per_class=3, batch=4),
        events=Events(),
    )
    for task in range(tasks):
        samples = part(2 * task, 2 * task + 1)
        learner.learn(samples.x, samples.y)
    return learner


def test_a_learner_is_saved_loaded_and_taught_on(tmp_path: Path) -> None:
    learner, more, x = taught(), part(4, 5), digits().test.x[:50]
    learner.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved", method=FILE, events=Events())
    for each in (learner, loaded):
        each.learn(more.x, more.y)

    assert torch.equal(loaded.scores(x), learner.scores(x))
    assert torch.equal(loaded.scores(x), taught(3).scores(x))
    loaded.save(tmp_path / "again")
    rows = read_saved(tmp_path / "again").tensors["memory/memory/extra/logits"]
    assert rows.shape == (18, 6)


@pytest.mark.parametrize("forged", ["shortened", "whole", "missing", "other"])
def test_forged_records_are_refused(forged: str, tmp_path: Path) -> None:
    place = tmp_path / "saved"
    taught().save(place)
    entry = read_saved(place)
    [name] = [name for name in entry.tensors if name.endswith("extra/logits")]
    tensors = dict(entry.tensors)
    rows = tensors.pop(name)
    if forged == "shortened":
        tensors[name] = rows[:-1]
    elif forged == "whole":
        tensors[name] = rows.nan_to_num().long()
    elif forged == "other":
        tensors[f"{name}2"] = rows
    write_saved(tmp_path / "forged", StageResult(tensors, entry.meta))

    with pytest.raises(AnclError, match="record"):
        Learner.load(tmp_path / "forged", method=FILE)


def test_a_run_is_found_again_and_learned_on(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "network": {"name": "mlp", "hidden": [16]},
        "data": {"scenario": "cil", "per_class": 20, "test_per_class": 10},
        "memory": {"per_class": 4, "batch": 8},
        "training": {"epochs": 2},
        "threads": 1,
    }
    result = ancl.run(FILE, "digits/5", runs=tmp_path, **settings)
    alone = ancl.run(FILE, "digits/5", runs=None, **settings)

    assert alone.metrics == result.metrics
    assert result.spec.memory.batch == 8
    learner = load_run(next(tmp_path.glob("digits*")), method=FILE)
    samples = part(6, 7)
    learner.learn(samples.x, samples.y.tolist())  # known classes again, stored anew
    learner.save(tmp_path / "saved")
    tensors = read_saved(tmp_path / "saved").tensors
    rows, y = (tensors[f"memory/memory/{name}"] for name in ("extra/logits", "y"))
    known = [10 if label in (6, 7) else 2 * (label // 2 + 1) for label in y.tolist()]
    assert (~rows.isnan()).sum(dim=1).tolist() == known
