"""``folder:PATH``: a sub-folder of image files for each class."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image

from ancl.data.formats.archives import FolderTree, Tree
from ancl.data.formats.arrays import read_npy
from ancl.data.pictures import UNREADABLE, pixels_of
from ancl.data.resizing import OTHERWISE
from ancl.data.source import Source, listed, make_source
from ancl.errors import ScenarioError, counted
from ancl.runtime import check_memory

_TEST_NAMES = ("test", "val", "validation")
_SHOWN = 200


class BadImagesError(ScenarioError):
    """Files that are not images: all of them, with the reason for each.

    Args:
        place: Where they are.
        bad: The reasons, by the name of the file.
        count: The number of files that were read.
    """

    def __init__(self, place: Path, bad: Mapping[str, str], count: int) -> None:
        self.place, self.bad = place, bad
        lines = [f"{name} {reason}" for name, reason in bad.items()][:_SHOWN]
        lines.insert(0, f"{len(bad):,} of {count:,} images in {place} cannot be used:")
        if len(bad) > _SHOWN:
            lines.append(f"… and {len(bad) - _SHOWN:,} more")
        them = "them" if len(bad) > 1 else "it"
        super().__init__("\n".join(lines) + f"\nRemove or replace {them}.")


def folder_source(
    path: Path,
    size: int | None = None,
    *,
    skip_bad: bool = False,
    resampling: Image.Resampling = OTHERWISE,
) -> Source:
    """The images below a folder.

    ``PATH/train`` and ``PATH/test`` (or ``val``, ``validation``) each hold one folder per class.
    Where there is no ``train``, ``PATH`` itself does, and a fifth of each class is for the test.

    Args:
        path: The folder.
        size: Height and width to resize to; without it all images must be of one size.
        skip_bad: Whether files that are not images are left out, which a note of the source says.
        resampling: How they are resized.

    Raises:
        ScenarioError: There are such files, and they are not left out; its cause has all of them.
    """
    try:
        return _source(path, size, {}, resampling)
    except BadImagesError as error:
        left_out, note = _left_out(error, skip_bad)
    found = _source(path, size, left_out, resampling)
    return replace(found, notes=(note, *found.notes))


def _left_out(error: BadImagesError, skip_bad: bool) -> tuple[Mapping[str, str], str]:
    """The files to leave out, and a note that names them; or a refusal."""
    if not skip_bad:
        raise ScenarioError(
            f"{error} Or leave out bad files: --skip-bad-images, or folder:PATH{SKIP_BAD}."
        ) from error
    names = ", ".join(list(error.bad)[:_SHOWN]) + (", …" if len(error.bad) > _SHOWN else "")
    files = counted(len(error.bad), "file")
    return error.bad, f"Left out, as they are not images: {files}: {names}."


def _source(
    path: Path, size: int | None, left_out: Mapping[str, str], resampling: Image.Resampling
) -> Source:
    train, test = _parts(path)
    classes = _classes(path / train)
    tree = FolderTree(path)
    marks = {name: mark for name, mark in tree.marks().items() if name not in left_out}
    read = partial(read_pictures, tree, marks=marks, size=size, resampling=resampling)
    names, labels = _files(marks, train, classes)
    if test is None:
        return make_source(path.name, read(names, colour=False), labels, classes=classes)
    test_names, test_labels = _files(marks, test, _classes(path / test))
    together = read([*names, *test_names], colour=False)
    x, test_x = together[: len(names)], together[len(names) :]
    return make_source(path.name, x, labels, test_x, test_labels, classes=classes)


def folder_part(
    path: Path,
    part: str,
    size: int | None = None,
    *,
    resampling: Image.Resampling = OTHERWISE,
    colour: bool = False,
    skip_bad: bool = False,
    say: Callable[[str], None] = warnings.warn,
) -> tuple[NDArray[np.uint8], list[str], list[str]]:
    """Images, classes and files of one part, ``train`` or ``test``; all where there are no parts.

    Args:
        path: The folder, as for ``folder_source``.
        part: Which.
        size: Height and width to resize to; without it all images must be of one size.
        resampling: How they are resized.
        colour: Give grey images three channels too.
        skip_bad: Whether files that are not images are left out.
        say: Receives which.
    """
    train, test = _parts(path)
    if part == "test" and train != "." and test is None:
        raise ScenarioError(
            f"{path} has a folder train and none for the test ({', '.join(_TEST_NAMES)}). Add one, "
            f"or name the images themselves: folder:{path / train}."
        )
    chosen = test if part == "test" and test is not None else train
    tree = FolderTree(path)
    marks = tree.marks()
    names, labels = _files(marks, chosen, _classes(path / chosen))
    read = partial(read_pictures, tree, size=size, resampling=resampling, colour=colour)
    try:
        return read(names, marks=marks), labels, names
    except BadImagesError as error:
        left_out, note = _left_out(error, skip_bad)
    say(note)
    good = {name: mark for name, mark in marks.items() if name not in left_out}
    names, labels = _files(good, chosen, _classes(path / chosen))
    return read(names, marks=good), labels, names


def folder_classes(path: Path) -> int:
    """How many classes the folder has, found without reading an image."""
    return len(_classes(path / _parts(path)[0]))


def _parts(path: Path) -> tuple[str, str | None]:
    """The sub-folders of the training and test images; the folder itself where there are none."""
    if not path.is_dir():
        raise ScenarioError(f"There is no folder {path}. Write folder:PATH, or folder:PATH@32.")
    if not (path / "train").is_dir():
        return ".", None
    test = next((name for name in _TEST_NAMES if (path / name).is_dir()), None)
    return "train", test


def _classes(path: Path) -> list[str]:
    names = [p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    odd = next((name for name in names if not name.isprintable()), None)
    if odd is not None:
        raise ScenarioError(
            f"{path}: the name of the folder {odd!a} is not plain text in UTF-8. Rename it."
        )
    if not names:
        raise ScenarioError(
            f"{path} has no sub-folders. Put the images of each class into a folder of its own."
        )
    return sorted(names)


def _files(marks: dict[str, str], part: str, classes: list[str]) -> tuple[list[str], list[str]]:
    """The image files of a part and the class of each; every class has some."""
    start = "" if part == "." else f"{part}/"
    found = [
        (name, name.removeprefix(start).split("/")[0])
        for name in marks
        if name.startswith(start) and is_picture(name) and "/" in name.removeprefix(start)
    ]
    labels = [label for _, label in found]
    empty = sorted(set(classes) - set(labels))
    if empty:
        raise ScenarioError(
            f"There are no images in the folder of {listed(empty)}. Put some there (.png, .jpg, "
            ".webp, …), or remove the folder."
        )
    return [name for name, _ in found], labels


SKIP_BAD = "+skip-bad"
"""What the name of a folder ends with to leave out files that are not images."""
WORTH_KEEPING = 5_000
"""From this many images on, what was decoded is kept."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def read_pictures(
    tree: Tree,
    names: Sequence[str],
    marks: dict[str, str],
    *,
    size: int | None,
    colour: bool,
    resampling: Image.Resampling = OTHERWISE,
) -> NDArray[np.uint8]:
    """The images of these names, (N, H, W, C); many are cached, and mapped from the cache.

    Args:
        tree: Where they are.
        names: Which, in which order.
        marks: Every file's mark, as the tree gives them: a changed file is decoded anew.
        size: Height and width to resize to; without it all images must be of one size.
        colour: Give grey images three channels too; otherwise only beside images in colour.
        resampling: How they are resized.
    """
    rule = "" if resampling == OTHERWISE else f"-{resampling.name.lower()}"
    cache = _cache_file(tree, names, marks, f"{size}px{rule}", colour)
    cached = _from_cache(cache, len(names))
    if cached is not None:
        return cached
    if size is not None:
        check_memory(3 * len(names) * size * size, f"{len(names)} images of {size}x{size} pixels")
    images = _decoded(tree, names, size, resampling)
    _one_size(tree, names, images)
    channels = 3 if colour or any(image.ndim == 3 for image in images) else 1
    whole = np.empty((len(names), *images[0].shape[:2], channels), np.uint8)
    for place in range(len(names)):
        # Each is let go as it is copied, so that no two copies of all are ever there.
        image, images[place] = images[place], _GONE
        whole[place] = image if image.ndim == 3 else image[:, :, None]
    if len(names) < WORTH_KEEPING:
        return whole
    _keep(cache, whole)
    cached = _from_cache(cache, len(names))
    return whole if cached is None else cached


