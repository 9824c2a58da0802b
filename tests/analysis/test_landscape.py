from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import AnclError
from tests.lab import (
    LandscapeTables,
    Plane,
    PointEvaluator,
    Samples,
    SplitImages,
    grid,
    interleaved,
    split_images,
    vector,
)


def networks(width: int = 50) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(width, generator=draw).double() for _ in range(4)]


def test_known_coordinates_are_found_again() -> None:
    first, second, third, other = networks()
    plane = Plane.through(first, second, third)
    across = other - sum((other @ axis) / (axis @ axis) * axis for axis in (plane.u, plane.v))
    across = across / across.norm()

    inside = plane.locate(plane.point(-0.2, 1.1))
    outside = plane.locate(plane.point(0.7, -0.4) + 0.25 * across)

    assert (inside.x, inside.y) == pytest.approx((-0.2, 1.1), abs=1e-5)
    assert inside.residual < 1e-6 * plane.lengths[0]
    assert outside == pytest.approx((0.7, -0.4, 0.25), abs=1e-9)


def test_old_auxiliary_and_multitask_network_lie_where_they_should() -> None:
    first, second, third, _ = networks()
    plane = Plane.through(first, second, third)

    assert float(plane.u @ plane.v) == pytest.approx(0.0, abs=1e-9)
    assert torch.equal(plane.point(0, 0), first)
    assert torch.allclose(plane.point(1, 0), second)
    assert plane.locate(third).y == pytest.approx(1.0)
    assert plane.locate(third).residual < 1e-9


@pytest.mark.parametrize("second", [0.0, 2.0])
def test_networks_on_a_line_span_no_plane(second: float) -> None:
    first, end, *_ = networks()

    with pytest.raises(AnclError, match="are on one line"):
        Plane.through(first, first + second * (end - first), end)


def test_the_grid_is_the_papers_range() -> None:
    points = grid(3)

    assert points[:2] == [(-0.3, -0.3), (0.5, -0.3)]
    assert points[-1] == (1.3, 1.3)
    assert len(points) == 9


def test_tasks_are_interleaved() -> None:
    first = Samples(torch.zeros(4, 1), torch.zeros(4).long())
    second = Samples(torch.zeros(2, 1), torch.ones(2).long())

    assert interleaved([first, second]).y.tolist() == [0, 1, 0, 0, 0, 1]


def test_running_statistics_are_the_mean_over_training_images(lab: Any) -> None:
    tasks, setting = lab.tasks()[:2], lab.setting(lab.conv())
    network = setting.architecture.build([2, 2])
    training = split_images(tasks, "train", None, 0)
    evaluator = PointEvaluator(network, training, training, [t.classes for t in tasks], setting)
    norm = next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d))
    norm.running_mean.fill_(99.0)  # type: ignore[union-attr]

    evaluator.reestimate_batch_norms()

    x = torch.cat([batch.x for batch in evaluator._batches().in_order()])
    first = network.backbone[0](x)  # type: ignore[index]
    assert torch.allclose(norm.running_mean, first.mean(dim=(0, 2, 3)), atol=1e-5)  # type: ignore
    assert torch.allclose(norm.running_var, first.var(dim=(0, 2, 3)), rtol=1e-4)  # type: ignore
    assert norm.momentum == 0.1
    assert not norm.training


def test_anchors_score_as_their_networks_do_after_the_same_estimate(ewc: Any) -> None:
    context = ewc.context
    landscape = LandscapeTables(context)
    multi = landscape.plane.locate(vector(context.networks.multi.tensors, context.names))
    places = {"old": (0.0, 0.0), "auxiliary": (1.0, 0.0), "multi": (multi.x, 1.0)}

    for name, (x, y) in places.items():
        own = landscape.evaluator.at(vector(context.references[name], context.names))
        found = landscape.evaluator.at(landscape.plane.point(x, y))
        assert [s.taw for s in found] == [s.taw for s in own]
        assert [s.tag for s in found] == [s.tag for s in own]
        assert [s.loss for s in found] == pytest.approx([s.loss for s in own], abs=1e-4)


def test_a_score_is_the_accuracy_counted_by_hand(lab: Any) -> None:
    tasks, setting = lab.tasks()[:2], lab.setting()
    network = setting.architecture.build([2, 2])
    samples = tasks[1].load().test
    evaluator = PointEvaluator(
        network,
        [SplitImages(1, samples)],
        [SplitImages(1, samples)],
        [t.classes for t in tasks],
        setting,
    )
    weights = vector(dict(network.named_parameters()), [n for n, _ in network.named_parameters()])

    (score,) = evaluator.at(weights)

    x = next(evaluator._batches().in_order()).x
    shuffled = interleaved([samples])
    with torch.no_grad():
        logits = network(x).logits
    own = logits[:, 2:4].argmax(dim=1) + 2
    y = shuffled.y[: len(x)]
    assert score.taw == pytest.approx(float((own == y).double().mean()))
    assert score.tag == pytest.approx(float((logits.argmax(dim=1) == y).double().mean()))
    losses = -logits[:, 2:4].log_softmax(dim=1)[torch.arange(len(y)), y - 2]
    assert score.loss == pytest.approx(float(losses.mean()), rel=1e-5)
