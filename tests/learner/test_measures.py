"""Temperature, calibration error and rates against slow versions and numbers by hand."""

import math

import pytest
import torch
from torch import Tensor

from tests.lab import GIVEN, NONE, calibration_error, confused, fit_temperature, report_of


def slow_loss(scores: Tensor, labels: Tensor, temperature: float) -> float:
    """Cross-entropy to smoothed labels, one image and class at a time."""
    unknown, total = 0.25 / (len(labels) + 0.25), 0.0
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        possible = [place for place, score in enumerate(row) if not math.isinf(score)]
        top = max(row[place] for place in possible) / temperature
        norm = top + math.log(sum(math.exp(row[p] / temperature - top) for p in possible))
        for place in possible:
            target = unknown / len(possible) + (1 - unknown) * (place == label)
            total -= target * (row[place] / temperature - norm)
    return total / len(labels)


def slow_temperature(scores: Tensor, labels: Tensor) -> float:
    """The lowest point of a valley, by thirds of the logarithm."""
    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(50):
        third = (high - low) / 3
        left, right = (slow_loss(scores, labels, math.exp(x)) for x in (low + third, high - third))
        low, high = (low, high - third) if left < right else (low + third, high)
    return math.exp(low)


def random_scores(seed: int, scale: float) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (60,), generator=draw)
    scores = torch.randn(60, 4, generator=draw) + 1.5 * torch.eye(4)[labels]
    return scores * scale, labels


@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_the_temperature_is_that_of_a_slow_search(scale: float) -> None:
    scores, labels = random_scores(0, scale)

    slow = slow_temperature(scores, labels)
    assert fit_temperature(scores, labels) == pytest.approx(slow, rel=1e-5)


def test_scores_times_a_number_ask_for_a_temperature_times_it() -> None:
    scores, labels = random_scores(1, 1.0)
    one, seven = (fit_temperature(scores * factor, labels) for factor in (1.0, 7.0))
    assert seven == pytest.approx(7 * one, rel=1e-5)


def test_classes_that_are_no_answer_do_not_count() -> None:
    scores, labels = random_scores(2, 1.0)
    wide = torch.cat([scores, torch.full((60, 3), float("-inf"))], dim=1)
    assert fit_temperature(wide, labels) == fit_temperature(scores, labels)
    assert fit_temperature(wide, labels) == pytest.approx(slow_temperature(wide, labels), rel=1e-5)


def test_images_that_are_all_right_do_not_ask_for_certainty() -> None:
    labels = torch.arange(4).repeat(5)
    scores = torch.eye(4)[labels]
    found = fit_temperature(scores, labels)

    # A share of 0.25 / 20.25 = 1/81 is unknown: p = 1 - 3/4 · 1/81 = 107/108 for the own class.
    # e^(1/T) / (e^(1/T) + 3) = 107/108, so 1/T = log(3 · 107).
    assert found == pytest.approx(1 / math.log(321), rel=1e-6)


def test_the_calibration_error_by_hand() -> None:
    probabilities = torch.tensor([[0.95, 0.05], [0.92, 0.08], [0.6, 0.4], [0.35, 0.65]])
    labels = torch.tensor([0, 1, 0, 1])
    # Bin 0.9–1: accuracy 1/2, confidence 0.935, weight 2/4. Bin 0.6–0.7: 1 and 0.625, 2/4.
    assert calibration_error(probabilities, labels) == pytest.approx(0.5 * 0.435 + 0.5 * 0.375)


def test_rates_by_hand() -> None:
    found = confused(["a", "b", "c"], [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 1], GIVEN)
    report = report_of(found, [0, 0, 1])

    assert found.counts == ((2, 1, 0), (1, 1, 0), (0, 1, 0))
    assert report.accuracy == 0.5
    rows = [(r.label, r.task, r.images, r.recall, r.precision, r.mistaken_for) for r in report.rows]
    assert rows == [
        ("a", 0, 3, 2 / 3, 2 / 3, "b"),
        ("b", 0, 2, 1 / 2, 1 / 3, "a"),
        ("c", 1, 1, 0.0, None, "b"),
    ]
    assert str(report).splitlines()[3].split()[:2] == ["c", "2"]  # text counts tasks from 1
    assert str(report).splitlines()[-1] == "accuracy 50.0 % on 6 images"
    assert str(found).splitlines()[1].split() == ["a", "2", "1", "0"]


def test_nothing_measured_says_so() -> None:
    found = confused(["a", "b"], [], [], NONE)
    report = report_of(found, [0, 0])

    assert (report.accuracy, report.images, report.basis) == (None, 0, "not measured")
    assert {row.recall for row in report.rows} == {None}
    assert str(report).startswith("not measured")
    assert str(found).startswith("not measured")
