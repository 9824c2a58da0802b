"""Bad input of every kind: one short message, exit code 2, no traceback, within 10 seconds."""

import gzip
import io
import json
import os
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from tests.lab import _checksum

Setup = Callable[[], None]
RUN = ("run", "lwf", "digits/5")
MOST_SECONDS, MOST_LINES = 10, 12


class Row(NamedTuple):
    """What is given, and a phrase of the message."""

    name: str
    words: tuple[str, ...]
    phrase: str
    setup: Setup = lambda: None
    code: int = 2


# -- what rows set up ------------------------------------------------------------------------


def whole() -> Path:
    """The finished run that was copied to this directory."""
    return next(Path("runs").glob("digits-5_lwf_*"))


def an_entry() -> Path:
    return sorted(Path("runs/.store/entries").glob("*/*"))[0]


def text(path: str, content: str | bytes) -> Setup:
    def write() -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def of_run(name: str, change: Callable[[Path], None]) -> Setup:
    return lambda: change(whole() / name)


def of_entry(name: str, change: Callable[[Path], None]) -> Setup:
    return lambda: change(an_entry() / name)


def replaced(content: str | bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def linked(target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return change


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def values(**changes: Any) -> Callable[[Path], None]:
    """Change or remove (None) fields of a JSON file."""

    def change(path: Path) -> None:
        found = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in found.items() if v is not None}))

    return change


def forged(**changes: Any) -> Callable[[Path], None]:
    """The same in an entry, with the checksum that fits."""

    def change(path: Path) -> None:
        found = {**json.loads(path.read_text()), **changes}
        found.pop("sha256")
        found = {k: v for k, v in found.items() if v is not None}
        path.write_text(json.dumps({**found, "sha256": _checksum(found)}))

    return change


def npz(change: Callable[[bytes], bytes] = lambda data: data, **more: Any) -> Setup:
    def write() -> None:
        file = io.BytesIO()
        arrays = {"x": np.zeros((20, 4, 4), np.uint8), "y": np.arange(20) % 2, **more}
        np.savez(file, **arrays)
        Path("a.npz").write_bytes(change(file.getvalue()))

    return write


def npy_header(shape: str, descr: str = "'|u1'") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()


def zipped(x: bytes, compression: int = zipfile.ZIP_STORED) -> Setup:
    def write() -> None:
        with zipfile.ZipFile("a.npz", "w", compression) as file:
            file.writestr("x.npy", x)
            file.writestr("y.npy", npy_header("(2,)") + b"\0\1")

    return write


def oversized() -> None:
    """An archive whose list of contents agrees with a header that asks for 32 TB."""
    with zipfile.ZipFile("a.npz", "w") as file:
        file.writestr("x.npy", npy_header(f"({1 << 40}, 32)"))
        file.writestr("y.npy", npy_header("(2,)") + b"\0\1")
        file.filelist[0].file_size = 1 << 46


def pictures(*names: str | bytes, content: bytes | None = None) -> Setup:
    def write() -> None:
        png = io.BytesIO()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(png, "png")
        for name in names:
            place = os.fsencode("photos") + b"/" + os.fsencode(name)
            os.makedirs(place, exist_ok=True)
            for number in range(3):
                data = png.getvalue() if content is None else content
                with open(place + f"/{number}.png".encode(), "wb") as file:
                    file.write(data)

    return write


def idx(images: bytes, labels: bytes = b"", packed: bool = True) -> Setup:
    def write() -> None:
        folder = Path("data/MNIST/raw")
        folder.mkdir(parents=True)
        for part in ("train", "t10k"):
            for name, data in (("images-idx3", images), ("labels-idx1", labels)):
                (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(data))

    return write


def tiny(annotations: bytes) -> Setup:
    def write() -> None:
        place = Path("data/tiny-imagenet-200")
        (place / "val").mkdir(parents=True)
        (place / "wnids.txt").write_text("n1\nn2\n")
        (place / "val" / "val_annotations.txt").write_bytes(annotations)

    return write


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DIGITS = "9" * 5000
ARRAYS = ("run", "lwf", "--data", "arrays:a.npz", "--tasks", "1")
FOLDER = ("run", "lwf", "--data", "folder:photos", "--tasks", "1")
DAMAGED, NO_ARRAYS = "is damaged", "is not a file of plain arrays"

