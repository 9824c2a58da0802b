"""The check for whoever has a GPU runs as far as a CPU can, and says what is bad."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_on_a_cpu_it_measures_all_but_waits(script, capsys) -> None:
    assert script["main"](["--device", "cpu", "--quick"]) == 0

    lines = capsys.readouterr().out.splitlines()
    cells = {line.split("|")[1].strip(): line.split("|")[2:4] for line in lines}
    assert cells["a-lwf: the same bits twice"] == [" yes ", " good "]
    assert cells["a-lwf, fp32: distance to the CPU"] == [" 0 (≤ 0.01) ", " good "]
    gap = float(cells["a-lwf, bf16: distance to the CPU"][0].split()[0])
    assert 0 < gap <= 0.3
    assert "only on a GPU" in cells["finetune: waits in an epoch of 2 steps"][0]
    speed = cells["a-lwf, bf16: images per second (resnet8, batch 8)"][0]
    assert float(speed.replace(",", "")) > 0


def test_a_bad_row_ends_with_1_and_an_absent_device_with_2(script, capsys, monkeypatch) -> None:
    bad = script["Row"]("a", "b", False)
    monkeypatch.setitem(script["main"].__globals__, "rows", lambda device, quick: [lambda: bad])
    assert script["main"](["--device", "cpu"]) == 1
    assert "| a | b | **BAD** |" in capsys.readouterr().out

    assert script["main"](["--device", "cuda:99"]) == 2
    assert "is not available here" in capsys.readouterr().err
