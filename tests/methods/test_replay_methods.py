"""Replay methods against numbers computed by hand, and slow versions written from equations."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ancl
from ancl import (
    Events,
    Learner,
    Memory,
    MethodError,
    SpecError,
    Store,
    Training,
    load_run,
    make_method,
)
from ancl.extend import (
    Anchor,
    CrossEntropy,
    LogitDistance,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Replayed,
    Step,
    architecture,
)
from tests.lab import (
    Batch,
    Batches,
    Exemplars,
    Fit,
    Interference,
    MethodRef,
    OpenCrossEntropy,
    PooledCrossEntropy,
    ProjectGradient,
    Reference,
    ReplayStream,
    Samples,
    View,
    digits,
    generator,
    patch_part,
    scheduled_rate,
    strip_prefix,
    translated,
)
from tests.saved_learners import read_saved

Z = torch.tensor([[2, 1, 0, -1, 0.5, 0], [0, 1, 2, 3, -1, 0]])
M = torch.tensor([[1, 2, 0, 0.5, 0, 0], [0, 0, 1, 0, 2, 1], [3, 0, 1, -1, 0, 0.5]])
S = torch.tensor([[0.5, 1.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 1, 0], [2.5, 0, 0.5, -0.5, 0, 0]])
TASKS = (slice(0, 2), slice(2, 4))
SHORT = Training(epochs=2, lr=0.1, lr_first=0.1, batch_size=16, schedule="constant")
STEP = replace(SHORT, momentum=0.0, weight_decay=0.0, epochs=1)


def out_of(logits: Tensor) -> Output:
    return Output(logits, torch.zeros(len(logits), 0))


def toy(stream: Tensor = Z, replay: Tensor = M, tasks: tuple[slice, ...] = TASKS) -> Step:
    """The batches of the hand-computed numbers: classes 2 and 3 are new."""
    x, labels = torch.zeros(3, 1), torch.tensor([0, 1, 2])
    marked = {"exemplars": torch.ones(3).bool(), "extra": {"logits": S}}
    again = Step(x, labels, out_of(replay), {}, tasks, **marked)
    return Step(x[:2], torch.tensor([2, 3]), out_of(stream), {}, tasks, replay=again)


# -- losses ----------------------------------------------------------------------------------


def total(name: str, step: Step, **settings: Any) -> Tensor:
    """The sum of all terms of a method's loss, whose head has all six classes from the start."""
    method = make_method(name, head="fixed", **settings)
    terms = []
    if method.old:
        anchor = Anchor(slice(0, 6), stored=True)
        terms = [PenaltyTerm("old", method.old.lamb, method.old.regularizer, anchor)]
    objective = Objective(method.task_loss, terms, extras=method.extras)
    return sum(objective.answers(step).values())


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("er", {}, 1.974685),
        ("er", {"mean": "separate"}, 3.812972),
        ("er-ace", {"opened": "batch"}, 2.560744),
        ("er-ace", {"opened": "task"}, 2.560744),  # the batch has all classes of the task
        ("dark-er", {"lamb": 0.1}, 1.565489 + 0.0236111),
        ("dark-er-pp", {}, 2.712842),
        ("mir", {}, 3.812972),
    ],
)
def test_losses_are_those_computed_by_hand(name: str, settings: Any, expected: float) -> None:
    assert total(name, toy(), **settings).item() == pytest.approx(expected, abs=2e-6)


def test_one_class_in_a_batch_has_no_loss_among_itself() -> None:
    logits = Z[:1].clone().requires_grad_()
    step = Step(torch.zeros(1, 1), torch.tensor([2]), out_of(logits), {}, TASKS)
    batch, task = OpenCrossEntropy("batch")(step), OpenCrossEntropy("task")(step)
    batch.backward()

    assert batch.item() == 0
    assert not logits.grad.any()
    assert task.item() == pytest.approx(0.313262, abs=1e-6)  # log(1 + e⁻¹): 0 against −1


