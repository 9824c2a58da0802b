"""Studies: a file of searches and tables, carried out run by run from small stored results.

For each method: λ is searched, then λ_a with λ fixed, by validation accuracy. Then come the table's
rows on other seeds: the plain method (CL), AFEC and ANCL, and CL with as many trials and with as
much computation as ANCL had. What to run next follows from finished runs alone, so a study resumes
wherever its results are.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ancl.executors.graph import Graph
from ancl.experiments.build import equal_epochs
from ancl.experiments.config_file import EXTENDED_FROM, StudyPlan, read_study_plan
from ancl.experiments.search import check_searchable
from ancl.experiments.search_two_stage import around, beyond
from ancl.experiments.spec import RunSpec
from ancl.experiments.study_file import StudyFile, study_specs
from ancl.experiments.study_results import StudyRun
from ancl.methods.registry import MethodRef
from ancl.metrics import SEEDS, Interval, frontier_difference, holm, t_interval

ROWS = {
    "cl": "CL",
    "equal_search": "CL, equal search",
    "equal_compute": "CL, equal compute",
    "afec": "AFEC",
    "ancl": "ANCL",
}
"""The rows of a method, and what a table calls them."""
_ANY_IMAGES = ((1000, 100, 100),) * 100
"""Stands for the images of a stream that is only checked."""
# -- what finished runs decide ---------------------------------------------------------------

Images = tuple[tuple[int, int, int], ...]
"""The number of images of every task to train, validate and test on."""
Get = Callable[[RunSpec], StudyRun | None]
"""The run of a spec, if it is done."""
Tried = dict[float, tuple[StudyRun, ...]]
"""The runs of each value, one per search seed."""


@dataclass
class MethodResult:
    """The finished runs of a method on a benchmark.

    Args:
        benchmark: The benchmark.
        method: The plain method.
        trials: Runs on the search seeds, by value: ``lamb``, ``more`` (equal search's λ),
            ``lamb_a``, ``afec``.
        chosen: The values chosen: ``lamb``, ``equal_search``, ``lamb_a``, ``afec``, and the
            ``epochs`` of equal computation.
        rows: Runs on the table seeds, by row; failed ones are left out.
        todo: Runs that can be carried out now.
        done: All runs that are done, failed ones included.
    """

    benchmark: str
    method: str
    trials: dict[str, Tried] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    rows: dict[str, tuple[StudyRun, ...]] = field(default_factory=dict)
    todo: list[RunSpec] = field(default_factory=list)
    done: list[StudyRun] = field(default_factory=list)

    def difference(self, row: str, other: str) -> Interval | None:
        """A row minus another, seed by seed, or nothing where they have no seed in common."""
        gaps = self.gaps(row, other)
        return t_interval(list(gaps.values()), self.rows[row][0].test_image) if gaps else None

    def gaps(self, row: str, other: str) -> dict[int, float]:
        """The same by seed."""
        ours, theirs = (
            {run.spec.seed: run.value for run in self.rows.get(name, ())} for name in (row, other)
        )
        return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}

    def json(self) -> dict[str, Any]:
        """The method, and the metric that counts in every run of its rows."""
        rows = {row: [run.value for run in runs] for row, runs in self.rows.items()}
        return {"benchmark": self.benchmark, "method": self.method, "rows": rows}

    def frontier(self, *names: str) -> dict[int, list[tuple[float, float]]]:
        """Forgetting and learning accuracy of trials, by seed, in the order of the values."""
        found: dict[int, list[tuple[float, float]]] = {}
        tried = {v: runs for name in names for v, runs in self.trials.get(name, {}).items()}
        for value in sorted(tried):
            for run in (run for run in tried[value] if not run.failed):
                point = (run.metrics["forgetting"], run.metrics["learning_accuracy"])
                found.setdefault(run.spec.seed, []).append(point)
        return found

    def frontier_gaps(self) -> dict[int, float | None]:
        """ANCL's frontier over λ_a minus CL's over λ, by seed; see ``frontier_difference``."""
        ours, theirs = self.frontier("lamb_a"), self.frontier("lamb", "more")
        return {s: frontier_difference(ours[s], theirs[s]) for s in ours if s in theirs}


class MethodFollower:
    """Follows one method through its steps: what is chosen, and what can be run next."""

    def __init__(self, plan: StudyPlan, benchmark: str, method: str, get: Get) -> None:
        self._plan, self._get = plan, get
        self._entry = plan.benchmarks[benchmark].methods[method]
        self._base = {**plan.benchmarks[benchmark].settings, **self._entry.settings}
        self.result = MethodResult(benchmark, MethodRef(method).name)

    def follow(self) -> MethodResult:
        """Every step whose runs before are done."""
        entry, chosen, method = self._entry, self.result.chosen, self.result.method
        lamb = self._search("lamb", method, {}, "lamb", entry.lamb)
        if lamb is None:
            return self.result
        own = {"lamb": lamb}
        more = around(list(self.result.trials["lamb"]), lamb)
        self._search("more", method, {}, "lamb", more)
        auxiliary = self._search("lamb_a", f"a-{method}", own, "lamb_a", entry.lamb_a)
        self._row("cl", method, own)
        self._row("equal_compute", method, {**own, **self._stretched(lamb)})
        if entry.afec:
            afec = self._search("afec", f"afec-{method}", own, "lamb_a", entry.afec)
            if afec is not None:
                self._row("afec", f"afec-{method}", {**own, "lamb_a": afec})
        if "more" in self.result.trials:
            tried = {**self.result.trials["lamb"], **self.result.trials["more"]}
            chosen["equal_search"] = best(tried) or lamb
            self._row("equal_search", method, {"lamb": chosen["equal_search"]})
        chosen.pop("more", None)
        if auxiliary is not None:
            self._row("ancl", f"a-{method}", {**own, "lamb_a": auxiliary})
        return self.result

    def _search(
        self, name: str, method: str, fixed: Mapping[str, float], step: str, grid: Sequence[float]
    ) -> float | None:
        """The best value of a grid, extended once at an edge; nothing while runs are missing."""
        tried = self._try(method, fixed, step, grid)
        winner = best(tried) if tried is not None else None
        edge = name != "more" and len(grid) >= EXTENDED_FROM and winner in (grid[0], grid[-1])
        if tried is not None and winner is not None and edge:
            further = self._try(method, fixed, step, [beyond(grid, winner)])
            tried = None if further is None else {**tried, **further}
            winner = best(tried) if tried is not None else None
        if tried is not None:
            self.result.trials[name] = dict(sorted(tried.items()))
        if winner is not None:
            self.result.chosen[name] = winner
        return winner

    def _try(
        self, method: str, fixed: Mapping[str, float], step: str, grid: Sequence[float]
    ) -> Tried | None:
        found: Tried = {}
        for value in grid:
            runs = self._runs(method, {**fixed, step: value}, self._plan.search_seeds)
            if runs is not None:
                found[value] = runs
        return found if len(found) == len(grid) else None

    def _row(self, name: str, method: str, values: Mapping[str, Any]) -> None:
        runs = self._runs(method, values, self._plan.table_seeds)
        if runs is not None:
            self.result.rows[name] = tuple(run for run in runs if not run.failed)

    def _runs(
        self, method: str, values: Mapping[str, Any], seeds: Sequence[int]
    ) -> tuple[StudyRun, ...] | None:
        specs = self._specs(method, values, seeds)
        found = [self._get(spec) for spec in specs]
        todo, done = self.result.todo, self.result.done
        missing = [s for s, run in zip(specs, found, strict=True) if run is None]
        runs = tuple(run for run in found if run is not None)
        # Two rows may be the same run: the best λ of an equal search may be the first one's.
        todo += [spec for spec in missing if spec not in todo]
        done += [run for run in runs if run not in done]
        return runs if len(runs) == len(specs) else None

    def _specs(self, method: str, values: Mapping[str, Any], seeds: Sequence[int]) -> list[RunSpec]:
        host = self.result.method
        given = {**self._base, **values}
        return study_specs(
            method, self.result.benchmark, given, seeds, [f"a-{host}", f"afec-{host}"]
        )

    def _stretched(self, lamb: float) -> dict[str, Any]:
        """The epochs of the plain method at ANCL's computation; the first task's stay."""
        entry, host = self._entry, self.result.method
        values = {"lamb": lamb, "lamb_a": entry.lamb_a[0]}
        [spec] = self._specs(f"a-{host}", values, self._plan.search_seeds[:1])
        images = next(run.images for run in self.result.trials["lamb"][lamb] if run.images)
        epochs = equal_epochs(spec, images)
        self.result.chosen["epochs"] = epochs
        first = spec.training.epochs_first or spec.training.epochs
        return {"training.epochs": epochs, "training.epochs_first": first}


def best(tried: Tried) -> float | None:
    """The value of the highest mean score, the smallest of equals; failed ones never win."""
    means = {value: float(np.mean([run.score for run in tried[value]])) for value in sorted(tried)}
    finite = {value: mean for value, mean in means.items() if math.isfinite(mean)}
    return max(finite, key=lambda value: finite[value]) if finite else None


# -- the study -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What the finished runs of a study say.

    Args:
        plan: What was asked for.
        methods: Every method with its finished runs.
        references: Runs of reference rows that finished, by benchmark and the row's name.
        runs: All runs that are done, failed ones included.
        left: The number of runs that can be carried out now; 0 where the study is complete.
    """

    plan: StudyPlan
    methods: tuple[MethodResult, ...]
    references: Mapping[tuple[str, str], tuple[StudyRun, ...]]
    runs: tuple[StudyRun, ...]
    left: int

    def primary(self) -> Interval | None:
        """ANCL minus equal-search CL, averaged over methods, with the seed as the unit.

        Of the methods whose two rows are complete; nothing where there are none.
        """
        gaps = [gap for each in self.methods if (gap := each.gaps("ancl", "equal_search"))]
        seeds = [s for s in self.plan.table_seeds if gaps and all(s in each for each in gaps)]
        means = [float(np.mean([each[seed] for each in gaps])) for seed in seeds]
        images = [e.rows["ancl"][0].test_image for e in self.methods if e.rows.get("ancl")]
        return t_interval(means, max(images)) if means else None

    def adjusted(self) -> dict[str, float]:
        """Holm's p-values of ANCL minus equal-search CL, by method."""
        found = {each.method: each.difference("ancl", "equal_search") for each in self.methods}
        return holm({name: gap.p for name, gap in found.items() if gap and gap.n >= SEEDS})

    def json(self) -> dict[str, Any]:
        """What was chosen, the differences and the primary result, in fractions."""
        primary, adjusted = self.primary(), self.adjusted()
        return {
            "left": self.left,
            "primary": primary.json() if primary else None,
            "methods": [
                {
                    **each.json(),
                    "chosen": each.chosen,
                    "holm": adjusted.get(each.method),
                    "frontier": each.frontier_gaps(),
                }
                for each in self.methods
            ],
        }


class Study(StudyFile[StudyResult]):
    """A study of grids."""

    def _open(self, path: Path) -> None:
        self.plan = read_study_plan(path)
        self._references()
        for benchmark, method in self._pairs():
            # Mistakes in settings are found before anything is trained.
            check_searchable(self._all_runs(benchmark, method, _ANY_IMAGES)[0])

    def result(self) -> StudyResult:
        """What the finished runs say."""
        methods = tuple(self._follow(*pair) for pair in self._pairs())
        references: dict[tuple[str, str], tuple[StudyRun, ...]] = {}
        others: list[StudyRun] = []
        for key, specs in self._rows().items():
            done = [run for spec in specs if (run := self.folder.get(spec)) is not None]
            if finished := tuple(run for run in done if not run.failed):
                references[key] = finished
            others += done
        runs = (*(run for each in methods for run in each.done), *others)
        left = sum(len(each.todo) for each in methods) + len(self._references()) - len(others)
        return StudyResult(self.plan, methods, references, runs, left)

    def _batches(self) -> Iterator[tuple[str, list[RunSpec]]]:
        for benchmark, method in self._pairs():
            while todo := self._follow(benchmark, method).todo:
                yield f"{method} on {benchmark}", todo
        missing = [spec for spec in self._references() if self.folder.get(spec) is None]
        for benchmark in self.plan.benchmarks:
            if own := [spec for spec in missing if spec.benchmark == benchmark]:
                yield f"references on {benchmark}", own

    def _supposed(self, root: Path | None) -> Iterator[dict[str, list[RunSpec]]]:
        for benchmark, entry in self.plan.benchmarks.items():
            specs = [spec for spec in self._references() if spec.benchmark == benchmark]
            example = (specs or study_specs("finetune", benchmark, entry.settings, [0]))[0]
            images = Graph([example], root).plans[0].sizes
            found = {f"{benchmark} references": specs}
            for method in entry.methods:
                found[f"{benchmark} {method}"] = self._all_runs(benchmark, method, images)
            yield found

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for benchmark, entry in self.plan.benchmarks.items():
            for method in entry.methods:
                yield benchmark, method

    def _follow(self, benchmark: str, method: str) -> MethodResult:
        return MethodFollower(self.plan, benchmark, method, self.folder.get).follow()

    def _references(self) -> list[RunSpec]:
        return [spec for specs in self._rows().values() for spec in specs]

    def _rows(self) -> dict[tuple[str, str], list[RunSpec]]:
        """The runs of every reference row, by benchmark and name."""
        found = {}
        for benchmark, entry in self.plan.benchmarks.items():
            for name, own in entry.references.items():
                settings = {"method": name, **entry.settings, **own}
                method = str(settings.pop("method"))
                found[benchmark, name] = study_specs(
                    method, benchmark, settings, self.plan.reference_seeds
                )
        return found

    def _all_runs(self, benchmark: str, method: str, images: Images) -> list[RunSpec]:
        """Every run of a method where the second value of each grid wins, and then a λ near it."""
        entry = self.plan.benchmarks[benchmark].methods[method]
        inner = {"lamb": around(entry.lamb, entry.lamb[1])[2], "lamb_a": entry.lamb_a[1]}
        seen: dict[str, StudyRun] = {}

        def get(spec: RunSpec) -> StudyRun | None:
            return self.folder.get(spec) or seen.get(spec.model_dump_json())

        while (result := MethodFollower(self.plan, benchmark, method, get).follow()).todo:
            for spec in result.todo:
                own = ((spec.options[k], v) for k, v in inner.items() if k in spec.options)
                far = sum(abs(math.log(value / wanted)) for value, wanted in own)
                seen[spec.model_dump_json()] = StudyRun(spec, -far, images=images)
        return [run.spec for run in result.done]
