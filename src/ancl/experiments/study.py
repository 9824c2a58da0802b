"""Studies: a file of searches and tables, carried out run by run from small stored results.

For each method: λ is searched, then λ_a with λ fixed, by validation accuracy. Then come the table's
rows on other seeds: the plain method (CL), AFEC and ANCL, and CL with as many trials and with as
much computation as ANCL had. Where there are rules, some methods decide which are taken, and rows
with them follow. Beside all these stand rows with their own settings. What to run next follows from
finished runs alone, so a study resumes wherever its results are.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ancl.compute import ExecutorChoice, choose_executor
from ancl.compute.graph import Graph
from ancl.errors import SpecError, counted
from ancl.experiments.forecast import passes, seconds_an_image
from ancl.experiments.grid import around
from ancl.experiments.results import Places, spec_hash
from ancl.experiments.run import failures_message, run_all
from ancl.experiments.study_file import read_study_plan
from ancl.experiments.study_plan import BenchmarkPlan, StudyPlan
from ancl.experiments.study_results import (
    Batch,
    Get,
    Images,
    ResultFolder,
    Runs,
    StudyRun,
    study_specs,
)
from ancl.experiments.study_rows import (
    MethodFollower,
    MethodResult,
    RowFollower,
    RowTrials,
    RuleFollower,
    kind_of,
)
from ancl.methods.registry import MethodRef
from ancl.metrics import SEEDS, Interval, holm, t_interval
from ancl.recipe.recipe import RunSpec
from ancl.stages.events import Events, Forward

_ANY_IMAGES = ((1000, 100, 100),) * 100
"""Stands for the images of a stream that is only checked."""


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What the finished runs of a study say.

    Args:
        plan: What was asked for.
        methods: Every method with its finished runs.
        references: Runs of reference rows that finished, by benchmark and the row's name.
        trials: The runs on the search seeds of reference rows with grids, by the same.
        rules: The rules taken, by what they are for, each once all its deciding runs are done.
        runs: All runs that are done, failed ones included.
        todo: Runs that can be carried out now; none where the study is complete.
    """

    plan: StudyPlan
    methods: tuple[MethodResult, ...] = ()
    references: Mapping[Batch, tuple[StudyRun, ...]] = field(default_factory=dict)
    trials: Mapping[Batch, RowTrials] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[StudyRun, ...] = ()
    todo: Mapping[Batch, tuple[RunSpec, ...]] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """The number of runs that can be carried out now; 0 where the study is complete."""
        return sum(map(len, self.todo.values()))

    @property
    def missing(self) -> tuple[str, ...]:
        """What another study has not chosen yet, method by method."""
        return tuple(method.missing for method in self.methods if method.missing)

    def primary(self) -> Interval | None:
        """ANCL minus equal-search CL, averaged over methods, with the seed as the unit.

        Of the methods whose two rows are complete; nothing where there are none.
        """
        gaps = [gap for method in self.methods if (gap := method.gaps("ancl", "equal_search"))]
        seeds = [s for s in self.plan.table_seeds if gaps and all(s in by_seed for by_seed in gaps)]
        means = [float(np.mean([by_seed[seed] for by_seed in gaps])) for seed in seeds]
        images = [e.rows["ancl"][0].test_image for e in self.methods if e.rows.get("ancl")]
        return t_interval(means, max(images)) if means else None

    def adjusted(self) -> dict[str, float]:
        """Holm's p-values of ANCL minus equal-search CL, by method."""
        gaps = {method.method: method.difference("ancl", "equal_search") for method in self.methods}
        return holm({name: gap.p for name, gap in gaps.items() if gap and gap.n >= SEEDS})

    def json(self) -> dict[str, Any]:
        """What is left and missing, what was chosen, the rows and the primary result."""
        primary, adjusted = self.primary(), self.adjusted()
        return {
            "left": self.left,
            "missing": list(self.missing),
            "primary": primary.json() if primary else None,
            "rules": dict(self.rules),
            "methods": [
                {**method.json(), "holm": adjusted.get(method.method)} for method in self.methods
            ],
        }


class Forecast(NamedTuple):
    """What is left of a study, supposing that no search ends at an edge.

    Args:
        runs: The number of runs of each method, references together, and of these to do.
        seconds: About how long they take one by one, from a few timed steps.
    """

    runs: dict[str, tuple[int, int]]
    seconds: float