def test_closed_classes_have_no_gradient() -> None:
    logits = Z.clone().requires_grad_()
    OpenCrossEntropy()(toy(logits)).backward()

    closed = [0, 1, 4, 5]
    assert torch.equal(logits.grad[:, closed], torch.zeros(2, 4))
    # Slowly: softmax over two columns, minus 1 for the own class, over two images.
    for row, label in ((0, 2), (1, 3)):
        for column in (2, 3):
            share = 1 / sum(math.exp(float(Z[row, c] - Z[row, column])) for c in (2, 3))
            expected = (share - (column == label)) / 2
            assert logits.grad[row, column].item() == pytest.approx(expected, abs=1e-6)


def test_classes_of_the_batch_are_open_whatever_the_task_is() -> None:
    step = toy()
    step.y = torch.tensor([0, 3])  # an old class came again

    opened = (0, 2, 3)
    expected = [
        math.log(sum(math.exp(float(Z[row, c] - Z[row, label])) for c in opened))
        for row, label in ((0, 0), (1, 3))
    ]
    assert OpenCrossEntropy()(step).item() == pytest.approx(sum(expected) / 2, abs=1e-6)


def test_without_a_replay_batch_the_pooled_loss_is_the_plain_one() -> None:
    step = toy()
    step.replay = None
    assert torch.equal(PooledCrossEntropy("seen")(step), CrossEntropy("seen")(step))


def test_the_gradient_of_stored_logits_is_that_of_the_equation() -> None:
    logits = M.clone().requires_grad_()
    (
        0.1 * LogitDistance().penalty(toy(replay=logits).replay, Anchor(slice(0, 6), stored=True))
    ).backward()

    expected = torch.zeros(3, 6)
    for i in range(3):
        for j in range(6):
            expected[i, j] = 2 * 0.1 * (M[i, j] - S[i, j]) / (3 * 6)
    torch.testing.assert_close(logits.grad, expected)
    assert logits.grad[0].tolist() == pytest.approx([0.005556] * 2 + [0, 0.005556, 0, 0], abs=1e-6)


# -- A-GEM -----------------------------------------------------------------------------------


def projected(g: list[list[float] | None], r: list[list[float] | None]) -> list[Any]:
    parameters = [nn.Parameter(torch.zeros(3)) for _ in g]
    for parameter, slope in zip(parameters, g, strict=True):
        parameter.grad = None if slope is None else torch.tensor(slope)
    ProjectGradient().against(parameters, [None if s is None else torch.tensor(s) for s in r])
    return [None if p.grad is None else p.grad.tolist() for p in parameters]


def test_a_gradient_is_projected_as_computed_by_hand() -> None:
    assert projected([[1, -2, 3.0]], [[-1, 1, 0.0]]) == [[-0.5, -0.5, 3]]
    assert projected([[1, 2, 3.0]], [[1, 1, 0.0]]) == [[1, 2, 3]]
    assert projected([[1, 2, 3.0]], [[0, 0, 0.0]]) == [[1, 2, 3]]
    # One vector of all weights: the first alone would not be projected.
    assert projected([[1, 0, 0.0], [0, -2, 0.0]], [[1, 0, 0.0], [0, 1, 0.0]]) == [
        *([1.5, 0, 0], [0, -1.5, 0]),
    ]
    # A weight without a gradient counts as 0, one that the reference does not read stays.
    assert projected([None, [0, -2, 0.0]], [[1, 0, 0.0], [0, 1, 0.0]]) == [[1, 0, 0], [0, -1, 0]]
    assert projected([[5, 0, 0.0], [0, -2, 0.0]], [None, [0, 1, 0.0]]) == [[5, 0, 0], [0, 0, 0]]


def conv_network(seed: int) -> Network:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    return architecture(nn.Sequential(*layers, nn.Flatten()), (1, 6, 6)).build([2, 2])


def pictures(count: int, first: int, size: int) -> Batches:
    draw = torch.Generator().manual_seed(first)
    x = torch.randint(0, 256, (count, 6, 6, 1), generator=draw, dtype=torch.uint8)
    return Batches(Samples(x, first + torch.arange(count) % 2), size, None, "flip")


