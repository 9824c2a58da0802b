"""What the loop carries along: saved states, watchers, anchors' answers, terms on weights."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ancl import Training
from ancl.extend import (
    Anchor,
    Auto,
    Balance,
    CrossEntropy,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Regularizer,
    anchor_for,
    architecture,
)
from tests.lab import (
    Batches,
    Epoch,
    Ewc,
    Fit,
    Lwf,
    PathWatcher,
    Samples,
    Saved,
    View,
    correct_answers,
    epoch_of,
    epoch_record,
    strip_prefix,
)

TASKS = (slice(0, 2), slice(2, 4))
VIEW = View(TASKS, task_aware=True)
TRAINING = Training(epochs=6, lr=0.1, batch_size=8, patience=1)


def watched_by(fit: Fit) -> dict[str, Tensor]:
    return strip_prefix("watched", fit.tensors())


def conv_network(seed: int = 0) -> Network:
    """Two convolutions with batch norm and weights that lie channels last."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
    layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = architecture(nn.Sequential(*layers), (2, 6, 6)).build([2, 2])
    assert not net.backbone[3].weight.is_contiguous()
    return net


def images(count: int, seed: int) -> Batches:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 6, 6, 2), generator=draw, dtype=torch.uint8)
    return Batches(Samples(x, 2 + torch.arange(count) % 2), 8, None, "flip")


def objective() -> Objective:
    """Both kinds of Ω, so that both kinds of state are met."""
    old = anchor_for(Lwf(), conv_network(1), TASKS[0])
    near = conv_network(2)
    curvature = {name: torch.rand_like(w) for name, w in near.weights().items()}
    weights = anchor_for(Ewc(), near, TASKS[1], {"gradients": curvature})
    return Objective(
        CrossEntropy(),
        (PenaltyTerm("old", 2.0, Lwf(), old), PenaltyTerm("auxiliary", 0.5, Ewc(), weights)),
    )


def balanced() -> Objective:
    """Two Ω on answers, whose λ_a moves with every step."""
    anchors = [anchor_for(Lwf(), conv_network(1 + i), TASKS[i]) for i in range(2)]
    old = PenaltyTerm("old", 2.0, Lwf(), anchors[0])
    return Objective(
        CrossEntropy(), (old, PenaltyTerm("auxiliary", Balance(0.5), Lwf(), anchors[1]))
    )


def found(omega: Regularizer) -> Objective:
    """λ and λ_a by rule."""
    importance = {"gradients": {n: w.detach().abs() for n, w in conv_network().weights().items()}}
    anchors = [anchor_for(omega, conv_network(1 + i), TASKS[i], importance) for i in range(2)]
    old = PenaltyTerm("old", Auto(2.0), omega, anchors[0])
    return Objective(
        CrossEntropy(), (old, PenaltyTerm("auxiliary", Balance(0.5), omega, anchors[1]))
    )


def found_on_answers() -> Objective:
    return found(Lwf())


def found_on_weights() -> Objective:
    return found(Ewc())


def make_fit(training: Training, loss: Callable[[], Objective] = objective) -> Fit:
    path = (0, 1, "main")
    return Fit(
        conv_network(),
        loss(),
        images(20, 0),
        images(8, 1),
        VIEW,
        training,
        path,
        PathWatcher(),
    )


def stored(saved: Saved) -> Saved:
    """As it comes back from the disk: contiguous, in alphabetical order."""
    tensors = {
        n: saved.tensors[n].clone(memory_format=torch.contiguous_format)
        for n in sorted(saved.tensors)
    }
    return Saved(tensors, dict(saved.meta))


def told(epochs: list[Epoch]) -> list[Epoch]:
    return [replace(epoch, seconds=0.0) for epoch in epochs]


