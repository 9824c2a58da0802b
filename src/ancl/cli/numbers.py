"""``ancl list benchmarks``: the streams, and the paper's numbers on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ancl.cli.text import table
from ancl.experiments import BENCHMARKS, reported
from ancl.metrics import METRICS

_NOTE = (
    "Numbers: mean ± standard error over 3 seeds in the ANCL paper, in percent. Every value of a "
    "benchmark, with its source: ancl run METHOD BENCHMARK --dry-run."
)


def list_benchmarks() -> list[dict[str, Any]]:
    """Every benchmark, its settings, and what the paper reports, in fractions."""
    return [
        {
            "name": name,
            "explanation": each.explanation,
            "settings": each.values(""),
            "sources": each.sources(""),
            "paper": [
                {
                    "method": method,
                    "metric": number.metric,
                    "mean": number.mean / 100,
                    "standard_error": number.error / 100,
                    "table": number.table,
                }
                for method, numbers in reported(name).items()
                for number in numbers
            ],
        }
        for name, each in BENCHMARKS.items()
    ]


def benchmarks_text(found: Sequence[Mapping[str, Any]]) -> str:
    """The streams as a table, and a table of numbers for each metric of the paper."""
    rows = [[each["name"], each["explanation"]] for each in found]
    numbers = [number for each in found for number in each["paper"]]
    metrics = dict.fromkeys(number["metric"] for number in numbers)
    parts = [table(["benchmark", ""], rows, "lw")]
    return "\n\n".join([*parts, *(_numbers(found, metric) for metric in metrics), _NOTE])


def _numbers(found: Sequence[Mapping[str, Any]], metric: str) -> str:
    cells = {
        (number["method"], each["name"]): f"{100 * number['mean']:.2f} ± "
        f"{100 * number['standard_error']:.2f}"
        for each in found
        for number in each["paper"]
        if number["metric"] == metric
    }
    streams = list(dict.fromkeys(stream for _, stream in cells))
    rows = [
        [method, *(cells.get((method, stream), "") for stream in streams)]
        for method in dict.fromkeys(method for method, _ in cells)
    ]
    return table([METRICS[metric].label, *streams], rows, "l" + "r" * len(streams))