def learning(extra: Any, constraint: Any = None, training: Training = STEP) -> Fit:
    fit = Fit(
        conv_network(0),
        Objective(CrossEntropy(), extras=(extra,)),
        pictures(8, 2, 8),
        None,
        View(TASKS, task_aware=False, rehearses=True),
        training,
        (0, 1, "main"),
        constraint=constraint,
    )
    fit.replay = ReplayStream(pictures(11, 0, 5), {})
    return fit


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["as it is", "against the memory"])
def test_a_step_of_agem_is_that_of_the_equations(sign: float) -> None:
    fit = learning(Reference("reference", CrossEntropy(), sign), ProjectGradient())
    epoch = next(fit)

    network = conv_network(0).train()
    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    again, _ = pictures(11, 0, 5).drawn(generator(0, 1, "main", "replay", 0))
    logits = network(torch.cat([batch.x, again.x])).logits
    parameters = list(network.parameters())
    losses = (F.cross_entropy(logits[:8], batch.y), sign * F.cross_entropy(logits[8:], again.y))
    g, r = (
        torch.cat([s.flatten() for s in torch.autograd.grad(loss, parameters, retain_graph=True)])
        for loss in losses
    )
    step = g - (g @ r) / (r @ r) * r if g @ r < 0 else g

    moved = torch.cat([p.flatten() for p in fit.network.parameters()])
    start = torch.cat([p.flatten() for p in parameters])
    torch.testing.assert_close(moved, start - 0.1 * step, rtol=1e-4, atol=1e-6)
    assert epoch.train == pytest.approx({"task": losses[0].item(), "reference": losses[1].item()})


def test_both_signs_of_the_product_occur() -> None:
    """The two cases above are two different ones."""
    network = conv_network(0).train()
    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    again, _ = pictures(11, 0, 5).drawn(generator(0, 1, "main", "replay", 0))
    logits = network(torch.cat([batch.x, again.x])).logits
    slopes = [
        torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
        for loss in (F.cross_entropy(logits[:8], batch.y), F.cross_entropy(logits[8:], again.y))
    ]
    assert float(sum((a * b).sum() for a, b in zip(*slopes, strict=True))) != 0


# -- MIR -------------------------------------------------------------------------------------


def linear_network() -> Network:
    network = architecture("features", (2,)).build([3])
    with torch.no_grad():
        network.head.weights[0].copy_(torch.tensor([[1, 0], [0, 1], [0, 0.0]]))
        network.head.biases[0].zero_()
    network.head.biases[0].requires_grad_(False)
    return network.train()


@pytest.mark.parametrize(("lr", "order"), [(0.1, [2, 0, 1, 3]), (1.0, [0, 2, 1, 3])])
def test_mir_chooses_what_was_computed_by_hand(lr: float, order: list[int]) -> None:
    x = torch.tensor([[2, 0], [0, 1], [1, 0.5], [-1, 1]])
    candidates = Batch(x, torch.tensor([0, 1, 0, 1]), None)

    def loss(out: Output) -> Tensor:
        return F.cross_entropy(out.logits, torch.tensor([2]))

    network = linear_network()
    before = copy.deepcopy(network.state_dict())
    for count in (1, 2, 4):
        chosen = Interference().chosen(network, loss, torch.ones(1, 2), candidates, lr, count)
        assert chosen.tolist() == order[:count]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_step_of_mir_replays_what_a_virtual_step_would_harm_most() -> None:
    training = replace(STEP, momentum=0.9, weight_decay=0.1)  # no part of the virtual step
    fit = learning(Replayed("replay", CrossEntropy()), training=training)
    fit.retrieve = Interference(candidates=9)
    seen: list[Tensor] = []
    fit.objective = Objective(
        CrossEntropy(),
        extras=(Replayed("replay", lambda step: seen.append(step.x) or step.out.logits.sum() * 0),),
    )
    next(fit)

    network, virtual = conv_network(0).train(), conv_network(0).train()
    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    draws = generator(0, 1, "main", "replay", 0)
    again, _ = pictures(11, 0, 5).drawn(draws, 9)
    F.cross_entropy(virtual(batch.x).logits, batch.y).backward()
    with torch.no_grad():
        for parameter in virtual.parameters():
            parameter -= 0.1 * parameter.grad
    for name, buffer in virtual.named_buffers():
        buffer.copy_(network.get_buffer(name))  # statistics are those of before
    harm = []
    for image, label in zip(again.x, again.y, strict=True):
        after, before = (n.eval()(image[None]).logits.detach() for n in (virtual, network))
        harm.append(
            float(F.cross_entropy(after, label[None]) - F.cross_entropy(before, label[None]))
        )
    order = sorted(range(9), key=lambda i: -harm[i])[:5]

    assert len(set(harm)) > 4
    torch.testing.assert_close(seen[0], again.x[order])


