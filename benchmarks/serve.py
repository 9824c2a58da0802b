"""Load on ``ancl serve`` from another process, beside plain ONNX Runtime in a loop.

    python benchmarks/serve.py MODEL.onnx PHOTO.jpg [--clients 1,8,50,200] [--seconds 10]

Clients ask one picture after the other, each over a connection that it keeps. The loop decodes the
same picture and runs the same file, one at a time and in batches of 8, without a server.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from ancl.serve.model import open_model


async def client(port: int, data: bytes, end: float, times: list[float], errors: list[Any]) -> None:
    """Ask until the time is over."""
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            writer.write(head + data)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if b" 200 " not in answer[:20] or not json.loads(body)["answers"]:
                errors.append(body)
        except (OSError, EOFError) as error:
            errors.append(error)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        times.append(time.monotonic() - began)
    writer.close()


async def load(port: int, data: bytes, clients: int, seconds: float) -> None:
    """Print rate and times of this number of clients."""
    times: list[float] = []
    errors: list[Any] = []
    began = time.monotonic()
    asking = [client(port, data, began + seconds, times, errors) for _ in range(clients)]
    await asyncio.gather(*asking)
    rate, ordered = len(times) / (time.monotonic() - began), sorted(times)
    print(
        f"{clients:4} clients  {rate:7.1f} requests/s  median {1000 * median(ordered):7.1f} ms  "
        f"99th percentile {1000 * ordered[int(0.99 * len(ordered))]:7.1f} ms  "
        f"errors {len(errors)} of {len(times)}",
        flush=True,
    )


def loop(file: Path, data: bytes, seconds: float, batch: int, threads: int) -> None:
    """Print the rate of the file without a server."""
    model, count, times = open_model(file, threads), 0, []
    end = time.monotonic() + seconds
    began = time.monotonic()
    while time.monotonic() < end:
        start = time.monotonic()
        model.scores([model.read(data, 10**9) for _ in range(batch)])
        times.append(time.monotonic() - start)
        count += batch
    rate = count / (time.monotonic() - began)
    print(f"loop, batches of {batch}  {rate:7.1f} images/s  median {1000 * median(times):.1f} ms")


def main() -> None:
    """Measure the loop, then every number of clients."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--clients", default="1,8,50,200")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    data, threads = given.photo.read_bytes(), given.threads
    for batch in (1, 8):
        loop(given.model, data, given.seconds, batch, threads)
    command = [str(Path(sys.executable).parent / "ancl"), "serve", str(given.model), "--port", "0"]
    process = subprocess.Popen([*command, "--threads", str(threads)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline().decode().rpartition(":")[2])
        for clients in map(int, given.clients.split(",")):
            asyncio.run(load(port, data, clients, given.seconds))
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
