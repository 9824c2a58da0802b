"""Studies of rules: λ and λ_a found while training, against the grids of another study.

Some methods decide, on the search seeds and by validation accuracy, which rule for λ_a is taken for
all methods, and which rule for λ for all with Ω on answers and for all with Ω on weights. Then come
two rows on the table seeds of every method, beside the other study's CL and ANCL, which are not
computed again.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ancl.errors import SpecError
from ancl.executors import ExecutorChoice, choose_executor
from ancl.experiments.config_file import MethodPlan, RulesPlan, read_rules_plan, studies_rules
from ancl.experiments.results import Places
from ancl.experiments.spec import RunSpec
from ancl.experiments.study import MethodResult, Study, StudyResult
from ancl.experiments.study_file import StudyFile, study_specs
from ancl.experiments.study_results import StudyRun
from ancl.methods.registry import MethodRef
from ancl.stages.events import Events

RULE_ROWS = {
    "cl": "CL, grid",
    "ancl": "ANCL, grid",
    "balance": "ANCL, rule for λ_a",
    "both": "ANCL, rules for λ and λ_a",
}
"""The rows of a method, and what a table calls them; the first two are the other study's."""
Tries = dict[str, tuple[StudyRun, ...]]
"""The runs of each rule, one per search seed."""


@dataclass
class RuleMethod(MethodResult):
    """The finished runs of a method with rules in place of its grids.

    Args:
        tries: Runs on the search seeds, by the kind of rule and its text: ``lamb_a``, and
            ``answers`` or ``weights`` for λ, by what its Ω is on.
        epochs: The epochs of each row: of all runs that found its values, and of one more.
        missing: What the other study has not chosen yet.
    """

    tries: dict[str, Tries] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True, eq=False)
class RuleResult:
    """What the finished runs of a study of rules say.

    Args:
        plan: What was asked for.
        chosen: The rules taken, by kind, each once all its deciding runs are done.
        methods: Every method with its finished runs.
        todo: Runs that can be carried out now.
    """

    plan: RulesPlan
    chosen: Mapping[str, str]
    methods: tuple[RuleMethod, ...]
    todo: tuple[RunSpec, ...]

    @property
    def runs(self) -> tuple[StudyRun, ...]:
        """All runs of rules that are done, failed ones included."""
        return tuple(run for each in self.methods for run in each.done)

    @property
    def left(self) -> int:
        """The number of runs that can be carried out now."""
        return len(self.todo)

    @property
    def missing(self) -> tuple[str, ...]:
        """What the other study has not chosen yet, method by method."""
        return tuple(each.missing for each in self.methods if each.missing)

    def json(self) -> dict[str, Any]:
        """What is left, what was chosen, and every row."""
        return {
            "left": self.left,
            "missing": list(self.missing),
            "chosen": dict(self.chosen),
            "methods": [{**each.json(), "epochs": each.epochs} for each in self.methods],
        }


