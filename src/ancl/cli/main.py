"""The command ``ancl``: its subcommands, how it starts and how it ends."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ancl.cli import data, store
from ancl.cli import list as listing
from ancl.cli.analyze import analyze
from ancl.cli.compare import compare
from ancl.cli.demo import demo
from ancl.cli.report import report
from ancl.cli.run import run
from ancl.cli.search import search
from ancl.cli.study import study
from ancl.errors import AnclError

MISTAKE, INTERRUPTED, TERMINATED = 2, 130, 143
_STOPPED = "Stopped. What was finished is stored; the same command goes on."


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a run as Ctrl-C does: with a checkpoint."""


class _Guarded(TyperGroup):
    """Turns the errors of every subcommand into messages and exit codes; a bug keeps its trace."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, whose words are in ``ctx.args``."""
        as_json = "--json" in ctx.args
        try:
            with _sigterm_raises():
                return super().invoke(ctx)
        except AnclError as error:
            print(error, file=sys.stderr)
            if as_json:
                print(json.dumps({"error": str(error)}))
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt as stop:
            print(_STOPPED, file=sys.stderr)
            code = TERMINATED if isinstance(stop, _Terminated) else INTERRUPTED
            raise typer.Exit(code) from None


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


app = typer.Typer(
    name="ancl",
    cls=_Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.command("run")(run)
app.command("resume", help="The same as run, which resumes by itself.", hidden=True)(run)
app.command("compare")(compare)
app.command("search")(search)
app.command("study")(study)
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
