"""The server among clients: right answers, and those that ask too much, too slowly, or leave."""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.lab import Limits, patch_part
from tests.serve.conftest import Client, picture, serving, write_model

WAITED = 1.0
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def client(model: Path) -> Iterator[Client]:
    with serving(model, Limits(bytes=100_000, pixels=1_000_000, seconds=WAITED)) as made:
        yield made


def test_the_answer_is_softmax_of_scores_best_first(client: Client) -> None:
    status, answer = client.ask("/predict?top_k=2", picture("#ff8000"))

    odds = np.exp(np.array([255, 128, 0]) / 50)
    assert status == 200
    assert [each["label"] for each in answer["answers"]] == ["red", "green"]
    shares = [each["probability"] for each in answer["answers"]]
    assert shares == pytest.approx((odds / odds.sum())[:2].tolist(), rel=1e-5)
    assert answer["model"] == client.ask("/healthz")[1]["model"]


def test_only_the_classes_of_a_task_compete_where_it_is_given(client: Client) -> None:
    _, answer = client.ask("/predict?task=1", picture("blue"))
    assert [each["label"] for each in answer["answers"]] == ["red", "green"]
    assert sum(each["probability"] for each in answer["answers"]) == pytest.approx(1)
    assert client.ask("/predict?task=3", picture("blue"))[0] == 400


def test_a_picture_is_resized_as_the_learner_does_it(client: Client) -> None:
    wide = Image.new("RGB", (40, 10), "red")
    wide.paste("blue", (15, 0, 25, 10))  # what a crop to the middle leaves
    assert client.ask("/predict", as_png(wide))[1]["answers"][0]["label"] == "blue"


def as_png(image: Image.Image) -> bytes:
    import io

    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def test_answers_that_are_not_sure_are_marked(model: Path) -> None:
    with serving(model, reject=0.9) as client:
        assert client.ask("/predict", picture("red"))[1]["rejected"] is False
        assert client.ask("/predict", picture("#ffee00"))[1]["rejected"] is True
        assert client.ask("/predict?reject=0.1", picture("#ffee00"))[1]["rejected"] is False


def test_what_is_served_is_said(client: Client) -> None:
    status, facts = client.ask("/model")
    assert status == 200
    assert facts["labels"] == ["red", "green", "blue"]
    assert facts["input"] == [8, 8, 3]
    assert facts["resize"] == {"resize": "crop", "filter": "bilinear", "background": "white"}


@pytest.mark.parametrize(
    ("path", "data", "status", "said"),
    [
        ("/predict", b"no image", 400, "not an image that can be read"),
        ("/predict", b"", 400, "The body is empty"),
        ("/predict", bytes(100_001), 413, "at most 100,000 bytes"),
        ("/predict?top_k=0", b"x", 400, "top_k is a whole number"),
        ("/predict?top_k=99999999999", b"x", 400, "top_k is a whole number"),
        ("/predict?task=x", b"x", 400, "task is a whole number"),
        ("/predict?reject=2", b"x", 400, "reject is a probability"),
        ("/predict?k=2", b"x", 400, "'k' is not known. Possible: reject, task, top_k"),
        ("/predict", None, 405, "Method Not Allowed: POST /predict"),
        ("/", None, 404, "Not Found: POST /predict, GET /model"),
    ],
)
def test_what_cannot_be_answered_is_said(
    client: Client, path: str, data: bytes | None, status: int, said: str
) -> None:
    found, content = client.ask(path, data)
    assert found == status
    assert said in content["error"]


