"""WA, EEIL and PODNet: whole runs with a memory, against the same written out step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

EPOCHS = 2


class SlowMemory:
    """Images of all classes so far, in the order in which they were taken."""

    def __init__(self) -> None:
        self.x, self.y = torch.empty(0, 3, 8, 8), torch.empty(0, dtype=torch.long)

    def after(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Others first, then these."""
        return torch.cat([x, self.x]), torch.cat([y, self.y])

    def take(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])


def places(task: Any, index: list[int]) -> list[list[int]]:
    """[class, image] of a task's training images."""
    labels = task.load().train.y[index].tolist()
    return [
        [y, place - 16 * (y - task.classes.start)] for y, place in zip(labels, index, strict=True)
    ]


def weighted(slow: Any, model: Any, old: Any, known: int) -> Callable[..., list[Tensor]]:
    """WA's loss: both parts by their share of the classes."""

    def loss(x: Tensor, y: Tensor) -> list[Tensor]:
        logits = model(x)
        if old is None:
            return [slow.cross_entropy(logits, y)]
        with torch.no_grad():
            theirs = old(x)
        share = known / (known + 4)
        kept = slow.soft_cross_entropy(logits[:, :known], theirs)
        return [(1 - share) * slow.cross_entropy(logits, y), share * kept]

    return loss


def test_weight_alignment(slow) -> None:
    learned = slow.learn("wa", epochs=EPOCHS, memory=True)
    model, memory, old = slow.network(bias=False), SlowMemory(), None
    want, got = [], []

    def not_negative(before: list[Tensor], gradients: list[Tensor]) -> None:
        for rows in model.rows:
            rows.clamp_(min=0)

    for index, task in enumerate(slow.tasks):
        model.grow()
        known, train = 4 * index, task.load().train
        images = memory.after(train.x.dense(), train.y)
        loss, rates = weighted(slow, model, old, known), [slow.rates[index]] * EPOCHS
        weights = [*model.weights.values(), *model.rows]
        means = slow.train(model, images, loss, weights, rates, after=not_negative)
        terms = ("task", "old") if index else ("task",)
        want.append([means, model.named])
        got.append([slow.logged(learned, index, *terms), slow.stored(learned, index)])
        if index:
            lengths = [row.norm().item() for rows in model.rows for row in rows]
            gamma = (sum(lengths[:known]) / known) / (sum(lengths[known:]) / 4)
            with torch.no_grad():
                model.rows[-1] *= gamma
            want.append([gamma, model.named])
            aligned = learned.entry("align", index).meta["gamma"]
            got.append([aligned, slow.stored(learned, index, "align")])
        chosen = slow.herded(model, task)
        memory.take(train.x[chosen], train.y[chosen])
        old = model.copied()
        want.append([places(task, chosen), slow.accuracy(model, index + 1)])
        kept = slow.reference.exemplars(learned, index)
        got.append([kept, slow.evaluated(learned, index)])

    slow.check("wa", want, got)


def head_by_head(
    slow: Any, model: Any, anchor: Any, heads: int, lamb: float
) -> Callable[..., list[Tensor]]:
    """EEIL's loss: every head's own soft answers, for so many heads."""

    def loss(x: Tensor, y: Tensor) -> list[Tensor]:
        logits = model(x)
        terms = [slow.cross_entropy(logits, y)]
        if heads:
            with torch.no_grad():
                theirs = anchor(x)
            parts = [slice(4 * head, 4 * head + 4) for head in range(heads)]
            kept = [slow.soft_cross_entropy(logits[:, own], theirs[:, own]) for own in parts]
            terms.append(lamb * sum(kept))
        return terms

    return loss


def test_balanced_tuning_of_every_weight(slow) -> None:
    lamb, balanced = 1.5, {"balanced_epochs": 2, "balanced_lr": 0.1, "balanced_milestones": (1,)}
    learned = slow.learn(
        "eeil", epochs=EPOCHS, memory=True, lamb=lamb, noise=0.0, enlarge=False, **balanced
    )
    model, memory, old, want, got = slow.network(), SlowMemory(), None, [], []
    for index, task in enumerate(slow.tasks):
        model.grow()
        train, weights = task.load().train, [*model.weights.values(), *model.rows, *model.biases]
        images, rates = memory.after(train.x.dense(), train.y), [slow.rates[index]] * EPOCHS
        means = slow.train(
            model, images, head_by_head(slow, model, old, index, lamb), weights, rates
        )
        terms = ("task", "old") if index else ("task",)
        want.append([means, model.named])
        got.append([slow.logged(learned, index, *terms), slow.stored(learned, index)])
        if index:
            chosen, before = slow.herded(model, task), model.copied()
            images = memory.after(train.x[chosen], train.y[chosen])
            loss = head_by_head(slow, model, before, index + 1, lamb)
            means = slow.train(model, images, loss, weights, [0.1, 0.01])
            want.append([means, model.named])
            log = slow.logged(learned, index, "task", "old", stage="balanced_tuning")
            got.append([log, slow.stored(learned, index, "balanced_tuning")])
        chosen = slow.herded(model, task)
        memory.take(train.x[chosen], train.y[chosen])
        old = model.copied()
        want.append([places(task, chosen), slow.accuracy(model, index + 1)])
        kept = slow.reference.exemplars(learned, index)
        got.append([kept, slow.evaluated(learned, index)])

    slow.check("eeil", want, got)


def nca(logits: Tensor, y: Tensor) -> Tensor:
    """The released form: classes compete relative to the best, the true one as if it were that."""
    total = 0.0
    for row, label in zip(logits, y.tolist(), strict=True):
        relative = row - row.max()
        others = relative.exp().sum() - relative[label].exp()
        total = total + (1 + others).log() - relative[label]
    return total / len(y)