def test_scoring_moves_no_statistics_of_batch_norm() -> None:
    plain, mir = (learning(Replayed("replay", CrossEntropy())) for _ in range(2))
    mir.retrieve = Interference(candidates=5)  # the whole draw is chosen, in another order
    next(plain), next(mir)

    for name, value in plain.network.named_buffers():
        torch.testing.assert_close(mir.network.get_buffer(name), value)


# -- FeTrIL ----------------------------------------------------------------------------------


def test_features_are_translated_as_computed_by_hand() -> None:
    features = torch.tensor([[4, 0], [6, 2], [5, 1.0]])
    means = torch.tensor([[1, 6], [5, 1.0]])
    moved, labels = translated(features, torch.tensor([1, 1, 1]), means)

    assert labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert moved[3:].tolist() == [[0, 5], [2, 7], [1, 6]]
    assert moved[3:].mean(dim=0).tolist() == [1, 6]
    unit = F.normalize(moved[3:], dim=1)
    expected = torch.tensor([[0, 1], [0.274721, 0.961524], [0.164399, 0.986394]])
    torch.testing.assert_close(unit, expected, rtol=0, atol=1e-6)


def test_the_nearest_class_is_by_distance_or_by_cosine() -> None:
    means = torch.tensor([[1, 3], [5, 1], [0, 9.0]])
    features, y = means[1:].clone(), torch.tensor([1, 2])
    # Distances 4.47 and 6.08, cosines .50 and .95: class 0 is made of class 1, or of class 2.
    for nearest, near in (("euclid", 1), ("cosine", 2)):
        moved, labels = translated(features + 1, y, means, nearest)
        assert labels.tolist() == [1, 2, 0]
        torch.testing.assert_close(moved[2], features[near - 1] + 1 - means[near] + means[0])


