"""CIFAR-10 and CIFAR-100 as their publisher packs them: rows of 3,072 bytes in pickles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.data.formats.archives import Contents, Tree
from ancl.data.formats.pickles import read_pickle
from ancl.errors import ScenarioError


def read_cifar100(tree: Tree) -> Contents:
    """The fine labels of CIFAR-100."""
    train, test = _part(tree, "train", "fine_labels"), _part(tree, "test", "fine_labels")
    return Contents(*train, *test, _names(tree, "meta", "fine_label_names"))


def read_cifar100_16(tree: Tree) -> Contents:
    """CIFAR-100 at half its size: each pixel is the mean of 2x2 pixels."""
    whole = read_cifar100(tree)
    return whole._replace(train_x=halved(whole.train_x), test_x=halved(whole.test_x))


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (N, H, W, C) as means of 2x2 pixels, to the nearest grey level; halves are raised.

    >>> halved(np.array([[[[1], [2]], [[2], [1]]]], dtype=np.uint8)).tolist()
    [[[[2]]]]
    """
    sums = np.full_like(images[:, ::2, ::2], 2, dtype=np.uint16)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sums += images[:, row::2, column::2]
    return (sums // 4).astype(np.uint8)


def read_cifar10(tree: Tree) -> Contents:
    """CIFAR-10, whose training images are in five files."""
    parts = [_part(tree, f"data_batch_{number}", "labels") for number in range(1, 6)]
    train_x, train_y = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    test = _part(tree, "test_batch", "labels")
    return Contents(train_x, train_y, *test, _names(tree, "batches.meta", "label_names"))


def _part(tree: Tree, name: str, labels: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_pickle(tree.read(name), f"{tree.place}: {name}")
    rows, numbers = _entry(content, "data", name), _entry(content, labels, name)
    if not (isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.shape[1:] == (3072,)):
        raise ScenarioError(f"{tree.place}: {name} should hold rows of 3,072 bytes, and does not.")
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 100 for n in numbers):
        raise ScenarioError(f"{tree.place}: the labels of {name} are not a list of numbers.")
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.array(numbers, dtype=np.int64)


def _names(tree: Tree, name: str, key: str) -> tuple[str, ...]:
    names = _entry(read_pickle(tree.read(name), f"{tree.place}: {name}"), key, name)
    if not isinstance(names, list) or not all(isinstance(entry, str | bytes) for entry in names):
        raise ScenarioError(f"{tree.place}: the class names of {name} are not a list of text.")
    return tuple(n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names)


def _entry(content: dict[str, Any], key: str, name: str) -> Any:
    if key not in content:
        raise ScenarioError(
            f"{name} has no entry {key!r}, only {', '.join(content)}. It is not the file expected."
        )
    return content[key]
