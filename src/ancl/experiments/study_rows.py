"""What finished runs of a study decide: values by grids, rules, rows, and what can be run next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ancl.experiments.grid import around, best_value, check_searchable, extension
from ancl.experiments.study_plan import BenchmarkPlan, GridValue, RowValue, StudyPlan
from ancl.experiments.study_results import Batch, Runs, StudyRun
from ancl.methods.registry import MethodRef
from ancl.metrics import Interval, frontier_difference, paired, t_interval
from ancl.recipe.build import equal_epochs
from ancl.recipe.recipe import RunSpec
from ancl.wording import SIGNS

ROWS = {
    "cl": "CL",
    "equal_search": "CL, equal search",
    "equal_compute": "CL, equal compute",
    "afec": "AFEC",
    "ancl": "ANCL",
}
"""The rows of a method, and what a table calls them."""
RULE_ROWS = {
    "cl": "CL, grid",
    "ancl": "ANCL, grid",
    "balance": "ANCL, rule for λ_a",
    "both": "ANCL, rules for λ and λ_a",
}
"""The rows that rules are compared in, and what their table calls them."""

Tried = dict[float, tuple[StudyRun, ...]]
"""The runs of each value, one per search seed."""
RowTrials = dict[tuple[Any, ...], tuple[StudyRun, ...]]
"""The runs of each combination of a row's values, one per search seed."""


def finished(runs: Sequence[StudyRun]) -> tuple[StudyRun, ...]:
    """Those that did not fail."""
    return tuple(run for run in runs if not run.failed)


