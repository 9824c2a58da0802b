"""An Ω held to stored answers, and to an auxiliary network: DER++ with ANCL and AFEC."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Events, Learner, Memory, Method, MethodError, Store, Training, make_method, search
from ancl.extend import (
    Anchor,
    Balance,
    CrossEntropy,
    LogitDistance,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Replayed,
    Rule,
    Step,
    StoredLogits,
    Term,
    anchor_from,
    architecture,
)
from tests.lab import (
    Batches,
    Epoch,
    Fit,
    Lfl,
    ReplayStream,
    Samples,
    Stage,
    View,
    digits,
    generator,
    patch_part,
    plan,
)

FILE = f"{Path(__file__).parents[2] / 'examples/dark_replay.py'}:dark_replay"
NAMES = (FILE, f"a-{FILE}", f"afec-{FILE}")
IDS = ("plain", "ancl", "afec")
NAN = float("nan")
TASKS = (slice(0, 2), slice(2, 4))
SHORT = Training(epochs=2, lr=0.1, lr_first=0.1, batch_size=16, schedule="constant")
STEP = replace(SHORT, momentum=0.0, weight_decay=0.0, clip=None, epochs=1)
MEMORY = Memory(per_class=3, batch=4)
LAMB, BETA, LAMB_A, RHO = 0.3, 0.7, 0.4, 0.5


# -- formulas --------------------------------------------------------------------------------


def step_of(logits: Tensor, **options: Any) -> Step:
    out = Output(logits, torch.zeros(len(logits), 0))
    y = torch.zeros(len(logits), dtype=torch.long)
    return Step(torch.zeros(len(logits), 1), y, out, {}, (slice(0, 4), slice(4, 6)), **options)


@pytest.mark.parametrize(
    ("classes", "expected"), [(slice(0, 6), 0.541667), (slice(2, 4), 0.5625)], ids=["all", "two"]
)
def test_the_distance_to_a_network_is_the_mean_of_squares(classes: slice, expected: float) -> None:
    z = torch.tensor([[2, 1, 0, -1, 0.5, 0], [0, 1, 2, 3, -1, 0]]).requires_grad_()
    near = torch.tensor([[1, 0, 0.5, -1, 0, 0], [0, 0, 1, 4, 0, 0]])
    value = LogitDistance().penalty(step_of(z), anchor_from(lambda x: near, classes))
    value.backward()

    # Squares: 1 1 .25 0 .25 0 and 0 1 1 1 1 0; of columns 2 and 3: .25 0 and 1 1.
    assert value.item() == pytest.approx(expected, abs=1e-6)
    wanted = torch.zeros(2, 6)
    count = 2 * (classes.stop - classes.start)
    wanted[:, classes] = (2 * (z - near) / count)[:, classes].detach()
    torch.testing.assert_close(z.grad, wanted)


def test_the_distance_to_stored_answers_is_over_the_columns_known_then() -> None:
    z = torch.tensor([[1, 2, 0, 0.5, 0, 0], [0, 0, 1, 0, 2, 1], [3, 0, 1, -1, 0, 0.5]])
    z.requires_grad_()
    stored = torch.tensor([[0.5, 1.5, NAN, NAN], [0, 0.5, 0.5, 0], [NAN] * 4])
    anchor = Anchor(slice(0, 4), stored=True)
    value = LogitDistance().penalty(step_of(z, extra={"logits": stored}), anchor)
    value.backward()

    # .5/2 and .5/4, and nothing of an image of which nothing was stored, over three images.
    assert value.item() == pytest.approx((0.25 + 0.125) / 3)
    wanted = torch.zeros(3, 6)
    wanted[0, :2] = 2 * 0.5 / (2 * 3)
    wanted[1, 1:3] = torch.tensor([-1, 1]) / (4 * 3)
    torch.testing.assert_close(z.grad, wanted)


# -- the loss of a step, written from the equations ------------------------------------------


def conv_network(seed: int) -> Network:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    return architecture(nn.Sequential(*layers, nn.Flatten()), (1, 6, 6)).build([2, 2])


def pictures(count: int, first: int, size: int) -> Batches:
    draw = torch.Generator().manual_seed(first)
    x = torch.randint(0, 256, (count, 6, 6, 1), generator=draw, dtype=torch.uint8)
    return Batches(Samples(x, first + torch.arange(count) % 2), size, None, "flip")


STORED = torch.arange(22.0).reshape(11, 2) / 9
STORED[3, 1] = NAN


def learning(
    lamb_a: float | Balance | None, training: Training = STEP, count: int = 8, replayed: int = 5
) -> Fit:
    """DER++ on eight images of the task and five of the memory, with an auxiliary network."""
    method, near = make_method(FILE, lamb=LAMB, beta=BETA), conv_network(1)
    terms = [PenaltyTerm("old", LAMB, LogitDistance(), Anchor(TASKS[0], stored=True))]
    if lamb_a is not None:
        anchor = anchor_from(near, TASKS[1])
        terms.append(PenaltyTerm("auxiliary", lamb_a, LogitDistance(), anchor))
    fit = Fit(
        conv_network(0),
        Objective(method.task_loss, terms, extras=method.extras),
        pictures(count, 2, 8),
        pictures(6, 2, 8),
        View(TASKS, task_aware=False, rehearses=True),
        training,
        (0, 1, "main"),
    )
    fit.replay = ReplayStream(pictures(11, 0, replayed), {"logits": STORED})
    return fit


def first_batches(replayed: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Images and labels of the task's first batch and of its replay batch, and what was stored."""
    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    again, index = pictures(11, 0, replayed).drawn(generator(0, 1, "main", "replay", 0))
    return batch.x, batch.y, again.x, again.y, STORED[index]


