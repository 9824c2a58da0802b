"""``ancl demo``: four methods side by side on embedded images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flags import RUNS, Machine, Seeding, Settings, make_request, with_flags

if TYPE_CHECKING:
    from ancl.experiments.compare import Comparison
    from ancl.metrics import Estimate


BENCHMARK = "fashion-digits/5"
METHODS = ("finetune", "lwf", "a-lwf", "joint")
_COLUMNS = {"aac": "AAC %", "forgetting": "forgetting, points", "learning_accuracy": "learning %"}
_SMOKE = (
    "A quick look: two epochs per task. These numbers say that it runs, nothing about the methods."
)


@with_flags
def demo(
    *,
    quick: bool = False,
    seeds: str | None = None,
    threads: str | None = None,
    log: str | None = None,
    runs: Path = RUNS,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Fine-tuning, LwF, LwF with ANCL and joint training on embedded images: what each does."""
    from ancl.cli.progress import progress_and_log
    from ancl.cli.text import FAILED, failures_text
    from ancl.compute import choose_executor, cores
    from ancl.experiments.compare import compare_rows
    from ancl.experiments.results import Places
    from ancl.recipe.method_rows import resolve_rows
    from ancl.reporting.report import page_of

    # One thread is the fastest for images this small, and gives the same bits everywhere.
    request = make_request(
        None,
        BENCHMARK,
        Settings(epochs="2" if quick else None),
        Machine(threads="1" if threads is None else threads),
        Seeding(seeds=("0" if quick else "0-4") if seeds is None else seeds),
    )
    rows = resolve_rows(request, METHODS)
    specs = [spec for row in rows.values() for spec in row]
    # A pool takes seconds to start: it pays where every core has a seed of its own.
    workers = min(len(specs) // len(METHODS), cores())
    one_process = specs[0].threads
    choice = choose_executor(workers=workers, threads=one_process) if workers > 1 else None
    with progress_and_log(quiet, log) as progress:
        comparison = compare_rows(rows, Places.of(runs), choice, "lwf", progress)
    if comparison.outcome.failures:
        print(
            json.dumps(comparison.json()) if as_json else failures_text(comparison.outcome.failures)
        )
        raise typer.Exit(FAILED)
    page = page_of(comparison.outcome.finished, Path(runs))
    plane = next(page.path.parent.rglob("*_plane.png"), None) if page.path else None
    if as_json:
        figure = {"figure": plane and str(plane)}
        print(json.dumps({**demo_json(comparison), "quick": quick, **page.json, **figure}))
    else:
        drawn = f"\nFigure: {plane} (learning against forgetting)" if plane else ""
        look = f"\n\n{_SMOKE}" if quick else ""
        print(f"{demo_text(comparison)}\n{page.text}{drawn}{look}")


def demo_json(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON, with its reading."""
    from ancl.experiments.results import estimate_json

    return {
        "benchmark": BENCHMARK,
        "methods": {name: each["metrics"] for name, each in found.json()["methods"].items()},
        "a-lwf minus lwf": estimate_json(_gain(found)),
        "reading": reading(found),
        "runs": [str(each.directory) for each in found.outcome.finished],
        "seconds": found.seconds,
    }


def demo_text(found: Comparison) -> str:
    """The comparison as a table and a few sentences."""
    from ancl.cli.text import time_text
    from ancl.wording import table, with_error

    rows = []
    for method in METHODS:
        means = found.estimates(method)
        rows.append([method, *(with_error(means[n]) for n in _COLUMNS), str(means["aac"].n)])
    head = ["method", *_COLUMNS.values(), "n"]
    title = (
        f"{BENCHMARK}: 10 garments and 10 digits in 5 tasks of 4 classes, the task known at test "
        f"time; mean ± standard error over n seeds. The stream was chosen, without ANCL, so that "
        f"fine-tuning forgets and LwF learns clearly less than joint training."
    )
    places = sorted({str(each.directory.parent) for each in found.outcome.finished})
    return "\n\n".join(
        [
            f"{title}\nAAC: mean accuracy on all tasks at the end. Learning: on each task when it "
            f"was new.\n\n{table(head, rows, 'lrrrr')}",
            "\n".join(reading(found)),
            f"{time_text(found.outcome.results, found.seconds)}\n"
            f"Results: {len(found.outcome.finished)} runs in {', '.join(places)}",
        ]
    )


def reading(found: Comparison) -> list[str]:
    """What the numbers say, and no more: forgetting, then Ω, then the auxiliary network."""
    from ancl.reporting.collect import from_results
    from ancl.reporting.report import make_report

    said = make_report(from_results(found.outcome.finished)).findings
    return [
        sentence.text for about in said.values() for sentence in about if sentence.kind != "best"
    ]


def _gain(found: Comparison, metric: str = "aac") -> Estimate:
    gain = found.difference("a-lwf", metric)
    assert gain is not None, "both have the same seeds"
    return gain
