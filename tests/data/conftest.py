"""Small data sets written exactly as their publishers write theirs."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.lab import PUBLISHED, Published, Remote

Bytes = NDArray[np.uint8]


def pixels(seed: int, *shape: int) -> Bytes:
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


def python2_pickle(entries: dict[str, Bytes | list[int] | list[str]]) -> bytes:
    """A mapping as Python 2 with the NumPy of its time pickled it, in protocol 2."""
    made = b"\x80\x02}("
    for key, value in entries.items():
        made += _text2(key) + (_array2(value) if isinstance(value, np.ndarray) else _list2(value))
    return made + b"u."


def _text2(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) < 256:
        return b"U" + bytes([len(raw)]) + raw
    return b"T" + struct.pack("<i", len(raw)) + raw


def _number2(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _list2(values: list[int] | list[str]) -> bytes:
    each = (_text2(v) if isinstance(v, str) else _number2(v) for v in values)
    return b"](" + b"".join(each) + b"e"


def _array2(array: Bytes) -> bytes:
    rows, columns = array.shape
    begun = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    none = _number2(-1)
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN" + none + none + b"K\x00tb"
    shape = b"(" + _number2(rows) + _number2(columns) + b"t"
    # The state: version, shape, dtype, Fortran order, bytes.
    return begun + b"(K\x01" + shape + dtype + b"\x89" + _text2(array.tobytes()) + b"tb"


def tar(archive: Path, top: str, files: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))


def cifar100_files() -> dict[str, bytes]:
    """4 training images and 2 test images of each of 3 classes."""
    names = ["apple", "bear", "can"]

    def part(seed: int, n: int) -> bytes:
        labels = [number % 3 for number in range(n)]
        rows = pixels(seed, n, 3072)
        return python2_pickle({"data": rows, "fine_labels": labels, "coarse_labels": labels})

    return {
        "train": part(0, 12),
        "test": part(1, 6),
        "meta": python2_pickle({"fine_label_names": names, "coarse_label_names": names}),
    }


@pytest.fixture
def cifar100(tmp_path: Path) -> Published:
    """A CIFAR-100 of 3 classes, whose files the root does not hold yet."""
    return replace(PUBLISHED["cifar100"], classes=3, images=(12, 6))


@pytest.fixture
def write_cifar100() -> Callable[[Path], None]:
    def write(root: Path) -> None:
        folder = root / "cifar-100-python"
        folder.mkdir(parents=True)
        for name, content in cifar100_files().items():
            (folder / name).write_bytes(content)

    return write


@pytest.fixture
def write_cifar10() -> Callable[[Path], None]:
    """Five files of 4 training images and one of 2 test images, of 2 classes."""

    def write(root: Path) -> None:
        folder = root / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        sizes = {f"data_batch_{number}": 4 for number in range(1, 6)} | {"test_batch": 2}
        for seed, (name, n) in enumerate(sizes.items()):
            labels = [number % 2 for number in range(n)]
            batch = python2_pickle({"data": pixels(seed, n, 3072), "labels": labels})
            (folder / name).write_bytes(batch)
        names = python2_pickle({"label_names": ["cat", "dog"]})
        (folder / "batches.meta").write_bytes(names)

    return write


@pytest.fixture
def packed_cifar100(tmp_path: Path, cifar100: Published) -> tuple[Published, Path]:
    """The same as an archive outside the root, with the checksum it has."""
    archive = tmp_path / "elsewhere" / "cifar-100-python.tar.gz"
    archive.parent.mkdir()
    tar(archive, "cifar-100-python", cifar100_files())
    return with_checksum(cifar100, archive), archive


def with_checksum(data: Published, *files: Path) -> Published:
    sums = {file.name: hashlib.md5(file.read_bytes()).hexdigest() for file in files}
    return replace(data, files=tuple(Remote(f.name, sums[f.name], f.urls) for f in data.files))


WNIDS = ("n03", "n01", "n02")


def tinyimagenet_files() -> dict[str, bytes]:
    """Two training images and one test image of each of 3 classes, one of them grey."""
    files = {
        "wnids.txt": "\n".join(WNIDS).encode() + b"\n",
        "words.txt": b"n00\tentity\nn01\tcrane\nn02\tcrane, bird\nn03\tEgyptian cat, tabby\n",
    }
    annotations = []
    for number, wnid in enumerate(WNIDS):
        for i in range(2):
            grey = (number, i) == (1, 0)
            shape = (64, 64) if grey else (64, 64, 3)
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(pixels(10 * number + i, *shape))
        files[f"val/images/val_{number}.JPEG"] = jpeg(pixels(90 + number, 64, 64, 3))
        annotations.append(f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    files["val/val_annotations.txt"] = "".join(annotations).encode()
    return files


def jpeg(array: Bytes) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def tinyimagenet() -> Published:
    return replace(PUBLISHED["tinyimagenet"], classes=3, images=(6, 3))


@pytest.fixture
def write_tinyimagenet() -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for name, content in tinyimagenet_files().items():
            file = root / "tiny-imagenet-200" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    return write


@pytest.fixture
def packed_tinyimagenet(tmp_path: Path, tinyimagenet: Published) -> tuple[Published, Path]:
    archive = tmp_path / "elsewhere" / "tiny-imagenet-200.zip"
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w") as made:
        for name, content in tinyimagenet_files().items():
            made.writestr(f"tiny-imagenet-200/{name}", content)
    return with_checksum(tinyimagenet, archive), archive


def idx(array: Bytes) -> bytes:
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


@pytest.fixture
def mnist() -> Published:
    return replace(PUBLISHED["mnist"], images=(20, 10))


@pytest.fixture
def write_mnist() -> Callable[..., None]:
    def write(folder: Path, *, packed: bool) -> None:
        folder.mkdir(parents=True)
        for part, n in (("train", 20), ("t10k", 10)):
            labels = (np.arange(n) % 10).astype(np.uint8)
            arrays = {"images-idx3": pixels(n, n, 28, 28), "labels-idx1": labels}
            for name, array in arrays.items():
                content = gzip.compress(idx(array)) if packed else idx(array)
                end = ".gz" if packed else ""
                (folder / f"{part}-{name}-ubyte{end}").write_bytes(content)

    return write