def entropy(row: Tensor, label: int) -> Tensor:
    """−log softmax, an exponential at a time."""
    return sum((value - row[label]).exp() for value in row).log()


def squares(ours: Tensor, theirs: Tensor, columns: range) -> Tensor:
    """The mean square of one image, a column at a time, over those that are there."""
    there = [j for j in columns if not theirs[j].isnan()]
    return sum((ours[j] - theirs[j]) ** 2 for j in there) / len(there)


def test_a_step_is_that_of_the_equations() -> None:
    fit, network, near = learning(LAMB_A), conv_network(0).train(), conv_network(1).eval()
    epoch = next(fit)

    x, y, again, labels, stored = first_batches()
    z = network(torch.cat([x, again])).logits
    with torch.no_grad():
        targets = near(x).logits
    b, m = len(x), len(again)
    terms = {
        "task": sum(entropy(z[i], int(y[i])) for i in range(b)) / b,
        "replay": BETA * sum(entropy(z[b + i], int(labels[i])) for i in range(m)) / m,
        "old": LAMB * sum(squares(z[b + i], stored[i], range(2)) for i in range(m)) / m,
        "auxiliary": LAMB_A * sum(squares(z[i], targets[i], range(2, 4)) for i in range(b)) / b,
    }
    sum(terms.values()).backward()

    assert epoch.train == pytest.approx({n: term.item() for n, term in terms.items()}, rel=1e-5)
    assert set(epoch.val) == {"task", "auxiliary"}  # no replay batch in validation
    for name, weight in network.named_parameters():
        after = fit.network.get_parameter(name)
        torch.testing.assert_close(after, weight - 0.1 * weight.grad, msg=name)


def image_forces(features: Tensor, penalty: Callable[[Tensor, int], Tensor]) -> float:
    """The root mean square over images of ‖∂Ω_i/∂z_i‖, an image at a time."""
    total = 0.0
    for i, row in enumerate(features):
        z = row.detach().clone().requires_grad_()
        [slope] = torch.autograd.grad(penalty(z, i), z)
        total += float(slope.square().sum())
    return (total / len(features)) ** 0.5


