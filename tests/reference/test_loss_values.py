"""Losses, gradients, herding and alignment give the numbers that public code gave."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ancl import Memory, Method, make_method
from ancl.extend import Anchor, Network, Objective, Output, PenaltyTerm, Step
from tests.lab import HEADS, Align, Head, LinearHead, Samples, select, weight_at

SIZES = (4, 3, 3)
OLD, ALL = slice(0, 7), 10
TASKS = (slice(0, 4), slice(4, 7), slice(7, 10))
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "podnet_nca": ("podnet", {"lamb": 0.0, "proxies": 3}),
    "podnet_flat": ("podnet", {"lamb": 1.0, "spatial": 0.0, "pod_norm": "l2"}),
    "podnet_spatial": ("podnet", {"lamb": 1.0, "spatial": 3.0, "flat": 0.0, "pod_norm": "l2"}),
    "wa_total": ("wa", {"bias": True, "nonnegative": False}),
    "icarl_softmax_total": ("icarl", {"lamb": 1.0, "distill": "softmax"}),
    "lwf_total": ("lwf", {"lamb": 3.0, "smoothing": 0.0}),
    "icarl_total": ("icarl", {"lamb": 0.7}),
    "bic_total": ("bic", {"lamb": 3.0, "smoothing": 0.0}),
    "bic_total_eps": ("bic", {"lamb": 3.0, "smoothing": 1e-5}),
    "lucir_task": ("lucir", {"lamb": 5.0}),
    "lucir_old": ("lucir", {"lamb": 5.0}),
    "lucir_margin": ("lucir", {"lamb": 5.0}),
    "dmc_total": ("dmc", {"centring": "batch"}),
}
TOTALS = ("total", "softmax_total", "total_eps")
PARTS = {
    "podnet_nca": "task",
    "podnet_flat": "old",
    "podnet_spatial": "old",
    "lucir_task": "task",
    "lucir_old": "old",
    "lucir_margin": "margin",
}
"""Where a file has one term of a loss alone."""


@dataclass(eq=False)
class Inputs:
    """What the losses read, by formulas."""

    y: Tensor
    logits: Tensor
    features: Tensor
    maps: tuple[Tensor, ...]
    old: Output
    auxiliary: Output


@pytest.fixture
def inputs(reference) -> Inputs:
    sizes, unit = reference.settings["losses"], reference.unit
    batch, width, shapes = sizes["batch"], sizes["features"], sizes["maps"]
    assert tuple(sizes["classes"]) == SIZES
    y = [OLD.stop + i % 3 for i in range(batch - 5)] + [2 * i % OLD.stop for i in range(5)]
    maps, old_maps = (
        tuple(unit(start + j, (batch, *shape)) for j, shape in enumerate(shapes))
        for start in (510, 520)
    )
    answers = [unit(508, (batch, OLD.stop)), 2 * unit(502, (batch, 3))]
    return Inputs(
        torch.tensor(y),
        2 * unit(500, (batch, ALL)),
        unit(503, (batch, width)),
        maps,
        Output(2 * unit(501, (batch, OLD.stop)), unit(504, (batch, width)), old_maps),
        Output(torch.cat(answers, dim=1), unit(504, (batch, width))),
    )


def taught(case: str) -> Method:
    name, settings = METHODS[case]
    return make_method(name, **settings)


def loss(case: str, inputs: Inputs, output: Output, head: Head | None, count: int) -> Tensor:
    """The method's own objective on given answers of the network and its anchors."""
    method, counts = taught(case), (OLD.stop, 3)
    old, new = Anchor(OLD), Anchor(TASKS[-1])
    pulls = []
    if method.old and method.old.lamb:
        lamb = weight_at(method.old.lamb, *counts)
        pulls.append(PenaltyTerm("old", lamb, method.old.regularizer, old))
    if method.auxiliary:
        lamb_a = weight_at(method.auxiliary.lamb_a, *counts)
        pulls.append(PenaltyTerm("auxiliary", lamb_a, method.auxiliary.regularizer, new))
    objective = Objective(
        method.task_loss,
        pulls,
        task_weight=weight_at(method.task_weight, *counts),
        extras=method.extras,
    )
    first = {
        a: Output(o.logits[:count], o.features[:count], o.maps)
        for a, o in (
            (old, inputs.old),
            (new, inputs.auxiliary),
        )
    }
    step = Step(
        torch.zeros(count, 1),
        inputs.y[:count],
        output,
        {},
        TASKS,
        # LwF learns without a memory: the new classes compete among themselves.
        rehearses=case != "lwf_total",
        answers=first,
        scale=head.scale if head else None,
    )
    terms = objective(step)
    return terms[PARTS[case]] if case in PARTS else torch.stack(list(terms.values())).sum()


