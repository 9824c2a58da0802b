"""The command ``ancl``: its subcommands and how it starts."""

import os
import sys
from typing import Annotated

import typer

from ancl.cli import data, store
from ancl.cli import list as listing
from ancl.cli.analyze import analyze
from ancl.cli.compare import compare
from ancl.cli.demo import demo
from ancl.cli.report import report
from ancl.cli.run import run
from ancl.cli.search import search

app = typer.Typer(
    name="ancl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.command("run")(run)
app.command("resume", help="The same as run, which goes on by itself.", hidden=True)(run)
app.command("compare")(compare)
app.command("search")(search)
app.command("analyze")(analyze)
app.command("report")(report)
app.add_typer(listing.app, name="list")
app.add_typer(data.app, name="data")
app.add_typer(store.app, name="store")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"ancl {version('ancl')}")
        raise typer.Exit


@app.callback()
def ancl(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Continual learning with auxiliary networks: every method plain, with ANCL and with AFEC.

    Start with: ancl demo
    """


def main() -> None:
    """Run the command named by argv."""
    for stream in (sys.stdout, sys.stderr):
        # λ and ± must not stop a run where the locale cannot write them.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    try:
        app()
    finally:
        _flush()


def _flush() -> None:
    """Write what is left, quietly where the reader is gone: ``ancl list methods | head -1``."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would flush once more on exit and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