@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("loss", [objective, balanced, found_on_answers, found_on_weights])
def test_restored_halfway_equals_uninterrupted(at, optimizer, on_disk, loss) -> None:
    lr = 0.1 if optimizer == "sgd" else 0.01
    training = replace(TRAINING, optimizer=optimizer, lr=lr)
    whole, broken, resumed = (make_fit(training, loss) for _ in range(3))
    expected = list(whole)

    first = [next(broken) for _ in range(min(at, len(expected) - 1))]
    saved = stored(broken.state()) if on_disk else broken.state()
    kept = {name: tensor.clone() for name, tensor in saved.tensors.items()}
    resumed.restore(saved)
    rest = list(resumed)

    assert told([*first, *rest]) == told(expected)
    one, other = whole.state(), resumed.state()
    assert one.meta == other.meta
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[n], other.tensors[n]) for n in one.tensors)
    # What was saved is a copy: going on did not change it.
    assert all(torch.equal(kept[n], saved.tensors[n]) for n in kept)


def test_an_epoch_has_the_mean_lamb_a_of_its_steps() -> None:
    fit = make_fit(replace(TRAINING, epochs=2, schedule="constant"), balanced)
    seen: list[float] = []
    lamb_a = fit.objective.lambdas["auxiliary"]
    observe = lamb_a.observe

    def recorded(forces: dict[str, Tensor]) -> None:
        observe(forces)
        seen.append(float(lamb_a.now))

    lamb_a.observe = recorded
    first, second = fit
    fixed = next(make_fit(replace(TRAINING, epochs=1, schedule="constant")))

    assert len(seen) == 2 * 3  # three batches an epoch; validation measures nothing
    assert first.lambs == {"lamb_a": pytest.approx(sum(seen[:3]) / 3)}
    assert second.lambs == {"lamb_a": pytest.approx(sum(seen[3:]) / 3)}
    assert epoch_record(second)["lambs"] == second.lambs
    assert epoch_of(epoch_record(second)) == second
    assert fit.lambs["auxiliary"] == pytest.approx(seen[-1])
    assert "lambs" not in epoch_record(fixed)
    assert epoch_of(epoch_record(fixed)) == fixed


@pytest.mark.parametrize("loss", [found_on_answers, found_on_weights])
def test_an_epoch_has_the_lamb_that_it_was_trained_with(loss) -> None:
    fit = make_fit(replace(TRAINING, epochs=3, schedule="constant"), loss)
    lambs = [epoch.lambs for epoch in fit]

    assert lambs[0]["lamb"] == 2.0
    assert lambs[1]["lamb"] not in (2.0, lambs[2]["lamb"])
    assert fit.lambs["old"] != lambs[2]["lamb"]  # the next task begins with it
    assert all(each["lamb_a"] > 0 for each in lambs)
    if loss is found_on_weights:
        ratios = [each["lamb_a"] / each["lamb"] for each in lambs]
        assert ratios == [pytest.approx(ratios[0])] * 3


def test_on_weights_the_steps_follow_the_lamb() -> None:
    """Two epochs by rule are one epoch at each of the λ it had."""
    training = replace(TRAINING, epochs=2, schedule="constant", lr=0.01)
    ruled, fixed = make_fit(training, found_on_weights), make_fit(training, found_on_weights)
    lambs = [epoch.lambs["lamb"] for epoch in ruled]

    for lamb in lambs:
        terms = found_on_weights().terms
        fixed.objective = Objective(CrossEntropy(), (replace(terms[0], lamb=lamb), terms[1]))
        next(fixed)

    assert lambs[0] != lambs[1]
    ours, theirs = ruled.network.tensors(), fixed.network.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_state_of_optimizer_has_the_strides_of_its_parameter() -> None:
    fit, resumed = make_fit(TRAINING), make_fit(TRAINING)
    next(fit)

    resumed.restore(stored(fit.state()))

    for parameter in resumed.network.parameters():
        held = resumed._optimizer.state[parameter] if parameter.requires_grad else {}
        for value in held.values():
            assert value.stride() == parameter.stride()


