"""``folder:PATH``: a sub-folder of image files for each class."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

import numpy as np
import PIL
import torch

from ancl.data.caches import PixelCache, remove_changed
from ancl.data.formats.archives import FolderTree, Tree
from ancl.data.pictures import transparent_note
from ancl.data.source import Source, listed, make_source
from ancl.errors import ScenarioError, counted
from ancl.picture import (
    INSTALL_HEIF,
    NEEDS_HEIF,
    PLAIN,
    START,
    PictureRule,
    Pixels,
    begins_as_picture,
    decode,
    is_grey,
    is_picture,
)
from ancl.runtime import check_memory

Size = int | tuple[int, int] | None
"""Height and width to resize to; nothing where all images are of one size."""
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
        lines.append(f"Remove or replace {them}.")
        if heif := sum(NEEDS_HEIF in reason for reason in bad.values()):
            lines.append(f"{heif:,} of them can be read with pillow-heif: {INSTALL_HEIF}.")
        super().__init__("\n".join(lines))


def folder_source(
    path: Path,
    size: Size = None,
    *,
    skip_bad: bool = False,
    rule: PictureRule = PLAIN,
) -> Source:
    """The images below a folder.

    ``PATH/train`` and ``PATH/test`` (or ``val``, ``validation``) each hold one folder per class.
    Where there is no ``train``, ``PATH`` itself does, and a fifth of each class is for the test.

    Args:
        path: The folder.
        size: Height and width to resize to; without it all images must be of one size.
        skip_bad: Whether files that are not images are left out, which a note of the source says.
        rule: How pictures become images of one form.

    Raises:
        ScenarioError: There are such files, and they are not left out; its cause has all of them.
    """
    notes: list[str] = []
    folder = _Folder(path, notes.append)
    read = partial(_source, folder, size=size, rule=rule)
    try:
        source = read()
    except BadImagesError as error:
        folder.leave_out(error, skip_bad)
        source = read()
    return replace(source, notes=(*notes, *source.notes))


def _source(folder: _Folder, size: Size, rule: PictureRule) -> Source:
    names, labels = folder.files(folder.train)
    path, classes = folder.path, _classes(folder.path / folder.train)
    if folder.test is None:
        x = folder.read(names, size, rule, colour=False)
        return make_source(path.name, x, labels, classes=classes)
    test_names, test_labels = folder.files(folder.test)
    together = folder.read([*names, *test_names], size, rule, colour=False)
    x, test_x = together[: len(names)], together[len(names) :]
    return make_source(path.name, x, labels, test_x, test_labels, classes=classes)


def folder_part(
    path: Path,
    part: str,
    size: Size = None,
    *,
    colour: bool = False,
    skip_bad: bool = False,
    rule: PictureRule = PLAIN,
    say: Callable[[str], None] = warnings.warn,
) -> tuple[Pixels, list[str], list[str]]:
    """Images, classes and files of one part, ``train`` or ``test``; all where there are no parts.

    Args:
        path: The folder, as for ``folder_source``.
        part: Which.
        size: Height and width to resize to; without it all images must be of one size.
        colour: Give grey images three channels too.
        skip_bad: Whether files that are not images are left out.
        rule: How pictures become images of one form.
        say: Receives which.
    """
    folder = _Folder(path, say)
    if part == "test" and folder.train != "." and folder.test is None:
        raise ScenarioError(
            f"{path} has a folder train and none for the test ({', '.join(_TEST_NAMES)}). Add one, "
            f"or name the images themselves: folder:{path / folder.train}."
        )
    chosen = folder.test if part == "test" and folder.test is not None else folder.train
    names, labels = folder.files(chosen)
    try:
        return folder.read(names, size, rule, colour=colour), labels, names
    except BadImagesError as error:
        folder.leave_out(error, skip_bad)
    names, labels = folder.files(chosen)
    return folder.read(names, size, rule, colour=colour), labels, names


class _Folder:
    """The files of a folder, of which some may be left out.

    Args:
        path: The folder.
        say: Receives what is left out, and what is done with pictures.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self._say = path, say
        self.train, self.test = _parts(path)
        self._tree = FolderTree(path)
        self._marks = self._tree.marks()
        remove_changed(path, self._marks)
        self._pictures = [name for name in self._marks if self._is_picture(name)]
        self._say_unread()

    def files(self, part: str) -> tuple[list[str], list[str]]:
        """The image files of a part and the class of each; every class has some."""
        start = "" if part == "." else f"{part}/"
        inside = [name for name in self._pictures if _is_of_class(name, start)]
        labels = [name.removeprefix(start).split("/")[0] for name in inside]
        empty = sorted(set(_classes(self.path / part)) - set(labels))
        if empty:
            raise ScenarioError(
                f"There are no images in the folder of {listed(empty)}. Put some there (.png, "
                ".jpg, .webp, …), or remove the folder."
            )
        return inside, labels

    def read(self, names: Sequence[str], size: Size, rule: PictureRule, *, colour: bool) -> Pixels:
        """The images of these names."""
        marks = self._marks
        return read_pictures(
            self._tree, names, marks, size=size, colour=colour, rule=rule, say=self._say
        )

    def leave_out(self, error: BadImagesError, skip_bad: bool) -> None:
        """Leave out bad files and name them; or refuse them."""
        if not skip_bad:
            raise ScenarioError(
                f"{error} Or leave out bad files: --skip-bad-images, or folder:PATH{SKIP_BAD}."
            ) from error
        self._pictures = [name for name in self._pictures if name not in error.bad]
        names = ", ".join(list(error.bad)[:_SHOWN]) + (", …" if len(error.bad) > _SHOWN else "")
        files = counted(len(error.bad), "file")
        self._say(f"Left out, as they are not images: {files}: {names}.")

    def _is_picture(self, name: str) -> bool:
        return is_picture(name) or begins_as_picture(self._tree.start(name, START))

    def _say_unread(self) -> None:
        """Say which pictures belong to no class, or to a part that is not read."""
        parts = [part for part in (self.train, self.test) if part]
        starts = ["" if part == "." else f"{part}/" for part in parts]
        unread = [name for name in self._pictures if not any(_is_of_class(name, s) for s in starts)]
        if not unread:
            return
        where = Counter(f"{self.path / name}".rpartition("/")[0] for name in unread)
        shown = ", ".join(f"{count:,} in {folder}" for folder, count in where.most_common(3))
        more = ", …" if len(where) > 3 else ""
        self._say(
            f"Not read, as they are in no folder of a class that is read: "
            f"{counted(len(unread), 'picture')} ({shown}{more})."
        )


