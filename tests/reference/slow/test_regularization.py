"""SI, R-Walk and LwM: whole runs, against the same written out step by step."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.lab import strip_prefix

EPOCHS = 3
Tensors = dict[str, Tensor]


@pytest.mark.parametrize("name", ["si", "rwalk"])
def test_importance_of_a_path(name, slow) -> None:
    lamb, damping = 20.0, 0.1
    learned = slow.learn(name, epochs=EPOCHS, memory=False, lamb=lamb, damping=damping)
    model, want, got = slow.network(), [], []
    fisher, scores = ({n: torch.zeros_like(w) for n, w in model.weights.items()} for _ in range(2))
    for index, task in enumerate(slow.tasks):
        model.grow()
        start = {n: w.detach().clone() for n, w in model.weights.items()}
        path = {n: torch.zeros_like(w) for n, w in start.items()}

        def loss(x: Tensor, y: Tensor, task: Any = task, start: Tensors = start) -> list[Tensor]:
            own = task.classes
            held = [
                ((fisher[n] + scores[n]) * (w - start[n]) ** 2).sum()
                for n, w in model.weights.items()
            ]
            return [slow.cross_entropy(model(x)[:, own], y - own.start), lamb * sum(held)]

        def follow(before: list[Tensor], gradients: list[Tensor], path: Tensors = path) -> None:
            for place, (n, weight) in enumerate(model.weights.items()):
                path[n] -= gradients[place] * (weight - before[place])

        train = task.load().train
        weights = [*model.weights.values(), model.rows[-1], model.biases[-1]]
        rates = [slow.rates[index]] * EPOCHS
        means = slow.train(model, (train.x.dense(), train.y), loss, weights, rates, after=follow)
        way = {n: (w.detach() - start[n]) ** 2 for n, w in model.weights.items()}
        if name == "rwalk":
            own = squared_gradients(slow, model, train)
            fisher.update({n: 0.5 * fisher[n] + 0.5 * own[n] for n in path})
            fresh = {n: path[n] / (fisher[n] * way[n] + damping) for n in path}
            scores.update({n: 0.5 * (scores[n] + fresh[n].clamp(min=0)) for n in path})
            kinds = {"gradients": fisher, "scores": scores}
        else:
            fresh = {n: path[n] / (way[n] + damping) for n in path}
            scores.update({n: scores[n] + fresh[n].clamp(min=0) for n in path})
            kinds = {"path": scores}
        important = {f"{kind}/{n}": v for kind, of in kinds.items() for n, v in of.items()}
        task_means = [[each[0]] for each in means]
        want.append([task_means, model.named, important, slow.accuracy(model, index + 1)])
        kept = strip_prefix("importance", learned.entry("importance", index).tensors)
        log, network = slow.logged(learned, index, "task"), slow.stored(learned, index)
        got.append([log, network, kept, slow.evaluated(learned, index)])
        assert not index or means[-1][1] > 1e-3  # the pull is felt

    slow.check(name, want, got)


def squared_gradients(slow: Any, model: Any, train: Any) -> Tensors:
    """The mean of squared batch gradients for the classes the network itself predicts."""
    twin = copy.deepcopy(model.backbone).train()
    totals = {n: torch.zeros_like(w) for n, w in model.weights.items()}
    for index in slow.batches(len(train)):
        logits = model.logits(twin.with_maps(train.x[index])[0])
        value = slow.cross_entropy(logits, logits.argmax(dim=1))
        gradients = slow.gradients_of(value, list(twin.parameters()))
        for n, gradient in zip(totals, gradients, strict=True):
            totals[n] += gradient**2 * len(index) / len(train)
    return totals


def attention(stage: Tensor, row: Tensor) -> Tensor:
    """Where one image's class is seen: a sum over channels at every pixel, of length 1."""
    seen = sum(row[c] * stage[c].clamp(min=0) for c in range(len(row))).clamp(min=0)
    length = (seen * seen).sum().sqrt()
    return seen / length if length > 0 else seen


def test_attention_is_kept(slow) -> None:
    lamb, gamma = 2.0, 0.8
    learned = slow.learn("lwm", epochs=EPOCHS, memory=False, lamb=lamb, gamma=gamma)
    model, old, want, got = slow.network(), None, [], []
    for index, task in enumerate(slow.tasks[:2]):
        model.grow()

        def loss(x: Tensor, y: Tensor, task: Any = task, old: Any = old) -> list[Tensor]:
            own = task.classes
            features, maps = model.features(x)
            logits = model.logits(features)
            value = slow.cross_entropy(logits[:, own], y - own.start)
            if old is None:
                return [value]
            with torch.no_grad():
                their_features, their_maps = old.features(x)
                theirs = old.logits(their_features)
            kept, distance = slow.soft_cross_entropy(logits[:, : own.start], theirs), 0.0
            for place in range(len(x)):
                top = int(theirs[place].argmax())
                mine = attention(maps[-1][place], torch.cat(model.rows)[top])
                wanted = attention(their_maps[-1][place], torch.cat(old.rows)[top])
                distance = distance + (mine - wanted).abs().sum() / len(x)
            return [value, lamb * (kept + gamma * distance)]

        train = task.load().train
        weights = [*model.weights.values(), model.rows[-1], model.biases[-1]]
        rates = [slow.rates[index]] * EPOCHS
        means = slow.train(model, (train.x.dense(), train.y), loss, weights, rates)
        old = model.copied()
        want.append([means, model.named])
        terms = ("task", "old")[: index + 1]
        got.append([slow.logged(learned, index, *terms), slow.stored(learned, index)])

    slow.check("lwm", want, got)
