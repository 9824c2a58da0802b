"""Rules for λ and λ_a in a study: which are taken, and the rows with them.

Some methods decide, on the search seeds and by validation accuracy, which rule for λ_a is taken for
all methods, and which rule for λ for all with Ω on answers and for all with Ω on weights.
"""

from collections.abc import Mapping, Sequence
from itertools import product

from ancl.experiments.grid import best_value
from ancl.experiments.study_plan import StudyPlan
from ancl.experiments.study_results import StudyRun
from ancl.experiments.study_rows import MethodFollower, MethodResult, finished
from ancl.methods.registry import MethodRef
from ancl.recipe.recipe import RunSpec
from ancl.wording import SIGNS


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
        for each in self._methods:
            name = each.result.method
            for lamb, lamb_a in product(self._rules.of(kind_of(name)), self._rules.lamb_a):
                values = {"lamb": lamb, "lamb_a": lamb_a}
                each.specs(f"a-{name}", values, self._plan.search_seeds[:1])

    def follow(self) -> dict[str, str]:
        """The rules taken, once all that decides is done; the rows with them are added."""
        searched = [each for each in self._methods if "lamb" in each.result.chosen]
        for each in searched:
            self._count(each.result)
            if each.result.method in self._rules.deciding:
                self._try(each)
        taken = self._choose()
        for each in searched:
            self._fill(each, taken)
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
            voters = [each for each in deciding if kind in ("lamb_a", kind_of(each.method))]
            if len(rules) == 1:
                taken[kind] = rules[0]
            elif all(len(each.tries.get(kind, {})) == len(rules) for each in voters):
                means = {r: [each.rule_score(kind, r) for each in voters] for r in rules}
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
        first = training.epochs_first or training.epochs
        later = training.epochs + (auxiliary.epochs if _trains_two(run.spec) else 0)
        total += first + (tasks - 1) * later
    return total


def _trains_two(spec: RunSpec) -> bool:
    """Whether every task after the first trains an auxiliary network too."""
    return MethodRef(spec.method).make(spec.options).auxiliary is not None
