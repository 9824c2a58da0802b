"""The rules from statistics to a classifier: what they try, and what they do not depend on."""

from typing import Any

import numpy as np
import pytest
import torch

from ancl import MethodError
from tests.lab import (
    COMPUTED,
    FitData,
    Grid,
    Ledger,
    LogisticRule,
    RidgeRule,
    Statistics,
    choose_penalty,
    downhill,
    held_loss,
    patch_part,
    penalties_to_try,
    ridge,
)

GRID, SIZE, CLASSES = Grid(10), 10, 4


def known(keep: str = "ledger", order: Any = None, images: int = 120) -> Any:
    """Statistics of images around four means; classes under other numbers, if an order is given."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (images,), generator=draw)
    features = 2 * torch.eye(CLASSES, SIZE)[y] + torch.randn(images, SIZE, generator=draw)
    words = torch.from_numpy(np.arange(4 * images, dtype=np.int64).reshape(images, 4))
    held = torch.rand(images, generator=draw) < 0.3
    numbers = y if order is None else torch.tensor(order)[y]
    rows = GRID.put(features).rows
    ledger = Ledger.of(words, torch.zeros(images, dtype=torch.long), numbers, held, rows)
    return Statistics.none(GRID, SIZE, keep).padded(CLASSES).add(ledger)


def test_downhill_ends_where_all_would() -> None:
    losses = {10.0**power: (power - 2) ** 2 for power in range(-3, 5)}
    for start in (1e-9, 1.0, 90.0, 1e9):
        asked = list[float]()

        def loss(penalty: float, asked: list[float] = asked) -> float:
            asked.append(penalty)
            return losses[penalty]

        assert downhill(list(losses), loss, start) == choose_penalty(losses) == 100.0
    assert downhill([5.0], losses.get, 1.0) == 5.0


def test_the_penalty_is_the_best_of_all_on_held_images() -> None:
    data = FitData(known())
    features, y = data.held
    losses = {
        penalty: held_loss(ridge(data.sums, GRID, penalty).scores(features), y)
        for penalty in penalties_to_try(data.sums, GRID)
    }

    choice = RidgeRule().fit(data).choice
    assert choice is not None
    assert choice.penalty == choose_penalty(losses)
    assert choice.held == len(y) > 20


@pytest.mark.parametrize("name", ["ncm", "slda", "ridge", "logistic", "auto"])
def test_the_order_of_classes_changes_no_bit(name: str) -> None:
    rule, order = COMPUTED[name]().finish[1].rule, [2, 0, 3, 1]
    one, two = rule.fit(FitData(known())), rule.fit(FitData(known(order=order)))

    assert one.choice == two.choice
    assert torch.equal(one.tensors["weight"], two.tensors["weight"][order])
    assert torch.equal(one.tensors["bias"], two.tensors["bias"][order])


def test_classes_of_other_tasks_do_not_compete_where_the_task_is_known() -> None:
    groups = torch.tensor([0, 0, 1, 1])
    data = FitData(known(), groups)
    scores = data.compared(torch.zeros(len(data.held[1]), CLASSES))

    assert scores.isinf().sum(dim=1).tolist() == [2] * len(scores)
    own = scores.gather(1, data.held[1].unsqueeze(1))
    assert own.isfinite().all()


def test_logistic_is_left_out_of_a_choice_that_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = COMPUTED["auto"]().finish[1].rule
    assert "logistic" in rule.fit(FitData(known())).choice.right
    assert "logistic" not in rule.fit(FitData(known("sums"))).choice.right
    patch_part(monkeypatch, "MOST_WORK", 100)
    assert "logistic" not in rule.fit(FitData(known())).choice.right


def test_what_needs_every_image_says_so() -> None:
    with pytest.raises(MethodError, match=r"keep is sums.*Use keep=ledger"):
        LogisticRule().fit(FitData(known("sums")))


def test_scaled_features_have_the_same_logistic_regression() -> None:
    one = FitData(known())
    larger = known()
    two = FitData(Statistics(Grid(8), larger.ledger, larger.sums))  # the same rows, four times

    first, second = (LogisticRule().fit(data) for data in (one, two))
    assert second.choice.penalty == pytest.approx(16 * first.choice.penalty)
    assert torch.allclose(4 * second.tensors["weight"], first.tensors["weight"], atol=1e-3)
