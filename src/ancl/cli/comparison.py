"""The demo's table, and how to read it, in sentences that follow from the numbers."""

import math
from collections.abc import Sequence
from typing import Any

from ancl.cli.outcome import estimate_json, estimates, estimates_json, time_text
from ancl.cli.session import Finished
from ancl.cli.table import percent, table
from ancl.metrics import Estimate, mean_and_error

BENCHMARK = "hard-digits/5"
METHODS = ("finetune", "lwf", "a-lwf", "joint")
_COLUMNS = {"aac": "AAC %", "forgetting": "forgetting, points", "learning_accuracy": "learning %"}
_CLEAR = 2.0
"""Standard errors from which on a difference is called one."""


def comparison_json(finished: Sequence[Finished], seconds: float) -> dict[str, Any]:
    """The comparison as JSON."""
    return {
        "benchmark": BENCHMARK,
        "methods": {
            method: estimates_json(estimates(of_method(finished, method))) for method in METHODS
        },
        "a-lwf minus lwf": estimate_json(paired(finished)),
        "reading": reading(finished),
        "runs": [str(each.directory) for each in finished],
        "seconds": seconds,
    }


def comparison_text(finished: Sequence[Finished], seconds: float) -> str:
    """The comparison as a table and a few sentences."""
    rows = []
    for method in METHODS:
        found = estimates(of_method(finished, method))
        cells = [with_error(found[name]) for name in _COLUMNS]
        rows.append([method, *cells, str(found["aac"].n)])
    head = ["method", *_COLUMNS.values(), "n"]
    title = (
        f"{BENCHMARK}: 10 noisy digits in 5 tasks of 2, the task told at test time; "
        f"mean ± standard error over n seeds."
    )
    directories = "\n".join(f"  {each.directory}" for each in finished)
    return "\n\n".join(
        [
            f"{title}\nAAC: mean accuracy on all tasks at the end. Learning: on each task when it "
            f"was new.\n\n{table(head, rows, 'lrrrr')}",
            "\n".join(reading(finished)),
            f"{time_text(finished, seconds)}\nResults:\n{directories}",
        ]
    )


def reading(finished: Sequence[Finished]) -> list[str]:
    """What the numbers say, and no more."""
    found = {method: estimates(of_method(finished, method)) for method in METHODS}
    lost = {method: found[method]["forgetting"].mean for method in METHODS}
    final = {method: found[method]["aac"].mean for method in METHODS}
    return [
        f"Fine-tuning {_change(lost['finetune'])} points on earlier tasks, LwF "
        f"{_change(lost['lwf'])}, A-LwF {_change(lost['a-lwf'])}.",
        _difference(paired(finished)),
        f"Joint training, which sees the images of all tasks again, ends at "
        f"{percent(final['joint'])} %, A-LwF at {percent(final['a-lwf'])} %.",
    ]


def _change(forgetting: float) -> str:
    verb = "gained" if forgetting < 0 else "lost"
    return f"{verb} {percent(abs(forgetting))}"


def _difference(estimate: Estimate) -> str:
    mean, error, n = estimate
    start = f"AAC of A-LwF minus LwF: {100 * mean:+.1f}"
    if math.isnan(error):
        return f"{start} points with a single seed, which says nothing of its error."
    if abs(mean) > _CLEAR * error:
        verdict = f"{'higher' if mean > 0 else 'lower'} by more than two standard errors"
    else:
        verdict = "no difference beyond two standard errors"
    return f"{start} ± {percent(error)} points (paired over {n} seeds): {verdict}."


def paired(finished: Sequence[Finished]) -> Estimate:
    """AAC of A-LwF minus that of LwF on the same seed."""
    aac = {
        method: {
            each.result.spec.seed: each.result.metrics["aac"]
            for each in finished
            if each.result.spec.method == method
        }
        for method in ("lwf", "a-lwf")
    }
    return mean_and_error([aac["a-lwf"][seed] - aac["lwf"][seed] for seed in aac["lwf"]])


def of_method(finished: Sequence[Finished], method: str) -> list[Finished]:
    """The runs of one method."""
    return [each for each in finished if each.result.spec.method == method]


def with_error(estimate: Estimate) -> str:
    """A mean with its standard error, where there is one."""
    if math.isnan(estimate.error):
        return percent(estimate.mean)
    return f"{percent(estimate.mean)} ± {percent(estimate.error)}"