def test_the_watcher_goes_back_with_the_weights() -> None:
    training = replace(TRAINING, epochs=30, lr=0.5)
    fit = make_fit(training)
    seen: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}
    best, drops = -1, 0
    for epoch in fit:
        if epoch.best:
            best = epoch.epoch
            seen[best] = fit.network.tensors(), watched_by(fit)
        elif "rate" in epoch.note:
            drops += 1
            network, watched = seen[best]
            now = fit.network.tensors()
            assert all(torch.equal(now[n], network[n]) for n in now)
            assert all(torch.equal(watched_by(fit)[n], watched[n]) for n in watched)

    assert drops > 0
    assert all(torch.equal(watched_by(fit)[n], seen[best][1][n]) for n in watched_by(fit))


class Counted:
    """An anchor's network that counts its calls, and the batches it saw."""

    def __init__(self, network: Network) -> None:
        self.network, self.calls = network.eval(), 0

    def __call__(self, x: Tensor, maps: bool) -> Output:
        self.calls += 1
        return self.network(x, maps)


@pytest.mark.parametrize("epochs", [1, 4])
def test_anchors_answer_once_for_a_validation_batch(epochs) -> None:
    forward = Counted(conv_network(1))
    pull = PenaltyTerm("old", 1.0, Lwf(), Anchor(TASKS[0], forward=forward))
    training = replace(TRAINING, epochs=epochs, schedule="constant")
    fit = Fit(
        conv_network(),
        Objective(CrossEntropy(), (pull,)),
        images(24, 0),
        images(16, 1),
        VIEW,
        training,
        (0, 1, "main"),
    )

    found = list(fit)

    assert forward.calls == 3 * epochs + 2  # three training batches an epoch, two of validation
    # The cache holds the right answers: the last epoch's value is that of a fresh computation.
    fresh = Fit(fit.network, fit.objective, images(24, 0), images(16, 1), VIEW, training, fit.path)
    assert fresh._validate()[0] == found[-1].val


def test_terms_of_an_epoch_are_means_over_samples() -> None:
    fit = make_fit(replace(TRAINING, epochs=1, schedule="constant"))
    epoch = next(fit)

    fit.network.eval()
    logits, labels = [], []
    for batch in images(8, 1).in_order():
        logits.append(fit.network(batch.x).logits.detach())
        labels.append(batch.y)
    rows = torch.cat(logits)[:, 2:4].log_softmax(1)
    right = [float(rows[i, int(y) - 2]) for i, y in enumerate(torch.cat(labels))]
    assert epoch.val["task"] == pytest.approx(-sum(right) / len(right), abs=1e-6)
    assert set(epoch.val) == set(epoch.train) == {"task", "old", "auxiliary"}
    # A term on weights is its value at the end of the epoch: ½ · 0.5 · Σ C (θ − θ*)².
    pull = fit.objective.terms[1]
    curvature, centre = pull.anchor.importance["gradients"], pull.anchor.weights
    parts = {n: curvature[n] * (w.detach() - centre[n]) ** 2 for n, w in fit.weights.items()}
    total = sum(float(part.sum()) for part in parts.values())
    assert epoch.train["auxiliary"] == epoch.val["auxiliary"] == pytest.approx(0.25 * total)


def test_accuracy_counts_classes_that_compete() -> None:
    logits = torch.tensor([[5.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 2.0], [9.0, 0.0, 3.0, 4.0]])
    y = torch.tensor([2, 3, 2])

    assert int(correct_answers(logits, y, View(TASKS, task_aware=True))) == 2
    assert int(correct_answers(logits, y, View(TASKS, task_aware=False))) == 1


def test_clipping_bounds_the_gradient_of_all_terms() -> None:
    """One step of plain SGD moves by at most lr · clip, and by exactly that where it is clipped."""
    training = Training(
        epochs=1, lr=0.1, momentum=0, weight_decay=0, clip=0.01, batch_size=20, schedule="constant"
    )
    fit = make_fit(training)
    fit.train = replace(fit.train, size=20)
    before = [p.detach().clone() for p in fit.network.parameters()]

    next(fit)

    moved = [p.detach() - b for p, b in zip(fit.network.parameters(), before, strict=True)]
    way = torch.cat([m.flatten() for m in moved]).norm()
    assert float(way) == pytest.approx(0.1 * 0.01, rel=1e-3)
