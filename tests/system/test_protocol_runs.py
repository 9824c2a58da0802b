"""What the scripts of the evidence share: runs are computed once, also by several processes."""

import multiprocessing
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAMES = [f"run {number}" for number in range(6)]


@pytest.fixture(name="protocol")
def _protocol(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "protocol_runs", raising=False)
    return __import__("protocol_runs")


def runs(names: list[str]) -> list[Any]:
    return [SimpleNamespace(file=f"{name}.json", plain={"name": name}) for name in names]


def work_through(protocol: ModuleType, folder: Path, log: Path) -> None:
    """Compute all runs; every one of them leaves a line."""

    def compute(run: Any, place: Path) -> dict[str, Any]:
        place.mkdir(parents=True, exist_ok=True)
        time.sleep(0.05)
        with log.open("a") as lines:
            lines.write(f"{run.file}\n")
        return {"spec": run.plain, "failed": "", "score": 1.0}

    results = protocol.ResultFiles(folder / "results")
    steps = [("first", runs(NAMES[:3])), ("second", runs(NAMES[3:]))]
    protocol.carry_out(results, folder / "work", steps, compute, wait=0.01)
    assert all(results.get(run) for _, of_step in steps for run in of_step)


def test_processes_share_the_runs_and_each_is_computed_once(
    protocol: ModuleType, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    processes = [
        context.Process(target=work_through, args=(protocol, tmp_path, log)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(log.read_text().splitlines()) == [f"{name}.json" for name in NAMES]
    assert not (tmp_path / "work" / "first").exists()


def test_a_run_whose_process_died_is_taken_by_another(protocol: ModuleType, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    lock = tmp_path / "work" / "locks" / f"{NAMES[0]}.json.lock"
    begun = context.Event()

    def hold() -> None:
        with protocol.claimed(lock):
            begun.set()
            time.sleep(60)

    holder = context.Process(target=hold)
    holder.start()
    assert begun.wait(30)
    with protocol.claimed(lock) as ours:
        assert not ours
    holder.kill()
    holder.join(30)
    work_through(protocol, tmp_path, tmp_path / "log")
    assert len((tmp_path / "log").read_text().splitlines()) == len(NAMES)
