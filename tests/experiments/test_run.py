"""The engine: results as soon as they are there, failures contained, nothing computed twice."""

import json
import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ancl
from ancl import Events, Method, RunSpec, Store, run
from ancl.extend import Term
from tests.lab import (
    METHODS,
    Epoch,
    Graph,
    Layer,
    Lwf,
    Places,
    Stage,
    TrainingError,
    build,
    choose_executor,
    collect,
    patch_part,
    program,
    read_run,
    resolve,
    run_all,
)

BROKEN = program("""
import dataclasses
from ancl import Method
from ancl.extend import Term
from tests.lab import Lwf

@dataclasses.dataclass(frozen=True)
class Broken(Lwf):
    def penalty(self, step, anchor):
        raise ZeroDivisionError("as written")

def broken(*, lamb: float = 1.0) -> Method:
    return Method("broken", old=Term(Broken(2.0), lamb))
""")


def spec(method: str, seed: int = 0, **options: Any) -> RunSpec:
    given = {"training.epochs": 1, "data.tasks": 2, "threads": 1, "seed": seed, **options}
    return resolve(method, "digits/5", [Layer("test", given)]).spec


class Heard(Events):
    """Every event in order, in a word."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.said: list[str] = []
        self.results: dict[str, Mapping[str, Any]] = {}

    def say(self, message: str) -> None:
        self.said.append(message)

    def run_begins(self, directory: Path, spec: Mapping[str, Any], keys: Collection[str]) -> None:
        assert (directory / "spec.yaml").is_file()
        self.heard.append(f"begins {spec['method']} {spec['seed']} {len(keys)}")

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self.heard.append("epoch")

    def stage_fails(self, stage: Stage, reason: str) -> None:
        self.heard.append(f"fails {stage.name} {stage.task}")

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        assert json.loads((directory / "result.json").read_text())["keys"] == result["keys"]
        self.heard.append(f"ends {result['spec']['method']}")
        self.results[result["spec"]["method"]] = result


def test_a_run_is_written_when_its_last_stage_is_stored(tmp_path: Path) -> None:
    heard = Heard()
    results = run([spec("lwf"), spec("a-lwf")], runs=tmp_path, events=heard)

    assert heard.heard == [
        *("begins lwf 0 6", "begins a-lwf 0 7"),
        *("epoch", "epoch", "ends lwf"),  # its directory is there before a-lwf is trained
        *("epoch", "epoch", "ends a-lwf"),
    ]
    assert [each.spec.method for each in results] == ["lwf", "a-lwf"]
    assert [record["task"] for record in heard.results["lwf"]["log"]] == [0, 1]


def test_a_finished_run_is_read_and_one_without_a_directory_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = run(spec("lwf"))
    heard = Heard()
    again = run(spec("lwf"), events=heard)
    [directory] = Path("runs").glob("digits-5_lwf_s0_*")
    monkeypatch.chdir(directory)
    alone = run(spec("lwf"), runs=None)

    assert heard.heard == ["begins lwf 0 6", "ends lwf"]
    for name, matrix in first.matrices.items():
        np.testing.assert_array_equal(matrix, again.matrices[name])
        np.testing.assert_array_equal(matrix, alone.matrices[name])
    assert read_run(Path()).keys == first.keys
    assert not Path("runs").exists()
    assert first.seconds == again.seconds
    assert ancl.run is run


def test_a_serial_run_is_built_once_and_its_epochs_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def counted(spec: RunSpec, *given: Any) -> Any:
        built.append(spec.method)
        return build(spec, *given)

    monkeypatch.setitem(METHODS, "mine", made_here("return super().penalty(step, anchor)"))
    patch_part(monkeypatch, "build", counted)
    patch_part(monkeypatch, "epoch_of", None)  # nothing is written as JSON and read again
    runs = [spec("lwf"), spec("a-lwf"), spec("mine")]  # the last one's stages are not stored
    heard = Heard()
    run(runs, runs=tmp_path, events=heard)

    assert built == ["lwf", "a-lwf", "mine"]
    # lwf and a-lwf share the first task's main network; a-lwf trains an auxiliary one too.
    assert heard.heard.count("epoch") == 1 + 1 + 2 + 2
    run(runs[:2], runs=tmp_path)
    assert built == ["lwf", "a-lwf", "mine", "lwf", "a-lwf"]


def test_runs_on_other_images_are_released_and_built_again_in_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One data set is held at a time, however many runs a graph has."""
    built: list[str] = []

    def counted(spec: RunSpec, *given: Any) -> Any:
        built.append(spec.data.source)
        return build(spec, *given)

    file = tmp_path / "mine.npz"
    np.savez(file, x=np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8), y=np.arange(40) % 4)
    other = spec("lwf", **{"data.source": f"arrays:{file}"})
    alone = [run(each, runs=None).counted for each in (spec("lwf"), other)]
    patch_part(monkeypatch, "build", counted)
    graph = Graph([spec("lwf"), other, spec("ewc")])

    assert [plan.experiment is not None for plan in graph.plans] == [False, False, True]
    built.clear()
    results = run([spec("lwf"), other], runs=tmp_path / "runs")

    assert built == ["digits", f"arrays:{file}", "digits", f"arrays:{file}"]
    for result, matrix in zip(results, alone, strict=True):
        np.testing.assert_array_equal(result.counted, matrix)
    graph.release()
    assert [plan.experiment for plan in graph.plans] == [None, None, None]