def test_fetril_never_moves_the_network_after_the_first_task(lab) -> None:
    setting = lab.setting(lab.conv(), task_aware=False)
    tasks = lab.tasks()
    learned = lab.learn(make_method("fetril"), setting, tasks)

    assert [name for name in learned.names if name[0] == "main"] == [("main", 0)]
    first, last = learned.entry("main", 0).tensors, learned.entry("grow", 2).tensors
    backbone = [name for name in first if name.startswith("network/backbone")]
    assert backbone
    assert all(torch.equal(first[name], last[name]) for name in backbone)
    network = setting.architecture.restore((2, 2, 2), strip_prefix("network", last), {})
    answer = setting.images.answering(network, torch.device("cpu"))
    state = strip_prefix("fetril", learned.entry("translate features", 2).tensors)
    for label in range(6):
        own = tasks[label // 2].load().train
        features = answer(own.take(own.of_class(label))).features.double()
        torch.testing.assert_close(state["sums"][label], features.sum(dim=0))
        assert state["counts"][label] == len(features)
    assert state["rows"].shape == (6, features.shape[1])


# -- GDumb -----------------------------------------------------------------------------------


def test_the_rate_falls_in_cycles_of_twice_the_length() -> None:
    training = Training(lr=0.05, lr_min=0.0005, schedule="restarts", epochs=256)
    rates = [scheduled_rate(training, 0, 256, epoch) for epoch in range(256)]

    expected = [0.005, 0.05, 0.05, 0.02525, 0.05, 0.042751, 0.02525, 0.007749, 0.05, 0.048116]
    expected += [0.042751, 0.034721, 0.02525, 0.015779, 0.007749, 0.002384, 0.05]
    assert rates[:17] == pytest.approx(expected, abs=1e-6)
    assert rates[255] == pytest.approx(0.000507, abs=1e-6)


@pytest.mark.parametrize("selection", ["random", "greedy", "herding"])
def test_gdumb_is_a_fresh_network_trained_on_the_memory_alone(selection: str, lab) -> None:
    memory = Memory(total=12, selection=selection)
    setting = lab.setting(lab.conv(), task_aware=False, memory=memory)
    learned = lab.learn(make_method("gdumb", passes=3, batch_size=4), setting)

    tensors = strip_prefix("memory", learned.entry("memory_training", 2).tensors)
    kept = Exemplars.of(tensors)
    seed = replace(setting, seed=0).seed
    start = strip_prefix("network", learned.entry("grow", 2).tensors)
    network = setting.architecture.restore((2, 2, 2), start, {})
    new = kept.take((kept.task == 2).nonzero().squeeze(1)).samples
    old = kept.take((kept.task < 2).nonzero().squeeze(1)).samples
    training = Training(
        epochs=3,
        lr=0.05,
        lr_first=None,
        lr_min=0.0005,
        batch_size=4,
        weight_decay=1e-6,
        schedule="restarts",
        clip=10.0,
    )
    fit = Fit(
        network,
        Objective(CrossEntropy()),
        Batches(Samples.concatenate([new, old]), 4, setting.normalization, setting.augment),
        None,
        View((slice(0, 2), slice(2, 4), slice(4, 6)), task_aware=False, rehearses=True),
        training,
        (seed, 2, "memory_training"),
    )
    list(fit)

    ours = learned.network(2)
    assert ours.keys() == fit.tensors().keys()
    for name, value in fit.tensors().items():
        torch.testing.assert_close(ours[name], value, msg=name)
    before = learned.entry("memory_training", 1).tensors
    assert not torch.equal(start["backbone.0.weight"], before["network/backbone.0.weight"])


# -- dark experience replay in a stream ------------------------------------------------------


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_what_weighs_nothing_is_the_other_method_to_the_bit(lab) -> None:
    setting = lab.setting(lab.conv(), task_aware=False, memory=Memory(per_class=3, batch=4))

    def final(name: str, **settings: Any) -> dict[str, Tensor]:
        return lab.learn(make_method(name, **settings), setting).final

    dark = final("dark-er", lamb=0.2)
    assert same(final("dark-er-pp", lamb=0.2, beta=0), dark)
    er = final("er", mean="separate")
    assert same(final("dark-er-pp", lamb=0, beta=1), er)
    assert not same(dark, er)


def test_a_fixed_head_has_all_classes_from_the_first_task_on(lab) -> None:
    memory = Memory(per_class=3, batch=4)
    setting = replace(lab.setting(lab.conv(), task_aware=False, memory=memory), rows=6)
    learned = lab.learn(make_method("a-dark-er-pp", head="fixed", lamb_a=0.5), setting)

    for task in range(3):
        rows = learned.entry("main", task).tensors["network/head.weights.0"]
        assert rows.shape[0] == 6
        kept = strip_prefix("memory", learned.entry("memory", task).tensors)["extra/logits"]
        assert kept.shape[1] == 6
        assert not kept.isnan().any()
    assert "network/head.weights.1" not in learned.entry("main", 2).tensors
    growing = lab.learn(make_method("a-dark-er-pp", lamb_a=0.5), replace(setting, rows=None))
    keys = [{stage.key for stage in each.stages} for each in (learned, growing)]
    assert not keys[0] & keys[1]
    assert growing.entry("memory", 0).tensors["memory/extra/logits"].shape[1] == 2


def test_a_step_with_a_fixed_head_is_that_of_public_code(lab) -> None:
    """DER++ with one linear layer over all classes, as Mammoth writes it, but for its draws."""
    memory, training = Memory(per_class=3, batch=4), replace(STEP, batch_size=64)
    setting = replace(lab.setting(lab.conv(), training, task_aware=False, memory=memory), rows=6)
    learned = lab.learn(make_method("dark-er-pp", head="fixed", lamb=0.3, beta=0.7), setting)

    start = strip_prefix("network", learned.entry("grow", 1).tensors)
    network = setting.architecture.restore((6,), start, {}).train()
    kept = Exemplars.of(strip_prefix("memory", learned.entry("memory", 0).tensors))
    train = lab.tasks()[1].load().train
    batches = Batches(train, 64, setting.normalization, setting.augment)
    [batch] = batches.shuffled(generator(0, 1, "main", "batches", 0))
    stream = Batches(kept.samples, 4, setting.normalization, setting.augment)
    again, index = stream.drawn(generator(0, 1, "main", "replay", 0))
    logits = network(torch.cat([batch.x, again.x])).logits
    b = len(batch.y)
    loss = F.cross_entropy(logits[:b], batch.y) + 0.7 * F.cross_entropy(logits[b:], again.y)
    loss = loss + 0.3 * F.mse_loss(logits[b:], kept.extra["logits"][index])
    loss.backward()

    ours = strip_prefix("network", learned.entry("main", 1).tensors)
    for name, weight in network.named_parameters():
        torch.testing.assert_close(ours[name], weight - 0.1 * weight.grad, msg=name)


def test_inner_steps_are_steps_on_one_batch_with_draws_of_their_own() -> None:
    extra = Replayed("replay", CrossEntropy())
    fit = learning(extra, training=replace(STEP, inner=3))
    epoch = next(fit)

    network = conv_network(0).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    [batch] = pictures(8, 2, 8).shuffled(generator(0, 1, "main", "batches", 0))
    draws, losses = generator(0, 1, "main", "replay", 0), []
    for _ in range(3):
        again, _ = pictures(11, 0, 5).drawn(draws)
        logits = network(torch.cat([batch.x, again.x])).logits
        parts = (F.cross_entropy(logits[:8], batch.y), F.cross_entropy(logits[8:], again.y))
        optimizer.zero_grad()
        sum(parts).backward()
        optimizer.step()
        losses.append([part.item() for part in parts])

    means = torch.tensor(losses).mean(dim=0).tolist()
    assert epoch.train == pytest.approx(dict(zip(("task", "replay"), means, strict=True)), rel=1e-4)
    for name, weight in network.named_parameters():
        torch.testing.assert_close(fit.network.get_parameter(name), weight, rtol=1e-4, atol=1e-6)


# -- resumed, saved, named -------------------------------------------------------------------

NEW = {
    "er": {},
    "a-dark-er-pp": {"lamb_a": 0.5},
    "mir": {},
    "gdumb": {"passes": 4},
    "fetril": {},
}


class Stopping(Events):
    """Raises as Ctrl-C does when the n-th epoch ends."""

    def __init__(self, at: int) -> None:
        self.left = at

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", NEW)
def test_interrupted_again_and_again_it_ends_in_the_same_bits(
    name: str, lab, tmp_path: Path, monkeypatch
) -> None:
    patch_part(monkeypatch, "CHECKPOINT_SECONDS", 0.0)
    method = make_method(name, **NEW[name])
    memory = Memory(total=12, selection="reservoir", batch=4 if method.replays else None)
    setting = lab.setting(lab.conv(), replace(SHORT, epochs=3), task_aware=False, memory=memory)
    expected, stops = lab.learn(method, setting), 0
    while True:
        try:
            store, events = Store(tmp_path), Stopping(2)
            resumed = lab.learn(method, setting, store=store, reporter=events)
            break
        except KeyboardInterrupt:
            stops += 1

    assert stops >= 1
    for stage in expected.stages:
        ours, theirs = (each.entries[stage.key].tensors for each in (resumed, expected))
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[key], rtol=0, atol=0, equal_nan=True)


