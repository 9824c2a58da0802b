"""Evidence: class-incremental learning of the embedded digits, as docs/evidence/cil-digits.md."""

from statistics import mean

import pytest

from ancl import run
from tests.lab import Layer, resolve

SEEDS = (0, 1, 2)


def final_accuracies(method: str, **options: str) -> list[float]:
    found = []
    for seed in SEEDS:
        layer = Layer("test", {"data.scenario": "cil", "seed": seed, "threads": 1, **options})
        result = run(resolve(method, "digits/5", [layer]).spec, runs=None)
        found.append(result.metrics["final_accuracy"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["icarl", "eeil", "bic", "wa", "lucir", "podnet"])
def test_with_twenty_exemplars_a_class_digits_are_learned_class_by_class(method) -> None:
    assert min(final_accuracies(method)) >= 0.75


@pytest.mark.slow
def test_without_a_memory_much_is_lost() -> None:
    assert mean(final_accuracies("finetune")) == pytest.approx(0.45, abs=0.07)


@pytest.mark.slow
def test_where_all_classes_compete_only_the_newest_are_left() -> None:
    found = final_accuracies("finetune", loss_over="seen")
    assert mean(found) == pytest.approx(0.2, abs=0.02)