@pytest.mark.parametrize("replayed", [2, 5, 11])
def test_a_balance_compares_the_forces_of_both_batches_per_image(replayed: int) -> None:
    fit, network, near = learning(Balance(RHO), replayed=replayed), conv_network(0), conv_network(1)
    epoch = next(fit)

    x, _, again, _, stored = first_batches(replayed)
    features = network.train()(torch.cat([x, again])).features
    targets = near.eval()(x).logits.detach()

    def logits(z: Tensor) -> Tensor:
        return network.head(z.unsqueeze(0))[0]

    old = image_forces(features[8:], lambda z, i: squares(logits(z), stored[i], range(2)))
    new = image_forces(features[:8], lambda z, i: squares(logits(z), targets[i], range(2, 4)))

    # One step: both means are 0.05 of it.
    assert epoch.lambs["lamb_a"] == pytest.approx(RHO * LAMB * old / new, rel=1e-4)


def test_a_step_without_a_replay_batch_leaves_a_balance_as_it_was() -> None:
    fit = learning(Balance(RHO))
    next(fit)
    before = fit.lambs["auxiliary"]
    fit.training, fit.finished, fit.replay = replace(STEP, epochs=2), False, None
    epoch = next(fit)

    assert set(epoch.train) == {"task", "auxiliary"}
    assert fit.lambs["auxiliary"] == before > 0


def test_a_term_of_weight_0_changes_no_bit() -> None:
    training = replace(SHORT, epochs=3)
    plain, zero, pulled = (learning(w, training, count=20) for w in (None, 0.0, LAMB_A))
    for fit in (plain, zero, pulled):
        list(fit)

    ours, theirs = plain.tensors(), zero.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not all(torch.equal(ours[name], value) for name, value in pulled.tensors().items())


# -- whole streams ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Nothing(Rule):
    """A rule that yields 0.0: the term is there and weighs nothing."""

    def at(self, old: int, new: int) -> float:
        return 0.0


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def scenario_of(lab: Any, scenario: str) -> tuple[Any, Any]:
    tasks = lab.tasks()
    if scenario == "dil":
        tasks = lab.tasks(scenario="dil", domains="permutation", per_class=8)
    return lab.setting(task_aware=scenario == "til", memory=MEMORY), tasks


@pytest.mark.parametrize("scenario", ["til", "cil", "dil"])
@pytest.mark.parametrize("name", NAMES, ids=IDS)
def test_every_variant_learns_in_every_scenario(name: str, scenario: str, lab) -> None:
    setting, tasks = scenario_of(lab, scenario)
    method = make_method(name)
    first, again = (lab.learn(method, setting, tasks) for _ in range(2))
    other = lab.learn(method, replace(setting, seed=1), tasks)

    assert same(first.final, again.final)
    assert not same(first.final, other.final)
    logs = [first.entry("main", task).meta["log"] for task in range(3)]
    terms = [{n for row in log if row["role"] == "main" for n in row["train"]} for log in logs]
    second = {"task", "old", "replay"} | ({"auxiliary"} if name != FILE else set())
    assert terms == [{"task"}, second, second]


@pytest.mark.parametrize("scenario", ["til", "cil", "dil"])
@pytest.mark.parametrize("name", NAMES[1:], ids=IDS[1:])
def test_zero_lamb_a_is_the_plain_method(name: str, scenario: str, lab) -> None:
    setting, tasks = scenario_of(lab, scenario)
    made = make_method(name, lamb_a=5.0)
    assert made.auxiliary is not None
    forced = replace(made, auxiliary=replace(made.auxiliary, lamb_a=Nothing()))
    base, rule, pulled = (lab.learn(m, setting, tasks) for m in (make_method(FILE), forced, made))

    none = plan(make_method(name, lamb_a=0), tasks, setting)
    assert [stage.key for stage in none] == [stage.key for stage in base.stages]
    assert same(rule.final, base.final)
    assert not same(pulled.final, base.final)


def test_lamb_may_be_found_by_a_rule(lab) -> None:
    method = make_method(f"a-{FILE}", lamb="auto", lamb_a="balance:0.5")
    log = lab.learn(method, *scenario_of(lab, "cil")).entry("main", 2).meta["log"]

    assert all(row["lambs"]["lamb"] > 0 and row["lambs"]["lamb_a"] > 0 for row in log)


