"""``--log`` on every command that trains: which curves go where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab import WRITERS, Point, Writer, patch_part

SHORT = ("--epochs", "1", "--threads", "1", "--set", "network.hidden=[4]", "--log", "tensorboard")

STUDY = """
search_seeds: [10]
table_seeds: [20]
reference_seeds: [20]
benchmarks:
  digits/5:
    settings: {data.tasks: 2, training.epochs: 1, training.schedule: cosine}
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [0.1, 1, 10]}
    references: {joint: {}}
"""


class Recorded(Writer):
    """Keeps what it is given, by the directory of the run."""

    runs: dict[Path, list[Point]]
    open: list[Path]

    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        assert directory not in self.open
        self._directory = directory
        self.open.append(directory)
        self.runs.setdefault(directory, [])

    def write(self, point: Point) -> None:
        self.runs[self._directory].append(point)

    def end(self) -> None:
        self.open.remove(self._directory)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    monkeypatch.setitem(WRITERS, "tensorboard", Recorded)
    monkeypatch.setattr(Recorded, "runs", {}, raising=False)
    monkeypatch.setattr(Recorded, "open", [], raising=False)
    return Recorded


def tags(points: list[Point]) -> set[str]:
    return {tag for point in points for tag in point.scalars}


def test_every_trial_of_a_search_has_its_curves(ancl: Any, recorded: type[Recorded]) -> None:
    grids = ("--lamb-grid", "1,10", "--lamb-a-grid", "1")
    ended = ancl("search", "a-lwf", "digits/5", "--tasks", "2", *SHORT, *grids, "--json")
    trials = Path(ended.json["directory"]) / "trials"

    assert ended.code == 0
    assert len(recorded.runs) == len(ended.json["trials"])
    assert {place.parent for place in recorded.runs} == {trials}
    assert all("t1/train_old" in tags(points) for points in recorded.runs.values())
    assert sum("t1/train_auxiliary" in tags(p) for p in recorded.runs.values()) == 1
    assert not recorded.open


def test_lambda_halved_task_by_task_has_curves_of_each_attempt(
    ancl: Any, recorded: type[Recorded]
) -> None:
    lamb = ("--lamb", "1000000")
    ended = ancl(
        *("search", "lwf", "digits/5", "--protocol", "per-task", "--tasks", "2", *SHORT, *lamb),
        "--json",
    )
    tried = [t for t in ended.json["trials"] if t["lamb"] is not None]
    trained = [points for points in recorded.runs.values() if "t1/train_old" in tags(points)]

    assert ended.code == 0
    assert len(tried) == len(trained) > 1
    assert not recorded.open


def test_every_network_of_an_analysis_has_its_curves(
    ancl: Any, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_part(monkeypatch, "analysis_can_draw", lambda: False)
    asked = ("--lamb-a", "1,10", "--grid", "0", "--images", "20")
    ended = ancl("analyze", "lwf", "digits/5", *asked, *SHORT, "--json")
    place = Path(ended.json["directory"]) / "trainings"
    ancl_runs = {p.name: tags(points) for p, points in recorded.runs.items() if "ANCL" in p.name}

    assert ended.code == 0
    assert {each.parent for each in recorded.runs} == {place}
    assert sorted(ancl_runs) == ["seed0-2-ANCL-a-1", "seed0-3-ANCL-a-10"]
    assert all("t1/train_auxiliary" in found for found in ancl_runs.values())
    assert not recorded.open


def test_the_demo_has_the_curves_of_its_runs(ancl: Any, recorded: type[Recorded]) -> None:
    demo = ancl("demo", "--quick", "--log", "tensorboard", "--json").json

    assert sorted(map(str, recorded.runs)) == sorted(demo["runs"])
    assert all("metrics/aac" in tags(points) for points in recorded.runs.values())
    assert not recorded.open


@pytest.mark.parametrize(
    "command",
    [
        ("search", "a-lwf", "digits/5"),
        ("analyze", "lwf", "digits/5", "--lamb-a", "1"),
        ("demo", "--quick"),
        ("study", "a.yaml"),
    ],
)
def test_an_unknown_tool_is_told_before_any_training(ancl: Any, command: tuple[str, ...]) -> None:
    Path("a.yaml").write_text(STUDY)
    ended = ancl(*command, "--log", "tensorbord")

    assert ended.code == 2
    assert "--log: There is no log 'tensorbord'. Did you mean 'tensorboard'?" in ended.err
    assert not list(Path().glob("runs/.store/*"))