_GONE = np.zeros((0, 0), np.uint8)


def is_picture(name: str) -> bool:
    """Whether a file's name ends as an image's does."""
    return Path(name).suffix.lower() in SUFFIXES


def _decoded(
    tree: Tree, names: Sequence[str], size: int | None, resampling: Image.Resampling
) -> list[NDArray[np.uint8]]:
    """Every image; files that are not images are refused all at once."""
    bad: dict[str, str] = {}

    def decode(name: str) -> NDArray[np.uint8]:
        try:
            return _decode(tree, name, size, resampling)
        except ScenarioError as error:
            bad[name] = str(error).removeprefix(f"{tree.place}: {name} ")
            return _GONE

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        images = list(pool.map(decode, names))
    if bad:
        raise BadImagesError(tree.place, {n: bad[n] for n in names if n in bad}, len(names))
    return images


def _decode(
    tree: Tree, name: str, size: int | None, resampling: Image.Resampling
) -> NDArray[np.uint8]:
    """(H, W) for grey images, (H, W, 3) for all others, the way up they were taken."""
    try:
        with Image.open(io.BytesIO(tree.read(name))) as opened:
            square = (size, size) if size else None
            return pixels_of(opened, f"{tree.place}: {name}", square, resampling=resampling)
    except UNREADABLE as error:
        raise ScenarioError(
            f"{tree.place}: {name} is not an image that can be read ({_reason(error)})."
        ) from error