class Stopping(Events):
    """Raises as Ctrl-C does when the n-th epoch ends."""

    def __init__(self, at: int) -> None:
        self.left = at

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", NAMES, ids=IDS)
def test_interrupted_again_and_again_it_ends_in_the_same_bits(
    name: str, lab, tmp_path: Path, monkeypatch
) -> None:
    patch_part(monkeypatch, "CHECKPOINT_SECONDS", 0.0)
    training = replace(SHORT, epochs=4)
    setting = lab.setting(lab.conv(), training, task_aware=False, memory=MEMORY)
    expected, stops = lab.learn(make_method(name), setting), 0
    while True:
        try:
            events = Stopping(3)
            resumed = lab.learn(make_method(name), setting, store=Store(tmp_path), reporter=events)
            break
        except KeyboardInterrupt:
            stops += 1

    assert stops >= 3
    for stage in expected.stages:
        ours, theirs = (each.entries[stage.key].tensors for each in (resumed, expected))
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[key], rtol=0, atol=0, equal_nan=True)


# -- doors -----------------------------------------------------------------------------------


def part(*classes: int) -> Samples:
    samples = digits().train
    return samples.take(torch.cat([samples.of_class(n)[:12] for n in classes]))


def taught(name: str, tasks: int) -> Learner:
    learner = Learner(
        name,
        "mlp",
        training=SHORT,
        network_options={"hidden": (8,)},
        memory=MEMORY,
        events=Events(),
    )
    for task in range(tasks):
        samples = part(2 * task, 2 * task + 1)
        learner.learn(samples.x, samples.y)
    return learner


@pytest.mark.parametrize("name", NAMES[1:], ids=IDS[1:])
def test_a_learner_is_saved_loaded_and_taught_on(name: str, tmp_path: Path) -> None:
    taught(name, 2).save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved", method=name, events=Events())
    more, returning, x = part(4, 5), part(0, 3), digits().test.x[:50]
    loaded.learn(more.x, more.y)
    whole = taught(name, 3)

    assert torch.equal(loaded.scores(x), whole.scores(x))
    for learner in (loaded, whole):
        learner.learn(returning.x, returning.y)  # known classes again
    assert torch.equal(loaded.scores(x), whole.scores(x))


def test_a_search_finds_both_numbers(tmp_path: Path) -> None:
    settings = {
        "data.scenario": "cil",
        "data.tasks": 2,
        "data.per_class": 12,
        "memory.per_class": 3,
        "memory.batch": 8,
        "training.epochs": 1,
        "threads": 1,
    }
    found = search(
        f"a-{FILE}",
        "digits/5",
        lamb_grid=[0.1, 1],
        lamb_a_grid=[0.5, 2],
        settings=settings,
        runs=tmp_path,
    )

    assert [trial["method"] for trial in found.trials] == [FILE, FILE, f"a-{FILE}", f"a-{FILE}"]
    assert [trial["lamb"] for trial in found.trials[:2]] == [0.1, 1.0]
    assert [trial["lamb_a"] for trial in found.trials[2:]] == [0.5, 2.0]
    assert found.chosen["lamb"] in (0.1, 1.0)
    assert found.chosen["lamb_a"] in (0.5, 2.0)


def test_stored_answers_that_nothing_records_are_refused() -> None:
    with pytest.raises(MethodError, match="reads features, and its memory records none"):
        Method("own", old=Term(Lfl(), 1.0, stored=True), records=(StoredLogits(),))
    with pytest.raises(MethodError, match="reads logits, and its memory records none"):
        Method("own", old=Term(LogitDistance(), 1.0, stored=True))


def test_without_stored_answers_only_the_replay_term_is_left(lab) -> None:
    again = Method("again", extras=(Replayed("replay", CrossEntropy(), 0.5),), memory=MEMORY)
    setting = lab.setting(task_aware=False, memory=MEMORY)

    assert same(
        lab.learn(make_method(FILE, lamb=0), setting).final, lab.learn(again, setting).final
    )