def _is_of_class(name: str, start: str) -> bool:
    """Whether a file is in a folder of a class below a part."""
    return name.startswith(start) and "/" in name.removeprefix(start)


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


SKIP_BAD = "+skip-bad"
"""What the name of a folder ends with to leave out files that are not images."""
WORTH_KEEPING = 5_000
"""From this many images on, what was decoded is kept."""
WORTH_MAPPING = 2**28
"""The same in bytes of pixels: they are on the disk, then, and not in memory."""


def read_pictures(
    tree: Tree,
    names: Sequence[str],
    marks: dict[str, str],
    *,
    size: Size,
    colour: bool,
    rule: PictureRule = PLAIN,
    say: Callable[[str], None] = warnings.warn,
) -> Pixels:
    """The images of these names, (N, H, W, C); many are cached, and mapped from the cache.

    Args:
        tree: Where they are.
        names: Which, in which order.
        marks: Every file's mark, as the tree gives them: a changed file is decoded anew.
        size: Height and width to resize to; without it all images must be of one size.
        colour: Give grey images three channels too; otherwise only beside images in colour.
        rule: How pictures become images of one form.
        say: Receives how many are transparent, and that a cache is damaged.
    """
    size = (size, size) if isinstance(size, int) else size
    how = [list(names), size, colour, astuple(rule), PIL.__version__]
    cache = PixelCache(*tree.origin({name: marks[name] for name in names}), how, say)
    pixels = cache.read(len(names))
    if pixels is None:
        pixels = _decoded(_Decoding(tree, names, size, rule), colour, cache)
    if cache.transparent:
        say(transparent_note(cache.transparent, len(names), rule))
    return pixels


