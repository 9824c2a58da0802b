"""``imagenet-folder``: the user's own copy of ImageNet, or of any images in that form.

Below the data root, ``imagenet/train`` and ``imagenet/val`` have a folder for each class. A file
``imagenet/classes.txt`` names the folders to learn, one a line, in the order of their tasks;
without it all are learned, by their names. Images are decoded as they are read: see
``data.encoded``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL
import torch
from numpy.typing import NDArray

from ancl.data.caches import HashCache
from ancl.data.encoded import EncodedStorage
from ancl.data.samples import Normalization
from ancl.data.source import Source, listed, make_source
from ancl.data.storage import ImageView
from ancl.decoder import VERSION
from ancl.errors import ScenarioError, printable
from ancl.files import read_plain

FOLDER, CLASSES, SIZE = "imagenet", "classes.txt", 224
NAME = "imagenet-folder"
NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
_PROBES = 8


def imagenet_folder(root: Path, size: int = SIZE, short_side: int | None = None) -> Source:
    """The images below a data root.

    Args:
        root: Where the folder ``imagenet`` is.
        size: Height and width of images: the middle of each, as the field evaluates.
        short_side: What the shorter side is resized to before the middle is cut out; 256 for 224,
            and as much in proportion, if left out.

    Raises:
        ScenarioError: There is no such folder, or a class has no images.
    """
    folder = root / FOLDER
    for part in ("train", "val"):
        if not (folder / part).is_dir():
            raise ScenarioError(
                f"There is no folder {folder / part}. Put your ImageNet there: a folder for each "
                f"class below {folder}/train and {folder}/val, or a link to it."
            )
    classes = class_names(folder)
    parts = [_files(folder / part, classes) for part in ("train", "val")]
    files = [file for names, _ in parts for file in names]
    storage = EncodedStorage(files, size, short_side)
    notes = _recall(storage, files, folder, [size, short_side])
    count = len(parts[0][0])
    train, test = (
        ImageView(storage, torch.arange(a, b)) for a, b in ((0, count), (count, len(files)))
    )
    (_, labels), (_, test_labels) = parts
    source = make_source(
        NAME,
        train,
        labels,
        test,
        test_labels,
        classes=classes,
        normalization=NORMALIZATION,
    )
    return replace(source, notes=(*notes, *source.notes))


def class_names(place: Path) -> list[str]:
    """The folders of classes in the order in which they are learned."""
    there = sorted(entry.name for entry in os.scandir(place / "train") if entry.is_dir())
    file = place / CLASSES
    if not file.exists():
        return there
    try:
        lines = [line.strip() for line in read_plain(file).decode("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file} is not a file of names in UTF-8 ({error}).") from error
    names = [line for line in lines if line and not line.startswith("#")]
    odd = sorted(set(names) - set(there))
    twice = sorted({name for name in names if names.count(name) > 1})
    if odd or twice or len(names) < 2:
        shown, wrong = listed(printable(n, 60) for n in odd or twice), "has less than two names"
        if odd or twice:
            why = "which is no folder of train" if odd else "more than once"
            wrong = f"names {shown}, {why}"
        raise ScenarioError(
            f"{file} {wrong}. Write the name of a folder of {place / 'train'} on each line, in the "
            f"order to learn them."
        )
    return names


def _files(place: Path, classes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The image files of all classes, and the class of each."""
    files, labels = list[str](), list[str]()
    for name in classes:
        folder = place / name
        inside = sorted(_images(folder)) if folder.is_dir() else []
        if not inside:
            raise ScenarioError(
                f"There are no images in {folder}. Put some there "
                f"({', '.join(_SUFFIXES)}), or leave the class out of {CLASSES}."
            )
        files += inside
        labels += [name] * len(inside)
    return files, labels


def _images(folder: Path) -> list[str]:
    return [
        entry.path
        for entry in os.scandir(folder)
        if entry.name.lower().endswith(_SUFFIXES) and not entry.name.startswith(".")
    ]


def _recall(storage: EncodedStorage, files: Sequence[str], folder: Path, how: object) -> list[str]:
    """Give a storage the hash of every image's pixels, and what is known of every file.

    They are computed once, and kept in the cache directory. A file that has changed, or another way
    to read it, makes other hashes. Some are computed again each time: a file of hashes is never
    taken for true as it is.

    Returns:
        What a user should read.
    """
    notes: list[str] = []
    states = [os.stat(file) for file in files]
    marks = [[f, s.st_size, s.st_mtime_ns] for f, s in zip(files, states, strict=True)]
    cache = HashCache(folder, ["hashes", marks, how, VERSION, PIL.__version__], notes.append)
    numbers = cache.read((len(files), 7))
    if numbers is None or not _true(numbers, storage):
        rows = torch.arange(len(files))
        numbers = np.column_stack([storage.digests(rows), storage.known(rows)])
        cache.write(numbers)
    storage.remember(numbers[:, :4], numbers[:, 4:])
    return notes


def _true(numbers: NDArray[np.uint64], storage: EncodedStorage) -> bool:
    """Whether what is cached is so, by a look at a few images."""
    probes = torch.arange(0, len(storage), max(1, len(storage) // _PROBES))
    return np.array_equal(numbers[probes.numpy(), :4], storage.digests(probes))
