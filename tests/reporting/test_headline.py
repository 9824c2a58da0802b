"""Sentences that say what the numbers say, and no more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Finding, Interval, change, collect, interval_sentence, make_report, t_interval

Make = Callable[..., Path]


def said(runs: Path) -> list[Finding]:
    (found,) = make_report(collect([runs])).findings.values()
    return found


def texts(runs: Path, kind: str) -> list[str]:
    return [each.text for each in said(runs) if each.kind == kind]


def test_forgetting_then_omega_then_the_auxiliary_network(make: Make, runs: Path) -> None:
    finals = {
        "finetune": (0.3, 0.9),
        "lwf": (0.7, 0.8),
        "a-lwf": (0.68, 0.84),
        "joint": (0.92, 0.9),
    }
    for method, (old, new) in finals.items():
        for seed in range(3):
            rows = [[0.9], [old, new + 0.01 * seed]]
            make(method, seed=seed, rows=rows, sizes=[1000, 1000])

    # AAC of A-LwF - LwF: (0.68 + 0.84 - 0.7 - 0.8) / 2 = 0.01 on every seed
    assert [each.kind for each in said(runs)] == ["best", "forgetting", "method", "variant"]
    assert texts(runs, "best") == [
        "Highest of 3: A-LwF 76.5 ± 0.3 % AAC (n = 3), then LwF 75.5 ± 0.3 %; joint training, "
        "which sees all images again, 91.5 %."
    ]
    assert texts(runs, "forgetting") == [
        "Forgetting: fine-tuning lost 60.0 points on earlier tasks while it learned later ones; "
        "joint training, which sees all images again, gained 2.0 and ends at 91.5 %."
    ]
    assert texts(runs, "method") == [
        "What Ω does: held to its old network, LwF lost 20.0 points and learns a new task to "
        "85.5 % (fine-tuning 90.5 %); it ends at 75.5 %."
    ]
    assert texts(runs, "variant") == [
        "What the auxiliary network adds: compared with LwF, A-LwF learns 2.0 ± 0.0 points more "
        "and forgets 2.0 ± 0.0 points more. AAC of A-LwF minus LwF: +1.00 points, 95 % interval "
        "+0.95 to +1.05 over 3 seeds, on these test images: higher."
    ]


def test_what_is_equal_as_shown_is_not_less(make: Make, runs: Path) -> None:
    for seed in range(3):
        make("lwf", seed=seed, rows=[[0.9], [0.7, 0.8]])
        make("a-lwf", seed=seed, rows=[[0.9], [0.7001, 0.7999]])

    (text,) = texts(runs, "variant")
    assert "A-LwF learns as much (0.0 ± 0.0 points apart) and forgets as much (0.0" in text
    assert (change(0.0004), change(-0.0004)) == ("lost 0.0", "lost 0.0")


def test_what_else_differs_is_in_the_sentence_and_another_network_is_not_compared(
    make: Make, runs: Path
) -> None:
    make("lwf", lamb=1e9)
    make("a-lwf", lamb=10.0)
    make("ewc", **{"network.name": "resnet8"})
    make("a-ewc")

    refused, compared = texts(runs, "variant")
    assert compared.endswith("They also differ in this: λ 10 instead of 1e+09.")
    assert "points with a single seed, which says nothing about its error." in compared
    assert refused.startswith("A-EWC is not compared with EWC: network.")
    assert "network.name mlp instead of resnet8" in refused


def test_of_several_values_of_lambda_a_none_is_picked(make: Make, runs: Path) -> None:
    for seed in range(3):
        make("lwf", seed=seed, rows=[[0.5], [0.5, 0.5]])
        for lamb_a, value in ((1.0, 0.6), (2.0, 0.4 + 0.1 * seed)):
            make("a-lwf", seed=seed, rows=[[value], [value, value]], lamb_a=lamb_a)

    # at 2: differences -0.1, 0, 0.1, of which 4.303 * 0.1 / sqrt(3) = 0.248
    assert texts(runs, "sweep") == [
        "A-LwF over λ_a, AAC minus LwF in points: +10.00 [+5.00, +15.00] at 1 (n = 3), 0.00 "
        "[-24.84, +24.84] at 2 (n = 3)."
    ]
    assert texts(runs, "variant") == []


def test_many_differences_are_counted_beside_what_chance_gives(make: Make, runs: Path) -> None:
    for base, gain in {"lwf": 0.1, "ewc": -0.1, "mas": 0.0}.items():
        for seed in range(3):
            spread = 0.0 if gain else 0.1 * (seed - 1)
            make(base, seed=seed, rows=[[0.5], [0.5, 0.5]])
            make(f"a-{base}", seed=seed, rows=[[0.5], [0.5 + gain, 0.5 + gain + spread]])

    assert texts(runs, "summary") == [
        "Of 3 differences with several seeds, 1 are higher and 1 lower beyond their 95 % interval; "
        "about 0.2 would be by chance alone."
    ]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.03, 0.031, 0.029], ": higher."),
        ([-0.03, -0.031, -0.029], ": lower."),
        ([0.03, -0.01, 0.05], ": no clear difference."),
        ([0.03], "+3.00 points with a single seed, which says nothing about its error."),
    ],
)
def test_only_what_is_beyond_the_interval_is_claimed(values: list[float], verdict: str) -> None:
    assert interval_sentence(t_interval(values)).endswith(verdict)


def test_an_interval_that_rounds_to_zero_has_no_sign() -> None:
    assert interval_sentence(Interval(-0.00001, -0.02, 0.02, 0.9, 3)).startswith("0.00 points")


def test_one_task_has_no_forgetting_to_tell(make: Make, runs: Path) -> None:
    make("lwf", rows=[[0.9]])

    assert said(runs) == [Finding("best", "LwF 90.0 % AAC (n = 1).")]
