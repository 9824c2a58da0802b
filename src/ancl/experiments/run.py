"""Many specs carried out as one graph by any executor, each to its own result."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ancl.errors import counted
from ancl.executors import ExecutorChoice
from ancl.executors.graph import Graph, Node, Observer
from ancl.experiments.build import Experiment, RunResult, build, run_experiment, threads
from ancl.experiments.spec import RunSpec
from ancl.stages.events import Events
from ancl.stages.runner import Reporter
from ancl.store.store import Store


class Failure(NamedTuple):
    """A stage that failed for its own reasons, and how many runs lack it."""

    node: Node
    reason: str
    runs: int

    def json(self) -> dict[str, Any]:
        """The failure as JSON."""
        stage = self.node.stage
        return {
            "stage": self.node.title,
            "key": stage.key,
            "runs": self.runs,
            "reason": self.reason,
        }


def compute(graph: Graph, store: Store, choice: ExecutorChoice, events: Events) -> list[Failure]:
    """Compute what the store lacks of a graph. A failure stops only what depends on it."""
    events.work_begins(graph, store, choice.workers)
    observer = events if isinstance(events, Observer) else Observer()
    return failures_of(graph, choice.executor.run(graph, store, observer))


def failures_message(failures: Sequence[Failure]) -> str:
    """What failed and why, one line for each."""
    lines = [f"  {each.node.title}: {each.reason}" for each in failures]
    return "\n".join([f"{counted(len(failures), 'stage')} failed:", *lines])


def failures_of(graph: Graph, reasons: Mapping[str, str]) -> list[Failure]:
    """Failed stages with the number of runs that have them in their plan."""
    return [
        Failure(graph.nodes[key], reason, sum(key in plan for plan in graph.plans))
        for key, reason in reasons.items()
    ]


def whole(graph: Graph, failures: Sequence[Failure]) -> list[RunSpec]:
    """The runs that lack nothing."""
    lacking = {failure.node.stage.key for failure in failures}
    return [plan.spec for plan in graph.plans if not lacking & plan.keys()]


def collect(
    specs: Sequence[RunSpec], store: Store, reporter: Reporter, root: Path | None = None
) -> Iterator[tuple[Experiment, RunResult]]:
    """Results from stored stages, one run at a time, since each holds its images.

    Stages of code without a source file are not stored: they are computed here.
    """
    for spec in specs:
        with threads(spec.threads):
            experiment = build(spec, root)
            result = run_experiment(experiment, store, reporter)
        yield experiment, result