class Study:
    """A study that is checked and can be forecast, carried out and read.

    Args:
        path: Its file.
        results: The folder of its results; by default ``results`` beside the file.
        overwrite: Whether results replace files in their way that ancl did not write.
        root: Where data is; see ``ancl.data.data_root``.

    Raises:
        SpecError: All mistakes, each on its own line.
        StoreError: A file that ancl did not write is in the way of a result.
    """

    def __init__(
        self,
        path: Path,
        results: Path | None = None,
        *,
        overwrite: bool = False,
        root: Path | None = None,
    ) -> None:
        folder = results or path.parent / "results"
        self.folder = ResultFolder(folder, overwrite=overwrite, root=root)
        self.path, self.plan = path, read_study_plan(path)
        self._specs: dict[str, list[RunSpec]] = {}  # making one takes longer than asking for it
        self._other = self._open_other(root) if self.plan.of else None
        self._check_rules()
        # Mistakes in settings are found before anything is trained.
        self._follow(self._supposing(lambda spec: _ANY_IMAGES))

    def _open_other(self, root: Path | None) -> "Study":
        other = Path(os.path.normpath(self.path.parent / self.plan.of))
        if read_study_plan(other).rules:
            raise SpecError(
                f"{self.path}: of is {self.plan.of}, a study of rules. Name one of grids."
            )
        return Study(other, root=root)

    @property
    def benchmarks(self) -> Mapping[str, BenchmarkPlan]:
        """What is studied, by benchmark: its own, or the other study's."""
        return self._other.plan.benchmarks if self._other else self.plan.benchmarks

    def _followers(self, runs: Runs) -> list[MethodFollower]:
        return [
            MethodFollower(self.plan, entry, benchmark, method, runs)
            for benchmark, entry in self.benchmarks.items()
            for method in entry.methods
        ]

    def _check_rules(self) -> None:
        rules, path = self.plan.rules, self.path
        if rules is None:
            return
        methods = dict.fromkeys(m for entry in self.benchmarks.values() for m in entry.methods)
        known = {method: kind_of(method) for method in methods}
        mistakes = [
            f"{path}: deciding names {method}, and {self.plan.of or 'the file'} has no such "
            f"method. It has {', '.join(known)}."
            for method in rules.deciding
            if method not in known
        ]
        voters = {known[method] for method in rules.deciding if method in known}
        for kind in dict.fromkeys(known.values()):
            if not rules.of(kind):
                mistakes.append(f"{path}: lamb has no rule for methods with Ω on {kind}.")
            elif len(rules.of(kind)) > 1 and kind not in voters:
                mistakes.append(
                    f"{path}: lamb has several rules for Ω on {kind}, and no deciding method has "
                    f"such an Ω. Give one rule, or let one decide."
                )
        if mistakes:
            raise SpecError("\n".join(mistakes))
        RuleFollower(self.plan, self._followers(Runs(self.folder.get, self._specs))).check()

    # -- what finished runs say --------------------------------------------------------------

    @property
    def changes(self) -> tuple[str, ...]:
        """Which results that were read are computed again, and what has changed, as sentences."""
        return (*(self._other.changes if self._other else ()), *self.folder.changes)

    def result(self) -> StudyResult:
        """What the finished runs say."""
        methods = self._other.result().methods if self._other else ()
        return self._result(Runs(self.folder.get, self._specs), methods)

    def _result(self, runs: Runs, others: Sequence[MethodResult]) -> StudyResult:
        plan, followers = self.plan, self._followers(runs)
        for index, follower in enumerate(followers):
            if self._other:
                follower.result = others[index].of_another(self._other.path)
            else:
                follower.follow()
        rows = RowFollower(plan, runs)
        rows.follow()
        rules = RuleFollower(plan, followers).follow() if plan.rules else {}
        methods = tuple(follower.result for follower in followers)
        done = tuple(run for batch in runs.done.values() for run in batch.values())
        todo = {name: tuple(batch.values()) for name, batch in runs.todo.items()}
        return StudyResult(plan, methods, rows.rows, rows.trials, rules, done, todo)

    def _follow(self, get: Get) -> tuple[Runs, StudyResult]:
        """What would be, if all runs were as given."""
        runs = Runs(get, self._specs)
        others = self._other._follow(get)[1].methods if self._other else ()
        return runs, self._result(runs, others)

    def _supposing(self, images: Callable[[RunSpec], Images]) -> Get:
        """Finished runs; of others, that the second value of each grid wins, and the first rule.

        A λ near the second value is better still: it is found by the equal search.

        Args:
            images: The number of images of the tasks of a run.
        """
        inner = {
            (benchmark, MethodRef(method).name): {
                "lamb": around(entry.lamb, entry.lamb[1])[2],
                "lamb_a": entry.lamb_a[1],
            }
            for benchmark, plan in self.benchmarks.items()
            for method, entry in plan.methods.items()
        }

        def get(spec: RunSpec) -> StudyRun | None:
            known = self.folder.get(spec) or (self._other and self._other.folder.get(spec))
            if known:
                return known
            wanted = inner.get((spec.benchmark, MethodRef(spec.method).base), {})
            given = ((spec.options.get(key), value) for key, value in wanted.items())
            far = [
                abs(math.log(value / best))
                for value, best in given
                if isinstance(value, int | float) and value > 0
            ]
            return StudyRun(spec, -sum(far), images=images(spec))

        return get

    # -- carrying it out ---------------------------------------------------------------------

    def run(
        self, places: Places, choice: ExecutorChoice | None = None, events: Events | None = None
    ) -> StudyResult:
        """Run all that can be run, and say what another study lacks."""
        events = events or Events()
        result = self.result()  # reads what there is
        for change in self.changes:
            events.say(change)
        while result.todo:
            (benchmark, name), todo = next(iter(result.todo.items()))
            events.note(f"{name} on {benchmark}: {counted(len(todo), 'run')} to do now.")
            self._compute(todo, places, choice, events)
            result = self.result()
        for line in result.missing:
            events.note(line)
        return result

    def _compute(
        self,
        todo: Sequence[RunSpec],
        places: Places,
        choice: ExecutorChoice | None,
        events: Events,
    ) -> None:
        """Compute runs; each is kept as soon as it ends, also one that failed."""
        outcome = run_all(list(todo), places, choice, _Saver(self.folder, events))
        for spec in todo:
            if self.folder.get(spec) is None:
                failures = [failure for failure in outcome.failures if failure.node.spec == spec]
                why = failures_message(failures or outcome.failures)
                self.folder.fail(spec, why, outcome.outside[spec_hash(spec)])

    def forecast(self, root: Path | None = None) -> Forecast:
        """How many runs there are, and about how long those to do take; a few steps are timed."""

        @cache
        def images(benchmark: str) -> Images:
            settings = self.benchmarks[benchmark].settings
            return Graph(study_specs("finetune", benchmark, settings, [0]), root).plans[0].sizes

        runs, _ = self._follow(self._supposing(lambda spec: images(spec.benchmark)))
        counts: dict[str, tuple[int, int]] = {}
        seconds = 0.0
        for benchmark in self.benchmarks:
            batches = {name: runs.done[on, name] for on, name in runs.done if on == benchmark}
            first = {} if self.plan.of else {"references": batches.pop("references", {})}
            todo: list[RunSpec] = []
            for name, batch in {**first, **batches}.items():
                missing = [run.spec for run in batch.values() if self.folder.get(run.spec) is None]
                counts[f"{benchmark} {name}"] = (len(batch), len(missing))
                todo += missing
            if todo:
                graph = Graph(todo, root)
                speed, sizes = seconds_an_image(todo[0], root), graph.plans[0].sizes
                seconds += sum(speed * passes(node, sizes) for node in graph.nodes.values())
        return Forecast(counts, seconds)


