"""``folder:PATH``: a sub-folder of image files for each class."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ancl.data.pictures import is_picture, read_pictures
from ancl.data.sources import Source, listed, make_source
from ancl.data.trees import FolderTree
from ancl.errors import ScenarioError

_TEST_NAMES = ("test", "val", "validation")


def folder_source(path: Path, size: int | None = None) -> Source:
    """The images below a folder.

    ``PATH/train`` and ``PATH/test`` (or ``val``, ``validation``) each hold a folder a class.
    Where there is no ``train``, ``PATH`` itself does, and a fifth of each class is for the test.
    """
    train, test = _parts(path)
    classes = _classes(path / train)
    tree = FolderTree(path)
    marks = tree.marks()
    read = partial(read_pictures, tree, marks=marks, size=size)
    names, labels = _files(marks, train, classes)
    if test is None:
        return make_source(path.name, read(names, colour=False), labels, classes=classes)
    test_names, test_labels = _files(marks, test, _classes(path / test))
    together = read([*names, *test_names], colour=False)
    x, test_x = together[: len(names)], together[len(names) :]
    return make_source(path.name, x, labels, test_x, test_labels, classes=classes)


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
