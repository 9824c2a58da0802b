"""Tiny ImageNet as its publisher packs it: one folder per class, and an annotated ``val`` folder.

The labels of the official test images are secret, so the ``val`` images are the test set.
"""

from collections import Counter
from functools import partial

import numpy as np

from ancl.data.formats.archives import Contents, Tree
from ancl.data.formats.folders import read_pictures
from ancl.errors import ScenarioError, printable
from ancl.picture import is_picture


def read_tinyimagenet(tree: Tree, size: int) -> Contents:
    """Images resized to ``size``; classes count along ``wnids.txt``."""
    numbers = {wnid: number for number, wnid in enumerate(_lines(tree, "wnids.txt"))}
    marks = tree.marks()
    train = [
        (name, numbers[name.split("/")[1]])
        for name in marks
        if name.startswith("train/") and is_picture(name) and name.split("/")[1] in numbers
    ]
    annotated = [line.split("\t") for line in _lines(tree, "val/val_annotations.txt")]
    odd = next((line for line in annotated if len(line) < 2), None)
    if odd is not None:
        raise ScenarioError(
            f"{tree.place}: val/val_annotations.txt has the line {printable(odd[0], 80)!r}, which "
            "is not a file and a class with a tab between. Fetch or import it again."
        )
    test = sorted((f"val/images/{file}", numbers.get(wnid, -1)) for file, wnid, *_ in annotated)
    absent = next((name for name, number in test if name not in marks or number < 0), None)
    if absent or not train:
        raise ScenarioError(
            f"{tree.place} is not whole: "
            + (f"{absent} or its class is missing." if absent else "no images below train/.")
            + " Fetch or import it again."
        )
    read = partial(read_pictures, tree, marks=marks, size=size, colour=True)
    parts = [
        (read([name for name, _ in part]), np.array([number for _, number in part]))
        for part in (train, test)
    ]
    return Contents(*parts[0], *parts[1], _names(tree, list(numbers)))


read_tinyimagenet32 = partial(read_tinyimagenet, size=32)
read_tinyimagenet64 = partial(read_tinyimagenet, size=64)


def _names(tree: Tree, wnids: list[str]) -> tuple[str, ...]:
    """The first word for each class, with its WordNet id where two classes share it."""
    lines = (line.partition("\t") for line in _lines(tree, "words.txt"))
    words = {wnid: text.split(",")[0].strip() for wnid, _, text in lines}
    names = [words.get(wnid) or wnid for wnid in wnids]
    seen = Counter(names)
    return tuple(
        name if seen[name] == 1 else f"{name} ({wnid})"
        for name, wnid in zip(names, wnids, strict=True)
    )


def _lines(tree: Tree, name: str) -> list[str]:
    try:
        text = tree.read(name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{tree.place}: {name} is not text in UTF-8. Fetch or import it again."
        ) from error
    return [line for line in text.splitlines() if line.strip()]