def scores(tried: Mapping[Any, Sequence[StudyRun]]) -> dict[Any, list[float]]:
    """The validation scores of each value."""
    return {value: [run.score for run in runs] for value, runs in tried.items()}


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
        tries: Runs of rules on the search seeds, by what a rule is for and its text: ``lamb_a``,
            and ``answers`` or ``weights`` for λ, by what its Ω is on.
        epochs: Where there are rules, the epochs of each row: of all runs that found its values,
            and of one more.
        missing: What another study has not chosen yet.
    """

    benchmark: str
    method: str
    trials: dict[str, Tried] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)
    rows: dict[str, tuple[StudyRun, ...]] = field(default_factory=dict)
    tries: dict[str, dict[str, tuple[StudyRun, ...]]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    missing: str = ""

    def difference(self, row: str, other: str) -> Interval | None:
        """A row minus another, seed by seed, or nothing where they have no seed in common."""
        gaps = self.gaps(row, other)
        return t_interval(list(gaps.values()), self.rows[row][0].test_image) if gaps else None

    def gaps(self, row: str, other: str) -> dict[int, float]:
        """The same by seed."""
        ours, theirs = (
            {run.spec.seed: run.value for run in self.rows.get(name, ())} for name in (row, other)
        )
        return paired(ours, theirs)

    def rule_score(self, kind: str, rule: str) -> float:
        """The mean validation accuracy of a rule over the search seeds."""
        return float(np.mean([run.score for run in self.tries[kind][rule]]))

    def frontier(self, *names: str) -> dict[int, list[tuple[float, float]]]:
        """Forgetting and learning accuracy of trials, by seed, in the order of the values."""
        points: dict[int, list[tuple[float, float]]] = {}
        tried = {v: runs for name in names for v, runs in self.trials.get(name, {}).items()}
        for value in sorted(tried):
            for run in finished(tried[value]):
                point = (run.metrics["forgetting"], run.metrics["learning_accuracy"])
                points.setdefault(run.spec.seed, []).append(point)
        return points

    def frontier_gaps(self) -> dict[int, float | None]:
        """ANCL's frontier over λ_a minus CL's over λ, by seed; see ``frontier_difference``."""
        ours, theirs = self.frontier("lamb_a"), self.frontier("lamb", "more")
        return {s: frontier_difference(ours[s], theirs[s]) for s in ours if s in theirs}

    def json(self) -> dict[str, Any]:
        """What was chosen, and the metric that counts in every run of its rows."""
        return {
            "benchmark": self.benchmark,
            "method": self.method,
            "rows": {row: [run.value for run in runs] for row, runs in self.rows.items()},
            "chosen": self.chosen,
            "frontier": self.frontier_gaps(),
            "epochs": self.epochs,
        }

    def of_another(self, path: Path) -> "MethodResult":
        """What a study takes from another one: λ and λ_a, and the rows with them."""
        chosen = {key: value for key, value in self.chosen.items() if key in SIGNS}
        rows = {row: runs for row, runs in self.rows.items() if row in RULE_ROWS}
        missing = ""
        if lost := [sign for key, sign in SIGNS.items() if key not in chosen]:
            verb = "are" if len(lost) > 1 else "is"
            missing = (
                f"{self.method} on {self.benchmark}: {' and '.join(lost)} of its grid {verb} not "
                f"chosen yet. Finish its searches: ancl study {path}"
            )
        return replace(self, chosen=chosen, rows=rows, missing=missing)


class MethodFollower:
    """Follows one method through its steps: what is chosen, and what can be run next.

    Args:
        plan: The study.
        entry: The benchmark in it, or in the study whose methods it takes.
        benchmark: Its name.
        method: The method.
        runs: The study's runs.
    """

    def __init__(
        self, plan: StudyPlan, entry: BenchmarkPlan, benchmark: str, method: str, runs: Runs
    ) -> None:
        self.plan, self._runs, self._entry = plan, runs, entry.methods[method]
        self._settings = {**entry.settings, **self._entry.settings}
        self.result = MethodResult(benchmark, MethodRef(method).name)

    def follow(self) -> MethodResult:
        """Every step whose runs before are done."""
        entry, result, method = self._entry, self.result, self.result.method
        lamb = self._search("lamb", method, {}, "lamb", entry.lamb)
        if lamb is None:
            return result
        options = {"lamb": lamb}
        more = self._try(method, {}, "lamb", around(list(result.trials["lamb"]), lamb))
        auxiliary = self._search("lamb_a", f"a-{method}", options, "lamb_a", entry.lamb_a)
        self._row("cl", method, options)
        self._row("equal_compute", method, {**options, **self._stretched(lamb)})
        if entry.afec:
            afec = self._search("afec", f"afec-{method}", options, "lamb_a", entry.afec)
            if afec is not None:
                self._row("afec", f"afec-{method}", {**options, "lamb_a": afec})
        if more is not None:
            result.trials["more"] = more
            tried = dict(sorted({**result.trials["lamb"], **more}.items()))
            result.chosen["equal_search"] = best_value(scores(tried)) or lamb
            self._row("equal_search", method, {"lamb": result.chosen["equal_search"]})
        if auxiliary is not None:
            self._row("ancl", f"a-{method}", {**options, "lamb_a": auxiliary})
        return result

    def _search(
        self, name: str, method: str, fixed: Mapping[str, float], step: str, grid: Sequence[float]
    ) -> float | None:
        """The best value of a grid, extended once at an edge; nothing while runs are missing."""
        tried = self._try(method, fixed, step, grid)
        winner = best_value(scores(tried)) if tried is not None else None
        further = extension(grid, winner) if winner is not None else []
        if tried is not None and further:
            more = self._try(method, fixed, step, further)
            tried = None if more is None else dict(sorted({**tried, **more}.items()))
            winner = best_value(scores(tried)) if tried is not None else None
        if tried is not None:
            self.result.trials[name] = tried
        if winner is not None:
            self.result.chosen[name] = winner
        return winner

    def _try(
        self, method: str, fixed: Mapping[str, float], step: str, grid: Sequence[float]
    ) -> Tried | None:
        tried: Tried = {}
        for value in grid:
            runs = self._take(method, {**fixed, step: value}, self.plan.search_seeds)
            if runs is not None:
                tried[value] = runs
        return tried if len(tried) == len(grid) else None

    def _row(self, name: str, method: str, values: Mapping[str, Any]) -> None:
        runs = self._take(method, values, self.plan.table_seeds)
        if runs is not None:
            self.result.rows[name] = finished(runs)

    def _take(
        self, method: str, values: Mapping[str, Any], seeds: Sequence[int]
    ) -> tuple[StudyRun, ...] | None:
        specs = self.specs(method, values, seeds)
        check_searchable(specs[0])
        return self._runs.take((self.result.benchmark, self.result.method), specs)

    def take_variant(
        self, values: Mapping[str, Any], seeds: Sequence[int]
    ) -> tuple[StudyRun, ...] | None:
        """Runs with rules: of the ANCL variant where there is a λ_a, else of the plain method."""
        name = f"{'a-' * ('lamb_a' in values)}{self.result.method}"
        specs = self.specs(name, values, seeds)
        return self._runs.take((self.result.benchmark, specs[0].method), specs)

    def specs(self, method: str, values: Mapping[str, Any], seeds: Sequence[int]) -> list[RunSpec]:
        """Runs of the method or a variant of it, with its settings and these values."""
        host, settings = self.result.method, {**self._settings, **values}
        among = [f"a-{host}", f"afec-{host}"]
        return self._runs.specs(method, self.result.benchmark, settings, seeds, among)

    def _stretched(self, lamb: float) -> dict[str, Any]:
        """The epochs of the plain method at ANCL's computation; the first task's stay."""
        values = {"lamb": lamb, "lamb_a": self._entry.lamb_a[0]}
        [spec] = self.specs(f"a-{self.result.method}", values, self.plan.search_seeds[:1])
        images = next(run.images for run in self.result.trials["lamb"][lamb] if run.images)
        epochs = equal_epochs(spec, images)
        self.result.chosen["epochs"] = epochs
        first = spec.training.epochs_first or spec.training.epochs
        return {"training.epochs": epochs, "training.epochs_first": first}


class RowFollower:
    """Follows the rows that have their own settings, written out or chosen by a grid.

    Args:
        plan: The study.
        runs: Its runs.
    """

    def __init__(self, plan: StudyPlan, runs: Runs) -> None:
        self._plan, self._runs = plan, runs
        self.rows: dict[Batch, tuple[StudyRun, ...]] = {}
        """Runs that finished, by benchmark and the row's name."""
        self.trials: dict[Batch, RowTrials] = {}
        """Runs on the search seeds of rows with grids, by the same."""

    def follow(self) -> None:
        """Every row whose runs before are done."""
        for benchmark, entry in self._plan.benchmarks.items():
            decided: dict[str, Mapping[str, Any]] = {}
            for name, row in entry.references.items():
                settings = {"method": name, **entry.settings, **row}
                above = {key: v.row for key, v in settings.items() if isinstance(v, RowValue)}
                if all(other in decided for other in above.values()):
                    settings |= {key: decided[other].get(key) for key, other in above.items()}
                    chosen = self._choose(benchmark, name, settings)
                    if chosen is not None:
                        decided[name] = chosen
                        self._fill(benchmark, name, chosen)

    def _choose(
        self, benchmark: str, name: str, settings: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """A row's settings with the best combination of its grids; nothing while runs miss."""
        grids = {key: v.grid for key, v in settings.items() if isinstance(v, GridValue)}
        if not grids:
            return dict(settings)
        tried: RowTrials = {}
        for values in product(*grids.values()):
            given = {**settings, **dict(zip(grids, values, strict=True))}
            specs = self._specs(benchmark, given, self._plan.search_seeds)
            check_searchable(specs[0])
            runs = self._runs.take((benchmark, "references"), specs)
            if runs is not None:
                tried[values] = runs
        self.trials[benchmark, name] = tried
        best = best_value(scores(tried))
        if len(tried) < np.prod([len(grid) for grid in grids.values()]) or best is None:
            return None
        return {**settings, **dict(zip(grids, best, strict=True))}

    def _fill(self, benchmark: str, name: str, settings: Mapping[str, Any]) -> None:
        seeds = self._plan.reference_seeds or self._plan.table_seeds
        done = [
            run
            for spec in self._specs(benchmark, settings, seeds)
            for run in self._runs.take((benchmark, "references"), [spec]) or ()
        ]
        if finished(done):
            self.rows[benchmark, name] = finished(done)

    def _specs(
        self, benchmark: str, settings: Mapping[str, Any], seeds: Sequence[int]
    ) -> list[RunSpec]:
        given = dict(settings)
        return self._runs.specs(str(given.pop("method")), benchmark, given, seeds)


# -- rules -----------------------------------------------------------------------------------


class RuleFollower:
    """Follows rules for λ and λ_a: what some methods decide for all, and the rows with it.

    Args:
        plan: The study.
        methods: Those whose λ is known, or will be.
    """

    def __init__(self, plan: StudyPlan, methods: Sequence[MethodFollower]) -> None:
        assert plan.rules is not None, "the study has rules"
        self._plan, self._rules, self._methods = plan, plan.rules, methods

    def check(self) -> None:
        """Refuse, as ``SpecError``, a rule that a method cannot have."""
        for follower in self._methods:
            name = follower.result.method
            for lamb, lamb_a in product(self._rules.of(kind_of(name)), self._rules.lamb_a):
                values = {"lamb": lamb, "lamb_a": lamb_a}
                follower.specs(f"a-{name}", values, self._plan.search_seeds[:1])

    def follow(self) -> dict[str, str]:
        """The rules taken, once all that decides is done; the rows with them are added."""
        searched = [row for row in self._methods if "lamb" in row.result.chosen]
        for row in searched:
            self._count(row.result)
            if row.result.method in self._rules.deciding:
                self._try(row)
        taken = self._choose()
        for row in searched:
            self._fill(row, taken)
        return taken

    def _count(self, method: MethodResult) -> None:
        """The epochs of the rows whose values come from grids."""
        tried = {
            kind: [run for runs in method.trials.get(kind, {}).values() for run in runs]
            for kind in SIGNS
        }
        searches = {"cl": tried["lamb"], "ancl": tried["lamb"] + tried["lamb_a"]}
        for row in (row for row in searches if row in method.rows):
            method.epochs[row] = _epochs(searches[row]) + _epochs(method.rows[row][:1])

    def _try(self, follower: MethodFollower) -> None:
        """Every rule on the search seeds; a single rule needs no decision."""
        method = follower.result
        for kind in ("lamb_a", kind_of(method.method)):
            rules = self._rules.of(kind)
            for rule in rules if len(rules) > 1 else ():
                values: dict[str, str | float] = {"lamb": rule}
                if kind == "lamb_a":
                    values = {"lamb": method.chosen["lamb"], "lamb_a": rule}
                runs = follower.take_variant(values, self._plan.search_seeds)
                if runs is not None:
                    method.tries.setdefault(kind, {})[rule] = runs

    def _choose(self) -> dict[str, str]:
        """One rule of each kind: the best mean over deciding methods, the first of equals."""
        taken = dict[str, str]()
        deciding = [e.result for e in self._methods if e.result.method in self._rules.deciding]
        for kind in self._rules.kinds:
            rules = self._rules.of(kind)
            voters = [voter for voter in deciding if kind in ("lamb_a", kind_of(voter.method))]
            if len(rules) == 1:
                taken[kind] = rules[0]
            elif all(len(voter.tries.get(kind, {})) == len(rules) for voter in voters):
                means = {r: [voter.rule_score(kind, r) for voter in voters] for r in rules}
                if (best := best_value(means)) is not None:
                    taken[kind] = best
        return taken

    def _fill(self, follower: MethodFollower, taken: Mapping[str, str]) -> None:
        """The rows whose rules are taken."""
        method = follower.result
        lambs: dict[str, str | float] = {"balance": method.chosen["lamb"]}
        if (kind := kind_of(method.method)) in taken:
            lambs["both"] = taken[kind]
        for row, lamb in lambs.items() if "lamb_a" in taken else ():
            values = {"lamb": lamb, "lamb_a": taken["lamb_a"]}
            runs = follower.take_variant(values, self._plan.table_seeds)
            if runs is not None:
                method.rows[row] = finished(runs)
                before = method.epochs.get("cl", 0) if row == "balance" else 0
                # λ of its grid had to be searched; one run of CL is in that number, and not here.
                plain = _epochs(method.rows.get("cl", ())[:1]) if before else 0
                method.epochs[row] = before - plain + _epochs(finished(runs)[:1])


def kind_of(method: str) -> str:
    """What its Ω is on: ``weights`` or ``answers``."""
    return "weights" if MethodRef(method).make({}).needs_importance else "answers"


def _epochs(runs: Sequence[StudyRun]) -> int:
    """The epochs of runs one by one, nothing shared: auxiliary networks' included."""
    total = 0
    for run in finished(runs):
        training, auxiliary, tasks = run.spec.training, run.spec.auxiliary, len(run.images)
        total += sum(training.at(task).epochs for task in range(tasks))
        if _trains_two(run.spec):
            total += sum(auxiliary.at(task).epochs for task in range(1, tasks))
    return total


def _trains_two(spec: RunSpec) -> bool:
    """Whether every task after the first trains an auxiliary network too."""
    return MethodRef(spec.method).make(spec.options).auxiliary is not None
