"""The example of a network and images of one's own does what it says."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "outside_network.py"


def test_the_example_learns_in_a_pool() -> None:
    accuracy = runpy.run_path(str(EXAMPLE))["main"]()

    assert list(accuracy) == ["lwf", "a-lwf"]
    assert min(accuracy.values()) > 0.85
