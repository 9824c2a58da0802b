import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.lab import hessian_product, top_eigenvalue


def tiny() -> tuple[nn.Module, list[nn.Parameter], Tensor, Tensor]:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return net, list(net.parameters()), torch.randn(12, 3).double(), torch.randint(0, 2, (12,))


def explicit(net: nn.Module, weights: list[nn.Parameter], x: Tensor, y: Tensor) -> Tensor:
    """The Hessian, a row for each derivative."""
    loss = F.cross_entropy(net(x), y)
    slope = torch.autograd.grad(loss, weights, create_graph=True)
    flat = torch.cat([each.flatten() for each in slope])
    rows = [torch.autograd.grad(entry, weights, retain_graph=True) for entry in flat]
    return torch.stack([torch.cat([each.flatten() for each in row]) for row in rows])


def test_products_and_largest_eigenvalue_are_those_of_the_explicit_hessian() -> None:
    net, weights, x, y = tiny()
    hessian = explicit(net, weights, x, y)
    direction = torch.randn(len(hessian), generator=torch.Generator().manual_seed(2)).double()

    def losses() -> list[Tensor]:
        # In two parts of unequal size, each with its share of the images.
        cuts = ((0, 5), (5, 12))
        return [(b - a) / 12 * F.cross_entropy(net(x[a:b]), y[a:b]) for a, b in cuts]

    product = hessian_product(losses, weights, direction)
    found = top_eigenvalue(losses, weights, iterations=500, tolerance=1e-12)

    assert torch.allclose(product, hessian @ direction, atol=1e-12)
    assert found == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-6)


def test_the_largest_eigenvalue_is_found_behind_a_larger_negative_one() -> None:
    w = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    curvature = torch.tensor([-9.0, 2.0, 1.0], dtype=torch.float64)

    def losses() -> list[Tensor]:
        return [(0.5 * curvature * w.square()).sum()]

    assert top_eigenvalue(losses, [w], iterations=500, tolerance=1e-12) == pytest.approx(
        2.0, rel=1e-5
    )


def test_weights_the_loss_does_not_read_have_no_curvature() -> None:
    used = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    idle = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)

    found = hessian_product(lambda: [3 * used.square().sum()], [used, idle], torch.ones(2).double())

    assert found.tolist() == [6.0, 0.0]
