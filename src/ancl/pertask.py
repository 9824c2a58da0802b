"""A search task by task, which sees the current task's images alone.

How well could the task be learned if nothing had to be kept? The rate is searched by fine-tuning.
Then λ starts high and is halved until the method comes near enough to that accuracy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ancl.experiment import Experiment, build, threads
from ancl.files import Entry
from ancl.method import Method
from ancl.naming import MethodRef
from ancl.runner import Reporter, Runner, Storage
from ancl.spec import RunSpec
from ancl.stages import Pieces, Stage, plan_task
from ancl.workbench import Job


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
    reporter: Reporter,
    root: Path | None = None,
    decay: Decay | None = None,
    told: Callable[[Attempt], None] = lambda attempt: None,
) -> Followed:
    """Learn a stream, deciding λ at every task; ``spec`` searches rates and has the first λ."""
    with threads(spec.threads):
        return _Search(build(spec, root), store, reporter, decay or Decay(), told).run()


class _Search:
    """The decisions of one run, one after the other."""

    def __init__(
        self,
        experiment: Experiment,
        store: Storage,
        reporter: Reporter,
        decay: Decay,
        told: Callable[[Attempt], None],
    ) -> None:
        self._experiment, self._store, self._reporter = experiment, store, reporter
        self._decay, self._told = decay, told
        self._first = float(experiment.spec.options["lamb"])
        self._stages: list[Stage] = []
        self._attempts: list[Attempt] = []
        self._rows: list[dict[str, Any]] = []

    def run(self) -> Followed:
        """Every task in turn."""
        pieces: Pieces = {}
        tasks = self._experiment.stream.tasks
        for index in range(len(tasks)):
            pieces = self._decide(index, pieces)
        sizes = tuple(task.sizes[2] for task in tasks)
        return Followed(tuple(self._attempts), tuple(self._rows), sizes)

    def _decide(self, index: int, pieces: Pieces) -> Pieces:
        lamb = self._first
        for number in range(self._decay.trials + 1):
            stages, after = self._plan(index, lamb, pieces)
            entries = self._obtain(stages, lamb)
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
        self._stages += stages
        self._rows.append(answer)
        return after

    def _plan(self, index: int, lamb: float, pieces: Pieces) -> tuple[Sequence[Stage], Pieces]:
        experiment = self._experiment
        tasks = experiment.stream.tasks[: index + 1]
        return plan_task(self._method(lamb), tasks, experiment.setting, pieces)

    def _obtain(self, stages: Sequence[Stage], lamb: float) -> dict[str, Entry]:
        experiment = self._experiment
        job = Job(
            self._method(lamb), experiment.stream.tasks, experiment.setting, self._reporter.say
        )
        runner = Runner([*self._stages, *stages], job, self._store, self._reporter)
        return {stage.name: runner.obtain(stage.key) for stage in stages}

    def _method(self, lamb: float) -> Method:
        spec = self._experiment.spec
        return MethodRef(spec.method).make({**spec.options, "lamb": lamb})