class _Saver(Forward):
    """Keeps every run as soon as it ends."""

    def __init__(self, folder: ResultFolder, events: Events) -> None:
        super().__init__(events)
        self._folder = folder

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        """Keep it, then pass it on."""
        self._folder.save(result)
        super().run_ends(directory, result)


def study(
    path: str | Path,
    *,
    compute: bool = True,
    results: str | Path | None = None,
    runs: str | Path = "runs",
    store: str | Path | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    data_root: str | Path | None = None,
    overwrite: bool = False,
    events: Events | None = None,
) -> StudyResult:
    """Run a study file. Finished runs are kept, and the same call resumes it.

    Args:
        path: The file; see ``docs/studies.md``.
        compute: Whether missing runs are computed; otherwise results are only read.
        results: The folder of results, one small file per run; ``results`` beside the file by
            default. Nothing else is needed to resume elsewhere.
        runs: Where run directories are written.
        store: Where stages are kept; by default ``.store`` below ``runs``.
        executor: ``serial`` (the default), ``pool`` or ``ray``.
        workers: The number of stages computed at the same time, by a pool or Ray.
        address: The address of a running Ray cluster.
        data_root: Where data is; see ``ancl.data.data_root``.
        overwrite: Whether results replace files in their way that ancl did not write.
        events: Receives progress; silent by default.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    places = Places.of(runs, store, data_root, overwrite=overwrite)
    folder = Path(results) if results else None
    opened = Study(Path(path), folder, overwrite=overwrite, root=places.data)
    if not compute:
        return opened.result()
    choice = choose_executor(executor, workers, address, threads=1)
    return opened.run(places, choice, events)
