"""Progress: lines for the plan and for trainings, and live bars on a terminal."""

import io
import re
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from rich.console import Console

from ancl import Events, RunSpec, run
from tests.lab import (
    Display,
    Epoch,
    Graph,
    Layer,
    Lines,
    Progress,
    Stage,
    TimeLeft,
    epoch_line,
    make_progress,
    resolve,
)

EPOCH = Epoch("main", 6, 0.1, {"task": 0.5, "old": 0.25}, {}, 0.979, True, "", 2.0)


def spec(method: str, **settings: Any) -> RunSpec:
    given = {"training.epochs": 2, "data.tasks": 2, "threads": 1}
    given |= {key.replace("__", "."): value for key, value in settings.items()}
    return resolve(method, "digits/5", [Layer("test", given)]).spec


def epoch(number: int, role: str = "main", **more: Any) -> Epoch:
    given = {"accuracy": None, "best": False, "note": "", "seconds": 2.0, **more}
    return Epoch(role, number, 0.1, {}, {}, **given)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph([spec("afec-lwf", training__epochs=4)])


def main(graph: Graph, task: int) -> Stage:
    stages = (node.stage for node in graph.nodes.values())
    return next(stage for stage in stages if (stage.name, stage.task) == ("main", task))


def begin(events: Events, graph: Graph, workers: int = 1) -> None:
    epochs = {key: node.epochs for key, node in graph.nodes.items()}
    events.work_begins(graph.titles(), epochs, list(graph.nodes), workers)


def test_lines_tell_every_training_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(spec("a-lwf"), runs=tmp_path, events=Lines())
    first = capsys.readouterr().err
    run(spec("a-lwf"), runs=tmp_path, events=Lines())
    second = capsys.readouterr().err.splitlines()

    pattern = r"\[(\d)/7\] (task \d/2 \w+): 2 epochs, val \d+\.\d %, \d+\.\d s"
    assert re.findall(pattern, first) == [
        ("2", "task 1/2 main"),
        ("5", "task 2/2 auxiliary"),
        ("6", "task 2/2 main"),
    ]
    assert second == [
        "a-lwf on digits, 2 tasks, til, seed 0, 7 stages: 0 shared, 7 stored, 0 to do "
        "(at most 0 epochs)"
    ]


