"""What a run's numbers are compared with: the paper's, and joint training's."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ancl.cli.comparison import with_error
from ancl.cli.outcome import estimate_json, estimates
from ancl.cli.session import Finished
from ancl.errors import StoreError
from ancl.experiments import Expected, benchmark, expected
from ancl.experiments.build import RunResult, read_run
from ancl.experiments.paper import RUNS
from ancl.experiments.paper_check import changed_settings, protocol_differences
from ancl.experiments.spec import SEARCH, RunSpec
from ancl.metrics import METRICS, Estimate, intransigence, mean_and_error

_FORMULA = "1/T sum_j (R_joint[j,j] - R[j,j])"
QUICK = (
    "A quick look: every training lasted one epoch, on 20 images a class. These numbers say that "
    "it runs, and nothing of the method."
)


class Verdict(NamedTuple):
    """The paper's numbers for a method, and what keeps a run from being compared with them."""

    numbers: tuple[Expected, ...]
    differences: list[str]
    notes: list[str]


def verdict(finished: Sequence[Finished]) -> Verdict | None:
    """What the paper says to these runs, if anything."""
    spec = finished[0].result.spec
    numbers = expected(spec.benchmark, spec.method)
    if not numbers:
        return None
    differences = protocol_differences([each.result for each in finished])
    return Verdict(numbers, differences, _notes(spec, changed_settings(spec)))


def verdict_text(found: Verdict, finished: Sequence[Finished]) -> str:
    """Got and paper side by side, or why they are not."""
    lines = []
    got = estimates(finished)
    for number in found.numbers:
        label = METRICS[number.metric].label
        paper = f"paper {number.mean:.2f} ± {number.error:.2f} % (table {number.table})"
        ours = "" if found.differences else f"got {with_error(got[number.metric])} %, "
        lines.append(f"{label}: {ours}{paper}")
    if found.differences:
        lines.append("The paper's protocol is another one, so these are not compared:")
        lines += [f"  {difference}" for difference in found.differences]
    return "\n".join([*lines, *found.notes])


def verdict_json(found: Verdict, finished: Sequence[Finished]) -> dict[str, Any]:
    """The same as JSON, in fractions."""
    got = estimates(finished)
    return {
        "comparable": not found.differences,
        "differences": found.differences,
        "notes": found.notes,
        "metrics": {
            number.metric: {
                "got": estimate_json(got[number.metric]),
                "paper": {
                    "mean": number.mean / 100,
                    "standard_error": number.error / 100,
                    "n": RUNS,
                    "table": number.table,
                },
            }
            for number in found.numbers
        },
    }


def _notes(spec: RunSpec, changed: Mapping[str, Any]) -> list[str]:
    """What the recipe itself had to choose."""
    if spec.training.lr_search:
        return [f"training.lr={SEARCH}: by the released code's rule."]
    recipe = benchmark(spec.benchmark)
    values = recipe.values(spec.method)
    return [
        f"{key} {values[key]} is {source}."
        for key, source in recipe.sources(spec.method).items()
        if source.startswith("ours") and key not in changed
    ]


def closing_text(finished: Sequence[Finished], runs: Path, quick: bool) -> list[str]:
    """What is said after the numbers."""
    found = None if quick else verdict(finished)
    gap = joint_gap(finished, runs)
    return [
        *([joint_gap_text(gap)] if gap else []),
        *([QUICK] if quick else []),
        *([verdict_text(found, finished)] if found else []),
    ]


def closing_json(finished: Sequence[Finished], runs: Path, quick: bool) -> dict[str, Any]:
    """The same as JSON; what there is not is null."""
    found = None if quick else verdict(finished)
    gap = joint_gap(finished, runs)
    return {
        "intransigence": estimate_json(gap) if gap else None,
        "quick": quick,
        "paper": verdict_json(found, finished) if found else None,
    }


def joint_gap(finished: Sequence[Finished], runs: Path) -> Estimate | None:
    """Intransigence against joint runs on the same stream, where there is one for every seed."""
    if finished[0].result.spec.method == "joint":
        return None
    values = []
    for each in finished:
        joint = _joint_run(each.result.spec, runs)
        if joint is None:
            return None
        values.append(intransigence(each.result.counted, joint.counted))
    return mean_and_error(values)


def joint_gap_text(gap: Estimate) -> str:
    """The same in a line."""
    return f"Intransigence: {with_error(gap)} points, {_FORMULA}, against joint training in --runs."


def _joint_run(spec: RunSpec, runs: Path) -> RunResult | None:
    name = f"{spec.benchmark.replace('/', '-')}_joint_s{spec.seed}_*"
    for directory in sorted(runs.glob(name)):
        # A run that is not whole, or damaged, must not take this one's numbers with it.
        with suppress(StoreError):
            found = read_run(directory)
            if _conditions(found.spec) == _conditions(spec):
                return found
    return None


def _conditions(spec: RunSpec) -> str:
    return spec.model_dump_json(include={"data", "network", "training"})