# -- the table -------------------------------------------------------------------------------

FLAGS = [
    Row("threads", (*RUN, "--threads", "100000"), "--threads: threads is 100000; it must be less"),
    Row("threads-text", (*RUN, "--threads", "many"), "--threads: threads is 'many'"),
    Row("threads-digits", (*RUN, "--threads", DIGITS), "--threads: threads is"),
    Row("seeds-range", (*RUN, "--seeds", "0-1000000000"), "more than 10,000 runs"),
    Row("seeds-digits", (*RUN, "--seeds", DIGITS), "is not a seed or range"),
    Row("seeds-empty", ("demo", "--seeds", ""), "is not a seed or range"),
    Row("classes-many", (*RUN, "--classes", "1x99999999999"), "is not a size"),
    Row("classes-digits", (*RUN, "--classes", DIGITS), "is not a size"),
    Row("method-:x", ("run", ":x", "digits/5"), "There is no module ''"),
    Row("method-.:x", ("run", ".:x", "digits/5"), "There is no module '.'"),
    Row("method-..x:y", ("run", "..x:y", "digits/5"), "There is no module '..x'"),
    Row("method-nul", ("run", "a\0b:y", "digits/5"), "There is no module"),
    Row("method-fifo", ("run", "m.py:y", "digits/5"), "There is no file m.py",
        lambda: fifo(Path("m.py"))),
    Row("max-size", ("store", "prune", "--max-size", "9" * 400 + "GB"), "is not a size",
        text("runs/x", "")),
    Row("device-cpu:3", (*RUN, "--device", "cpu:3"), "The device 'cpu:3' is not available"),
    Row("device-name", (*RUN, "--device", "toaster"), "There is no device 'toaster'"),
    Row("workers", (*RUN, "--workers", "0"), "is not a number of workers"),
    Row("workers-digits", (*RUN, "--workers", DIGITS), "is not a number of workers"),
    Row("order-digits", (*RUN, "--order", DIGITS), "order"),
    Row("order-seed", (*RUN, "--order", f"seed:{DIGITS}"), "order"),
    Row("landscape", ("analyze", "lwf", "digits/5", "--lamb-a", "1", "--grid", "1000000"),
        "Give 2 to 1000 points"),
    Row("first", (*RUN, "--first", "99999999999999999999"), "first"),
    Row("tasks", (*RUN, "--tasks", "99999999999999999999"), "tasks"),
    Row("grid", ("search", "lwf", "digits/5", "--lamb-grid", "1,x"), "is not a list of numbers"),
    Row("store-verify-nowhere", ("store", "verify", "--store", "nowhere"), "There is no store at"),
    Row("store-list-nowhere", ("store", "list", "--store", "nowhere"), "There is no store at"),
    Row("runs-here", (*RUN, "--runs", "."), "is not a place for results"),
    Row("runs-root", (*RUN, "--runs", "/"), "is not a place for results"),
    Row("runs-empty", (*RUN, "--runs", ""), "is not a place for results"),
    Row("store-root", (*RUN, "--store", "/"), "is not a place for the store"),
    Row("prune-here", ("store", "prune", "--store", "."), "is not a place for a store"),
    Row("report-here", ("report", "--output", "."), "is not a place for a report"),
    Row("report-root", ("report", "--output", "/"), "is not a place for a report"),
]  # fmt: skip
SETTINGS = [
    Row("epochs-true", (*RUN, "--set", "training.epochs=true"), "must be a number, not true"),
    Row("milestones", (*RUN, "--set", "training.milestones=[-1]"), "numbered from 1"),
    Row("milestones-true", (*RUN, "--set", "training.milestones=[true]"), "not true or false"),
    Row("hidden", (*RUN, "--set", "network.name=mlp", "--set",
                   "network.hidden=[10000000,10000000]"), "would need 400,"),
    Row("hidden-floats", (*RUN, "--set", "network.name=mlp", "--set",
                          "network.hidden=[1.5,1e7]"), "network.hidden is"),
    Row("set-nul", (*RUN, "--set", "lamb=a\0b"), "--set: lamb is"),
    Row("set-deep", (*RUN, "--set", "lamb=" + "[" * 5000), "--set: lamb is"),
    Row("set-bomb", (*RUN, "--set", "lamb=" + BOMB), "--set: lamb is"),
    Row("set-digits", (*RUN, "--set", f"lamb={DIGITS}"), "--set: lamb is"),
    Row("set-infinite", (*RUN, "--set", "lamb=.inf"), "must be a finite number"),
    Row("yaml-nul", (*RUN, "--config", "c.yaml"), "c.yaml: this is not YAML", text(
        "c.yaml", b"seed: \x00")),
    Row("yaml-deep", (*RUN, "--config", "c.yaml"), "nested too deeply", text(
        "c.yaml", "lamb: " + "[" * 5000 + "]" * 5000)),
    Row("yaml-bomb", (*RUN, "--config", "c.yaml"), "it has an alias", text("c.yaml", BOMB)),
    Row("yaml-digits", (*RUN, "--config", "c.yaml"), "c.yaml", text(
        "c.yaml", f"seed: {DIGITS}\n")),
    Row("yaml-latin1", (*RUN, "--config", "c.yaml"), "is not a text file", text(
        "c.yaml", b"seed: \xe9")),
    Row("yaml-fifo", (*RUN, "--config", "c.yaml"), "not a plain file",
        lambda: fifo(Path("c.yaml"))),
    Row("yaml-zero", (*RUN, "--config", "c.yaml"), "not a plain file",
        lambda: Path("c.yaml").symlink_to("/dev/zero")),
    Row("yaml-folder", (*RUN, "--config", "."), "cannot be read"),
    Row("study-nowhere", ("study", "s.yaml"), "s.yaml cannot be read"),
    Row("study-list", ("study", "s.yaml"), "must be names with values", text("s.yaml", "[1]")),
    Row("study-nul", ("study", "s.yaml"), "is not YAML", text("s.yaml", b"a: \x00")),
    Row("study-deep", ("study", "s.yaml"), "nested too deeply", text(
        "s.yaml", "benchmarks: " + "[" * 5000 + "]" * 5000)),
    Row("study-bomb", ("study", "s.yaml"), "stand for more than", text("s.yaml", BOMB)),
    Row("study-merge-bomb", ("study", "s.yaml"), "stand for more than", text(
        "s.yaml", BOMB.replace("[1,1,1,1,1,1,1,1,1]", "{x: 1}").replace("[*", "{<<: [*").replace(
            "]\n", "]}\n"))),
    Row("study-loop", ("study", "s.yaml"), "stand for more than", text("s.yaml", "a: &a [*a]")),
    Row("study-digits", ("study", "s.yaml"), "s.yaml", text("s.yaml", f"table_seeds: [{DIGITS}]")),
    Row("study-latin1", ("study", "s.yaml"), "is not a text file", text("s.yaml", b"a: \xe9")),
    Row("study-fifo", ("study", "s.yaml"), "not a plain file", lambda: fifo(Path("s.yaml"))),
    Row("study-zero", ("study", "s.yaml"), "not a plain file",
        lambda: Path("s.yaml").symlink_to("/dev/zero")),
]  # fmt: skip
DATA = [
    Row("npz-empty", ARRAYS, NO_ARRAYS, text("a.npz", b"")),
    Row("npz-text", ARRAYS, NO_ARRAYS, text("a.npz", b"not an archive")),
    Row("npz-cut", ARRAYS, NO_ARRAYS, npz(lambda data: data[:-40])),
    Row("npz-crc", ARRAYS, NO_ARRAYS, npz(lambda data: data.replace(b"\0" * 64, b"\1" * 64, 1))),
    Row("npz-objects", ARRAYS, "of the type object", npz(x=np.array([{}, {}], dtype=object))),
    Row("npz-no-x", ARRAYS, "holds q", lambda: np.savez("a.npz", q=np.zeros(3))),
    Row("npz-huge", ARRAYS, "has fewer bytes", zipped(npy_header("(1 << 40, 32)".replace(
        "1 << 40", str(1 << 40))))),
    Row("npz-memory", ARRAYS, "GB are", oversized),
    Row("npz-negative", ARRAYS, NO_ARRAYS, zipped(npy_header("(-1, 4)"))),
    Row("npz-method", ARRAYS, NO_ARRAYS, npz(lambda data: data.replace(
        b"PK\x03\x04\x2d\0\0\0\0\0", b"PK\x03\x04\x2d\0\0\0\x63\0").replace(
        b"PK\x03\x04\x14\0\0\0\0\0", b"PK\x03\x04\x14\0\0\0\x63\0").replace(
        b"PK\x01\x02\x2d\x03\x2d\0\0\0\0\0", b"PK\x01\x02\x2d\x03\x2d\0\0\0\x63\0").replace(
        b"PK\x01\x02\x14\x03\x14\0\0\0\0\0", b"PK\x01\x02\x14\x03\x14\0\0\0\x63\0"))),
    Row("npz-header", ARRAYS, NO_ARRAYS, zipped(npy_header("(" * 80))),
    Row("npz-version", ARRAYS, NO_ARRAYS, zipped(b"\x93NUMPY\x09\x09" + b"\0" * 200)),
    Row("npz-fifo", ARRAYS, "not a plain file", lambda: fifo(Path("a.npz"))),
    Row("npz-zero", ARRAYS, "not a plain file", lambda: Path("a.npz").symlink_to("/dev/zero")),
    Row("npz-loop", ARRAYS, "There is no file", lambda: Path("a.npz").symlink_to("a.npz")),
    Row("folder-size", (*FOLDER[:3], "folder:photos@100000000", *FOLDER[4:]),
        "no possible size", pictures("a", "b")),
    Row("folder-memory", (*FOLDER[:3], "folder:photos@99999", *FOLDER[4:]), "GB are",
        pictures("a", "b")),
    Row("folder-digits", (*FOLDER[:3], f"folder:photos@{DIGITS}", *FOLDER[4:]),
        "no possible size", pictures("a", "b")),
    Row("folder-not-utf8", FOLDER, "not plain text in UTF-8", pictures(b"caf\xe9", "b")),
    Row("folder-escapes", FOLDER, r"\x1b[31m", pictures("\x1b[31mred", "b")),
    Row("folder-no-image", FOLDER, "is not an image", pictures("a", "b", content=b"x")),
    Row("folder-dangling", FOLDER, "has no readable file", lambda: (
        pictures("a", "b")(), Path("photos/a/9.png").symlink_to("nowhere"), None)[-1]),
    Row("folder-fifo", FOLDER, "has no readable file", lambda: (
        pictures("a", "b")(), fifo(Path("photos/a/9.png")), None)[-1]),
    Row("folder-loop", FOLDER, "There is no folder", lambda: Path("photos").symlink_to("photos")),
    Row("mnist-2x2", ("run", "lwf", "--data", "mnist", "--tasks", "5"), "images of 2x2 pixels",
        idx(struct.pack(">HBBIII", 0, 8, 3, 10, 2, 2) + bytes(40),
            struct.pack(">HBBI", 0, 8, 1, 10) + bytes(range(10)))),
    Row("mnist-bomb", ("run", "lwf", "--data", "mnist", "--tasks", "5"), "more or fewer",
        idx(struct.pack(">HBBIII", 0, 8, 3, 1, 28, 28) + bytes(50_000_000))),
    Row("mnist-huge", ("run", "lwf", "--data", "mnist", "--tasks", "5"), "GB are",
        idx(struct.pack(">HBBIII", 0, 8, 3, 2**31, 2**31, 8))),
    Row("mnist-cut", ("run", "lwf", "--data", "mnist", "--tasks", "5"), DAMAGED, idx(b"\0\0")),
    Row("tiny-no-tab", ("run", "lwf", "--data", "tinyimagenet", "--tasks", "5"),
        "with a tab between", tiny(b"val_0.JPEG n1\n")),
    Row("tiny-latin1", ("run", "lwf", "--data", "tinyimagenet", "--tasks", "5"),
        "is not text in UTF-8", tiny(b"val_0.JPEG\t\xe9\n")),
    Row("data-check", ("data", "check", "mnist"), "images of 2x2 pixels",
        idx(struct.pack(">HBBIII", 0, 8, 3, 10, 2, 2) + bytes(40),
            struct.pack(">HBBI", 0, 8, 1, 10) + bytes(range(10))), 1),
]  # fmt: skip
PLACES = [
    Row("runs-dangling", (*RUN, "--runs", "r"), "r", lambda: Path("r").symlink_to("nowhere/x")),
    Row("runs-loop", (*RUN, "--runs", "r"), "r", lambda: Path("r").symlink_to("r")),
    Row("runs-file", (*RUN, "--runs", "r"), "r", text("r", "")),
    Row("runs-nul", (*RUN, "--runs", "a\0b"), "embedded null byte"),
    Row("runs-too-long", (*RUN, "--runs", "a" * 5000), "too long"),
    Row("store-fifo", (*RUN, "--store", "s"), "The store s is not writable",
        lambda: fifo(Path("s"))),
    Row("store-loop", ("store", "list"), "The store", lambda: (
        Path("runs/.store").mkdir(parents=True),
        Path("runs/.store/entries").symlink_to("entries"), None)[-1]),
    Row("report-fifo", ("report", "x"), "x", lambda: fifo(Path("x"))),
    Row("report-nowhere", ("report", "nowhere"), "does not exist"),
]  # fmt: skip
WRITTEN = [
    Row("report-not-ours", ("report", "--output", "thesis"), "files that ancl did not write", text(
        "thesis/report.html", "my thesis")),
    Row("report-link", ("report", "--output", "thesis"), "files that ancl did not write", lambda: (
        Path("thesis").mkdir(), Path("thesis/report.html").symlink_to("nowhere"), None)[-1]),
    Row("entry-fifo", ("store", "verify"), "not a plain file", of_entry("entry.json", fifo), 1),
    Row("entry-zero", ("store", "verify"), "not a plain file",
        of_entry("entry.json", linked("/dev/zero")), 1),
    Row("tensors-zero", ("store", "verify"), "not a plain file",
        of_entry("tensors.safetensors", linked("/dev/zero")), 1),
    Row("tensors-loop", ("store", "verify"), "cannot be read",
        of_entry("tensors.safetensors", linked("tensors.safetensors")), 1),
    Row("entry-format", ("store", "verify"), "format, 9",
        of_entry("entry.json", forged(format="ancl-store 9")), 1),
    Row("entry-format-digits", ("store", "verify"), "a newer format",
        of_entry("entry.json", forged(format=f"ancl-store {DIGITS}")), 1),
    Row("entry-no-bytes", ("store", "verify"), "lacks a field",
        of_entry("entry.json", forged(tensors_bytes=None)), 1),
    Row("entry-no-key", ("store", "verify"), "lacks a field",
        of_entry("entry.json", forged(key=None)), 1),
    Row("entry-meta-list", ("store", "verify"), "lacks a field",
        of_entry("entry.json", forged(meta=[1])), 1),
    Row("entry-deep", ("store", "verify"), "is not JSON",
        of_entry("entry.json", replaced("[" * 100_000)), 1),
    Row("entry-list", ("store", "list"), "lacks a field",
        of_entry("entry.json", forged(meta="x")), 0),
    Row("index-fifo", ("store", "list"), "entries",
        lambda: fifo(Path("runs/.store/index.json")), 0),
    Row("index-zero", ("store", "list"), "entries",
        lambda: linked("/dev/zero")(Path("runs/.store/index.json")), 0),
    Row("index-deep", ("store", "list"), "entries",
        text("runs/.store/index.json", "[" * 100_000), 0),
    Row("stages-damaged", ("store", "prune"), "Nothing was removed",
        of_run("stages.json", replaced("{"))),
    Row("stages-fifo", ("store", "prune"), "not a plain file", of_run("stages.json", fifo)),
    Row("stages-missing", ("store", "prune"), "No such file",
        of_run("stages.json", lambda path: path.unlink())),
    Row("stages-numbers", ("store", "prune"), "is damaged",
        of_run("stages.json", values(keys=[1]))),
    *(
        Row(f"report-{name}", ("report",), phrase, of_run(file, change))
        for name, file, change, phrase in (
            ("log-text", "log.jsonl", replaced("{\n"), "JSONDecodeError"),
            ("log-list", "log.jsonl", replaced("[1]\n"), "log.jsonl"),
            ("log-fields", "log.jsonl", replaced('{"task": "x"}\n'), "log.jsonl"),
            ("log-fifo", "log.jsonl", fifo, "not a plain file"),
            ("log-bytes", "log.jsonl", replaced(b"\xff"), "UnicodeDecodeError"),
            ("result-list", "result.json", replaced("[]"), "another shape"),
            ("result-deep", "result.json", replaced("[" * 100_000), "nested too deeply"),
            ("result-nan", "result.json", values(metrics={"aac": float("nan")}), "not a finite"),
            ("result-no-images", "result.json", values(images=None), "images: Field required"),
            ("result-text-images", "result.json", values(images=["a", "b"]), "images"),
            ("result-metrics", "result.json", values(metrics={"aac": "x"}), "metrics"),
            ("result-seconds", "result.json", values(seconds=[1]), "seconds"),
            ("result-zero", "result.json", linked("/dev/zero"), "not a plain file"),
            ("matrix", "accuracy_taw.csv", replaced("nonsense"), "is not an accuracy matrix"),
            ("matrix-fifo", "accuracy_taw.csv", fifo, "not a plain file"),
        )
    ),
    # A report reads no spec.yaml: what was trained is in result.json.
    *(
        Row(f"report-spec-{name}", ("report",), "digits, 2 tasks", of_run("spec.yaml", change), 0)
        for name, change in (
            ("text", replaced("{")),
            ("fifo", fifo),
        )
    ),
    *(
        Row(f"report-comparison-{name}", ("report", "runs/comparisons/x.json"), "x.json",
            text("runs/comparisons/x.json", content))
        for name, content in (("text", "{"), ("list", "[1]"), ("runs", '{"methods": 3}'))
    ),
    *(
        Row(f"report-{name}", ("report",), phrase, text(f"runs/{file}", content), 0)
        for name, file, content, phrase in (
            ("search", "searches/x/decision.json", "{", "searches/x"),
            ("search-list", "searches/x/decision.json", "[1]", "searches/x"),
            ("analysis-list", "analyses/x/result.json", "[1]", "analyses/x"),
        )
    ),
]  # fmt: skip
ROWS = [*FLAGS, *SETTINGS, *DATA, *PLACES, *WRITTEN]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_input_is_one_message(row: Row, ancl: Any, finished: Path, no_figures: None) -> None:
    if row in WRITTEN:
        shutil.copytree(finished, "runs")
    row.setup()
    began = time.monotonic()

    ended = ancl(*row.words)

    said = ended.out + ended.err
    assert ended.code == row.code, said
    assert row.phrase in said
    assert "Traceback" not in said
    assert "\x1b" not in said
    if row not in WRITTEN:
        assert len(said.splitlines()) <= MOST_LINES
        assert len(said) < 5000
    assert time.monotonic() - began < MOST_SECONDS


def test_names_of_classes_cannot_change_the_terminal(ancl: Any) -> None:
    npz(y=np.array(["\x1b[31mred", "blue"] * 10))()

    ended = ancl(*ARRAYS, "--dry-run")

    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert "\\x1b[31mred" in ended.out


def test_the_table_has_its_rows() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)
