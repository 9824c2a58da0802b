"""The serving example among clients that send too much, too slowly, or leave."""

import importlib.util
import io
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[1] / "examples" / "serve.py"
WAITED = 1.0


class Errors(ThreadingHTTPServer):
    """A server that collects what it would write as a traceback."""

    seen: list[BaseException]

    def handle_error(self, request: Any, client_address: Any) -> None:
        import sys

        error = sys.exc_info()[1]
        assert error is not None
        self.seen.append(error)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Errors]:
    """The example's handler in this process, with a model that needs no file."""
    pytest.importorskip("onnxruntime")
    found = importlib.util.spec_from_file_location("serve_example", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    serve = importlib.util.module_from_spec(found)
    found.loader.exec_module(serve)
    monkeypatch.setattr(serve, "SECONDS", WAITED, raising=False)
    model = serve.Model.__new__(serve.Model)
    model.height, model.width, model.channels, model.labels = 8, 8, 3, ["a"]
    model.answer = lambda data: [{"label": "a", "probability": float(model.read(data).size > 0)}]
    handler = type("Quiet", (serve.Handler,), {"model": model, "log_message": lambda *_: None})
    with Errors(("127.0.0.1", 0), handler) as made:
        made.seen, made.daemon_threads = [], True
        threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
        yield made
        made.shutdown()


def address(server: Errors) -> str:
    return f"http://127.0.0.1:{server.server_port}/"


def picture(width: int, height: int) -> bytes:
    """A picture whose header says its size, and whose pixels are cut off."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000)))


def refusal(server: Errors, data: bytes) -> str:
    with pytest.raises(HTTPError) as refused:
        urlopen(address(server), data=data, timeout=10)
    with refused.value:
        return f"{refused.value.code} {json.load(refused.value)['error']}"


def raw(server: Errors, head: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.server_port), timeout=10)
    client.sendall(head)
    return client


@pytest.mark.filterwarnings("ignore")  # Pillow warns, and reads it
def test_a_picture_of_too_many_pixels_is_refused_before_they_are_decoded(
    server: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*_: Any) -> None:
        raise AssertionError("the pixels were decoded")

    small = io.BytesIO()
    Image.new("RGB", (20, 20)).save(small, "png")
    answered = json.load(urlopen(address(server), data=small.getvalue(), timeout=10))
    monkeypatch.setattr(Image.Image, "load", decoded)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decoded)

    assert "more than 25,000,000 pixels" in refusal(server, picture(13_000, 13_000))
    assert answered == {"answers": [{"label": "a", "probability": 1.0}]}
    assert server.seen == []


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "x", "\u00b2", "0", "20000001"])
def test_an_absurd_length_gets_an_answer(length: str, server: Errors) -> None:
    head = f"POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")

    with raw(server, head) as client:
        reply = client.makefile("rb").read()

    assert reply.startswith(b"HTTP/1.0 413")
    assert b"Send one image of at most 20,000,000 bytes" in reply
    assert server.seen == []


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST / HT", b"POST / HTTP/1.0\r\nContent-Length: 20000000\r\n\r\nx"],
    ids=["nothing", "half a head", "one byte"],
)
def test_a_slow_client_does_not_hold_its_thread(sent: bytes, server: Errors) -> None:
    began = time.monotonic()
    with raw(server, sent) as client:
        while time.monotonic() - began < 10:
            try:
                client.settimeout(0.1)
                if client.recv(1000) == b"":
                    break
            except TimeoutError:
                client.sendall(b"")
            except ConnectionError:
                break

    assert WAITED / 2 < time.monotonic() - began < 9
    assert server.seen == []


def test_a_client_that_leaves_is_nothing_to_report(server: Errors) -> None:
    for _ in range(5):
        client = raw(server, b"POST / HTTP/1.0\r\nContent-Length: 1000\r\n\r\nabc")
        # Closed at once, with what was not read yet: the server's answer finds nobody.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    end = time.monotonic() + 2 * WAITED
    while time.monotonic() < end and not server.seen:
        time.sleep(0.05)

    assert server.seen == []
    assert json.load(urlopen(address(server), timeout=10))["labels"] == ["a"]