def part(*classes: int) -> Samples:
    samples = digits().train
    return samples.take(torch.cat([samples.of_class(n)[:12] for n in classes]))


def taught(name: str, tasks: int, **options: Any) -> Learner:
    memory: dict[str, Any] = {"total": 12, "selection": "reservoir"}
    if make_method(name, **NEW[name]).replays:
        memory["batch"] = 4
    given = {"memory": memory, **NEW[name], **options}
    hidden = {"hidden": (8,)}
    learner = Learner(name, "mlp", training=SHORT, network_options=hidden, events=Events(), **given)
    for task in range(tasks):
        samples = part(2 * task, 2 * task + 1)
        learner.learn(samples.x, samples.y)
    return learner


@pytest.mark.parametrize("name", NEW)
def test_a_learner_is_saved_loaded_and_taught_on(name: str, tmp_path: Path) -> None:
    taught(name, 2).save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved", events=Events())
    more, returning, x = part(4, 5), part(0, 3), digits().test.x[:50]
    loaded.learn(more.x, more.y)
    whole = taught(name, 3)

    assert torch.equal(loaded.scores(x), whole.scores(x))
    for learner in (loaded, whole):
        learner.learn(returning.x, returning.y)  # known classes again
    assert torch.equal(loaded.scores(x), whole.scores(x))


