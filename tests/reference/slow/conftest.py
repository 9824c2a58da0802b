"""What slow tests share: a network, its training and its losses, written out step by step.

They share nothing with the library but the inputs: losses are sums over samples, classes and
pixels, and the optimizer is two lines.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, make_method
from tests.lab import strip_prefix

Tensors = dict[str, Tensor]
Images = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], list[Tensor]]
"""(images, labels) -> the terms of a loss, the task's first."""

RATES = (0.3, 0.24, 0.24)
PER_CLASS = 5


class SlowNetwork:
    """The network of the recorded runs with a head of plain tensors.

    Args:
        reference: Gives the backbone and the formulas.
        last_relu: Whether features end with a ReLU.
        bias: Whether the head has biases.
        proxies: The number of rows per class that are compared by direction; 0 for one product.
    """

    def __init__(
        self, reference: Any, *, last_relu: bool = True, bias: bool = True, proxies: int = 0
    ) -> None:
        self.backbone, self.unit = reference.convolutions(last_relu), reference.unit
        self.bias, self.proxies = bias and not proxies, proxies
        self.rows: list[Tensor] = []
        self.biases: list[Tensor] = []
        self.scale = torch.ones(1, requires_grad=True)

    def grow(self) -> None:
        task, rows = len(self.rows), 4 * (self.proxies or 1)
        self.rows.append((0.4 * self.unit(20 + task, (rows, 10))).requires_grad_())
        if self.bias:
            self.biases.append((0.1 * self.unit(40 + task, (rows,))).requires_grad_())

    def features(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.backbone.with_maps(x)

    def logits(self, features: Tensor) -> Tensor:
        rows = torch.cat(self.rows)
        if self.proxies:
            classes = rows.split(self.proxies)
            return self.scale * torch.stack([_near(features, of) for of in classes], dim=1)
        found = features @ rows.T
        return found + torch.cat(self.biases) if self.bias else found

    def __call__(self, x: Tensor) -> Tensor:
        return self.logits(self.features(x)[0])

    @property
    def weights(self) -> Tensors:
        return dict(self.backbone.named_parameters())

    @property
    def named(self) -> Tensors:
        """Everything it knows, by the names of the recorded files."""
        held = {n: b for n, b in self.backbone.state_dict().items() if "num_batches" not in n}
        held |= {f"head{index}.weight": rows for index, rows in enumerate(self.rows)}
        held |= {f"head{index}.bias": bias for index, bias in enumerate(self.biases)}
        held |= {"scale": self.scale} if self.proxies else {}
        return {name: value.detach().clone() for name, value in held.items()}

    def copied(self) -> "SlowNetwork":
        """As it is now, for answers alone."""
        twin = copy.copy(self)
        twin.backbone = copy.deepcopy(self.backbone).eval()
        twin.rows = [rows.detach().clone() for rows in self.rows]
        twin.biases = [bias.detach().clone() for bias in self.biases]
        twin.scale = self.scale.detach().clone()
        return twin


def _near(features: Tensor, proxies: Tensor) -> Tensor:
    """Every image's likeness to one class: 2 cos − 2, the nearest proxies counting most."""
    each = []
    for proxy in proxies:
        cosines = (features * proxy).sum(dim=1) / (features.norm(dim=1) * proxy.norm())
        each.append(2 * cosines - 2)
    whole = sum(one.exp() for one in each)
    return sum(one.exp() / whole * one for one in each)


def gradients_of(value: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    return list(
        torch.autograd.grad(
            value, list(weights), retain_graph=True, allow_unused=True, materialize_grads=True
        )
    )


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    each = [row.exp().sum().log() - row[label] for row, label in zip(logits, y, strict=True)]
    return sum(each) / len(y)


def soft_cross_entropy(ours: Tensor, theirs: Tensor, temperature: float = 2.0) -> Tensor:
    total = 0.0
    for mine, wanted in zip(ours / temperature, theirs / temperature, strict=True):
        share, whole = wanted.exp() / wanted.exp().sum(), mine.exp().sum().log()
        total = total - sum(share[c] * (mine[c] - whole) for c in range(len(mine)))
    return total / len(ours)


class Slow:
    """Runs of the library, and the same written out."""

    rates = RATES
    cross_entropy = staticmethod(cross_entropy)
    soft_cross_entropy = staticmethod(soft_cross_entropy)
    gradients_of = staticmethod(gradients_of)

    def __init__(self, reference: Any, lab: Any) -> None:
        self.reference, self.lab = reference, lab
        self.tasks = reference.tasks

    def network(self, **options: Any) -> SlowNetwork:
        return SlowNetwork(self.reference, **options)

    def learn(self, name: str, *, epochs: int, memory: bool, **settings: Any) -> Any:
        """The library's run, task-incremental, or class-incremental with a memory."""
        method = make_method(name, **settings)
        training = self.reference.training(
            lr=RATES[1], lr_first=RATES[0], epochs=epochs, schedule="constant"
        )
        given: dict[str, Any] = {}
        if memory:
            given = {"memory": Memory(per_class=PER_CLASS), "task_aware": False}
        setting = self.reference.setting(method, training, **given)
        return self.lab.learn(method, setting, self.tasks)

    def batches(self, n: int) -> Sequence[Tensor]:
        """The positions of every batch of an epoch."""
        return self.reference.order(n).split(self.reference.settings["batch"])

    def train(
        self,
        model: SlowNetwork,
        images: Images,
        loss: Loss,
        learned: Sequence[Tensor],
        rates: Sequence[float],
        *,
        after: Callable[[list[Tensor], list[Tensor]], None] | None = None,
        limit: float = math.inf,
        mode: bool = True,
    ) -> list[list[float]]:
        """SGD with momentum and weight decay, an epoch for every rate; returns means of terms.

        ``after`` is called after every step with the weights before it and the task's gradients.
        """
        x, y = images
        momentum = self.reference.settings["momentum"]
        decay = self.reference.settings["weight_decay"]
        speed = [torch.zeros_like(weight) for weight in learned]
        means = []
        for rate in rates:
            model.backbone.train(mode)
            totals: list[float] = []
            for index in self.batches(len(y)):
                terms = loss(x[index], y[index])
                of_task = gradients_of(terms[0], learned) if after else []
                gradients = gradients_of(sum(terms), learned)
                before = [weight.detach().clone() for weight in learned]
                with torch.no_grad():
                    for weight, v, gradient in zip(learned, speed, gradients, strict=True):
                        v.mul_(momentum).add_(gradient.clamp(-limit, limit) + decay * weight)
                        weight.sub_(rate * v)
                    if after:
                        after(before, of_task)
                values = [term.item() * len(index) / len(y) for term in terms]
                totals = [a + b for a, b in zip(totals or [0.0] * len(values), values, strict=True)]
            means.append(totals)
        return means

    def accuracy(self, model: SlowNetwork, tasks: int) -> dict[str, list[float]]:
        """The share of test images that get their class, with the task known and not."""
        twin, found = model.copied(), {"taw": [], "tag": []}
        for task in self.tasks[:tasks]:
            test, right = task.load().test, {"taw": 0, "tag": 0}
            for row, label in zip(twin(test.x.dense()).tolist(), test.y.tolist(), strict=True):
                own = row[task.classes]
                right["tag"] += row.index(max(row)) == label
                right["taw"] += task.classes.start + own.index(max(own)) == label
            for kind, count in right.items():
                found[kind].append(count / len(test))
        return found

    @torch.no_grad()
    def herded(self, model: SlowNetwork, task: Any) -> list[int]:
        """Images of every class, each chosen so that their mean follows that of the class."""
        train, chosen = task.load().train, []
        unit = [each / each.norm() for each in model.copied().features(train.x.dense())[0]]
        for label in range(task.classes.start, task.classes.stop):
            free = [place for place, y in enumerate(train.y.tolist()) if y == label]
            mean, taken = sum(unit[place] for place in free) / len(free), torch.zeros(10)
            for count in range(1, PER_CLASS + 1):
                gaps = [(mean - (taken + unit[place]) / count).norm().item() for place in free]
                chosen.append(free.pop(gaps.index(min(gaps))))
                taken = taken + unit[chosen[-1]]
        return chosen

    def stored(self, learned: Any, task: int, stage: str = "main") -> Tensors:
        """The library's network after a stage."""
        return self.reference.named(strip_prefix("network", learned.entry(stage, task).tensors))

    def logged(
        self, learned: Any, task: int, *terms: str, stage: str = "main"
    ) -> list[list[float]]:
        """The library's means of terms, epoch by epoch."""
        log = learned.entry(stage, task).meta["log"]
        return [[row["train"][term] for term in terms] for row in log]

    def evaluated(self, learned: Any, task: int) -> dict[str, list[float]]:
        rows = learned.entry("evaluate", task).meta
        return {"taw": rows["taw"], "tag": rows["tag"]}

    def check(self, name: str, want: Any, got: Any) -> None:
        found = self.reference.compare(want, got)
        found.said(name)
        assert found.left_out == set()


@pytest.fixture
def slow(reference: Any, lab: Any) -> Slow:
    return Slow(reference, lab)
