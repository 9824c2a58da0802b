"""``ancl report``: tables, figures and one HTML page from stored results."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ancl.cli import flags

Stored = Annotated[
    list[Path] | None,
    Argument(
        metavar="[RUN]…",
        show_default=False,
        help="Run directories, or runs/comparisons/NAME.json. [all below --runs]",
    ),
]
Out = Annotated[
    Path | None, Option("--out", metavar="DIR", help="Where the report goes. [RUNS/report]")
]


def report(
    stored: Stored = None,
    *,
    runs: flags.Runs = flags.RUNS,
    out: Out = None,
    as_json: flags.Json = False,
) -> None:
    """Tables (Markdown, LaTeX, CSV), figures and one HTML page, from stored results alone."""
    from ancl.cli.text import report_json, report_text
    from ancl.errors import StoreError
    from ancl.reporting import collect, make_report, write_report

    found = make_report(collect(stored or [runs]))
    if not (found.groups or found.analyses or found.searches):
        left = "".join(f"\n  {place}: {why}" for place, why in found.damaged)
        raise StoreError(
            f"There is no finished run in {', '.join(map(str, stored or [runs]))}. Make one, such "
            f"as ancl demo, or say where they are: --runs DIR.{left}"
        )
    written = write_report(found, out or runs / "report")
    print(json.dumps(report_json(found, written)) if as_json else report_text(found, written))
