"""Search λ and λ_a. Two-stage: λ with the plain method, then λ_a with λ fixed.

Validation images alone decide. Stages that trials have in common are computed once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ancl.compute import choose_executor
from ancl.compute.graph import Plan
from ancl.errors import SpecError, TrainingError, unknown
from ancl.experiments.grid import (
    FAVOURED,
    Standing,
    Stop,
    best_value,
    earliest,
    on_edge,
    race,
    standing,
)
from ancl.experiments.results import Places, decode_matrix
from ancl.experiments.run import Failure, failures_message
from ancl.experiments.search_base import (
    Search,
    SearchPlan,
    SearchRequest,
    SearchResult,
    seeds_to_report,
)
from ancl.experiments.search_per_task import PerTaskSearch
from ancl.methods.registry import MethodRef
from ancl.metrics import METRICS, Matrix, main_metric, score
from ancl.recipe.benchmarks import benchmark as benchmark_named
from ancl.recipe.recipe import RunSpec
from ancl.recipe.request import make_request, resolve_methods
from ancl.stages.events import Events
from ancl.stages.runner import StageStorage
from ancl.wording import SIGNS

PROTOCOLS = ("two-stage", "per-task")
STEPS = ("lamb", "lamb_a")
"""What is searched, in this order: λ with the plain method, then λ_a with λ fixed."""


@dataclass(frozen=True)
class Trial:
    """One value tried.

    Args:
        step: ``lamb`` or ``lamb_a``.
        method: What was trained.
        options: All its settings.
        value: The value.
        scores: The validation score of each seed, after the tasks learned; none where it failed.
        failed: Why it has none.
        standing: What a race compares, after 1, 2, … tasks.
        tasks: The number of tasks of its runs.
        stopped: Why a race stopped it; nothing where it did not.
    """

    step: str
    method: str
    options: Mapping[str, Any]
    value: float
    scores: Mapping[int, float]
    failed: str = ""
    standing: Standing = ()
    tasks: int = 0
    stopped: Stop | None = None

    @property
    def learned(self) -> int:
        """The number of tasks learned; a race may need fewer than all."""
        return len(self.standing)

    @property
    def mean(self) -> float:
        """The score that decides; NaN for a trial that failed."""
        return float(np.mean(list(self.scores.values()))) if not self.failed else math.nan

    def json(self, chosen: Mapping[str, float]) -> dict[str, Any]:
        """The trial as JSON, given what was chosen; what did not learn all tasks has no mean."""
        return {
            "step": self.step,
            "method": self.method,
            "lamb": self.options.get("lamb"),
            "lamb_a": self.options.get("lamb_a"),
            "scores": {str(seed): score for seed, score in self.scores.items()},
            "mean": self.mean if self.learned == self.tasks and not self.failed else None,
            "chosen": chosen[self.step] == self.value,
            "failed": self.failed,
            "tasks_learned": self.learned,
            "stopped": self.stopped.json() if self.stopped else {},
        }


class TwoStageSearch(Search):
    """The steps of one search, their grids, and what is decided so far.

    Raises:
        SpecError: The settings do not fit, or there is nothing to search.
    """

    def __init__(self, asked: SearchRequest, events: Events) -> None:
        # Everything but λ and λ_a is checked here, and names from a file are filled in.
        super().__init__(asked, [resolved.spec for resolved in asked.request.resolve()], events)
        self.ref = MethodRef(self.spec.method)
        self.steps = [s for s in STEPS if s in self._method_of(s).settings]
        if not self.steps:
            raise SpecError(f"{self.ref.name} has neither λ nor λ_a: there is nothing to search.")
        given = [SIGNS[step] for step in self.steps if asked.request.given(step)]
        if given:
            raise SpecError(
                f"{' and '.join(given)}: a value or rule is given, and the search tries the values "
                f"of a grid instead. Leave it out, or leave out the search: ancl run takes values "
                f"and rules (--lamb auto, --lamb-a balance)."
            )
        self.grids = {step: self._grid(step) for step in self.steps}
        self.decided_by = f"validation {METRICS[main_metric(self.spec.task_aware)].label}"
        self.chosen: dict[str, float] = {}
        self.trials: list[Trial] = []
        self.failures: list[Failure] = []
        self.notes: list[str] = []

    def plan(self) -> SearchPlan:
        """All steps; λ_a's are counted with the first λ, since none is chosen yet."""
        specs: list[RunSpec] = []
        chosen: dict[str, float] = {}
        for step in self.steps:
            for value in self.grids[step]:
                specs += self._specs({**chosen, step: value})
            chosen[step] = self.grids[step][0]
        graph = self.graph(specs)
        tried = tuple((s, self._method_of(s).name, self.grids[s]) for s in self.steps)
        plan = self.plan_of(graph, tried, self.asked.executor.workers)
        if not self.asked.race:
            return plan
        first = earliest(len(graph.plans[0].sizes))
        least = self.graph(specs, first).counts(self.store)["most_epochs_to_do"]
        race_counts = {"earliest_stop": first, "least_epochs_to_do": least}
        return replace(plan, counts={**plan.counts, **race_counts})

    @property
    def decisive(self) -> list[Any]:
        """The grids, the seeds, and whether values race."""
        return [self.grids, self.seeds, *(["race"] if self.asked.race else [])]

    def decide(self) -> SearchResult:
        """Every step: all its trials, then its decision."""
        for step in self.steps:
            trials = self._try(step)
            self.trials += trials
            # The scores of a value that a race stopped are of fewer tasks.
            winner = best_value({t.value: [*t.scores.values()] for t in trials if not t.stopped})
            if winner is None:
                raise TrainingError(self._all_failed(step, trials))
            self.chosen[step] = winner
            if on_edge(winner, self.grids[step]):
                self.notes.append(
                    f"{SIGNS[step]} = {winner:g} is at the edge of its grid: a better value may be "
                    f"outside."
                )
        return self._result()

    def _all_failed(self, step: str, trials: Sequence[Trial]) -> str:
        reasons = failures_message(self.failures)
        if not any(trial.stopped for trial in trials):
            return f"Every value of {SIGNS[step]} failed. {reasons}"
        return (
            f"Every value of {SIGNS[step]} that the race did not stop failed. Without --race the "
            f"others continue from where they stopped. {reasons}"
        )

    def _method_of(self, step: str) -> MethodRef:
        """λ is searched with the plain method, λ_a with the variant."""
        return MethodRef(self.ref.base) if step == "lamb" else self.ref

    def _grid(self, step: str) -> tuple[float, ...]:
        given, flag = self.asked.grids.get(step), f"--{step.replace('_', '-')}-grid"
        if given is None:
            grid = benchmark_named(self.spec.benchmark).grids.get(self._method_of(step).name)
            if grid is None or grid.setting != step:
                raise SpecError(
                    f"{self.spec.benchmark} has no grid for {SIGNS[step]} of {self.ref.name}. "
                    f"Give one: {flag} 0.1,1,10."
                )
            return grid.values
        values = tuple(dict.fromkeys(map(float, given)))
        if not values or not all(math.isfinite(v) and v >= 0 for v in values):
            raise SpecError(
                f"{flag}: {', '.join(f'{v:g}' for v in values) or 'nothing'} is not a list of "
                f"numbers ≥ 0. Give some, such as {flag} 0.1,1,10."
            )
        return values

    def _specs(self, lambs: Mapping[str, float]) -> list[RunSpec]:
        """One run per search seed; the last of these values is the one that is tried."""
        *_, step = lambs
        request = replace(self.asked.request, benchmark=self.spec.benchmark)
        request = request.with_values("search", lambs)
        return resolve_methods(request, [self._method_of(step).name], [self.ref.name])

    def _try(self, step: str) -> list[Trial]:
        """Every value of a step, on all tasks or as far as a race takes it."""
        tried = {value: self._specs({**self.chosen, step: value}) for value in self.grids[step]}
        if not self.asked.race:
            return self._learn(step, tried)
        trials: dict[float, Trial] = {}

        def learn(values: Sequence[float], tasks: int) -> dict[float, Standing]:
            made = self._learn(step, {value: tried[value] for value in values}, tasks)
            trials.update({trial.value: trial for trial in made})
            return {trial.value: trial.standing for trial in made if not trial.failed}

        def tell(value: float, stop: Stop) -> None:
            self.events.note(f"{SIGNS[step]}={value:g} {stop.text(SIGNS[step])}")

        [plan] = self.graph([next(iter(tried.values()))[0]]).plans
        stopped = race(list(tried), len(plan.sizes), learn, FAVOURED[step], tell)
        return [replace(trials[value], stopped=stopped.get(value)) for value in tried]

    def _learn(
        self, step: str, tried: Mapping[float, Sequence[RunSpec]], tasks: int | None = None
    ) -> list[Trial]:
        """Train values on all tasks, or on this number of first ones."""
        graph = self.graph([spec for specs in tried.values() for spec in specs], tasks)
        failures = self.compute(graph)
        self.failures += failures
        lacking = {failure.node.stage.key: failure.reason for failure in failures}
        plans = iter(graph.plans)
        trials = []
        for value, specs in tried.items():
            by_seed = [next(plans) for _ in specs]
            why = next((lacking[key] for plan in by_seed for key in plan if key in lacking), "")
            trials.append(make_trial(step, value, by_seed, self.store, why))
        return trials

    def _stops(self) -> list[dict[str, Any]]:
        """Every value that a race stopped: after which task, by which numbers, against which."""
        return [
            {"step": trial.step, "value": trial.value, **trial.stopped.json()}
            for trial in self.trials
            if trial.stopped
        ]

    def _result(self) -> SearchResult:
        seeds, noted = seeds_to_report(self.asked.report_seeds, self.seeds)
        follow_up = replace(
            self.asked.request,
            method=self.spec.method,
            benchmark=self.spec.benchmark,
            seeds=seeds,
        )
        for step, value in self.chosen.items():
            follow_up = follow_up.with_values(f"--{step.replace('_', '-')}", {step: value})
        result = self.result(
            dict(self.chosen),
            [trial.json(self.chosen) for trial in self.trials],
            notes=(*self.notes, *noted),
            details={"race": self._stops()} if self.asked.race else {},
            failures=tuple(self.failures),
            follow_up=follow_up,
            data_root=self.asked.places.data,
        )
        self.directory.write(result)
        return result


