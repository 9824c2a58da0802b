"""A small exported file, made without torch's exporter, and a server of it in this process."""

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from tests.lab import Limits, Server, TimedProtocol

onnx = pytest.importorskip("onnx")
uvicorn = pytest.importorskip("uvicorn")
SIDE = 8


def write_model(path: Path, scale: float = 1.0, **facts: Any) -> Path:
    """A file as an export writes it: its scores are the mean red, green and blue of an image."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["floats", "axes"], ["means"], keepdims=0),
            helper.make_node("Mul", ["means", "scale"], ["scores"]),
        ],
        "means",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", SIDE, SIDE, 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])],
        [
            numpy_helper.from_array(np.array([1, 2], np.int64), "axes"),
            numpy_helper.from_array(np.array(scale, np.float32), "scale"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    known = {
        "labels": ["red", "green", "blue"],
        "tasks": [["red", "green"], ["blue"]],
        "scenario": "cil",
        "input": [SIDE, SIDE, 3],
        "temperature": 50.0,
        "resize": {"resize": "crop", "filter": "bilinear", "background": "white"},
    }
    for name, fact in (known | facts).items():
        if fact is not None:
            entry = model.metadata_props.add()
            entry.key, entry.value = f"ancl.{name}", json.dumps(fact)
    written = path.with_name(f"{path.name}.new")
    written.write_bytes(model.SerializeToString())
    written.replace(path)
    return path


def picture(colour: str, size: tuple[int, int] = (20, 10), kind: str = "png") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


class Client:
    """Asks a server."""

    def __init__(self, port: int, server: Any) -> None:
        self.port, self.server = port, server

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """The status and the content of an answer."""
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urlopen(request, timeout=20) as reply:
                return reply.status, json.load(reply)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def raw(self, sent: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.sendall(sent)
        return client


Serving = Callable[..., Any]


@contextmanager
def serving(path: Path, limits: Limits | None = None, **options: Any) -> Iterator[Client]:
    """A server of a file in a thread of this process."""
    limits = limits or Limits()
    server = Server(path, limits, **options)
    protocol = type("Protocol", (TimedProtocol,), {"head_seconds": limits.seconds})
    config = uvicorn.Config(
        server.app(), port=0, http=protocol, ws="none", log_level="critical", lifespan="on"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield Client(running.servers[0].sockets[0].getsockname()[1], server)
    finally:
        running.should_exit = True
        thread.join(20)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "colours.onnx")
