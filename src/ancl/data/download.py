"""Files fetched over HTTP: gone on with after a break, and named only once their checksum fits."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ancl.data.published import Remote, verify
from ancl.errors import ScenarioError

TIMEOUT_SECONDS = 30.0
TRIES = 5
"""How often in a row one address may give nothing new before the next one is tried."""

_CHUNK = 1 << 18
_NOTHING_LEFT = 416

Progress = Callable[[int, int | None], None]
"""Told the bytes that are here, and of how many, where the server says it."""


def download(remote: Remote, target: Path, progress: Progress) -> None:
    """Fetch a file from the first address that holds it.

    What has arrived lies in ``NAME.part`` and is gone on with, also by a later call. The file
    gets its name after its checksum was compared.

    Raises:
        ScenarioError: No address gave the file; the message says where to put it by hand.
    """
    problems = []
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for url in remote.urls:
            try:
                _fetch(url, part, progress)
                verify(part, remote)
                part.replace(target)
                return
            except ScenarioError:
                part.unlink()
                problems.append(f"{url}: the file there has another checksum")
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
                problems.append(f"{url}: {getattr(error, 'reason', error)}")
            except TimeoutError:
                problems.append(f"{url}: no answer within {TIMEOUT_SECONDS:.0f} s")
    except OSError as error:
        raise ScenarioError(
            f"{remote.name} cannot be written to {target.parent} ({error.strerror}). Make room "
            "there, or give another --data-root."
        ) from error
    raise ScenarioError(by_hand(remote, target, f"could not be fetched ({'; '.join(problems)})"))


def by_hand(remote: Remote, target: Path, why: str) -> str:
    """What to do where the network does not help."""
    return (
        f"{remote.name} {why}. Get it on a machine with a connection, from {remote.urls[0]}, put "
        f"it at {target.absolute()}, and run the same command again."
    )


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """Read one address to its end, however often the connection breaks on the way."""
    idle = 0
    while True:
        before = _size(part)
        try:
            if _read_on(url, part, progress):
                return
            problem: Exception = ConnectionError("the connection was cut")
        except urllib.error.HTTPError as error:
            error.close()  # it is an answer too, with a connection of its own
            if error.code != _NOTHING_LEFT or before == 0:
                raise
            part.unlink()  # longer than the file there: not a part of it
            problem = error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = error
        idle = 0 if _size(part) > before else idle + 1
        if idle >= TRIES:
            raise problem


def _read_on(url: str, part: Path, progress: Progress) -> bool:
    """Append what is missing; whether that was all. A server that starts anew is followed."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ancl"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        goes_on = answer.status == http.client.PARTIAL_CONTENT
        have = have if goes_on else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if goes_on else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
    return total is None or have >= total


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
