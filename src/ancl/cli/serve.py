"""``ancl serve``: an exported learner answers over HTTP."""

from __future__ import annotations

import os
from pathlib import Path

from ancl.cli.flag_values import read_count, read_share
from ancl.cli.flags import with_flags
from ancl.errors import SpecError


@with_flags
def serve(
    name: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    no_token: bool = False,
    max_bytes: str = "20MB",
    max_pixels: int = 25_000_000,
    timeout: float = 30.0,
    reject: str | None = None,
    threads: str | None = None,
) -> None:
    """Answer requests with pictures over HTTP, with an exported learner.

    First: ancl export birds. Then: ancl serve birds

    POST /predict takes a picture, GET /healthz says what is served.

    When the file is written again, the server takes the new one without a pause.
    """
    from ancl.serve.model import INSTALL, find_export
    from ancl.wording import parse_size

    try:
        from ancl.serve import run
        from ancl.serve.app import Limits
    except ImportError as error:
        raise SpecError(f"Serving needs uvicorn and starlette. Install them: {INSTALL}.") from error
    size = parse_size(max_bytes)
    if not size:
        raise SpecError(f"--max-bytes: {max_bytes!r} is not a size. Write it as 20MB.")
    path, share = find_export(name), read_share("--reject", reject, "probability")
    given = run.read_token(token_file, os.environ.get("ANCL_TOKEN"))
    try:
        run.serve(
            path,
            host=host,
            port=port,
            limits=Limits(size, max_pixels, timeout),
            token=None if no_token else given,
            open_to_all=no_token,
            reject=share,
            threads=read_count("--threads", threads) or _cores(),
            ready=lambda address: print(f"Serving {path} on {address}", flush=True),
        )
    except KeyboardInterrupt:
        print("Stopped.")


def _cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
