"""LwM: attention by hand, against Grad-CAM by automatic differentiation, and its gradient."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl import MethodError
from ancl.extend import Network, Output
from tests.lab import LinearHead, Lwf, Lwm, ResNet, attention_map


def test_a_map_is_the_rows_sum_of_activations() -> None:
    # Two channels of 1 x 2 pixels: (3, −1) and (1, 2); the ReLU takes −1 away.
    stage = torch.tensor([[[[3.0, -1.0]], [[1.0, 2.0]]]])

    # 1·3 + 0·1 and 1·0 + 0·2
    assert attention_map(stage, torch.tensor([[1.0, 0.0]])).tolist() == [[1.0, 0.0]]
    # 3 + 1 = 4 and 0 + 2 = 2, of length √20
    joint = attention_map(stage, torch.tensor([[1.0, 1.0]]))[0]
    assert joint.tolist() == pytest.approx([4 / 20**0.5, 2 / 20**0.5])
    # −1·3 + 4·1 = 1, −1·0 + 4·2 = 8; and with −4: negative sums are cut off
    mixed = attention_map(stage, torch.tensor([[-1.0, 4.0]]))[0]
    assert mixed.tolist() == pytest.approx([1 / 65**0.5, 8 / 65**0.5])
    assert attention_map(stage, torch.tensor([[-1.0, -4.0]])).tolist() == [[0.0, 0.0]]


def test_rows_are_grad_cams_weights() -> None:
    torch.manual_seed(0)
    head = LinearHead(16)
    head.grow(5)
    network = Network(ResNet(8, width=4), head).double().eval()
    images = torch.randn(6, 3, 8, 8, dtype=torch.float64)
    out = network(images, maps=True)
    activations = F.relu(out.maps[-1]).detach().requires_grad_()
    scores = head(activations.mean(dim=(2, 3)))
    torch.testing.assert_close(scores, out.logits)
    top = scores.argmax(dim=1)

    (gradients,) = torch.autograd.grad(scores.gather(1, top.unsqueeze(1)).sum(), activations)
    weights = gradients.mean(dim=(2, 3), keepdim=True)
    cam = F.normalize(F.relu((weights * activations).sum(dim=1)).flatten(1), dim=1)

    assert cam.abs().sum() > 0
    torch.testing.assert_close(attention_map(out.maps[-1], head.rows()[top]), cam)


def pieces(seed: int = 0) -> tuple[Output, Output, tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    logits, theirs = torch.randn(2, 3, 4, generator=draw, dtype=torch.float64)
    stages = torch.randn(2, 3, 5, 2, 2, generator=draw, dtype=torch.float64)
    rows = torch.randn(2, 4, 5, generator=draw, dtype=torch.float64)
    blank = torch.zeros(3, 5, dtype=torch.float64)
    return (
        Output(logits, blank, (stages[0].requires_grad_(),)),
        Output(theirs, blank, (stages[1],)),
        (rows[0].requires_grad_(), rows[1]),
    )


def test_the_penalty_is_distillation_plus_attention_of_the_anchors_top_class(penalty) -> None:
    ours, theirs, rows = pieces()
    classes = slice(1, 3)
    distance = 0.0
    for index in range(3):
        top = 1 if theirs.logits[index, 1] > theirs.logits[index, 2] else 2
        maps = []
        for out, head in ((ours, rows[0]), (theirs, rows[1])):
            stage = out.maps[0][index].clamp(min=0)
            seen = sum(head[top, c] * stage[c] for c in range(5)).clamp(min=0).flatten()
            maps.append(seen / seen.norm())
        distance += (maps[0] - maps[1]).abs().sum() / 3

    value = penalty(Lwm(2.0, gamma=0.5), ours, theirs, classes=classes, rows=rows)
    distillation = penalty(Lwf(2.0), ours, theirs, classes=classes)

    torch.testing.assert_close(value, distillation + 0.5 * distance)


def test_the_gradient_reaches_maps_and_rows_unless_detached(penalty) -> None:
    ours, theirs, rows = pieces()
    flowing = penalty(Lwm(), ours, theirs, rows=rows)
    detached = penalty(Lwm(attention="detached"), ours, theirs, rows=rows)

    gradients = torch.autograd.grad(flowing, [ours.maps[0], rows[0]])

    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    assert detached.item() == flowing.item()
    assert not detached.requires_grad


def test_attention_is_at_rest_at_the_anchor(penalty) -> None:
    ours, _, rows = pieces()
    theirs = Output(ours.logits, ours.features, (ours.maps[0].detach(),))

    value = penalty(Lwm(gamma=1.0), ours, theirs, rows=(rows[0], rows[0].detach()))

    torch.testing.assert_close(value, penalty(Lwf(), ours, theirs))


def test_a_head_without_rows_is_refused(penalty) -> None:
    ours, theirs, _ = pieces()
    with pytest.raises(MethodError, match="head='linear'"):
        penalty(Lwm(), ours, theirs)


def test_smoothing_is_that_of_the_distillation(penalty) -> None:
    ours, theirs, rows = pieces()

    plain, smooth = (penalty(Lwm(smoothing=s), ours, theirs, rows=rows) for s in (0.0, 0.1))

    expected = penalty(Lwf(2.0, 0.1), ours, theirs) - penalty(Lwf(2.0), ours, theirs)
    torch.testing.assert_close(smooth - plain, expected)
    assert abs(expected.item()) > 1e-3
