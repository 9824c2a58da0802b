"""The command line: the only place that sees argv.

Modules that hold commands import no torch, so that ``ancl --help`` answers at once; what they
need is imported when a command runs.
"""

import signal


def start() -> None:
    """Run the command; Ctrl-C ends it at once until its libraries are loaded.

    An import that is interrupted half-way would end in a traceback, or in a library that lacks a
    part of itself.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ancl.cli.main import main as command

    command()