def test_results_are_read_from_headers_alone(tmp_path: Path) -> None:
    first = run(spec("a-lwf"), runs=tmp_path)
    files = list(tmp_path.glob(".store/entries/*/*/tensors.safetensors"))
    for file in files:
        file.write_bytes(bytes(file.stat().st_size))  # no tensor is left, and no checksum fits
    heard = Heard()
    again = run(spec("a-lwf"), runs=tmp_path, events=heard)
    [reported] = collect([tmp_path]).runs

    assert len(files) == 7
    assert heard.heard == ["begins a-lwf 0 7", "ends a-lwf"]
    assert heard.said == []
    for name, matrix in first.matrices.items():
        np.testing.assert_array_equal(matrix, again.matrices[name])
        np.testing.assert_array_equal(matrix, reported.result.matrices[name])
    assert Store(tmp_path / ".store", lambda text: None).verify() != []


def test_a_failure_stops_its_run_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    broken, heard = f"{tmp_path}/mine.py:broken", Heard()
    outcome = run_all([spec(broken), spec("lwf")], Places.of(tmp_path), events=heard)

    assert [each.spec.method for each in outcome.results] == ["lwf"]
    [failure] = outcome.failures
    assert (failure.node.stage.name, failure.node.stage.task, failure.runs) == ("main", 1, 1)
    assert failure.json()["reason"].startswith("ZeroDivisionError: as written")
    assert heard.heard[-1] == "ends lwf"
    assert "fails main 1" in heard.heard
    with pytest.raises(TrainingError, match=r"1 stage failed:\n .*ZeroDivisionError: as written"):
        run(spec(broken), runs=tmp_path)


def test_the_same_run_twice_is_one_run(tmp_path: Path) -> None:
    heard = Heard()
    first, second = run([spec("lwf"), spec("lwf")], runs=tmp_path, events=heard)

    assert first is second
    assert heard.heard.count("ends lwf") == 1


def test_a_damaged_stage_is_computed_again(tmp_path: Path) -> None:
    first = run(spec("lwf"), runs=tmp_path)
    plan = Graph([spec("lwf")]).plans[0]
    key = next(s.key for s in plan.stages if (s.name, s.task) == ("main", 1))
    file = tmp_path / ".store" / "entries" / key[:2] / key / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    heard = Heard()
    again = run(spec("lwf"), runs=tmp_path, events=heard)

    assert again.metrics == first.metrics
    assert heard.heard == ["begins lwf 0 6", "epoch", "ends lwf"]
    assert "is damaged" in heard.said[0]
    assert Store(tmp_path / ".store").verify() == []


def made_here(penalty: str) -> types.FunctionType:
    """A maker of a method whose Ω has no source file."""
    space: dict[str, Any] = {"__name__": "nowhere", "Lwf": Lwf, "Method": Method, "Term": Term}
    exec(
        "class Mine(Lwf):\n"
        f"    def penalty(self, step, anchor):\n        {penalty}\n"
        "def mine() -> Method:\n    return Method('mine', old=Term(Mine(2.0), 1.0))\n",
        space,
    )
    maker = space["mine"]
    assert isinstance(maker, types.FunctionType)
    return maker


@pytest.mark.parametrize("workers", [None, 2])
def test_code_without_a_source_file_is_computed_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None
) -> None:
    monkeypatch.setitem(METHODS, "mine", made_here("return super().penalty(step, anchor)"))
    monkeypatch.setitem(METHODS, "bad", made_here("raise ZeroDivisionError('as written')"))
    heard = Heard()
    choice = choose_executor(workers=workers, threads=1)
    outcome = run_all(
        [spec("mine"), spec("lwf", lamb=1.0), spec("bad")], Places.of(tmp_path), choice, heard
    )

    mine, lwf = outcome.results
    np.testing.assert_array_equal(mine.counted, lwf.counted)
    [failure] = outcome.failures
    assert (failure.node.spec.method, failure.node.stage.name) == ("bad", "main")
    assert failure.reason.startswith("ZeroDivisionError: as written")
    assert heard.said[0].startswith("Results of this run are not stored: ")
    stored = {info.key for info in Store(tmp_path / ".store").entries()}
    assert stored == set(lwf.keys)
