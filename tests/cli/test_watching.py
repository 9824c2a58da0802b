"""Progress of a sweep: lines for trainings, and live ones on a terminal."""

import io
from typing import Any

import pytest
from rich.console import Console

from ancl.cli.watching import Watching, WatchingDisplay, WatchingLines, make_watching
from ancl.executors.graph import Graph, Node
from ancl.experiments.settings import spec


class Nothing:
    """A store without entries."""

    def has(self, key: str) -> bool:
        return False


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph([spec("afec-lwf", "digits/5", settings={"training.epochs": 4, "data.tasks": 2})])


def main(graph: Graph, task: int) -> Node:
    return next(n for n in graph.nodes.values() if (n.stage.name, n.stage.task) == ("main", task))


def record(epoch: int, role: str = "main", **more: Any) -> dict[str, Any]:
    return {"role": role, "epoch": epoch, "best": False, "accuracy": None, "seconds": 2.0, **more}


def test_a_training_is_told_by_its_best_epoch(
    graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    watching, node = WatchingLines(), main(graph, 1)
    watching.work_begins(graph, Nothing(), 1)
    watching.epoch(node, record(0, best=True, accuracy=0.75))
    watching.epoch(node, record(1, "auxiliary", best=True, accuracy=1.0))
    watching.epoch(node, record(1, accuracy=0.5))
    watching.ends(node, 8.0)
    other = next(n for n in graph.nodes.values() if n.stage.name == "grow")
    watching.ends(other, 1.0)

    plan, *lines = capsys.readouterr().err.splitlines()
    total = len(graph.nodes)
    assert plan.startswith(f"afec-lwf on digits/5, seed 0, {total} stages: 0 shared, 0 stored, ")
    assert plan.endswith(f"{total} to do (at most 8 epochs)")
    assert lines == [f"[1/{total}] {node.title}: 2 epochs, val 75.0 %, 8.0 s"]


def test_live_lines_show_the_stages_at_work_and_the_time_left(graph: Graph) -> None:
    file = io.StringIO()
    first, node = main(graph, 0), main(graph, 1)
    with WatchingDisplay(Console(file=file, force_terminal=True, width=120)) as watching:
        watching.work_begins(graph, Nothing(), 2)
        watching.begins(first)
        watching.begins(node)
        watching.epoch(node, record(0, "auxiliary"))
        watching.epoch(node, record(0, accuracy=0.75))
        sweep, other, own = watching._bars.tasks

        # 3 epochs of this stage and 4 of the other, 4 s each with the network ahead, by two.
        assert sweep.fields["now"] == "at most 14.0 s left"
        assert (own.description, own.completed, own.total) == (node.title, 1, 4)
        assert own.fields["now"] == "epoch 1/4 · val 75.0 %"
        assert other.fields["now"] == ""

        watching.ends(node, 4.0)
        watching.fails(first, "no space")
        assert [task.description for task in watching._bars.tasks] == ["stages"]
        assert sweep.completed == 1
    assert f"{first.title} failed: no space" in file.getvalue()


def test_what_is_no_terminal_gets_lines_and_quiet_only_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quiet = make_watching(quiet=True)
    quiet.note("a plan")
    quiet.say("a warning")

    assert type(make_watching(quiet=False)) is WatchingLines
    assert type(quiet) is Watching
    assert capsys.readouterr().err == "a warning\n"
