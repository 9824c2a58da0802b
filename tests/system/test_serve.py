"""``ancl serve`` in its own process: answers as the learner does, without torch, to many."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from PIL import Image

from ancl import Events, Learner, Memory, Training
from tests.lab import digits, program

pytest.importorskip("uvicorn")
WITHOUT_TORCH = program("""
import sys
sys.modules["torch"] = None
from tests.lab import start
start()
""")


@contextmanager
def serving(name: str, place: Path, *flags: str) -> Iterator[tuple[str, Any]]:
    """The address of a server in another process, in which torch cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", name, "--port", "0", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place
    )
    assert process.stdout is not None
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert address is not None
        yield address[0], process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def ask(address: str, data: bytes) -> Any:
    with urlopen(f"{address}/predict", data=data, timeout=60) as reply:
        return json.load(reply)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of four digits, exported, and pictures."""
    place = tmp_path_factory.mktemp("served")
    learner = Learner(
        "icarl",
        "mlp",
        training=Training(epochs=3, batch_size=32, lr=0.05),
        network_options={"hidden": (16,)},
        memory=Memory(per_class=4),
        resize="fit",
        background="black",
        events=Events(),
    )
    samples = digits().train
    chosen = samples.y < 4
    learner.learn(samples.x[chosen], samples.y[chosen])
    learner.save(place / "digits")
    learner.export(place / "digits.onnx")
    for number, size in enumerate([(8, 8), (16, 16), (30, 11)]):
        image = Image.fromarray(digits().test.x[number].squeeze(2).numpy())
        image.resize(size).save(place / f"{number}.png")
    clear = Image.open(place / "1.png").convert("LA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    clear.save(place / "3.png")
    return place


def test_an_image_gets_the_learners_answer(place: Path) -> None:
    learner = Learner.load(place / "digits", events=Events())
    with serving("digits", place) as (address, _):
        for number in range(4):
            data = (place / f"{number}.png").read_bytes()
            answers = ask(address, data)["answers"]
            (expected,) = learner.top_k([data], 4)
            assert [each["label"] for each in answers] == [label for label, _ in expected]
            shares = torch.tensor([share for _, share in expected])
            found = torch.tensor([each["probability"] for each in answers])
            torch.testing.assert_close(found, shares, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("clients", [50, 200])
def test_many_clients_are_all_answered(place: Path, clients: int) -> None:
    data = (place / "0.png").read_bytes()
    answers: list[Any] = []
    with serving("digits.onnx", place) as (address, _):
        expected = ask(address, data)
        begin = threading.Barrier(clients)

        def client() -> None:
            begin.wait(60)
            for _ in range(3):
                try:
                    answers.append(ask(address, data)["answers"][0]["label"])
                except Exception as error:  # of any kind: it is shown
                    answers.append(error)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert answers == [expected["answers"][0]["label"]] * (3 * clients)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told_to(place: Path, number: int) -> None:
    with serving("digits", place) as (address, process):
        ask(address, (place / "0.png").read_bytes())
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.strip() == "Stopped."
    assert "Traceback" not in err


def test_a_new_export_is_served_without_a_pause(place: Path, tmp_path: Path) -> None:
    learner = Learner.load(place / "digits", events=Events())
    learner.export(tmp_path / "digits.onnx")
    samples = digits().train
    new = (samples.y == 4) | (samples.y == 5)
    with serving("digits", tmp_path) as (address, _):
        first = ask(address, (place / "0.png").read_bytes())["model"]
        learner.learn(samples.x[new], samples.y[new])
        learner.export(tmp_path / "digits.onnx")
        end = time.monotonic() + 30
        while (
            time.monotonic() < end
            and ask(address, (place / "0.png").read_bytes())["model"] == first
        ):
            time.sleep(0.1)
        facts = json.load(urlopen(f"{address}/model", timeout=30))
    assert facts["labels"] == [0, 1, 2, 3, 4, 5]


def run(code: str, place: Path) -> Any:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("package", ["uvicorn", "starlette", "onnxruntime"])
def test_without_its_packages_it_says_which(place: Path, package: str) -> None:
    ended = run(
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['ancl', 'serve', 'digits']\n"
        + program("from tests.lab import start\nstart()"),
        place,
    )
    assert ended.returncode == 2
    assert "pip install 'ancl[serve]'" in ended.stderr


@pytest.mark.parametrize("name", ["app", "serve", "open_model", "decode"])
def test_no_torch_is_imported(place: Path, name: str) -> None:
    code = program(f"import sys, json; from tests.lab import {name}\n")
    ended = run(f"{code}print(json.dumps([*sys.modules]))", place)
    loaded = set(json.loads(ended.stdout))
    assert loaded & {"torch", "matplotlib", "scipy"} == set()
    if name == "app":
        assert loaded & {"uvicorn", "starlette", "onnxruntime", "PIL", "numpy"} == set()


def test_a_single_client_does_not_wait_for_packets(place: Path) -> None:
    """An answer in two packets, the second after an acknowledgement, would take 40 ms."""
    data = (place / "0.png").read_bytes()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    times = []
    with serving("digits", place) as (address, _), connected(address) as client:
        for _ in range(30):
            began = time.monotonic()
            client.sendall(head + data)
            received = b""
            while b"model" not in received or not received.endswith(b"}"):
                received += client.recv(10_000)
            times.append(time.monotonic() - began)
    assert min(times) < 0.03


def connected(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=30)