@pytest.mark.parametrize("case", [case for case in METHODS if case.partition("_")[2] in TOTALS])
def test_losses_of_logits(case, reference, inputs) -> None:
    count = len(inputs.y) - 5 if case == "lwf_total" else len(inputs.y)
    logits = inputs.logits.requires_grad_()

    value = loss(case, inputs, Output(logits[:count], inputs.features), None, count)
    value.backward()

    got = {"loss": value.item(), "gradients": {"logits": logits.grad}}
    found = reference.compare(reference.load("losses")["cases"][case], got)
    found.said(case)
    assert found.left_out == {"source"}


@pytest.mark.parametrize("case", ["podnet_flat", "podnet_spatial"])
def test_pooled_outputs(case, reference, inputs) -> None:
    features = inputs.features.requires_grad_()
    maps = tuple(stage.requires_grad_() for stage in inputs.maps)

    value = loss(case, inputs, Output(inputs.logits, features, maps), None, len(inputs.y))
    value.backward()

    gradients = {"features": features.grad}
    if case == "podnet_spatial":
        gradients = {f"map{j}": stage.grad for j, stage in enumerate(maps)}
        assert not features.grad.any()
    got = {"loss": value.item(), "gradients": gradients}
    found = reference.compare(reference.load("losses")["cases"][case], got)
    found.said(case)
    assert found.left_out == {"source"}


def directions(case: str, rows: Tensor) -> Head:
    """The method's own head with these rows and η = 1.7."""
    method = taught(case)
    head = HEADS[method.head](rows.shape[1], **method.head_options)
    per_class = len(rows) // ALL
    with torch.no_grad():
        for size, block in zip(SIZES, rows.split([per_class * s for s in SIZES]), strict=True):
            head.grow(size)
            head.block(-1)[0].copy_(block)
        head.scale.fill_(1.7)
    return head


@pytest.mark.parametrize(
    ("case", "tag"),
    [("podnet_nca", 507), ("lucir_task", 506), ("lucir_old", 506), ("lucir_margin", 506)],
)
def test_losses_of_heads_that_compare_directions(case, tag, reference, inputs) -> None:
    proxies = reference.settings["losses"]["proxies"] if case == "podnet_nca" else 1
    head = directions(case, reference.unit(tag, (ALL * proxies, inputs.features.shape[1])))
    features = inputs.features.requires_grad_()
    output = Output(head(features), features)

    value = loss(case, inputs, output, head, len(inputs.y))
    value.backward()

    blocks = [head.block(index)[0] for index in range(3)]
    rows = torch.cat([torch.zeros_like(b) if b.grad is None else b.grad for b in blocks])
    gradients = {"features": features.grad, "scale": head.scale.grad}
    got: dict[str, Any] = {"loss": value.item(), "gradients": gradients}
    gradients["proxies" if case == "podnet_nca" else "rows"] = rows
    if head.scale.grad is None:
        gradients["scale"] = torch.zeros(())
    if case == "podnet_nca":
        got["logits_over_scale"] = output.logits / head.scale
    found = reference.compare(reference.load("losses")["cases"][case], got)
    found.said(case)
    assert found.left_out == {"source"}


def test_herding(reference, inputs) -> None:
    features = reference.unit(530, (24, inputs.features.shape[1]))
    images = Samples(torch.arange(24), torch.arange(24) % 3)

    def answer(samples: Samples) -> Output:
        return Output(torch.zeros(len(samples), 3), features[samples.x.dense()])

    kept = select(Memory(6), images, answer, task=0, count=6, randomness=Generator())

    got = {"picked": kept.samples.x.dense().reshape(3, 6).tolist()}
    found = reference.compare(reference.load("losses")["cases"]["herding"], got)
    found.said("herding")
    assert found.left_out == {"source"}


def test_alignment(reference, inputs) -> None:
    head = LinearHead(inputs.features.shape[1])
    rows = reference.unit(506, (ALL, head.feature_size))
    for size, block in zip(SIZES, rows.split(SIZES), strict=True):
        head.grow(size)
        with torch.no_grad():
            head.weights[-1].copy_(block)
    work = SimpleNamespace(network=lambda: Network(nn.Identity(), head))

    result = Align().run(work)

    aligned = torch.cat([result.tensors[f"network/head.weights.{i}"] for i in range(3)])
    got = {"rows": aligned, "gamma": result.meta["gamma"]}
    found = reference.compare(reference.load("losses")["cases"]["wa_align"], got)
    found.said("wa_align")
    assert found.left_out == {"source"}


def test_every_recorded_loss_is_compared(reference) -> None:
    assert reference.load("losses")["cases"].keys() == {*METHODS, "herding", "wa_align"}
