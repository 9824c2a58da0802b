"""``ancl demo``: four methods side by side on embedded images."""

import json
from time import monotonic
from typing import Annotated

from typer import Option

from ancl.cli import options
from ancl.cli.guard import guarded

Quick = Annotated[bool, Option("--quick", help="One seed and two epochs a task: a smoke test.")]
Seeds = Annotated[str | None, Option("--seeds", metavar="0-2,7", help="One run a seed. [0-2]")]

Threads = Annotated[str | None, Option("--threads", metavar="N", help="CPU threads. [1]")]


@guarded
def demo(
    *,
    quick: Quick = False,
    seeds: Seeds = None,
    threads: Threads = None,
    runs: options.Runs = options.RUNS,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare fine-tuning, LwF, LwF with ANCL and joint training on hard digits, no download."""
    from ancl.cli.comparison import BENCHMARK, METHODS, comparison_json, comparison_text
    from ancl.cli.progress import make_progress
    from ancl.cli.request import Request
    from ancl.cli.session import run_all
    from ancl.reporting import page_of

    began = monotonic()
    # One thread is the fastest for images this small, and gives the same bits everywhere.
    flags = {"--threads": threads or "1"} | ({"--epochs": "2"} if quick else {})
    wanted = seeds or ("0" if quick else "0-2")
    specs = [
        resolved.spec
        for method in METHODS
        for resolved in Request(method, BENCHMARK, flags, seeds=wanted).resolve()
    ]
    finished = run_all(specs, options.Places.of(runs, None), make_progress(quiet))
    seconds = monotonic() - began
    page = page_of(finished, runs)
    if as_json:
        print(json.dumps({**comparison_json(finished, seconds), **page.json}))
    else:
        print(f"{comparison_text(finished, seconds)}\n{page.text}")
