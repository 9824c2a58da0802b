"""A worker of the pool: ``python -m ancl.compute.worker STORE [DATA_ROOT]``.

A line of JSON on standard input is a job (a spec, the λ of its tasks where each has its own, and
the key of one of its stages), a line on standard output is an event. The worker ends with its
input.
"""

import json
import os
import signal
import sys
from types import FrameType
from typing import Any, TextIO


def main() -> int:
    """Work until there are no more jobs, or until SIGTERM."""
    signal.signal(signal.SIGTERM, _stop)
    # What a method prints must not mix with the events.
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _work(channel)
    except KeyboardInterrupt:
        return 128 + signal.SIGTERM
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    # As Ctrl-C does, it makes a training leave a checkpoint.
    raise KeyboardInterrupt


def _work(channel: TextIO) -> None:
    # Imported only now: the handler above works before torch is imported.
    from pathlib import Path

    from ancl.compute.serial import StageComputer, reason
    from ancl.errors import StoreError
    from ancl.recipe.recipe import RunSpec
    from ancl.store.store import Store

    def tell(event: dict[str, Any]) -> None:
        try:
            channel.write(json.dumps(event) + "\n")
            channel.flush()
        except BrokenPipeError:
            raise KeyboardInterrupt from None  # the command is gone: leave a checkpoint

    store = Store(Path(sys.argv[1]), lambda text: tell({"kind": "say", "text": text}))
    computer = StageComputer(Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            spec = RunSpec.model_validate(job["spec"])
            entry = computer.compute(spec, job["key"], store, tell, job["lambs"])
        except Exception as error:  # a method from outside may raise anything
            kind = "store failed" if isinstance(error, StoreError) else "failed"
            tell({"kind": kind, "reason": reason(error)})
        else:
            tell({"kind": "done", "seconds": entry.meta["seconds"]})


if __name__ == "__main__":
    sys.exit(main())
