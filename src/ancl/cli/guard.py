"""How a command ends: errors a user can mend, Ctrl-C and SIGTERM."""

import functools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec

import typer

from ancl.errors import AnclError

P = ParamSpec("P")

MISTAKE, INTERRUPTED, TERMINATED = 2, 130, 143


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a run as Ctrl-C does: with a checkpoint."""


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with its errors as messages and exit codes; a bug keeps its traceback."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _sigterm_raises():
                command(*args, **kwargs)
        except AnclError as error:
            print(error, file=sys.stderr)
            if kwargs.get("as_json"):
                print(json.dumps({"error": str(error)}))
            raise typer.Exit(MISTAKE) from None
        except KeyboardInterrupt as stop:
            print(
                "Stopped. What was finished is stored; the same command goes on.", file=sys.stderr
            )
            code = TERMINATED if isinstance(stop, _Terminated) else INTERRUPTED
            raise typer.Exit(code) from None

    return wrapper


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
