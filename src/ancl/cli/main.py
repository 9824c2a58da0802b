"""The command ``ancl``: its subcommands, how it starts and how it ends."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ancl.cli import data, store
from ancl.cli import list as listing
from ancl.cli.analyze import analyze
from ancl.cli.compare import compare
from ancl.cli.demo import demo
from ancl.cli.evaluate import evaluate
from ancl.cli.export import export
from ancl.cli.learn import learn
from ancl.cli.predict import predict
from ancl.cli.repair import forget, merge_classes, rename
from ancl.cli.report import report
from ancl.cli.results import results
from ancl.cli.run import run
from ancl.cli.search import search
from ancl.cli.serve import serve
from ancl.cli.study import study
from ancl.cli.versions import undo, versions
from ancl.errors import AnclError, printable

_LONGEST = 4_000
_LIGHT = "ancl.light"
_WITHOUT_TORCH = {"store": "ancl.store.prune", "serve": "ancl.serve.model"}
"""Subcommands that work without torch, and what they need instead."""
MISTAKE, INTERRUPTED, TERMINATED = 2, 130, 143
_STOPPED = "Stopped. What was finished is stored; the same command resumes."


class _Guarded(TyperGroup):
    """Turns the errors of every subcommand into messages and exit codes; a bug keeps its trace."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what the subcommand needs instead of torch, before its name is taken off."""
        ctx.meta[_LIGHT] = _WITHOUT_TORCH.get(args[0]) if args else None
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, whose words are in ``ctx.args``."""
        as_json = "--json" in ctx.args
        terminated = threading.Event()
        try:
            # Ctrl-C ends the process at once until the libraries are loaded.
            if ctx.meta[_LIGHT]:
                import_module(ctx.meta[_LIGHT])
            elif not {"-h", "--help"} & {*ctx.args, *sys.argv}:
                import torch  # noqa: F401
            with _signals_raise(terminated):
                return super().invoke(ctx)
        except AnclError as error:
            raise _mistake(str(error), as_json) from None
        except OSError as error:
            if error.filename is None:  # of a stream, not of a file
                raise typer.Exit(_output_lost(error)) from None
            raise _mistake(f"{error.filename}: {error.strerror or error}.", as_json) from None
        except MemoryError as error:
            why = f" ({error})" if str(error) else ""
            raise _mistake(
                f"There is not enough memory{why}. Use less data or a smaller network.", as_json
            ) from None
        except KeyboardInterrupt:
            print(_STOPPED, file=sys.stderr)
            raise typer.Exit(TERMINATED if terminated.is_set() else INTERRUPTED) from None


def _mistake(message: str, as_json: bool) -> typer.Exit:
    """Print a mistake that a user can correct; returns the exit to raise."""
    shown = printable(message, _LONGEST)
    print(shown, file=sys.stderr)
    if as_json:
        print(json.dumps({"error": shown}))
    return typer.Exit(MISTAKE)


@contextmanager
def _signals_raise(terminated: threading.Event) -> Iterator[None]:
    """Stop by SIGTERM as by Ctrl-C: with a checkpoint and a message.

    The signal is noted beside the exception, which Ray replaces by one of its own.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        terminated.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, stop)
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is not signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)


app = typer.Typer(
    name="ancl",
    cls=_Guarded,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (
    (learn, "Learn photos; the first month makes the learner."),
    (predict, "Labels and probabilities of pictures."),
    (evaluate, "Accuracy on test photos, class by class."),
    (versions, "All versions of a learner."),
    (undo, "Go back to an earlier version."),
    (forget, "Take photos or a class out of a learner for good."),
    (rename, "Give a class another name."),
    (merge_classes, "Merge several classes into one."),
    (export, "Write one file that answers: ONNX or pt2."),
    (serve, "Answer requests with pictures over HTTP."),
    (demo, "What forgetting, Ω and λ_a do, on embedded images."),
    (run, "One method on a stream of tasks."),
    (compare, "Several methods in one table, paired by seed."),
    (search, "Find λ and λ_a by validation images."),
    (study, "A whole protocol from a file."),
    (analyze, "Weight distance, CKA and landscapes over λ_a."),
    (report, "Tables, figures and one page of finished runs."),
    (results, "Finished runs in one table."),
)
"""Commands in the order of the help: for who has photos, then for who does research."""
for _command, _short in _COMMANDS:
    app.command(_command.__name__.replace("_", "-"), short_help=_short)(_command)
app.command("resume", help="The same as run, which also resumes.", hidden=True)(run)
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
    """A classifier that learns new classes every month, and research on how networks do.

    Begin with photos: ancl learn birds --data folder:photos

    Begin with research: ancl demo
    """


def main() -> None:
    """Run the command named by argv."""
    if sys.stdout is None:  # closed by the shell: >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # λ and ± must not stop a run where the locale cannot write them.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    code: Any = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or _output_lost(error)
    sys.exit(code)


def _output_lost(error: OSError) -> int:
    """The exit code where the output cannot be written.

    Where its reader is gone, that is not a mistake: ``ancl list methods | head -1``.
    """
    with suppress(OSError, ValueError):
        # Python would flush once more on exit and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    print(f"The output cannot be written: {error.strerror or error}.", file=sys.stderr)
    return MISTAKE
