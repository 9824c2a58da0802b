"""One step of main training: the library against a plain loop and a best one.

    python benchmarks/step.py [--network resnet32|lenet|layer] [--batch 128] [--pairs 60]

(a) plain: channels first, unfolded anchors, the penalty by autograd, default SGD.
(b) best: channels last, fused SGD, folded anchors under no_grad, the penalty's gradient in place.
Both do the same arithmetic on the same images; neither logs or checks anything. The library pays
for its log once per epoch: of 32 steps on the small networks, of a single one on ResNet-32.
Where avalanche-lib is installed, its LwF and EWC take turns with them, and with the library's own
with crops and flips, as Avalanche has them.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path

import peer
import torch
from timing import Ratio, difference, interleaved, median, ratio
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.data import Batches, Normalization, Samples, as_input
from ancl.losses import View
from ancl.methods.registry import make_method
from ancl.networks import Network, architecture, frozen
from ancl.regularizers import Ewc, Lfl, Lwf, Regularizer
from ancl.training.config import Training
from ancl.training.loop import Fit
from ancl.training.objective import Objective, PenaltyTerm, anchor_for

METHODS = ("finetune", "ewc", "a-ewc", "lwf", "a-lwf", "lfl", "a-lfl")
TASKS = (slice(0, 10), slice(10, 20))
NORMALIZATION = Normalization((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023))
LAMB, LAMB_A, LR = 1.0, 0.5, 1e-4  # small, so that hundreds of steps stay where they began


class LeNet(nn.Module):
    """Two convolutions and two layers: where the framework would show, if it did."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, 84)."""
        return self.layers(x)


class Layer(nn.Module):
    """One small layer: little else than the framework is left."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 84), nn.ReLU()
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, 84)."""
        return self.layers(x)


Clock = Callable[[], float]
OWN = {"lenet": LeNet, "layer": Layer}


class Case:
    """One method on one network, with the same start for every loop."""

    def __init__(self, method: str, network: str, batch: int, steps: int = 1) -> None:
        torch.manual_seed(0)
        self.batch = batch
        self.method = method
        backbone = OWN[network]() if network in OWN else network
        self.start = architecture(backbone, (3, 32, 32)).build([10, 10])
        for parameter in self.start.head.block(0):
            parameter.requires_grad_(False)
        self.samples = Samples(
            torch.randint(0, 256, (batch * steps, 32, 32, 3), dtype=torch.uint8),
            torch.randint(10, 20, (batch * steps,)),
        )
        weights = self.start.weights()
        self.fisher = {name: torch.rand_like(w) for name, w in weights.items()}
        self.anchors = [copy.deepcopy(self.start) for _ in range(2)]
        with torch.no_grad():
            for anchor in self.anchors:
                for parameter in anchor.parameters():
                    parameter.add_(0.01 * torch.randn_like(parameter))
        self.lambs = [LAMB, LAMB_A][: {"finetune": 0}.get(method, 2 if method[:2] == "a-" else 1)]

    @property
    def kind(self) -> str:
        """The method without its variant."""
        return self.method.removeprefix("a-")

    def omega(self) -> Regularizer:
        """The library's Ω."""
        return {"ewc": Ewc(), "lwf": Lwf(), "lfl": Lfl()}[self.kind]


def library(case: Case, augment: str = "none") -> Callable[[], object]:
    """The library's own loop, one epoch."""
    network = copy.deepcopy(case.start)
    pulls = []
    for name, lamb, net, classes in zip(
        ("old", "auxiliary"), case.lambs, case.anchors, TASKS, strict=False
    ):
        anchor = anchor_for(case.omega(), net, classes, {"gradients": case.fisher})
        pulls.append(PenaltyTerm(name, lamb, case.omega(), anchor))
    method = make_method("finetune")
    training = Training(epochs=10**6, lr=LR, schedule="constant")
    fit = Fit(
        network,
        Objective(method.task_loss, tuple(pulls)),
        Batches(case.samples, case.batch, NORMALIZATION, augment),
        None,
        View(TASKS, task_aware=True),
        training,
        (0, 1, "main"),
    )
    return fit._train_epoch


def hand_written(case: Case, *, best: bool) -> Callable[[], object]:
    """The same arithmetic written out."""
    network = copy.deepcopy(case.start)
    layout = torch.channels_last if best else torch.contiguous_format
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)
    trained = [p for p in network.parameters() if p.requires_grad]
    options = {"fused": True} if best else {}
    optimizer = torch.optim.SGD(trained, LR, momentum=0.9, weight_decay=2e-4, **options)
    anchors = [frozen(a) if best else plain_copy(a) for a in case.anchors]
    weights = list(network.weights().values())
    centres = [
        [like(w, a.weights()[n]) for n, w in network.weights().items()] for a in case.anchors
    ]
    fishers = [like(w, case.fisher[n]) for n, w in network.weights().items()]
    quadratic = merged(case, fishers, centres) if best and case.kind == "ewc" else None
    moments = torch.tensor(NORMALIZATION.mean), torch.tensor(NORMALIZATION.std)
    network.train()

    def epoch() -> None:
        for index in torch.split(torch.randperm(len(case.samples)), case.batch):
            step(index)

    def step(index: Tensor) -> None:
        y = case.samples.y[index]
        if best:
            x = as_input(case.samples.x[index], NORMALIZATION, torch.device("cpu"))
        else:
            x = case.samples.x[index].permute(0, 3, 1, 2).contiguous().float() / 255
            x = (x - moments[0].view(1, 3, 1, 1)) / moments[1].view(1, 3, 1, 1)
        out = network(x)
        loss = F.cross_entropy(out.logits[:, TASKS[1]], y - 10)
        if case.kind in ("lwf", "lfl"):
            for lamb, anchor, classes in zip(case.lambs, anchors, TASKS, strict=False):
                with torch.no_grad():
                    theirs = anchor(x)
                loss = loss + lamb * distance(case.kind, out, theirs, classes)
        if case.kind == "ewc" and not best:
            for lamb, centre in zip(case.lambs, centres, strict=False):
                loss = loss + lamb * 0.5 * sum(
                    (f * (w - c) ** 2).sum()
                    for f, w, c in zip(fishers, weights, centre, strict=True)
                )
        optimizer.zero_grad()
        loss.backward()
        if quadratic:
            quadratic(weights)
        optimizer.step()

    return epoch


