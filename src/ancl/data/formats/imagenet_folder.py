"""``imagenet-folder``: the user's own copy of ImageNet, or of any images in that form.

Below the data root, ``imagenet/train`` and ``imagenet/val`` have a folder for each class. A file
``imagenet/classes.txt`` names the folders to learn, one a line, in the order of their tasks;
without it all are learned, by their names. Images are decoded as they are read: see
``data.encoded``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import PIL
import torch

from ancl.data.encoded import EncodedStorage
from ancl.data.formats.arrays import read_npy
from ancl.data.samples import Normalization
from ancl.data.source import Source, listed, make_source
from ancl.data.storage import Digests, ImageView
from ancl.decoder import VERSION
from ancl.errors import ScenarioError, printable
from ancl.files import read_plain

FOLDER, CLASSES, SIZE = "imagenet", "classes.txt", 224
NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
_PROBES = 8


def imagenet_folder(root: Path, size: int = SIZE) -> Source:
    """The images below a data root.

    Args:
        root: Where the folder ``imagenet`` is.
        size: Height and width of images: the middle of each, as the field evaluates.

    Raises:
        ScenarioError: There is no such folder, or a class has no images.
    """
    place = root / FOLDER
    for part in ("train", "val"):
        if not (place / part).is_dir():
            raise ScenarioError(
                f"There is no folder {place / part}. Put your ImageNet there: a folder for each "
                f"class below {place}/train and {place}/val, or a link to it."
            )
    classes = class_names(place)
    parts = [_files(place / part, classes) for part in ("train", "val")]
    files = [file for names, _ in parts for file in names]
    storage = EncodedStorage(files, size)
    storage.known_digests(_hashes(storage, files, place, size))
    count = len(parts[0][0])
    train, test = (
        ImageView(storage, torch.arange(a, b)) for a, b in ((0, count), (count, len(files)))
    )
    (_, labels), (_, test_labels) = parts
    return make_source(
        "imagenet-folder",
        train,
        labels,
        test,
        test_labels,
        classes=classes,
        normalization=NORMALIZATION,
    )


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


def _hashes(storage: EncodedStorage, files: Sequence[str], place: Path, size: int) -> Digests:
    """The hash of every image's pixels: computed once, and kept beside the images.

    A file that has changed, another Pillow or another size has another name. Some are computed
    again each time: a file of hashes is never taken for true as it is.
    """
    states = [os.stat(file) for file in files]
    marks = [[f, s.st_size, s.st_mtime_ns] for f, s in zip(files, states, strict=True)]
    decides = json.dumps([marks, size, VERSION, PIL.__version__])
    mark = hashlib.sha256(decides.encode()).hexdigest()[:16]
    cache = place / f".ancl-hashes-{size}px-{mark}.npy"
    digests = _from_cache(cache, storage)
    if digests is None:
        digests = storage.digests(torch.arange(len(storage)))
        _keep(cache, digests)
    return digests


def _from_cache(cache: Path, storage: EncodedStorage) -> Digests | None:
    try:
        digests = np.asarray(read_npy(cache, ScenarioError))
    except ScenarioError:
        return None
    if digests.dtype != np.uint64 or digests.shape != (len(storage), 4):
        return None
    step = max(1, len(storage) // _PROBES)
    probes = torch.arange(0, len(storage), step)
    same = np.array_equal(digests[probes.numpy()], storage.digests(probes))
    return digests if same else None


def _keep(cache: Path, digests: Digests) -> None:
    """Write the hashes; where nothing can be written they are computed again the next time."""
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.save(file, digests, allow_pickle=False)
        temporary.replace(cache)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