class RuleStudy(StudyFile[RuleResult]):
    """A study of rules.

    A forecast takes the first rule where none is chosen yet, and the second value of a grid for a
    λ that the other study lacks.
    """

    def _open(self, path: Path) -> None:
        self.plan = plan = read_rules_plan(path)
        self._place = Path(os.path.normpath(path.parent / plan.of))
        if studies_rules(self._place):
            raise SpecError(f"{path}: of is {plan.of}, a study of rules. Name one of grids.")
        self._other = Study(self._place, root=self._root)
        self._grids = self._other.plan
        self._check(path)
        for benchmark, method, entry in self._methods():
            # Mistakes in rules are found before anything is trained.
            for lamb in self.plan.rules(kind_of(method)):
                for lamb_a in plan.lamb_a:
                    values = {"lamb": lamb, "lamb_a": lamb_a}
                    self._specs(benchmark, method, values, entry, plan.search_seeds[:1])

    def _check(self, path: Path) -> None:
        known = {method: kind_of(method) for _, method, _ in self._methods()}
        mistakes = [
            f"{path}: deciding names {method}, and {self.plan.of} has no such method. It has "
            f"{', '.join(known)}."
            for method in self.plan.deciding
            if method not in known
        ]
        voters = {known[method] for method in self.plan.deciding if method in known}
        for kind in dict.fromkeys(known.values()):
            if not self.plan.rules(kind):
                mistakes.append(f"{path}: lamb has no rule for methods with Ω on {kind}.")
            elif len(self.plan.rules(kind)) > 1 and kind not in voters:
                mistakes.append(
                    f"{path}: lamb has several rules for Ω on {kind}, and no deciding method has "
                    f"such an Ω. Give one rule, or let one decide."
                )
        if mistakes:
            raise SpecError("\n".join(mistakes))

    def result(self) -> RuleResult:
        """What the finished runs say."""
        other = {(each.benchmark, each.method): each for each in self._other.result().methods}
        return self._follow(other)

    def run(
        self, places: Places, choice: ExecutorChoice | None = None, events: Events | None = None
    ) -> RuleResult:
        """Run all that can be run, and say what the other study lacks."""
        events = events or Events()
        result = super().run(places, choice, events)
        for line in result.missing:
            events.note(line)
        return result

    @property
    def changes(self) -> tuple[str, ...]:
        """Those of the study of grids too."""
        return (*self._other.changes, *self.folder.changes)

    def _batches(self) -> Iterator[tuple[str, list[RunSpec]]]:
        """Deciding runs first, then the rows."""
        while todo := self.result().todo:
            first = (todo[0].method, todo[0].benchmark)
            now = [spec for spec in todo if (spec.method, spec.benchmark) == first]
            yield " on ".join(first), now

    # -- what is run -------------------------------------------------------------------------

    def _methods(self) -> Iterator[tuple[str, str, MethodPlan]]:
        for benchmark, own in self._grids.benchmarks.items():
            for method, entry in own.methods.items():
                yield benchmark, method, entry

    def _specs(
        self,
        benchmark: str,
        method: str,
        values: Mapping[str, str | float],
        entry: MethodPlan,
        seeds: Sequence[int],
    ) -> list[RunSpec]:
        """Runs of a method: with an auxiliary network where there is a λ_a."""
        settings = {**self._grids.benchmarks[benchmark].settings, **entry.settings, **values}
        name = f"a-{method}" if "lamb_a" in values else method
        return study_specs(name, benchmark, settings, seeds, [f"a-{method}", f"afec-{method}"])

    def _trials(
        self, own: RuleMethod, entry: MethodPlan, lamb: float
    ) -> Iterator[tuple[str, str, list[RunSpec]]]:
        """What decides, of a method that does; a single rule needs no decision."""
        benchmark, method = own.benchmark, own.method
        for kind in ("lamb_a", kind_of(method)):
            rules = self.plan.rules(kind)
            for rule in rules if len(rules) > 1 else ():
                values: dict[str, str | float] = {"lamb": rule}
                if kind == "lamb_a":
                    values = {"lamb": lamb, "lamb_a": rule}
                specs = self._specs(benchmark, method, values, entry, self.plan.search_seeds)
                yield kind, rule, specs

    def _rows(
        self, own: RuleMethod, entry: MethodPlan, lamb: float, taken: Mapping[str, str]
    ) -> Iterator[tuple[str, list[RunSpec]]]:
        """The rows whose rules are taken."""
        benchmark, method = own.benchmark, own.method
        lambs: dict[str, str | float] = {"balance": lamb}
        if kind_of(method) in taken:
            lambs["both"] = taken[kind_of(method)]
        for row, value in lambs.items() if "lamb_a" in taken else ():
            values = {"lamb": value, "lamb_a": taken["lamb_a"]}
            yield row, self._specs(benchmark, method, values, entry, self.plan.table_seeds)

    def _supposed(self, root: Path | None) -> Iterator[dict[str, list[RunSpec]]]:
        result = self.result()
        kinds = ("lamb_a", *self.plan.lamb)
        taken = {kind: self.plan.rules(kind)[0] for kind in kinds} | dict(result.chosen)
        for benchmark, own in self._grids.benchmarks.items():
            found: dict[str, list[RunSpec]] = {}
            for each in (each for each in result.methods if each.benchmark == benchmark):
                entry = own.methods[each.method]
                lamb = each.chosen.get("lamb", entry.lamb[1])
                asked = [specs for _, specs in self._rows(each, entry, lamb, taken)]
                if each.method in self.plan.deciding:
                    asked = [s for *_, s in self._trials(each, entry, lamb)] + asked
                for spec in (spec for specs in asked for spec in specs):
                    found.setdefault(f"{benchmark} {spec.method}", []).append(spec)
            yield found

    # -- what finished runs decide -----------------------------------------------------------

    def _follow(self, other: Mapping[tuple[str, str], MethodResult]) -> RuleResult:
        made: list[tuple[RuleMethod, MethodPlan]] = []
        deciding: list[RunSpec] = []
        for benchmark, method, entry in self._methods():
            own = self._begin(other[benchmark, method])
            if "lamb" in own.chosen and method in self.plan.deciding:
                deciding += self._try(own, entry)
            made.append((own, entry))
        chosen = self._choose([own for own, _ in made])
        rows: list[RunSpec] = []
        for own, entry in made:
            if "lamb" in own.chosen:
                rows += self._fill(own, entry, chosen)
        return RuleResult(self.plan, chosen, tuple(own for own, _ in made), (*deciding, *rows))

    def _begin(self, grids: MethodResult) -> RuleMethod:
        """The other study's values and rows."""
        own = RuleMethod(grids.benchmark, grids.method)
        own.chosen = {k: v for k, v in grids.chosen.items() if k in ("lamb", "lamb_a")}
        own.rows = {k: v for k, v in grids.rows.items() if k in ("cl", "ancl")}
        if lost := [sign for key, sign in _SIGNS.items() if key not in own.chosen]:
            verb = "are" if len(lost) > 1 else "is"
            own.missing = (
                f"{grids.method} on {grids.benchmark}: {' and '.join(lost)} of its grid {verb} not "
                f"chosen yet. Finish its searches: ancl study {self._place}"
            )
        searched = {
            "cl": [run for runs in grids.trials.get("lamb", {}).values() for run in runs],
            "ancl": [
                run
                for kind in ("lamb", "lamb_a")
                for runs in grids.trials.get(kind, {}).values()
                for run in runs
            ],
        }
        for row, runs in own.rows.items():
            own.epochs[row] = _epochs(searched[row]) + _epochs(runs[:1])
        own.trials = grids.trials
        return own

    def _try(self, own: RuleMethod, entry: MethodPlan) -> list[RunSpec]:
        """Take the finished runs that decide; returns those to do."""
        todo: list[RunSpec] = []
        lamb = own.chosen["lamb"]
        for kind, rule, specs in self._trials(own, entry, lamb):
            runs = self._take(own, specs, todo)
            if len(runs) == len(specs):
                own.tries.setdefault(kind, {})[rule] = runs
        return todo

    def _fill(self, own: RuleMethod, entry: MethodPlan, taken: Mapping[str, str]) -> list[RunSpec]:
        """Take the finished runs of the rows; returns those to do."""
        todo: list[RunSpec] = []
        lamb = own.chosen["lamb"]
        for row, specs in self._rows(own, entry, lamb, taken):
            runs = self._take(own, specs, todo)
            if len(runs) == len(specs):
                own.rows[row] = tuple(run for run in runs if not run.failed)
                before = own.epochs.get("cl", 0) if row == "balance" else 0
                found = [run for run in runs if not run.failed][:1]
                # λ of its grid had to be searched; one run of CL is in that number, and not here.
                plain = _epochs(own.rows.get("cl", ())[:1]) if before else 0
                own.epochs[row] = before - plain + _epochs(found)
        return todo

    def _take(
        self, own: RuleMethod, specs: Sequence[RunSpec], todo: list[RunSpec]
    ) -> tuple[StudyRun, ...]:
        found = [(spec, self.folder.get(spec)) for spec in specs]
        runs = tuple(run for _, run in found if run is not None)
        own.done += [run for run in runs if run not in own.done]
        todo += [spec for spec, run in found if run is None]
        return runs

    def _choose(self, methods: Sequence[RuleMethod]) -> dict[str, str]:
        """One rule of each kind: the best mean over deciding methods, the first of equals."""
        chosen = dict[str, str]()
        for kind in ("lamb_a", *self.plan.lamb):
            rules, voters = self.plan.rules(kind), self._voters(methods, kind)
            if len(rules) == 1:
                chosen[kind] = rules[0]
            elif all(len(each.tries.get(kind, {})) == len(rules) for each in voters):
                means = {rule: mean_score(voters, kind, rule) for rule in rules}
                finite = {rule: mean for rule, mean in means.items() if np.isfinite(mean)}
                if finite:
                    chosen[kind] = max(finite, key=lambda rule: finite[rule])
        return chosen

    def _voters(self, methods: Sequence[RuleMethod], kind: str) -> list[RuleMethod]:
        found = [each for each in methods if each.method in self.plan.deciding]
        return [each for each in found if kind in ("lamb_a", kind_of(each.method))]