def _decoded(decoding: _Decoding, colour: bool, cache: PixelCache) -> Pixels:
    """Every image, on the disk if they are many."""
    shape = decoding.shape(colour)
    if shape[0] >= WORTH_KEEPING or math.prod(shape) >= WORTH_MAPPING:
        with cache.writing(shape) as pixels:
            if pixels is not None:
                cache.transparent = decoding.fill(pixels)
        written = cache.read(shape[0])
        if written is not None:
            return written
    check_memory(math.prod(shape), f"{shape[0]} images of {shape[2]}x{shape[1]} pixels")
    pixels = np.empty(shape, np.uint8)
    cache.transparent = decoding.fill(pixels)
    return pixels


class _Decoding:
    """Image files that are decoded into one array, several at a time.

    Args:
        tree: Where they are.
        names: Which, in which order.
        size: Height and width to resize to; without it that of the first.
        rule: How pictures become images of one form.
    """

    def __init__(
        self, tree: Tree, names: Sequence[str], size: tuple[int, int] | None, rule: PictureRule
    ) -> None:
        self._tree, self._names, self._size, self._rule = tree, names, size, rule

    def shape(self, colour: bool) -> tuple[int, int, int, int]:
        """Of all images; they have one channel if all are grey, and colour is not asked for."""
        height, width = self._size or self._first_size()
        grey = not colour and all(is_grey(self._tree.read(name)) for name in self._names)
        return len(self._names), height, width, 1 if grey else 3

    def fill(self, pixels: Pixels) -> int:
        """Decode every image into its row; files that are not images are refused all at once.

        Returns:
            The number of images with transparent pixels.
        """
        bad: dict[str, str] = {}
        sizes: dict[str, tuple[int, ...]] = {}

        def fill(row: int) -> bool:
            name = self._names[row]
            try:
                image, transparent = self._decode(name)
            except ScenarioError as error:
                bad[name] = str(error).removeprefix(f"{self._tree.place}: {name} ")
                return False
            if image.shape[:2] == pixels.shape[1:3]:
                pixels[row] = image if image.ndim == 3 else image[:, :, None]
            else:
                sizes[name] = image.shape
            return transparent

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            transparent = sum(pool.map(fill, range(len(self._names))))
        if bad:
            ordered = {name: bad[name] for name in self._names if name in bad}
            raise BadImagesError(self._tree.place, ordered, len(self._names))
        if sizes:
            raise self._several_sizes(pixels.shape, sizes)
        return transparent

    def _decode(self, name: str) -> tuple[Pixels, bool]:
        """(H, W) for grey images, (H, W, 3) for all others."""
        data = self._tree.read(name)
        return decode(data, f"{self._tree.place}: {name}", self._rule, self._size)

    def _first_size(self) -> tuple[int, int]:
        """The size of the first image that can be read; it decides that of all."""
        for name in self._names:
            try:
                height, width = self._decode(name)[0].shape[:2]
            except ScenarioError:  # named with all others that cannot be read
                continue
            return height, width
        return 1, 1

    def _several_sizes(
        self, shape: tuple[int, ...], sizes: Mapping[str, tuple[int, ...]]
    ) -> ScenarioError:
        name = next(name for name in self._names if name in sizes)
        first = next(name for name in self._names if name not in sizes)
        (c, d), folder = sizes[name][:2], self._tree.place
        return ScenarioError(
            f"The images of {folder} differ in size: {first} is {shape[2]}x{shape[1]} and {name} "
            f"{d}x{c} (width x height). Have all resized, to 32x32 for example: folder:{folder}@32."
        )
