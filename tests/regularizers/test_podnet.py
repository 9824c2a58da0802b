"""POD: the released and the paper's forms by hand, their parts, and the gradient at rest."""

from dataclasses import replace

import pytest
import torch

from ancl.extend import Output
from tests.lab import Pod

OURS = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]], dtype=torch.float64)
THEIRS = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]], dtype=torch.float64)
LATEX = Pod(square=False, normalize="none", flat_form="l2")


def test_pooling_by_hand() -> None:
    # over the width 1 + 4, 9 + 16; over the height 1 + 9, 4 + 16; of length √1150
    assert Pod(normalize="none").pooled(OURS).tolist() == [[5, 25, 10, 20]]
    assert Pod(normalize="none", square=False).pooled(OURS).tolist() == [[3, 7, 4, 6]]
    joint = [0.147442, 0.737210, 0.294884, 0.589768]
    assert Pod().pooled(OURS)[0].tolist() == pytest.approx(joint, abs=1e-6)
    assert Pod().pooled(THEIRS)[0].tolist() == pytest.approx([0.5] * 4)


def test_width_and_height_are_pooled_apart() -> None:
    stage = torch.arange(12.0).reshape(1, 2, 3, 2)

    # rows of both channels, then columns of both
    pooled = Pod(square=False, normalize="none").pooled(stage)
    assert pooled.tolist() == [[1, 5, 9, 13, 17, 21, 6, 9, 24, 27]]


def test_spatial_distances_by_hand(map_penalty) -> None:
    spatial = {"flat": 0.0}

    assert map_penalty(Pod("l2", **spatial), OURS, THEIRS).item() == pytest.approx(
        0.480309, abs=1e-6
    )
    assert map_penalty(Pod(**spatial), OURS, THEIRS).item() == pytest.approx(0.230697, abs=1e-6)
    # differences (2, 6, 3, 5): 40 over the width and 34 over the height
    assert map_penalty(LATEX, OURS, THEIRS).item() == pytest.approx(74)
    assert map_penalty(Pod(spatial=3.0, **spatial), OURS, THEIRS).item() == pytest.approx(
        3 * 0.230697, abs=1e-5
    )


def test_flat_distances_by_hand(penalty) -> None:
    ours, theirs = torch.tensor([[3.0, 4.0]]).double(), torch.tensor([[4.0, 3.0]]).double()
    outs = [Output(torch.zeros(1, 2), f, (OURS,)) for f in (ours, theirs)]

    # 1 − 24/25, half the squared distance .08 of both at length 1; (3 − 4)² + (4 − 3)²
    assert penalty(Pod(), *outs).item() == pytest.approx(0.04)
    assert penalty(LATEX, *outs).item() == pytest.approx(2.0)
    assert penalty(Pod(flat=2.5), *outs).item() == pytest.approx(0.1)


def test_stages_and_the_batch_are_averaged(penalty, map_penalty) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 4, 4), (3, 4, 2, 2)]
    ours, theirs = (
        tuple(torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)
        for _ in range(2)
    )
    blank = torch.ones(3, 2, dtype=torch.float64)
    omega = Pod("l2")

    value = penalty(omega, Output(blank, blank, ours), Output(blank, blank, theirs))

    each = [
        map_penalty(omega, a[[i]], b[[i]]).item()
        for a, b in zip(ours, theirs, strict=True)
        for i in range(3)
    ]
    assert value.item() == pytest.approx(sum(each) / 6)


@pytest.mark.parametrize("norm", ["l2", "l2sq"])
@pytest.mark.parametrize("form", [Pod(), LATEX])
def test_at_the_anchor_nothing_pulls(map_penalty, norm, form) -> None:
    stage = torch.randn(2, 3, 4, 4, requires_grad=True)

    value = map_penalty(replace(form, norm=norm, flat=0.0), stage, stage.detach())
    value.backward()

    assert value.item() == 0
    assert stage.grad is not None
    assert stage.grad.abs().max().item() == 0