def test_a_training_is_told_by_its_best_epoch(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, stage = Lines(), main(graph, 1)
    begin(lines, graph)
    lines.stage_begins(stage)
    lines.epoch_ends(stage, epoch(0, best=True, accuracy=0.75))
    lines.epoch_ends(stage, epoch(1, "auxiliary", best=True, accuracy=1.0))
    lines.epoch_ends(stage, epoch(1, accuracy=0.5))
    lines.stage_ends(stage, found=False, seconds=8.0)
    lines.stage_ends(stage, found=True, seconds=0.0)
    lines.stage_ends(main(graph, 0), found=True, seconds=0.0)

    assert capsys.readouterr().err.splitlines() == [
        f"[1/{len(graph.nodes)}] task 2/2 main: 2 epochs, val 75.0 %, 8.0 s",
        "task 1/2 main: found in the store",
    ]


def test_a_fixed_schedule_is_told_by_its_last_epoch(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, stage = Lines(), main(graph, 1)
    lines.epoch_ends(stage, epoch(0, accuracy=0.75))
    lines.epoch_ends(stage, epoch(1, accuracy=0.5))
    lines.stage_ends(stage, found=False, seconds=8.0)

    assert capsys.readouterr().err == "task 2 main: 2 epochs, val 50.0 %, 8.0 s\n"


def test_lines_tell_notes(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    lines, stage = Lines(), main(graph, 0)
    begin(lines, graph)

    lines.epoch_ends(stage, epoch(3, note="rate 0.03"))
    lines.epoch_ends(stage, epoch(3, "auxiliary", note="done"))

    assert capsys.readouterr().err.splitlines() == [
        "task 1/2 main, epoch 4: rate 0.03",
        "task 1/2 main, auxiliary epoch 4: done",
    ]


def test_live_bars_show_the_stages_being_computed_and_the_time_left(graph: Graph) -> None:
    file = io.StringIO()
    first, stage = main(graph, 0), main(graph, 1)
    with Display(Console(file=file, force_terminal=True, width=120)) as display:
        begin(display, graph, workers=2)
        display.stage_begins(first)
        display.stage_begins(stage)
        display.epoch_ends(stage, epoch(0, "auxiliary"))
        display.epoch_ends(stage, epoch(0, accuracy=0.75))
        work, other, own = display._bars.tasks

        # 3 epochs of this stage and 4 of the other, 4 s each with AFEC's network, by two workers.
        assert work.fields["now"] == "at most 14.0 s left"
        assert (own.description, own.completed, own.total) == ("task 2/2 main", 1, 4)
        assert own.fields["now"] == "epoch 1/4 · val 75.0 %"
        assert other.fields["now"] == ""

        display.stage_ends(stage, found=False, seconds=4.0)
        display.stage_fails(first, "no space")
        assert [task.description for task in display._bars.tasks] == ["stages"]
        assert work.completed == 1
    assert "task 1/2 main failed: no space" in file.getvalue()


def test_a_run_moves_the_bars(tmp_path: Path) -> None:
    file = io.StringIO()
    shown: list[str] = []

    class Kept(Display):
        def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
            super().epoch_ends(stage, epoch)
            shown.append(str(self._bars.tasks[-1].fields["now"]))

    with Kept(Console(file=file, force_terminal=True, width=200)) as display:
        run(spec("a-lwf"), runs=tmp_path, events=display)

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert len(shown) == 6
    assert re.match(r"epoch 1/2 · task \S+ · val \S+ %", shown[0])
    assert re.search(r"λ·old \S+ \+ λ_a·auxiliary \S+", shown[-1])
    assert "task 2/2 auxiliary: 2 epochs, val" in text


def test_an_epoch_in_one_line() -> None:
    assert epoch_line(EPOCH, 30) == "epoch 7/30 · task 0.5 + λ·old 0.25 · val 97.9 %"
    assert epoch_line(epoch(0, note="rate 0.03"), 0) == "epoch 1 · rate 0.03"


def test_time_left_is_the_mean_epoch_times_the_epochs_that_may_come() -> None:
    left = TimeLeft({"0": 10, "1": 10})

    assert left.seconds is None
    left.epoch("0", 2.0, 3)
    assert left.seconds == 2.0 * (3 + 10)
    left.ends("0")
    assert left.seconds == 2.0 * 10


def test_an_epoch_of_afecs_network_costs_time_and_is_none_of_the_stages_own() -> None:
    left = TimeLeft({"0": 10}, workers=2)

    left.epoch("0", 2.0, None)
    assert left.seconds is None
    left.epoch("0", 3.0, 9)
    assert left.seconds == (2.0 + 3.0) * 9 / 2


def test_what_is_no_terminal_gets_lines_and_quiet_only_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = make_progress(quiet=True)
    run(spec("lwf", data__scenario="cil"), runs=tmp_path, events=quiet)

    assert type(make_progress(quiet=False)) is Lines
    assert type(quiet) is Progress
    [warning] = capsys.readouterr().err.splitlines()
    assert warning.startswith("Warning: lwf keeps no images of earlier tasks.")


def test_a_line_comes_at_least_every_so_often(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = main(graph, 1)
    with Lines(quiet_seconds=0.02) as lines:
        begin(lines, graph)
        lines.stage_begins(stage)
        sleep(0.1)
        lines.epoch_ends(stage, epoch(1, accuracy=0.5))
        sleep(0.1)
        lines.stage_ends(stage, found=False, seconds=0.2)
    during = capsys.readouterr().err.splitlines()
    sleep(0.1)

    assert capsys.readouterr().err == ""
    title = lines.title(stage)
    assert during[0] == f"{title} begins"
    assert f"{title}: epoch 2/4 · val 50.0 %" in during
    assert make_progress(quiet=False)._quiet_seconds == 60  # type: ignore[attr-defined]
