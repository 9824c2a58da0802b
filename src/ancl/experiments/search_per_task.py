"""Per-task search: λ is decided at every task, from the current task's images alone.

Fine-tuning shows what accuracy the task allows, and its search finds the learning rate. Then λ
starts high and is halved until the method comes near enough to that accuracy.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ancl.compute.graph import Graph
from ancl.errors import SpecError, TrainingError
from ancl.experiments.results import column_sizes, decode_matrix
from ancl.experiments.run import failures_message
from ancl.experiments.search_base import Search, SearchPlan, SearchRequest, SearchResult
from ancl.metrics import summary
from ancl.recipe.build import build, threads
from ancl.recipe.recipe import RunSpec
from ancl.stages.events import Events
from ancl.stages.runner import StageStorage


@dataclass(frozen=True)
class Decay:
    """When λ is halved, and how often.

    Args:
        drop: The share of fine-tuning's accuracy that may be lost.
        factor: What λ is multiplied by.
        trials: The most values that are tried; the next one is then taken as it is.
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
        reachable: The accuracy of fine-tuning on the task's validation images.
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
    """All attempts, and with the λ taken the accuracy on every task after each task."""

    attempts: tuple[Attempt, ...]
    rows: tuple[dict[str, Any], ...]
    sizes: tuple[int, ...]


class PerTaskSearch(Search):
    """λ of every task, for each search seed. What is decided is computed at once.

    Raises:
        SpecError: The settings do not fit, or there is no λ to halve.
    """

    decided_by = "validation accuracy on the current task"

    def __init__(self, asked: SearchRequest, events: Events) -> None:
        if any(grid is not None for grid in asked.grids.values()):
            raise SpecError(
                "--protocol per-task halves λ, beginning with --lamb, so it has no grid. Leave out "
                "--lamb-grid and --lamb-a-grid."
            )
        if asked.race:
            raise SpecError(
                "--protocol per-task halves one λ, so no values race. Leave out --race, or give "
                "--protocol two-stage."
            )
        # The rate is searched by fine-tuning, which also shows what accuracy can be reached.
        request = asked.request.with_values("--protocol per-task", {"training.lr_search": True})
        super().__init__(asked, [resolved.spec for resolved in request.resolve()], events)
        if not isinstance(self.spec.options.get("lamb"), int | float):
            raise SpecError(f"{self.spec.method} has no λ that is a number: nothing can be halved.")
        if self.spec.data.scenario == "cir":
            raise SpecError(
                "--protocol per-task compares accuracy on a task's own classes, and in the "
                "scenario cir known classes come with them. Give --protocol two-stage."
            )
        self.decay = Decay()

    def plan(self) -> SearchPlan:
        """The stages where the first λ is kept; every halving trains a task again."""
        first = (float(self.spec.options["lamb"]),)
        return self.plan_of(self.graph(self.specs), (("lamb", self.spec.method, first),))

    @property
    def decisive(self) -> tuple[int, ...]:
        """The seeds."""
        return self.seeds

    def decide(self) -> SearchResult:
        """Decide at every task, for each seed in turn."""
        root = self.asked.places.data
        followed = {
            spec.seed: follow(spec, self.store, self._compute, root, self.decay, self._note)
            for spec in self.specs
        }
        return self._result(followed)

    def _compute(self, graph: Graph) -> None:
        failures = self.compute(graph)
        if failures:  # the next decision would need it
            raise TrainingError(failures_message(failures))

    def _note(self, attempt: Attempt) -> None:
        if attempt.lamb is not None:
            self.events.note(
                f"task {attempt.task + 1}: λ = {attempt.lamb:g} reaches "
                f"{100 * attempt.accuracy:.1f} %, fine-tuning {100 * attempt.reachable:.1f} %: "
                f"{'taken' if attempt.taken else 'halved'}"
            )

    def _result(self, followed: dict[int, Followed]) -> SearchResult:
        attempts = [(seed, a) for seed, run in followed.items() for a in run.attempts]
        taken: dict[str, list[float | None]] = {str(seed): [] for seed in followed}
        for seed, attempt in attempts:
            taken[str(seed)] += [attempt.lamb] if attempt.taken else []
        result = self.result(
            {"lamb_by_task": taken},
            [{"seed": seed, **asdict(attempt)} for seed, attempt in attempts],
            details={"decay": asdict(self.decay)},
        )
        accuracy = {str(seed): _accuracy(self.spec, run) for seed, run in followed.items()}
        self.directory.write(result, {"result.json": accuracy})
        return result


def _accuracy(spec: RunSpec, followed: Followed) -> dict[str, Any]:
    """Accuracy on test images with the λ that were taken."""
    matrix = decode_matrix([row[spec.accuracy] for row in followed.rows])
    metrics = summary(matrix, followed.sizes)
    return {
        "metrics": {key: None if np.isnan(value) else value for key, value in metrics.items()},
        "matrices": {key: [row[key] for row in followed.rows] for key in ("taw", "tag")},
    }


def follow(
    spec: RunSpec,
    store: StageStorage,
    compute: Callable[[Graph], None],
    root: Path | None = None,
    decay: Decay | None = None,
    on_attempt: Callable[[Attempt], None] = lambda attempt: None,
) -> Followed:
    """Learn a stream, deciding λ at every task.

    Args:
        spec: What is learned; it searches rates and has the first λ.
        store: Where results of stages are found.
        compute: Computes what the store lacks of a graph, or raises.
        root: Where data is; see ``ancl.data.data_root``.
        decay: When λ is halved.
        on_attempt: Receives every attempt.
    """
    decay = decay or Decay()
    with threads(spec.threads):
        tasks = build(spec, root).stream.tasks
    attempts: list[Attempt] = []
    rows: list[dict[str, Any]] = []
    lambs: list[float] = []
    for index in range(len(tasks)):
        lamb = float(spec.options["lamb"])
        for number in range(decay.trials + 1):
            graph = Graph([spec], root, [*lambs, lamb])
            compute(graph)
            rate, answer = (_stored_meta(graph, store, index, name) for name in _DECIDING)
            reachable = max(accuracy for _, accuracy in rate["trials"])
            accuracy = answer["taw_val"][index]
            near = accuracy >= (1 - decay.drop) * reachable
            taken = index == 0 or near or number == decay.trials
            shown = lamb if index else None
            attempts.append(Attempt(index, shown, rate["lr"], reachable, accuracy, taken))
            on_attempt(attempts[-1])
            if taken:
                break
            lamb *= decay.factor
        lambs.append(lamb)
        rows.append(answer)
    return Followed(tuple(attempts), tuple(rows), column_sizes([task.sizes for task in tasks]))


_DECIDING = ("rate", "evaluate")


def _stored_meta(graph: Graph, store: StageStorage, task: int, name: str) -> dict[str, Any]:
    """What a stage of a task stored besides tensors."""
    [key] = [k for k, n in graph.nodes.items() if (n.stage.task, n.stage.name) == (task, name)]
    entry = store.load(key)
    assert entry is not None, "it was computed"
    return entry.meta