_SIGNS = {"lamb": "λ", "lamb_a": "λ_a"}


def kind_of(method: str) -> str:
    """What its Ω is on: ``weights`` or ``answers``."""
    return "weights" if MethodRef(method).make({}).needs_importance else "answers"


def mean_score(methods: Sequence[RuleMethod], kind: str, rule: str) -> float:
    """The mean validation accuracy of a rule over methods, each the mean over its seeds."""
    return float(
        np.mean([np.mean([run.score for run in each.tries[kind][rule]]) for each in methods])
    )


def _epochs(runs: Sequence[StudyRun]) -> int:
    """The epochs of runs one by one, nothing shared: auxiliary networks' included."""
    total = 0
    for run in (run for run in runs if not run.failed):
        training, auxiliary, tasks = run.spec.training, run.spec.auxiliary, len(run.images)
        first = training.epochs_first or training.epochs
        later = training.epochs + (auxiliary.epochs if trains_two(run.spec) else 0)
        total += first + (tasks - 1) * later
    return total


def trains_two(spec: RunSpec) -> bool:
    """Whether every task after the first trains an auxiliary network too."""
    return MethodRef(spec.method).make(spec.options).auxiliary is not None


def open_study(
    path: Path, results: Path | None = None, *, overwrite: bool = False, root: Path | None = None
) -> Study | RuleStudy:
    """The study of a file: of rules where it names another study, else of grids.

    Raises:
        SpecError: All mistakes, each on its own line.
        StoreError: A file that ancl did not write is in the way of a result.
    """
    kind = RuleStudy if studies_rules(path) else Study
    return kind(path, results, overwrite=overwrite, root=root)


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
) -> StudyResult | RuleResult:
    """Run a study file, of grids or of rules. Finished runs are kept, and the same call resumes it.

    Args:
        path: The file; see ``docs/evidence/protocols.md``.
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
    found = open_study(Path(path), folder, overwrite=overwrite, root=places.data)
    if not compute:
        return found.result()
    choice = choose_executor(executor, workers, address, threads=1)
    return found.run(places, choice, events)