def merged(case: Case, fishers: list[Tensor], centres: list[list[Tensor]]) -> Callable[..., None]:
    """H (θ − a_0) + b, added to the gradients."""
    hessian = [f * sum(case.lambs) for f in fishers]
    offset = (
        [
            case.lambs[1] * f * (a - b)
            for f, a, b in zip(fishers, centres[0], centres[1], strict=True)
        ]
        if len(case.lambs) > 1
        else []
    )

    @torch.no_grad()
    def add(weights: list[Tensor]) -> None:
        gradients = [w.grad for w in weights]
        torch._foreach_addcmul_(gradients, hessian, torch._foreach_sub(weights, centres[0]))
        if offset:
            torch._foreach_add_(gradients, offset)

    return add


def distance(kind: str, ours: object, theirs: object, classes: slice) -> Tensor:
    """LwF's or LFL's formula."""
    if kind == "lwf":
        soft = (theirs.logits[:, classes] / 2).softmax(1)
        return F.cross_entropy(ours.logits[:, classes] / 2, soft)
    a, b = (
        F.normalize(f - f.mean(1, keepdim=True), dim=1) for f in (ours.features, theirs.features)
    )
    return F.mse_loss(a, b)


def plain_copy(network: Network) -> Network:
    """An anchor as a plain loop has it."""
    twin = copy.deepcopy(network).eval().requires_grad_(False)
    for parameter in twin.parameters():
        parameter.data = parameter.data.contiguous()
    return twin


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy with the parameter's strides."""
    return torch.empty_like(parameter).copy_(value)


def measured(case: Case, steps: int, pairs: int, clock: Clock) -> dict[str, object]:
    """The library's milliseconds a step, and its time over that of every other loop."""
    runs = {"library": library(case), "plain": hand_written(case, best=False)}
    runs["best"] = hand_written(case, best=True)
    compared = case.method in peer.KINDS and peer.available()
    if compared:
        runs |= {"cropped": library(case, "crop"), "avalanche": avalanche(case)}
    taken = interleaved(runs, pairs, clock)
    ours, plain, best = (taken[name] for name in ("library", "plain", "best"))
    row: dict[str, object] = {
        "library ms": round(1000 * median(ours) / steps, 2),
        "/ plain": ratio(ours, plain),
        "/ best": ratio(ours, best),
        "− best ms": difference([t / steps for t in ours], [t / steps for t in best]),
    }
    if compared:
        row["avalanche / library, both with crops"] = ratio(taken["avalanche"], taken["cropped"])
    return row


def avalanche(case: Case) -> Callable[[], object]:
    """Avalanche's own loop, one epoch, with random crops and flips."""
    backbone = plain_copy(case.start).backbone.requires_grad_(True)
    images = case.samples.x.dense()
    return peer.epoch(case.method, backbone, images, case.batch, LR, NORMALIZATION)


def auxiliary_cost(network: str, batch: int, steps: int, pairs: int, clock: Clock) -> Ratio:
    """What the second anchor adds to a step of the library, in rounds of its own."""
    runs = {name: library(Case(name, network, batch, steps)) for name in ("ewc", "a-ewc")}
    taken = interleaved(runs, pairs, clock)
    each = {name: [seconds / steps for seconds in ts] for name, ts in taken.items()}
    return difference(each["a-ewc"], each["ewc"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet32", choices=["resnet32", *OWN])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--busy", action="store_true", help="CPU time, where others keep it busy")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    steps = 32 if given.network in OWN else 1
    clock = time.process_time if given.busy else time.perf_counter
    print(
        f"{given.network}, batch {given.batch}, {given.threads} threads, "
        f"{given.pairs} interleaved rounds of {steps} steps"
    )
    rows = {}
    for method in given.methods.split(","):
        case = Case(method, given.network, given.batch, steps)
        rows[method] = measured(case, steps, given.pairs, clock)
        print(f"{method:9} " + ", ".join(f"{k} {v}" for k, v in rows[method].items()), flush=True)
    if {"ewc", "a-ewc"} <= set(rows):
        cost = auxiliary_cost(given.network, given.batch, steps, given.pairs, clock)
        print("a-ewc − ewc, ms:", cost)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