def kept_by(place: Path) -> int:
    return len(read_saved(place).tensors["memory/memory/y"])


def test_a_learner_keeps_as_many_images_as_bytes_have_room_for(tmp_path: Path) -> None:
    learner = taught("er", 3, memory={"bytes": 700, "selection": "reservoir", "batch": 4})
    learner.save(tmp_path / "saved")
    assert kept_by(tmp_path / "saved") == 10  # of 64 bytes each
    more = part(6, 7)
    loaded = Learner.load(tmp_path / "saved", events=Events())
    loaded.learn(more.x, more.y)
    loaded.save(tmp_path / "again")
    assert kept_by(tmp_path / "again") == 10


def test_a_learner_refuses_a_head_of_classes_to_come() -> None:
    with pytest.raises(SpecError, match="A learner does not know which classes will come"):
        taught("er", 1, head="fixed")


def test_a_run_with_a_fixed_head_answers_and_learns_known_classes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "network": {"name": "mlp", "hidden": [16]},
        "data": {"scenario": "cil", "per_class": 20, "test_per_class": 10},
        "memory": {"per_class": 4, "batch": 8},
        "training": {"epochs": 2},
        "threads": 1,
    }
    result = ancl.run("dark-er-pp", "digits/5", runs=tmp_path, head="fixed", **settings)
    learner = load_run(next(tmp_path.glob("digits*")), events=Events())
    samples = part(6, 7)

    assert result.metrics["aac"] > 0
    assert learner.scores(digits().test.x[:5]).shape == (5, 10)
    learner.learn(samples.x, samples.y.tolist())
    with pytest.raises(SpecError, match="head=fixed: all classes of a run"):
        learner.learn(255 - samples.x[:], ["new", "other"] * (len(samples) // 2))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(("a-gem", "agem"), ("a_gem", "agem"), ("afec-a-gem", "afec-agem")),
        *(("der++", "dark-er-pp"), ("a-der++", "a-dark-er-pp"), ("derpp", "dark-er-pp")),
        *(("der+++ancl", "a-dark-er-pp"), ("dark-er++", "dark-er-pp"), ("der", "der")),
        *(("er_ace", "er-ace"), ("afec-er", "afec-er"), ("dark-er+afec", "afec-dark-er")),
    ],
)
def test_names_of_other_projects_come_before_variants(given: str, name: str) -> None:
    assert MethodRef(given).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a-er", "'er' has no regularizer"),
        ("a-er-ace", "'er-ace' has no regularizer"),
        ("a-agem", "holds gradients to a half-space"),
        ("a-a-gem", "holds gradients to a half-space"),
        ("a-gdumb", "begins anew with every task"),
        ("afec-gdumb", "begins anew with every task"),
        ("a-fetril", "its network rests after the first task"),
        ("afec-fetril", "its network rests after the first task"),
        ("der+x", "no variant 'x'"),
    ],
)
def test_variants_without_a_meaning_are_refused(name: str, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        make_method(name)


def test_der_and_dark_er_name_each_other() -> None:
    lines = {each["name"]: each["explanation"] for each in ancl.list_methods()}
    assert "``dark-er``" in lines["der"]
    assert "``der``" in lines["dark-er"]