def make_trial(
    step: str, value: float, plans: Sequence[Plan], store: StageStorage, failed: str
) -> Trial:
    """A value whose stages are stored, or that failed; one plan per seed."""
    spec, tasks = plans[0].spec, len(plans[0].sizes)
    tried = (step, spec.method, spec.options, value)
    if failed:
        return Trial(*tried, {}, failed, tasks=tasks)
    runs = [(validation_matrix(plan, store), plan.val_sizes) for plan in plans]
    scores = {
        plan.spec.seed: score(matrix, sizes, spec.task_aware)
        for plan, (matrix, sizes) in zip(plans, runs, strict=True)
    }
    compared = standing(runs, task_aware=spec.task_aware)
    return Trial(*tried, scores, standing=compared, tasks=tasks)


def validation_matrix(plan: Plan, store: StageStorage) -> Matrix:
    """The accuracy on validation images, after each task of a plan whose stages are stored."""
    rows = []
    for key, node in plan.items():
        if node.stage.name == "evaluate":
            entry = store.load(key)
            assert entry is not None, "the executor stored it"
            rows.append(entry.meta[f"{plan.spec.accuracy}_val"])
    return decode_matrix(rows)


# -- every search ----------------------------------------------------------------------------


def search(
    method: str | None = None,
    benchmark: str | None = None,
    *,
    protocol: str = "two-stage",
    lamb_grid: Sequence[float] | None = None,
    lamb_a_grid: Sequence[float] | None = None,
    search_seeds: Sequence[int] = (0,),
    report_seeds: Sequence[int] | None = None,
    race: bool = False,
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    store: str | Path | None = None,
    data_root: str | Path | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    events: Events | None = None,
    **options: Any,
) -> SearchResult:
    """Search λ, then λ_a, by validation images alone. A stopped search is resumed.

    Args:
        method: Such as ``a-lwf``: λ is searched with ``lwf``, then λ_a with ``a-lwf``.
        benchmark: Such as ``digits/5``.
        protocol: ``two-stage``: one λ, then one λ_a, for all tasks. ``per-task``: λ is halved at
            each task until the task is learned.
        lamb_grid: λ to try; the benchmark's grid by default.
        lamb_a_grid: λ_a to try; the same.
        search_seeds: Seeds that decide, by their mean.
        report_seeds: Seeds of the runs that follow, see ``SearchResult.specs``; by default the
            three after those that decide.
        race: Whether values that have no chance to win stop early; see docs/search.md.
        preset: As in ``spec``.
        quick: As in ``spec``.
        config: As in ``spec``.
        settings: As in ``spec``.
        runs: Where results go.
        store: Where stages are kept; by default ``.store`` in ``runs``.
        data_root: Where data is; see ``ancl.data.data_root``.
        executor: ``serial`` (the default), ``pool`` or ``ray``.
        workers: The number of stages computed at the same time, by a pool or Ray.
        address: The address of a running Ray cluster.
        overwrite: Whether results replace files in their way that ancl did not write.
        events: Receives progress; silent by default.
        options: As in ``spec``.

    Raises:
        SpecError: All mistakes, each on its own line; or there is nothing to search.
        TrainingError: No value of a grid could be trained.
    """
    values = {**(settings or {}), **options}
    threads = values.get("threads")
    asked = SearchRequest(
        make_request(method, benchmark, values, search_seeds, preset, quick, config),
        protocol,
        {"lamb": lamb_grid, "lamb_a": lamb_a_grid},
        report_seeds,
        Places.of(runs, store, data_root, overwrite=overwrite),
        choose_executor(executor, workers, address, threads if isinstance(threads, int) else None),
        race,
    )
    return prepare_search(asked, events or Events()).run()


def prepare_search(asked: SearchRequest, events: Events) -> Search:
    """Check a search, so that it can be planned and run.

    Raises:
        SpecError: All mistakes, each on its own line; or there is nothing to search.
    """
    if asked.protocol not in PROTOCOLS:
        raise SpecError("--protocol: " + unknown("protocol", asked.protocol, PROTOCOLS))
    asked = replace(asked, request=asked.request.with_threads(asked.executor.threads))
    kind = TwoStageSearch if asked.protocol == "two-stage" else PerTaskSearch
    return kind(asked, events)
