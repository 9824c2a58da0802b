"""DMC: centring by hand, and two anchors as the original's one mean."""

import pytest
import torch

from tests.lab import Dmc


def test_centring_by_sample_and_by_batch(logit_penalty) -> None:
    ours = torch.tensor([[1.0, 0.0, 9.0], [0.0, 0.0, 9.0]])
    theirs = torch.tensor([[3.0, 1.0, 7.0], [1.0, 7.0, 7.0]])

    # (3, 1) − 2 = (1, −1), (1, 7) − 4 = (−3, 3): (0 + 1 + 9 + 9)/4
    value = logit_penalty(Dmc(), ours, theirs, classes=slice(0, 2))
    assert value.item() == 4.75
    # over all classes: (3, 1, 7) − 11/3 = (−2, −8, 10)/3 and (1, 7, 7) − 5 = (−4, 2, 2)
    every = logit_penalty(Dmc(), ours, theirs)
    assert every.item() == pytest.approx(((25 + 64 + 289) / 9 + 16 + 4 + 49) / 6)
    # less the batch's (2, 4, 7): (1, −3, 0) and (−1, 3, 0)
    batch = logit_penalty(Dmc(centring="batch"), ours, theirs)
    assert batch.item() == pytest.approx((0 + 9 + 81 + 1 + 9 + 81) / 6)


@pytest.mark.parametrize("centring", ["sample", "batch"])
def test_both_terms_are_the_originals_mean_over_all_classes(logit_penalty, centring) -> None:
    draw = torch.Generator().manual_seed(1)
    ours, old, auxiliary = torch.randn(3, 6, 5, generator=draw, dtype=torch.float64)
    omega, earlier, new = Dmc(centring), slice(0, 3), slice(3, 5)

    two = 3 / 5 * logit_penalty(omega, ours, old, classes=earlier)
    two = two + 2 / 5 * logit_penalty(omega, ours, auxiliary, classes=new)

    axis = 1 if centring == "sample" else 0
    parts = [old[:, earlier], auxiliary[:, new]]
    targets = torch.cat([part - part.mean(axis, keepdim=True) for part in parts], dim=1)
    assert two.item() == pytest.approx(torch.nn.functional.mse_loss(ours, targets).item())
