import json
from pathlib import Path
from typing import Any

import pytest


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
    assert f"AAC of A-LwF minus LwF: {100 * gain:+.2f} points with a single seed" in text
    assert [line.partition(":")[0] for line in as_json["reading"]] == [
        "Forgetting",
        "What Ω does",
        "What the auxiliary network adds",
    ]
    lost = 100 * as_json["methods"]["finetune"]["forgetting"]["mean"]
    assert f"fine-tuning {'gained' if lost < 0 else 'lost'} {abs(lost):.1f} points" in text
    assert "The stream was chosen, without ANCL, so that fine-tuning forgets" in text
    assert "A quick look: two epochs per task." in text
    assert Path(as_json["figure"]).read_bytes().startswith(b"\x89PNG")
