import json
import math
from pathlib import Path
from typing import Any

import pytest

from ancl.cli.demo import _change, _difference, _more
from ancl.metrics import Estimate


def test_quick_demo_prints_what_the_result_files_hold(ancl: Any) -> None:
    text = ancl("demo", "--quick", "--quiet").out
    as_json = ancl("demo", "--quick", "--quiet", "--json").json

    assert len(as_json["runs"]) == 4
    for directory in as_json["runs"]:
        found = json.loads((Path(directory) / "result.json").read_text())
        method, metrics = found["spec"]["method"], found["metrics"]
        row = next(line.split() for line in text.splitlines() if line.startswith(f"{method} "))
        names = ("aac", "forgetting", "learning_accuracy")
        assert row[1:] == [*(f"{100 * metrics[name]:.1f}" for name in names), "1"]
        assert as_json["methods"][method]["aac"]["mean"] == metrics["aac"]
        assert f"Results: 4 runs in {Path(directory).parent}" in text
    gain = as_json["methods"]["a-lwf"]["aac"]["mean"] - as_json["methods"]["lwf"]["aac"]["mean"]
    assert as_json["a-lwf minus lwf"]["mean"] == pytest.approx(gain)
    assert f"AAC of A-LwF minus LwF: {100 * gain:+.1f} points with a single seed" in text
    assert [line.partition(":")[0] for line in as_json["reading"]] == [
        "Forgetting",
        "What Ω does",
        "What the auxiliary network adds",
    ]
    lost = 100 * as_json["methods"]["finetune"]["forgetting"]["mean"]
    assert f"fine-tuning {'gained' if lost < 0 else 'lost'} {abs(lost):.1f} points" in text
    assert Path(as_json["figure"]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [
        (Estimate(0.03, 0.01, 3), "+3.0 ± 1.0 points (paired over 3 seeds): higher by more than"),
        (Estimate(-0.03, 0.01, 3), "-3.0 ± 1.0 points (paired over 3 seeds): lower by more than"),
        (Estimate(0.03, 0.02, 3), "+3.0 ± 2.0 points (paired over 3 seeds): no difference beyond"),
        (Estimate(0.03, math.nan, 1), "+3.0 points with a single seed"),
        (Estimate(-0.0001, 0.01, 3), "LwF: 0.0 ± 1.0 points"),
    ],
)
def test_the_reading_claims_only_what_is_beyond_two_errors(
    estimate: Estimate, verdict: str
) -> None:
    assert verdict in _difference(estimate)


def test_negative_forgetting_is_a_gain() -> None:
    assert _change(-0.021) == "gained 2.1"
    assert _change(0.021) == "lost 2.1"


def test_differences_are_more_or_less() -> None:
    assert _more(Estimate(0.011, 0.002, 5)) == "1.1 ± 0.2 points more"
    assert _more(Estimate(-0.011, math.nan, 1)) == "1.1 points less"
