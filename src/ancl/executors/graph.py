"""Many runs as one graph of stages: what they have in common is there, and computed, once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from ancl.data.registry import load_source
from ancl.experiments.build import Reading, build, most_epochs, threads
from ancl.experiments.spec import RunSpec
from ancl.stages.stage import Stage


@dataclass(frozen=True, eq=False)
class Node:
    """A stage, and a run that has it in its plan (others may have it too).

    Args:
        stage: The stage.
        spec: What a worker rebuilds it from.
        tasks: How many tasks the run has.
        images: How many images the stage's task trains on.
        lambs: The λ of each task, where λ is decided task by task.
    """

    stage: Stage
    spec: RunSpec
    tasks: int
    images: int
    lambs: tuple[float, ...] = ()

    @property
    def title(self) -> str:
        """Which stage of which run."""
        spec, stage = self.spec, self.stage
        lamb = self.lambs[stage.task] if self.lambs else spec.options.get("lamb")
        signs = {"λ": lamb, "λ_a": spec.options.get("lamb_a")}
        values = "".join(
            f" {sign}={v:g}" for sign, v in signs.items() if isinstance(v, int | float)
        )
        run = f"{spec.method}{values} seed {spec.seed}"
        return f"{run}, task {stage.task + 1}/{self.tasks} {stage.name}"

    @property
    def epochs(self) -> int:
        """At most so many epochs; 0 where nothing is trained."""
        return most_epochs(self.spec, self.stage)


class Plan(dict[str, Node]):
    """One run's stages by key, in an order in which they can be computed."""

    def __init__(
        self, spec: RunSpec, root: Path | None, read: Reading, lambs: Sequence[float]
    ) -> None:
        with threads(spec.threads):
            experiment = build(spec, root, read, lambs)
        tasks = experiment.stream.tasks
        super().__init__(
            (stage.key, Node(stage, spec, len(tasks), tasks[stage.task].sizes[0], tuple(lambs)))
            for stage in experiment.stages
        )
        self.spec = spec
        self.val_sizes = tuple(task.sizes[1] for task in tasks)


class Holds(Protocol):
    """What can tell whether a key is there."""

    def has(self, key: str) -> bool: ...  # noqa: D102


class Graph:
    """The union of plans by key.

    Args:
        specs: The runs. All have one thread count, which is part of every key.
        root: Where data lies; see ``ancl.data.data_root``.
        lambs: The λ of each task, where λ is decided task by task; later tasks are left out.
    """

    def __init__(
        self, specs: Iterable[RunSpec], root: Path | None = None, lambs: Sequence[float] = ()
    ) -> None:
        self.root = root
        read = lru_cache(maxsize=1)(load_source)  # once for all runs; a later graph reads anew
        self.plans = [Plan(spec, root, read, lambs) for spec in specs]
        assert len({plan.spec.threads for plan in self.plans}) <= 1, "one thread count a sweep"
        self.nodes: dict[str, Node] = {}
        for plan in self.plans:
            for key, node in plan.items():
                self.nodes.setdefault(key, node)

    def todo(self, store: Holds) -> list[str]:
        """What must be computed; code without a source file is left to the run that has it."""
        return [
            key
            for key, node in self.nodes.items()
            if not node.stage.unstored and not store.has(key)
        ]

    def counts(self, store: Holds) -> dict[str, int]:
        """Stages and epochs: of all runs each on its own, without doubles, and left to do."""
        each = [node for plan in self.plans for node in plan.values()]
        todo = [self.nodes[key] for key in self.todo(store)]
        return {
            "runs": len(self.plans),
            "stages": len(each),
            "unique_stages": len(self.nodes),
            "stages_to_do": len(todo),
            "most_epochs": _total(each),
            "unique_most_epochs": _total(self.nodes.values()),
            "most_epochs_to_do": _total(todo),
        }


def _total(nodes: Iterable[Node]) -> int:
    """At most so many epochs in all."""
    return sum(node.epochs for node in nodes)


class Schedule:
    """Which stages can be computed now; a failure takes what depends on it along.

    Args:
        nodes: The graph's stages.
        todo: The keys to compute, inputs before what reads them.
    """

    def __init__(self, nodes: Mapping[str, Node], todo: Sequence[str]) -> None:
        left = set(todo)
        self._inputs = {key: left & set(nodes[key].stage.inputs.values()) for key in todo}
        self._waiting = list(todo)
        self._gone: set[str] = set()
        self.failures: dict[str, str] = {}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to hand out."""
        return not self._waiting

    def take(self) -> str | None:
        """The first stage all of whose inputs are there, or nothing yet."""
        for key in self._waiting:
            if not self._inputs[key]:
                self._waiting.remove(key)
                return key
        return None

    def done(self, key: str) -> None:
        """A stage is in the store."""
        for inputs in self._inputs.values():
            inputs.discard(key)

    def again(self, key: str) -> None:
        """A stage was lost with its worker: it comes first."""
        self._waiting.insert(0, key)

    def fail(self, key: str, reason: str) -> None:
        """A stage failed for its own reasons; what needs it is not computed."""
        self.failures[key] = reason
        self._gone.add(key)
        for each in list(self._waiting):  # inputs come first, so one pass finds all
            if self._inputs[each] & self._gone:
                self._gone.add(each)
                self._waiting.remove(each)


class Observer:
    """Told of every stage of a sweep, wherever it is computed; this one keeps quiet."""

    def say(self, message: str) -> None:
        """Something a user should know."""

    def begins(self, node: Node) -> None:
        """A stage is being computed."""

    def epoch(self, node: Node, record: Mapping[str, Any]) -> None:
        """A training finished an epoch."""

    def ends(self, node: Node, seconds: float) -> None:
        """A stage is in the store."""

    def fails(self, node: Node, reason: str) -> None:
        """A stage failed."""