def _reason(error: Exception) -> str:
    """What Pillow says, without the object in memory that it names."""
    return str(error).partition(" <")[0]


def _one_size(tree: Tree, names: Sequence[str], images: Sequence[NDArray[np.uint8]]) -> None:
    for name, image in zip(names, images, strict=True):
        if image.shape[:2] != images[0].shape[:2]:
            (a, b), (c, d) = images[0].shape[:2], image.shape[:2]
            raise ScenarioError(
                f"The images of {tree.place} differ in size: {names[0]} is {b}x{a} and {name} "
                f"{d}x{c} (width x height). Have all resized, to 32x32 for example: "
                f"folder:{tree.place}@32."
            )


def _cache_file(
    tree: Tree, names: Sequence[str], marks: dict[str, str], size: str, colour: bool
) -> Path:
    """A name that changes with the files, with how they are read and with who reads them."""
    listing = [[name, marks[name]] for name in names]
    decides = json.dumps([listing, size, colour, PIL.__version__])
    mark = hashlib.sha256(decides.encode()).hexdigest()[:16]
    return tree.home / f".ancl-{size}-{mark}.npy"


def _from_cache(cache: Path, n: int) -> NDArray[np.uint8] | None:
    try:
        images = read_npy(cache, ScenarioError)
    except ScenarioError:
        return None
    plain = images.dtype == np.uint8 and images.ndim == 4 and len(images) == n
    return images if plain else None


def _keep(cache: Path, images: NDArray[np.uint8]) -> None:
    """Write the cache; where nothing can be written, there is no cache."""
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.save(file, images, allow_pickle=False)
        temporary.replace(cache)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
