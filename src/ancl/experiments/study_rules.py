"""Rules for λ and λ_a in a study: which are taken, and the rows with them.

Some methods decide, on the search seeds and by validation accuracy, which rule for λ_a is taken for
all methods, and which rule for λ for all with Ω on answers and for all with Ω on weights.
"""

from collections.abc import Iterator, Mapping, Sequence

from ancl.experiments.grid import best_value
from ancl.experiments.spec import RunSpec
from ancl.experiments.study_plan import BenchmarkPlan, RulesPlan, StudyPlan
from ancl.experiments.study_results import StudyRun
from ancl.experiments.study_rows import MethodResult, Runs, finished, study_specs
from ancl.methods.registry import MethodRef
from ancl.wording import SIGNS


class RuleFollower:
    """Follows rules for λ and λ_a: what some methods decide for all, and the rows with it.

    Args:
        plan: The study.
        benchmarks: What is studied: its own benchmarks, or another study's.
        runs: Its runs.
    """

    def __init__(
        self, plan: StudyPlan, benchmarks: Mapping[str, BenchmarkPlan], runs: Runs
    ) -> None:
        assert plan.rules is not None, "the study has rules"
        self._plan, self._benchmarks, self._runs = plan, benchmarks, runs
        self._rules: RulesPlan = plan.rules

    def check(self, benchmark: str, method: str) -> None:
        """Refuse, as ``SpecError``, a rule that a method cannot have."""
        for lamb in self._rules.of(kind_of(method)):
            for lamb_a in self._rules.lamb_a:
                values = {"lamb": lamb, "lamb_a": lamb_a}
                self._specs(MethodResult(benchmark, method), values, self._plan.search_seeds[:1])

    def follow(self, methods: Sequence[MethodResult]) -> dict[str, str]:
        """The rules taken, once all that decides is done; the rows with them are added."""
        searched = [each for each in methods if "lamb" in each.chosen]
        for each in searched:
            self._count(each)
            if each.method in self._rules.deciding:
                self._try(each)
        taken = self._choose(methods)
        for each in searched:
            self._fill(each, taken)
        return taken

    def _specs(
        self, method: MethodResult, values: Mapping[str, str | float], seeds: Sequence[int]
    ) -> list[RunSpec]:
        """Runs of a method: with an auxiliary network where there is a λ_a."""
        host, entry = method.method, self._benchmarks[method.benchmark]
        settings = {**entry.settings, **entry.methods[host].settings, **values}
        name = f"a-{host}" if "lamb_a" in values else host
        among = [f"a-{host}", f"afec-{host}"]
        return study_specs(name, method.benchmark, settings, seeds, among)

    def _take(
        self, method: MethodResult, values: Mapping[str, str | float], seeds: Sequence[int]
    ) -> tuple[StudyRun, ...] | None:
        specs = self._specs(method, values, seeds)
        return self._runs.take((method.benchmark, specs[0].method), specs)

    def _count(self, method: MethodResult) -> None:
        """The epochs of the rows whose values come from grids."""
        tried = {
            kind: [run for runs in method.trials.get(kind, {}).values() for run in runs]
            for kind in SIGNS
        }
        searches = {"cl": tried["lamb"], "ancl": tried["lamb"] + tried["lamb_a"]}
        for row in (row for row in searches if row in method.rows):
            method.epochs[row] = _epochs(searches[row]) + _epochs(method.rows[row][:1])

    def _try(self, method: MethodResult) -> None:
        """Every rule on the search seeds; a single rule needs no decision."""
        for kind in ("lamb_a", kind_of(method.method)):
            rules = self._rules.of(kind)
            for rule in rules if len(rules) > 1 else ():
                values: dict[str, str | float] = {"lamb": rule}
                if kind == "lamb_a":
                    values = {"lamb": method.chosen["lamb"], "lamb_a": rule}
                runs = self._take(method, values, self._plan.search_seeds)
                if runs is not None:
                    method.tries.setdefault(kind, {})[rule] = runs

    def _choose(self, methods: Sequence[MethodResult]) -> dict[str, str]:
        """One rule of each kind: the best mean over deciding methods, the first of equals."""
        taken = dict[str, str]()
        for kind in self._rules.kinds:
            rules, voters = self._rules.of(kind), list(self._voters(methods, kind))
            if len(rules) == 1:
                taken[kind] = rules[0]
            elif all(len(each.tries.get(kind, {})) == len(rules) for each in voters):
                means = {r: [each.rule_score(kind, r) for each in voters] for r in rules}
                if (best := best_value(means)) is not None:
                    taken[kind] = best
        return taken

    def _voters(self, methods: Sequence[MethodResult], kind: str) -> Iterator[MethodResult]:
        for each in methods:
            if each.method in self._rules.deciding and kind in ("lamb_a", kind_of(each.method)):
                yield each

    def _fill(self, method: MethodResult, taken: Mapping[str, str]) -> None:
        """The rows whose rules are taken."""
        lambs: dict[str, str | float] = {"balance": method.chosen["lamb"]}
        if (kind := kind_of(method.method)) in taken:
            lambs["both"] = taken[kind]
        for row, lamb in lambs.items() if "lamb_a" in taken else ():
            values = {"lamb": lamb, "lamb_a": taken["lamb_a"]}
            runs = self._take(method, values, self._plan.table_seeds)
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
        first = training.epochs_first or training.epochs
        later = training.epochs + (auxiliary.epochs if _trains_two(run.spec) else 0)
        total += first + (tasks - 1) * later
    return total


def _trains_two(spec: RunSpec) -> bool:
    """Whether every task after the first trains an auxiliary network too."""
    return MethodRef(spec.method).make(spec.options).auxiliary is not None
