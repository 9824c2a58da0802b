"""The process of the server: its address, its connections and its end."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ancl.errors import SpecError, StoreError
from ancl.serve.app import Limits, Server

MOST_CONNECTIONS = 2_000
_GRACE_SECONDS = 10


class TimedProtocol(H11Protocol):
    """Connections that wait for the head of a request for a limited time only.

    Uvicorn limits the time between requests, and not that of a head that comes byte by byte.
    """

    head_seconds = 30.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.head_seconds, self._hang_up)

    def _hang_up(self) -> None:
        at_work = self.cycle is not None and not self.cycle.response_complete
        if not at_work and not self.transport.is_closing():
            self.transport.close()


def serve(
    path: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits,
    token: str | None = None,
    open_to_all: bool = False,
    reject: float | None = None,
    threads: int = 1,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Answer over HTTP until the process is told to end.

    Args:
        path: A file that an export wrote; when it is written again, the new one is taken.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        limits: What one request may take.
        token: What clients must send.
        open_to_all: Whether other machines may ask without a token.
        reject: Answers whose best label is less probable are marked as rejected.
        threads: The number of threads that decode, and that compute.
        ready: Receives the address, once there is one.

    Raises:
        SpecError: The address cannot be used, or others could ask without a token.
        StoreError: The file is not an exported learner.
    """
    if token is None and not open_to_all and not _is_local(host):
        raise SpecError(
            f"--host {host} lets other machines ask. Give a token (--token-file FILE, or the "
            f"variable ANCL_TOKEN), or --no-token to let everybody in."
        )
    server = Server(path, limits, token, reject, threads)
    listening = _listen(host, port)
    protocol: Any = type("Protocol", (TimedProtocol,), {"head_seconds": limits.seconds})
    config = uvicorn.Config(
        server.app(),
        http=protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=MOST_CONNECTIONS,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=max(1, int(limits.seconds)),
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    shown = f"[{host}]" if ":" in host else host
    with listening:
        ready(f"http://{shown}:{listening.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listening])


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """A socket that clients can connect to from now on."""
    try:
        if not 0 <= port < 2**16:  # the system would take the rest of a division
            raise OverflowError("a port is a number from 0 to 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Without its protocol asyncio would not know that it is TCP, and answers would wait 40 ms
        # for the client to acknowledge their heads.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(MOST_CONNECTIONS)
    except (OSError, OverflowError) as error:
        raise SpecError(
            f"{host}:{port} cannot be listened on ({getattr(error, 'strerror', None) or error}). "
            f"Give another --host or --port; --port 0 takes a free one."
        ) from error
    return listening


def read_token(file: Path | None, variable: str | None) -> str | None:
    """The token in a file, else that of the environment.

    Raises:
        StoreError: The file cannot be read, or holds none.
    """
    if file is None:
        return variable or None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"The token file {file} cannot be read ({error}).") from error
    if not text or not text.isascii() or len(text.split()) != 1:
        raise StoreError(f"{file} holds no token: one line of letters, digits and signs.")
    return text
