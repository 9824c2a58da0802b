"""iCaRL: all three forms by hand, and the original's one loss out of two parts."""

import pytest
import torch
from torch import Tensor

from ancl.extend import CrossEntropy, Output, Step
from tests.lab import Icarl, Lwf, OneHot

LOGITS = torch.tensor([[1.0, -1.0, 2.0]], dtype=torch.float64)
OLD_LOGITS = torch.tensor([[0.0, 0.5]], dtype=torch.float64)
OLD = slice(0, 2)


def step(logits: Tensor, y: int, tasks: tuple[slice, ...]) -> Step:
    return Step(logits, torch.tensor([y]), Output(logits, logits), {}, tasks)


def test_classes_are_summed_on_the_published_scale(logit_penalty) -> None:
    # σ(1) against .5: .813262; σ(−1) against σ(.5): .935721
    value = logit_penalty(Icarl(), LOGITS, OLD_LOGITS, classes=OLD)
    mean = logit_penalty(Icarl("bce_mean"), LOGITS, OLD_LOGITS, classes=OLD)

    assert value.item() == pytest.approx(1.748983, abs=1e-6)
    assert mean.item() == pytest.approx(1.748983 / 2, abs=1e-6)
    entropy = CrossEntropy()(step(LOGITS, 2, (OLD, slice(2, 3))))
    assert entropy.item() == pytest.approx(0.349012, abs=1e-6)
    assert (entropy + 0.5 * value).item() == pytest.approx(1.223504, abs=1e-6)


def test_the_batch_is_averaged(logit_penalty) -> None:
    logits, old = torch.randn(2, 4, 3, dtype=torch.float64)

    each = [logit_penalty(Icarl(), logits[[i]], old[[i]]).item() for i in range(4)]

    assert logit_penalty(Icarl(), logits, old).item() == pytest.approx(sum(each) / 4)


def test_the_original_is_one_mean_over_all_outputs(logit_penalty) -> None:
    # (.813262, .935721, .126928): the last is σ(2) against one-hot 1
    own = OneHot()(step(LOGITS, 2, (OLD, slice(2, 3))))
    kept = logit_penalty(Icarl("bce_mean"), LOGITS, OLD_LOGITS, classes=OLD)

    assert (own + 2 / 3 * kept).item() == pytest.approx(0.625304, abs=1e-6)


def test_an_exemplar_is_none_of_the_new_classes() -> None:
    # −log(1 − σ(2)) = 2.126928, over three outputs
    own = OneHot()(step(LOGITS, 0, (OLD, slice(2, 3))))
    # in the first task all three outputs are the task's own: .313262 + .313262 + 2.126928
    first = OneHot()(step(LOGITS, 0, (slice(0, 3),)))

    assert own.item() == pytest.approx(2.126928 / 3, abs=1e-6)
    assert first.item() == pytest.approx((0.313262 + 0.313262 + 2.126928) / 3, abs=1e-6)


def test_softmax_is_lwfs(logit_penalty) -> None:
    logits, old = torch.randn(2, 4, 5)
    found = logit_penalty(Icarl("softmax", 3.0), logits, old, classes=slice(1, 4))

    assert found.item() == logit_penalty(Lwf(3.0), logits, old, classes=slice(1, 4)).item()


def test_the_gradient_of_the_sum(logit_penalty) -> None:
    """σ(z) − σ(z*) for each of the anchor's classes, over the batch."""
    logits, old = torch.randn(2, 4, 5, dtype=torch.float64)
    logits.requires_grad_()

    logit_penalty(Icarl(), logits, old, classes=slice(0, 3)).backward()

    expected = (logits.detach().sigmoid() - old.sigmoid()) / 4
    expected[:, 3:] = 0
    torch.testing.assert_close(logits.grad, expected)
