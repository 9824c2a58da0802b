"""Progress of a sweep on standard error, with any number of stages at once."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import TaskID

from ancl.cli.live import Live, TimeLeft, Told, is_own, suited, trained_text
from ancl.cli.table import duration, percent
from ancl.executors.graph import Graph, Holds, Node, Observer


class Watching(Told, Observer):
    """Says only what a user must know."""

    def fails(self, node: Node, reason: str) -> None:
        """Failures are told at once, and again in a table at the end."""
        self.say(f"{node.title} failed: {reason}")


class WatchingLines(Watching):
    """A line for the plan and for every training."""

    def __init__(self) -> None:
        self._done = self._total = 0
        self._newest: dict[str, Mapping[str, Any]] = {}

    def note(self, message: str) -> None:
        """A line."""
        self.say(message)

    def work_begins(self, graph: Graph, store: Holds, workers: int) -> None:
        """Say what there is to do."""
        todo = [graph.nodes[key] for key in graph.todo(store)]
        self._done, self._total = 0, len(todo)
        self.say(plan_text(graph, store))

    def epoch(self, node: Node, record: Mapping[str, Any]) -> None:
        """Keep what the stage's line tells: the best epoch, whose weights are kept."""
        if is_own(node.stage, record["role"]):
            before = self._newest.get(node.stage.key)
            kept = record if record["best"] or before is None else before
            self._newest[node.stage.key] = {**kept, "last": record["epoch"]}

    def ends(self, node: Node, seconds: float) -> None:
        """Tell of a training."""
        self._done += 1
        record = self._newest.pop(node.stage.key, None)
        if record:
            trained = trained_text(record["last"] + 1, record["accuracy"])
            self.say(f"[{self._done}/{self._total}] {node.title}: {trained}, {duration(seconds)}")


class WatchingDisplay(Live, WatchingLines):
    """The same lines above live ones: the sweep, and every stage at work."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._sweep = self._bars.add_task("stages", visible=False, now="")
        self._of: dict[str, TaskID] = {}

    def work_begins(self, graph: Graph, store: Holds, workers: int) -> None:
        """Begin to count and to estimate."""
        super().work_begins(graph, store, workers)
        most = {key: graph.nodes[key].epochs for key in graph.todo(store)}
        self._time = TimeLeft(most, workers)
        self._bars.reset(self._sweep, total=self._total or None, visible=True, now="")

    def begins(self, node: Node) -> None:
        """A live line for the stage."""
        self._drop(node)
        self._of[node.stage.key] = self._bars.add_task(
            node.title, total=node.epochs or None, now=""
        )

    def epoch(self, node: Node, record: Mapping[str, Any]) -> None:
        """Move its bar, and estimate the time left."""
        super().epoch(node, record)
        number, key = record["epoch"] + 1, node.stage.key
        own = is_own(node.stage, record["role"])
        self._time.epoch(key, record["seconds"], node.epochs - number if own else None)
        if own:
            accuracy = record["accuracy"]
            val = "" if accuracy is None else f" · val {percent(accuracy)} %"
            of = f"/{node.epochs}" if node.epochs else ""
            now = f"epoch {number}{of}{val}"
            self._bars.update(self._of[key], completed=number, now=now)
        if (left := self._time.seconds) is not None:
            self._bars.update(self._sweep, now=f"at most {duration(left)} left")

    def ends(self, node: Node, seconds: float) -> None:
        """Its line, and its live one goes."""
        super().ends(node, seconds)
        self._time.ends(node.stage.key)
        self._drop(node)
        self._bars.update(self._sweep, completed=self._done)

    def fails(self, node: Node, reason: str) -> None:
        """The same for a failure."""
        super().fails(node, reason)
        self._time.ends(node.stage.key)
        self._drop(node)

    def _drop(self, node: Node) -> None:
        if (bar := self._of.pop(node.stage.key, None)) is not None:
            self._bars.remove_task(bar)


def plan_text(graph: Graph, store: Holds) -> str:
    """What there is to do, and what is not because it is shared or stored."""
    return graph.summary(store)


def make_watching(quiet: bool) -> Watching:
    """The progress that suits standard error."""
    return suited(quiet, Watching, WatchingLines, WatchingDisplay)