def test_a_picture_of_too_many_pixels_is_refused_before_they_are_decoded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*_: Any) -> None:
        raise AssertionError("the pixels were decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decoded)
    status, content = client.ask("/predict", torn_picture(1001, 1000))
    assert (status, content["error"]) == (400, "The image has more than 1,000,000 pixels.")


def torn_picture(width: int, height: int) -> bytes:
    """A picture whose header says its size, and whose pixels are cut off."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000)))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: " + "9" * 5000, b"413"),
        ("Content-Length: -1", b"400"),
        ("Content-Length: x", b"400"),
        ("Content-Length: 100001", b"413"),
        ("Transfer-Encoding: chunked", b"411"),
        ("Content-Length: 5\r\nContent-Length: 6", b"400"),
    ],
)
def test_an_absurd_length_gets_an_answer(client: Client, headers: str, status: bytes) -> None:
    with client.raw(f"POST /predict HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode()) as asking:
        assert asking.recv(100).split(b" ")[1] in (status, b"400")
    assert client.ask("/healthz")[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /predict HT",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\nx",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he",
    ],
    ids=["nothing", "half a head", "one byte", "half of a second head"],
)
def test_a_slow_client_does_not_hold_its_connection(client: Client, sent: bytes) -> None:
    began = time.monotonic()
    with client.raw(sent) as asking:
        asking.settimeout(0.2)
        while time.monotonic() - began < 8:
            try:
                if asking.recv(1000) == b"":
                    break
                asking.sendall(b"x")  # slowly goes on
            except TimeoutError:
                try:
                    asking.sendall(b"x")
                except ConnectionError:
                    break
            except ConnectionError:
                break
    assert time.monotonic() - began < 6 * WAITED
    assert client.ask("/predict", picture("red"))[0] == 200


def test_a_client_that_leaves_is_nothing_to_report(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        asking = client.raw(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asking.close()
    time.sleep(0.2)
    assert client.ask("/predict", picture("red"))[0] == 200
    assert [record for record in caplog.records if record.exc_info] == []


def test_only_who_has_the_token_is_answered(model: Path) -> None:
    with serving(model, token="secret-1") as client:
        data = picture("red")
        assert client.ask("/predict", data)[0] == 401
        assert client.ask("/model")[0] == 401
        for wrong in ("Bearer secret", "secret-1", "Basic secret-1", "Bearer ", "Bearer sécret"):
            found = client.ask("/predict", data, Authorization=wrong.encode().decode("latin-1"))
            assert found[0] == 401
        assert client.ask("/predict", data, Authorization="Bearer secret-1")[0] == 200
        assert client.ask("/healthz")[0] == 200
        assert "secret" not in str(client.ask("/predict", data))


# -- the file changes ------------------------------------------------------------------------


def until(client: Client, done: Any) -> Any:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if done(health := client.ask("/healthz")[1]):
            return health
        time.sleep(0.02)
    raise AssertionError(health)


def test_a_new_file_is_taken_and_a_bad_one_is_not(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_part(monkeypatch, "WATCH_SECONDS", 0.02)
    with serving(model) as client:
        before = client.ask("/healthz")[1]["model"]

        write_model(model, labels=["rot", "grün", "blau"], tasks=[["rot", "grün", "blau"]])
        after = until(client, lambda health: health["model"] != before)["model"]
        assert client.ask("/predict", picture("lime"))[1]["answers"][0]["label"] == "grün"

        model.write_bytes(b"half of a file")
        health = until(client, lambda health: health["problem"])
        assert "not a file that ancl export wrote" in health["problem"]
        assert (health["status"], health["model"]) == ("ok", after)
        assert client.ask("/predict", picture("blue"))[1]["answers"][0]["label"] == "blau"

        model.unlink()
        until(client, lambda health: "is gone" in health["problem"])
        assert client.ask("/predict", picture("red"))[0] == 200

        write_model(model)
        assert until(client, lambda health: not health["problem"])["model"] == before


def test_no_request_fails_while_files_change(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_part(monkeypatch, "WATCH_SECONDS", 0.01)
    found: list[tuple[int, str]] = []
    with serving(model) as client:
        ended = threading.Event()

        def ask() -> None:
            data = picture("blue")
            while not ended.is_set():
                status, content = client.ask("/predict", data)
                found.append((status, content.get("answers", [{}])[0].get("label")))

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for thread in clients:
            thread.start()
        for number in range(10):
            write_model(model, scale=1 + number)
            time.sleep(0.05)
        ended.set()
        for thread in clients:
            thread.join(20)
    assert len(found) > 20
    assert set(found) == {(200, "blue")}
