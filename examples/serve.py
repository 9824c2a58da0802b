"""Answer images over HTTP with an exported learner: no torch and no ancl needed.

    ancl export birds                                   # writes birds.onnx
    python examples/serve.py birds.onnx --port 8000     # needs onnxruntime, numpy and pillow
    curl --data-binary @photo.jpg http://127.0.0.1:8000/

It is small on purpose: one process, no login. Put a real server in front of it for others.
"""

import argparse
import io
import json
import re
import socket
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Timer
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

MOST_BYTES = 20_000_000
MOST_PIXELS = 25_000_000
SECONDS = 30.0
AT_ONCE = 4
SHOWN = 5


class Model:
    """An exported learner: its answers, and the labels that lie in the file."""

    def __init__(self, path: str) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        facts = self.session.get_modelmeta().custom_metadata_map
        self.labels = json.loads(facts["ancl.labels"])
        self.temperature = json.loads(facts["ancl.temperature"])
        self.height, self.width, self.channels = json.loads(facts["ancl.input"])
        self.filter = Image.Resampling[json.loads(facts["ancl.resize"])["filter"].upper()]

    def read(self, data: bytes) -> np.ndarray[Any, Any]:
        """An image file as the learner reads it: the right way up, its channels and its size."""
        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > MOST_PIXELS:  # before any of them is decoded
                raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
            image = ImageOps.exif_transpose(opened).convert("L" if self.channels == 1 else "RGB")
        if image.size != (self.width, self.height):
            image = image.resize((self.width, self.height), self.filter)
        return np.asarray(image).reshape(1, self.height, self.width, self.channels)

    def answer(self, data: bytes) -> list[dict[str, Any]]:
        """The most probable labels of an image file, best first."""
        (scores,) = self.session.run(["scores"], {"images": self.read(data)})
        scaled = scores[0].astype(float) / self.temperature
        odds = np.exp(scaled - scaled.max())
        best = np.argsort(-odds)[:SHOWN]
        shares = odds / odds.sum()
        return [{"label": self.labels[n], "probability": float(shares[n])} for n in best]


class Handler(BaseHTTPRequestHandler):
    """GET lists the labels; POST answers the image in its body."""

    model: Model
    busy = BoundedSemaphore(AT_ONCE)

    def handle(self) -> None:
        """One connection, for a limited time; a client that leaves is nothing to report."""
        end = Timer(SECONDS, self.hang_up)
        end.daemon = True
        end.start()
        try:
            with suppress(OSError):
                super().handle()
        finally:
            end.cancel()

    def hang_up(self) -> None:
        """Wake whoever waits for a slow client."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """The labels, and the size of images."""
        size = [self.model.height, self.model.width, self.model.channels]
        self.reply(200, {"labels": self.model.labels, "input": size})

    def do_POST(self) -> None:
        """The labels of one image."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or not 0 < int(length) <= MOST_BYTES:
            self.reply(413, {"error": f"Send one image of at most {MOST_BYTES:,} bytes."})
            return
        data = self.rfile.read(int(length))
        try:
            with self.busy:  # each has a decoded image in memory
                answers = self.model.answer(data)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            self.reply(400, {"error": f"This is not an image that can be read ({error})."})
            return
        self.reply(200, {"answers": answers})

    def reply(self, code: int, content: dict[str, Any]) -> None:
        """Send JSON."""
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Answer images over HTTP.")
    parser.add_argument("model", help="a file that ancl export wrote")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets others in")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    given = parser.parse_args()
    handler = type("OurHandler", (Handler,), {"model": Model(given.model)})
    with ThreadingHTTPServer((given.host, given.port), handler) as server:
        print(f"Serving {given.model} on http://{given.host}:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.")


if __name__ == "__main__":
    main()
