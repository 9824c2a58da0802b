"""Published data sets: what they are called, where they come from, and whether they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ancl.data.formats.archives import Contents, Tree, open_tree
from ancl.data.formats.cifar import read_cifar10, read_cifar100, read_cifar100_16
from ancl.data.formats.mnist import FILES, read_idx
from ancl.data.formats.tinyimagenet import read_tinyimagenet32, read_tinyimagenet64
from ancl.data.samples import Normalization
from ancl.data.source import Source, make_source
from ancl.errors import ScenarioError


@dataclass(frozen=True)
class Remote:
    """A file as it is published: its name, its MD5 checksum, and addresses that hold it."""

    name: str
    md5: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """A data set others have published.

    Args:
        name: What users call it.
        explanation: One line.
        folder: The folder below the data root, named as the publisher or torchvision does.
        also: Other folders it is found in.
        files: What is downloaded: one archive that holds ``folder``, or files for it.
        archive: Whether it is the former.
        classes: How many classes it has.
        images: How many training and test images.
        read: Makes arrays of the files.
        normalization: The usual one; the training images' own where there is none.
        even: Whether all classes have the same number of images.
        partial: Whether a part of it is still usable.
        pixels: Height and width of its images, where its format lets them be any.
    """

    name: str
    explanation: str
    folder: str
    files: tuple[Remote, ...]
    classes: int
    images: tuple[int, int]
    read: Callable[[Tree], Contents]
    normalization: Normalization | None = None
    also: tuple[str, ...] = ()
    archive: bool = True
    even: bool = True
    partial: bool = False
    pixels: int | None = None

    def find(self, root: Path) -> Path | None:
        """Where it is below the root: a folder, or else the published archive."""
        for folder in (root / name for name in (self.folder, *self.also)):
            if self.archive and folder.is_dir():
                return folder
            if not self.archive and all(_either(folder / file.name) for file in self.files):
                return folder
        packed = root / self.files[0].name
        return packed if self.archive and packed.is_file() else None

    def load(self, root: Path) -> Source:
        """Read it, whole and checked.

        Raises:
            ScenarioError: It does not exist, is damaged or is something else.
        """
        folder = self.find(root)
        if folder is None:
            raise ScenarioError(
                f"{self.name} is not in the data root {root.absolute()} (looked for "
                f"{' and '.join(self.wanted())}). Get it with: ancl data fetch {self.name}. If it "
                "is elsewhere, give --data-root or set ANCL_DATA."
            )
        return self.load_from(folder)

    def load_from(self, place: Path) -> Source:
        """Read it from a folder or archive; the one is checked by content, the other by MD5."""
        if place.is_file():
            verify(place, self.files[0])
        contents = self.read(open_tree(place, self.folder))
        notes = self._whole(contents, place)
        x, y, test_x, test_y, classes = contents
        source = make_source(
            self.name,
            x,
            y,
            test_x,
            test_y,
            classes=classes,
            normalization=self.normalization,
        )
        return replace(source, notes=(*notes, *source.notes))

    def wanted(self) -> list[str]:
        """What is looked for below the root."""
        packed = [self.files[0].name] if self.archive else []
        return [f"{name}/" for name in (self.folder, *self.also)] + packed

    def _whole(self, contents: Contents, place: Path) -> tuple[str, ...]:
        """Notes on what is missing, where that is allowed; counts and labels must fit."""
        notes = []
        if len(contents.classes) != self.classes:
            raise _different(place, f"{len(contents.classes)} classes", f"{self.classes}")
        for images in (contents.train_x, contents.test_x) if self.pixels else ():
            if images.shape[1:3] != (self.pixels, self.pixels):
                height, width = images.shape[1:3]
                raise _different(
                    place, f"images of {width}x{height} pixels", f"{self.pixels}x{self.pixels}"
                )
        for part, labels, total in (
            ("training", contents.train_y, self.images[0]),
            ("test", contents.test_y, self.images[1]),
        ):
            if labels.min(initial=0) < 0 or labels.max(initial=0) >= self.classes:
                raise _different(place, f"{part} labels beyond its classes", "0 and up")
            counts = np.bincount(labels, minlength=self.classes)
            if len(labels) == total and (not self.even or np.ptp(counts) == 0):
                continue
            counted, expected = _counted(counts, labels), f"{total:,} {part} images"
            if self.even:
                expected += f", {total // self.classes} per class"
            if not self.partial or counts.max() > total // self.classes:
                raise _different(place, f"{counted} for {part}", expected)
            notes.append(f"{self.name} in {place} is a part of the whole: {counted} of {expected}.")
        return tuple(notes)


def verify(file: Path, remote: Remote) -> None:
    """Compare a file with its published checksum.

    Raises:
        ScenarioError: They differ.
    """
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, _md5).hexdigest()
    if digest != remote.md5:
        raise ScenarioError(
            f"{file} is not the file that was published: its MD5 is {digest}, and that of "
            f"{remote.name} is {remote.md5}. Fetch it again; if it was only packed anew, unpack it "
            "and use the folder."
        )


_md5 = partial(hashlib.md5, usedforsecurity=False)


def _either(file: Path) -> bool:
    return file.is_file() or file.with_suffix("").is_file()


def _counted(counts: NDArray[np.int64], labels: NDArray[np.int64]) -> str:
    low, high = int(counts.min()), int(counts.max())
    per_class = f"{low}" if low == high else f"{low} to {high}"
    return f"{len(labels):,} images, {per_class} per class,"


def _different(place: Path, found: str, expected: str) -> ScenarioError:
    return ScenarioError(
        f"{place} has {found.rstrip(',')}; expected: {expected}. "
        "Fetch or import it again, or use another data set as folder:PATH or arrays:FILE.npz."
    )


def _files(names: tuple[str, ...], sums: str, addresses: str) -> tuple[Remote, ...]:
    """Published files at the same addresses."""
    return tuple(
        Remote(name, md5, tuple(address + name for address in addresses.split()))
        for name, md5 in zip(names, sums.split(), strict=True)
    )


_CIFAR = "https://www.cs.toronto.edu/~kriz/ https://dataset.bj.bcebos.com/cifar/"
_TINY = "https://cs231n.stanford.edu/ https://zenodo.org/records/10720917/files/"
_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/ "
    "https://storage.googleapis.com/cvdf-datasets/mnist/"
)
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_IDX_FILES = tuple(f"{name}.gz" for name in FILES)
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_CIFAR100 = Published(
    name="cifar100",
    explanation="CIFAR-100: 60,000 colour images of 32x32 pixels",
    folder="cifar-100-python",
    files=_files(("cifar-100-python.tar.gz",), "eb9058c3a382ffc7106e4002c42a8d85", _CIFAR),
    classes=100,
    images=(50_000, 10_000),
    read=read_cifar100,
    normalization=Normalization((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)),
)
_CIFAR100_16 = replace(
    _CIFAR100,
    name="cifar100-16",
    explanation="CIFAR-100 at 16x16 pixels, each the mean of 2x2",
    read=read_cifar100_16,
    normalization=None,
)
_CIFAR10 = Published(
    name="cifar10",
    explanation="CIFAR-10: 60,000 colour images of 32x32 pixels",
    folder="cifar-10-batches-py",
    files=_files(("cifar-10-python.tar.gz",), "c58f30108f718f92721af3b95e74349a", _CIFAR),
    classes=10,
    images=(50_000, 10_000),
    read=read_cifar10,
    normalization=Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
_TINYIMAGENET = Published(
    name="tinyimagenet",
    explanation="Tiny ImageNet: 110,000 colour images, resized from 64x64 to 32x32 pixels",
    folder="tiny-imagenet-200",
    files=_files(("tiny-imagenet-200.zip",), "90528d7ca1a48142e341f4ef8d21d0de", _TINY),
    classes=200,
    images=(100_000, 10_000),
    read=read_tinyimagenet32,
    normalization=Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    partial=True,
)
_TINYIMAGENET64 = replace(
    _TINYIMAGENET,
    name="tinyimagenet64",
    explanation="Tiny ImageNet at its own 64x64 pixels",
    read=read_tinyimagenet64,
)
_MNIST_DIGITS = Published(
    name="mnist",
    explanation="MNIST: 70,000 handwritten digits of 28x28 pixels",
    folder="MNIST/raw",
    also=("mnist", "MNIST"),
    files=_files(
        _IDX_FILES,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
        "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
        _MNIST,
    ),
    archive=False,
    pixels=28,
    classes=10,
    images=(60_000, 10_000),
    even=False,
    read=partial(read_idx, classes=[str(digit) for digit in range(10)]),
)
_FASHION_MNIST = replace(
    _MNIST_DIGITS,
    name="fashionmnist",
    explanation="Fashion-MNIST: 70,000 grey images of clothes, 28x28 pixels",
    folder="FashionMNIST/raw",
    also=("fashion-mnist", "FashionMNIST"),
    files=_files(
        _IDX_FILES,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
        "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
        _FASHION,
    ),
    even=True,
    read=partial(read_idx, classes=_CLOTHES),
)

PUBLISHED: dict[str, Published] = {
    each.name: each
    for each in (
        _CIFAR100,
        _CIFAR100_16,
        _CIFAR10,
        _TINYIMAGENET,
        _TINYIMAGENET64,
        _MNIST_DIGITS,
        _FASHION_MNIST,
    )
}
