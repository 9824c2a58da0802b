"""A search task by task, which sees the current task's images alone.

How well could the task be learned if nothing had to be kept? The rate is searched by fine-tuning.
Then λ starts high and is halved until the method comes near enough to that accuracy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ancl.executors.graph import Graph
from ancl.experiments.build import build, threads
from ancl.experiments.spec import RunSpec
from ancl.stages.runner import Storage
from ancl.store.entry import StageResult


@dataclass(frozen=True)
class Decay:
    """When λ is halved, and how often.

    Args:
        drop: The share of fine-tuning's accuracy that may be lost.
        factor: What λ is multiplied by.
        trials: At most so many values are tried; the next one is then taken untried.
    """

    drop: float = 0.2
    factor: float = 0.5
    trials: int = 7


@dataclass(frozen=True)
class Attempt:
    """One λ on one task.

    Args:
        task: The task's index.
        lamb: The value; the first task has none.
        rate: The learning rate that fine-tuning found.
        reachable: The accuracy it reached, on the task's validation images.
        accuracy: The method's accuracy on the same images.
        taken: Whether the value was kept.
    """

    task: int
    lamb: float | None
    rate: float
    reachable: float
    accuracy: float
    taken: bool


@dataclass(frozen=True, eq=False)
class Followed:
    """All attempts, and the accuracy on every task after each, with those that were taken."""

    attempts: tuple[Attempt, ...]
    rows: tuple[dict[str, Any], ...]
    sizes: tuple[int, ...]


def follow(
    spec: RunSpec,
    store: Storage,
    compute: Callable[[Graph], None],
    root: Path | None = None,
    decay: Decay | None = None,
    told: Callable[[Attempt], None] = lambda attempt: None,
) -> Followed:
    """Learn a stream, deciding λ at every task.

    Args:
        spec: What is learned; it searches rates and has the first λ.
        store: Where results of stages are found.
        compute: Puts there what a graph lacks, or raises.
        root: Where data lies; see ``ancl.data.data_root``.
        decay: When λ is halved.
        told: Receives every attempt.
    """
    return _Search(spec, store, compute, root, decay or Decay(), told).run()


class _Search:
    """The decisions of one run, one after the other; each is a graph of its own."""

    def __init__(
        self,
        spec: RunSpec,
        store: Storage,
        compute: Callable[[Graph], None],
        root: Path | None,
        decay: Decay,
        told: Callable[[Attempt], None],
    ) -> None:
        self._spec, self._store, self._compute, self._root = spec, store, compute, root
        self._decay, self._told = decay, told
        with threads(spec.threads):
            self._tasks = build(spec, root).stream.tasks
        self._first = float(spec.options["lamb"])
        self._attempts: list[Attempt] = []
        self._rows: list[dict[str, Any]] = []

    def run(self) -> Followed:
        """Every task in turn."""
        lambs: list[float] = []
        for _ in self._tasks:
            lambs.append(self._decide(lambs))
        sizes = tuple(task.sizes[2] for task in self._tasks)
        return Followed(tuple(self._attempts), tuple(self._rows), sizes)

    def _decide(self, before: Sequence[float]) -> float:
        """The λ of the task that follows those decided before."""
        index, lamb = len(before), self._first
        for number in range(self._decay.trials + 1):
            entries = self._obtain([*before, lamb])
            rate, answer = entries["rate"].meta, entries["evaluate"].meta
            reachable = max(accuracy for _, accuracy in rate["trials"])
            accuracy = answer["taw_val"][index]
            near = accuracy >= (1 - self._decay.drop) * reachable
            taken = index == 0 or near or number == self._decay.trials
            shown = lamb if index else None
            self._attempts.append(Attempt(index, shown, rate["lr"], reachable, accuracy, taken))
            self._told(self._attempts[-1])
            if taken:
                break
            lamb *= self._decay.factor
        self._rows.append(answer)
        return lamb

    def _obtain(self, lambs: Sequence[float]) -> dict[str, StageResult]:
        """The newest task's results by stage, once everything is in the store."""
        graph = Graph([self._spec], self._root, lambs)
        self._compute(graph)
        found: dict[str, StageResult] = {}
        for key, node in graph.nodes.items():
            if node.stage.task == len(lambs) - 1 and node.stage.name in ("rate", "evaluate"):
                entry = self._store.load(key)
                assert entry is not None, "it was computed"
                found[node.stage.name] = entry
        return found