def pooled(stage: Tensor) -> Tensor:
    """One image's squared map, summed along every row and every column, of length 1."""
    squares = stage * stage
    rows = [channel.sum(dim=1) for channel in squares]
    columns = [channel.sum(dim=0) for channel in squares]
    found = torch.cat(rows + columns)
    return found / found.norm()


def pooled_outputs(
    slow: Any, model: Any, old: Any, lamb: float, spatial: float, flat: float
) -> Callable[..., list[Tensor]]:
    """PODNet's loss, its λ times √(n / n_new)."""

    def loss(x: Tensor, y: Tensor) -> list[Tensor]:
        features, maps = model.features(x)
        terms = [nca(model.logits(features), y)]
        if old is None:
            return terms
        with torch.no_grad():
            wanted, their_maps = old.features(x)
        far, turned = 0.0, 0.0
        for place in range(len(x)):
            for mine, theirs in zip(maps, their_maps, strict=True):
                gap = pooled(mine[place]) - pooled(theirs[place])
                far = far + (gap * gap).sum() / len(maps) / len(x)
            one, other = features[place], wanted[place]
            turned = turned + (1 - one @ other / (one.norm() * other.norm())) / len(x)
        factor = lamb * (4 * len(model.rows) / 4) ** 0.5
        return [*terms, factor * (spatial * far + flat * turned)]

    return loss


def centres(points: Tensor, count: int) -> tuple[Tensor, list[list[float]]]:
    """k-means from points far apart; and the weights by which those would be drawn."""
    given, odds, chosen = [row.tolist() for row in points], [], [0]

    def gap(one: list[float], other: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))

    while len(chosen) < count:
        odds.append([min(gap(point, given[c]) for c in chosen) for point in given])
        chosen.append(odds[-1].index(max(odds[-1])))
    found = [given[c] for c in chosen]
    for _ in range(30):
        groups: list[list[list[float]]] = [[] for _ in found]
        for point in given:
            gaps = [gap(point, centre) for centre in found]
            groups[gaps.index(min(gaps))].append(point)
        for place, group in enumerate(groups):
            if group:
                found[place] = [sum(column) / len(group) for column in zip(*group, strict=True)]
    return torch.tensor(found), odds


@pytest.fixture
def drawn(monkeypatch) -> list[list[float]]:
    """Take the first point, then always the one of the largest weight; returns the weights."""
    seen: list[list[float]] = []

    def largest(odds: Tensor, count: int) -> Tensor:
        seen.append(odds.tolist())
        return odds.argmax().reshape(1)

    monkeypatch.setattr(torch, "randint", lambda high, size: torch.tensor(0))
    monkeypatch.setattr(torch, "multinomial", largest)
    return seen


@torch.no_grad()
def imprint(model: Any, task: Any) -> list[list[float]]:
    """Start the newest proxies as centres of their classes' directions; returns the weights."""
    train, odds = task.load().train, []
    features = model.copied().features(train.x.dense())[0]
    lengths = [row.norm() for rows in model.rows[:-1] for row in rows]
    for place, label in enumerate(range(task.classes.start, task.classes.stop)):
        own = [f / f.norm() for f, y in zip(features, train.y.tolist(), strict=True) if y == label]
        found, weights = centres(torch.stack(own), model.proxies)
        start = place * model.proxies
        model.rows[-1][start : start + model.proxies] = found * sum(lengths) / len(lengths)
        odds += weights
    return odds


def test_imprinted_proxies_and_balanced_tuning_of_the_head(slow, drawn) -> None:
    pull, limit = {"lamb": 2.0, "spatial": 1.5, "flat": 0.5}, 0.05
    tuning = {"balanced_epochs": 2, "balanced_lr": 0.1}
    learned = slow.learn(
        "podnet", epochs=EPOCHS, memory=True, proxies=3, gradient_limit=limit, **pull, **tuning
    )
    model, memory, old = slow.network(last_relu=False, proxies=3), SlowMemory(), None
    want, got, odds = [], [], []
    for index, task in enumerate(slow.tasks):
        model.grow()
        if index:
            odds += imprint(model, task)
        want.append(model.named)
        got.append(slow.stored(learned, index, "grow"))
        train, weights = task.load().train, [*model.weights.values(), model.rows[-1], model.scale]
        images, rates = memory.after(train.x.dense(), train.y), [slow.rates[index]] * EPOCHS
        loss = pooled_outputs(slow, model, old, **pull)
        means = slow.train(model, images, loss, weights, rates, limit=limit)
        terms = ("task", "old") if index else ("task",)
        want.append([means, model.named])
        got.append([slow.logged(learned, index, *terms), slow.stored(learned, index)])
        if index:
            chosen = slow.herded(model, task)
            images = memory.after(train.x[chosen], train.y[chosen])
            loss = pooled_outputs(slow, model, None, **pull)
            means = slow.train(model, images, loss, model.rows, [0.1] * 2, limit=limit, mode=False)
            want.append([means, model.named])
            log = slow.logged(learned, index, "task", stage="balanced_tuning")
            got.append([log, slow.stored(learned, index, "balanced_tuning")])
        chosen = slow.herded(model, task)
        memory.take(train.x[chosen], train.y[chosen])
        old = model.copied()
        want.append([places(task, chosen), slow.accuracy(model, index + 1)])
        kept = slow.reference.exemplars(learned, index)
        got.append([kept, slow.evaluated(learned, index)])

    slow.check("podnet", [*want, odds], [*got, drawn])
