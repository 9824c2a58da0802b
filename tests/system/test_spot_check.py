"""Slow: two runs of the small study, computed again, against their committed results."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import data_root

RESULTS = Path(__file__).parents[2] / "docs/evidence/small/results"
SEED = 20
RUN = """
import sys
import ancl
from ancl import RunSpec
spec = RunSpec.model_validate_json(sys.stdin.read())
ancl.run([spec], runs=sys.argv[1])
"""


def recorded(benchmark: str, method: str) -> list[dict[str, Any]]:
    """The plain method's table runs, by seed: those of the λ that has the table's seeds."""
    found: dict[float, list[dict[str, Any]]] = {}
    for file in sorted(RESULTS.glob(f"{benchmark.replace('/', '-')}_{method}_s*.json")):
        stored = json.loads(file.read_text())
        epochs = stored["spec"]["training"]["epochs"]
        if stored["spec"]["seed"] >= SEED and epochs == 15:
            found.setdefault(stored["spec"]["options"]["lamb"], []).append(stored)
    return next(iter(found.values()), [])


@pytest.mark.slow
@pytest.mark.timeout(3600)  # minutes when quiet, many times that on a busy machine
@pytest.mark.parametrize(
    ("benchmark", "method"), [("cifar100-small/5", "lwf"), ("cifar100-small/4", "icarl")]
)
def test_a_run_of_the_study_is_found_again(benchmark: str, method: str, tmp_path: Path) -> None:
    if not (data_root() / "cifar-100-python").exists():
        pytest.skip("CIFAR-100 is not in the data root")
    runs = recorded(benchmark, method)
    if not runs:
        pytest.skip(f"no committed result of {method} on {benchmark}")
    one = next(each for each in runs if each["spec"]["seed"] == SEED)
    # In a process of its own, as a user runs it: the tests themselves are held to AVX2.
    held = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
    own = {name: value for name, value in os.environ.items() if name not in held}
    subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)],
        input=json.dumps(one["spec"]),
        env=own,
        text=True,
        check=True,
    )
    (directory,) = tmp_path.glob(f"*_{method}_*")
    again = json.loads((directory / "result.json").read_text())

    if again["numerics"] == one["numerics"]:
        assert again["matrices"] == one["matrices"]
    for name in ("aac", "aiac", "forgetting", "learning_accuracy"):
        spread = statistics.stdev(each["metrics"][name] for each in runs)
        assert abs(again["metrics"][name] - one["metrics"][name]) <= 3 * spread, name
