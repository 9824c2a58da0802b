"""Data sets in an order that depends on the images alone.

The images of a class are sorted by their hash, so that the same images in any order, from files,
arrays or a ``Dataset``, give the same source bit for bit, and with it the same results.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ancl.data.convert import Images, Labels, as_labels, as_view, read_dataset
from ancl.data.resizing import resized
from ancl.data.samples import Label, Normalization, Samples, divide, hash_parts, ordered
from ancl.data.storage import Digests, ImageView
from ancl.errors import ScenarioError, SpecError, printable
from ancl.picture import PictureRule
from ancl.seeding import generator


@dataclass(frozen=True, eq=False)
class Source:
    """All images of a data set in canonical order; ``y`` counts along ``classes``.

    ``notes`` are lines a user should read, such as that images are missing.
    """

    name: str
    train: Samples
    test: Samples
    classes: tuple[Label, ...]
    normalization: Normalization | None
    fingerprint: str
    notes: tuple[str, ...] = ()


def make_source(
    name: str,
    train_x: Images,
    train_y: Labels,
    test_x: Images | None = None,
    test_y: Labels | None = None,
    *,
    classes: Sequence[Label] | None = None,
    normalization: Normalization | None = None,
    test_fraction: float = 0.2,
) -> Source:
    """A source from images and labels, checked and put in canonical order.

    Args:
        name: What reports call it; results do not depend on it.
        train_x: uint8 images (N, H, W, C) or (N, H, W), or floats as a network reads them. Bytes
            that are memory-mapped stay in their file.
        train_y: One int or string for each image.
        test_x: Test images; without them a fixed part of each class is cut off for the test.
        test_y: Their labels.
        classes: The labels in the order that numbers them, ascending if left out. Strings for
            labels that are ints name the classes 0, 1, ….
        normalization: Of uint8 images; the training images' own moments if left out.
        test_fraction: The part of each class that is cut off where there is no test set.
    """
    if (test_x is None) != (test_y is None):
        raise ScenarioError("Test images and test labels come together: give both or neither.")
    x, labels = as_view(train_x), _paired(train_x, train_y, "training")
    table, names = _numbering(labels, classes)
    train, digests = ordered(Samples(x, _numbers(labels, table, "training")))
    _all_present(train, names, "training")
    if test_x is None or test_y is None:
        rest, held = _cut(train, names, test_fraction)
        parts = [
            (train.take(rest), digests[rest.numpy()]),
            (train.take(held), digests[held.numpy()]),
        ]
    else:
        test = Samples(as_view(test_x), _numbers(_paired(test_x, test_y, "test"), table, "test"))
        _same_form(train, test)
        _all_present(test, names, "test")
        parts = [(train, digests), ordered(test)]
    moments = channel_statistics(parts[0][0].x, normalization)
    notes = _leak(parts[0][1], parts[1][1])
    return Source(name, parts[0][0], parts[1][0], names, moments, hash_parts(parts), notes)


def resized_source(source: Source, size: int | None, rule: PictureRule) -> Source:
    """The same images at this height and width, in the same order; see ``resizing``.

    Raises:
        ScenarioError: They are not bytes.
    """
    parts = (source.train, source.test)
    train, test = (Samples(resized(part.x, size, rule), part.y) for part in parts)
    if train.x is source.train.x:
        return source
    how = "" if rule.resize == "stretch" else f" {rule.resize} {rule.background}"
    text = f"{source.fingerprint} {rule.filter.upper()} {size}{how}"
    mark = hashlib.sha256(text.encode()).hexdigest()
    return replace(source, train=train, test=test, fingerprint=mark)


def _leak(train: Digests, test: Digests) -> tuple[str, ...]:
    """A note on test images that are training images too, by the hash of their pixels."""
    known = set(map(bytes, train))
    count = sum(bytes(row) in known for row in test)
    if not count:
        return ()
    return (
        f"{count:,} of {len(test):,} test images are training images too, pixel by pixel: the "
        f"accuracy on them says nothing. In images of your own, remove them from one of the two.",
    )


def from_arrays(
    train_x: Images,
    train_y: Labels,
    test_x: Images | None = None,
    test_y: Labels | None = None,
    *,
    name: str = "arrays",
    classes: Sequence[Label] | None = None,
    normalization: Normalization | None = None,
    test_fraction: float = 0.2,
) -> Source:
    """A source from NumPy arrays or tensors; see ``make_source`` for what they may hold."""
    return make_source(
        name,
        train_x,
        train_y,
        test_x,
        test_y,
        classes=classes,
        normalization=normalization,
        test_fraction=test_fraction,
    )


def from_dataset(
    train: Dataset[Any], test: Dataset[Any] | None = None, name: str = "dataset"
) -> Source:
    """A source from map-style datasets of (image, label), each read once into memory.

    An image is a PIL image, an array, or a tensor; uint8 tensors may have their channels first.
    """
    x, y = read_dataset(train)
    if test is None:
        return make_source(name, x, y)
    return make_source(name, x, y, *read_dataset(test))


def _paired(x: Images, y: Labels, part: str) -> list[Label]:
    labels = as_labels(y)
    if len(x) != len(labels):
        raise ScenarioError(
            f"{len(x)} {part} images came with {len(labels)} labels. Give one label for each image."
        )
    return labels


def _numbering(
    labels: list[Label], classes: Sequence[Label] | None
) -> tuple[dict[Label, int], tuple[Label, ...]]:
    """The number of each label, and what each number is called."""
    names = tuple(sorted(set(labels), key=_rank) if classes is None else as_labels(classes))
    if len(names) < 2:
        raise ScenarioError(
            f"There is nothing to learn: {len(names)} class ({listed(names)}). "
            "Give images of at least 2 classes."
        )
    if len(set(names)) < len(names):
        twice = [name for name in names if names.count(name) > 1]
        raise ScenarioError(f"classes names {twice[0]!r} more than once. Give each class once.")
    named = isinstance(labels[0], int) and all(isinstance(name, str) for name in names)
    keys: Iterable[Label] = range(len(names)) if named else names
    return {key: number for number, key in enumerate(keys)}, names


def _rank(label: Label) -> tuple[int, str]:
    return (label, "") if isinstance(label, int) else (0, label)


def _numbers(labels: list[Label], table: dict[Label, int], part: str) -> Tensor:
    extra = sorted(set(labels) - table.keys(), key=_rank) if _alike(labels, table) else labels[:1]
    if extra:
        raise ScenarioError(
            f"The {part} labels include {listed(extra)}, which is not among the classes: "
            f"{listed(table)}. Remove those images, or add the class to the training images."
        )
    return torch.tensor([table[label] for label in labels])


def _alike(labels: list[Label], table: dict[Label, int]) -> bool:
    return isinstance(labels[0], int) == isinstance(next(iter(table)), int)


def _all_present(samples: Samples, names: tuple[Label, ...], part: str) -> None:
    counts = samples.y.bincount(minlength=len(names)).tolist()
    absent = [name for name, count in zip(names, counts, strict=True) if count == 0]
    if absent:
        raise ScenarioError(
            f"There are no {part} images of {listed(absent)}. Give some for each class, or leave "
            + ("these classes out." if part == "training" else "the test set out to have one cut.")
        )


def _cut(train: Samples, names: tuple[Label, ...], fraction: float) -> tuple[Tensor, Tensor]:
    """Training and test positions: a fixed random part of every class is for the test."""
    if not 0 < fraction < 1:
        raise ScenarioError(f"test_fraction is {fraction}. It must be above 0 and below 1.")
    rest, held = [], []
    for number, name in enumerate(names):
        here = train.of_class(number)
        size = max(1, round(fraction * len(here)))
        if size >= len(here):
            raise ScenarioError(
                f"Class {name!r} has {len(here)} images, too few to cut off {size} for the test. "
                "Give more images, a smaller test_fraction, or a test set."
            )
        inner, outer = divide(len(here), size, generator(0, "test", number))
        rest.append(here[inner])
        held.append(here[outer])
    return torch.cat(rest), torch.cat(held)


def _same_form(train: Samples, test: Samples) -> None:
    forms = [f"{part.x.shape[1:]} {part.x.dtype}" for part in (train, test)]
    if forms[0] != forms[1]:
        raise ScenarioError(
            f"Training images are {forms[0]} and test images {forms[1]}. "
            "Give both in the same shape and type."
        )


def channel_statistics(x: ImageView, given: Normalization | None = None) -> Normalization | None:
    """The given normalization if it fits, else each channel's mean and std to four decimals."""
    if x.dtype != torch.uint8:
        if given is not None:
            raise ScenarioError(
                "normalization is for uint8 images; floats are used as they are. "
                "Normalize the floats yourself, or give uint8 images."
            )
        return None
    if given is None:
        channels = [_channel_moments(counts) for counts in _value_counts(x)]
        return Normalization(tuple(m for m, _ in channels), tuple(s for _, s in channels))
    if len(given.mean) != x.shape[3] or len(given.std) != x.shape[3] or min(given.std) <= 0:
        raise ScenarioError(
            f"normalization has {len(given.mean)} means and {len(given.std)} stds for images of "
            f"{x.shape[3]} channels. Give one mean and one std above 0 for each channel."
        )
    return given


def check_normalization(setting: str | Sequence[float] | None) -> tuple[float, ...]:
    """The numbers of a setting ``normalization``; none of ``moments`` and ``none``.

    >>> check_normalization("0.5,0.25"), check_normalization("moments")
    ((0.5, 0.25), ())

    Raises:
        SpecError: It is none of what is possible.
    """
    if setting is None or setting in ("moments", "none"):
        return ()
    try:
        parts = setting.split(",") if isinstance(setting, str) else setting
        numbers = tuple(map(float, parts))
        half = len(numbers) // 2
        good = len(numbers) == 2 * half > 0 and all(map(math.isfinite, numbers))
    except (ValueError, TypeError, OverflowError):
        good = False
    if not good or min(numbers[half:]) <= 0:
        raise SpecError(
            f"normalization is {printable(repr(setting), 80)}. Possible: moments, none, or numbers "
            f"such as 0.5,0.25: a mean and a std above 0, or every channel's mean, then every std."
        )
    return numbers


def chosen_normalization(
    setting: str | Sequence[float] | None, x: ImageView, usual: Normalization | None
) -> Normalization | None:
    """What a setting makes of the normalization that images have by themselves.

    Args:
        setting: See ``check_normalization``; where there is none, the usual one is taken.
        x: The images to learn from.
        usual: What they have without a setting; none for floats.

    Raises:
        SpecError: It is none of what is possible, or has not two numbers for each channel.
    """
    numbers, floats = check_normalization(setting), x.dtype != torch.uint8
    if setting is None:
        return usual
    channels = x.shape[1 if floats else 3]
    if setting == "none":
        return None if floats else Normalization((0.0,) * channels, (1.0,) * channels)
    if setting == "moments":
        return _float_moments(x.dense()) if floats else channel_statistics(x)
    if len(numbers) == 2:
        numbers = (numbers[0],) * channels + (numbers[1],) * channels
    if len(numbers) != 2 * channels:
        raise SpecError(
            f"normalization has {len(numbers)} numbers, and the images have {channels} channels. "
            f"Give 2 for all channels, mean,std, or {2 * channels}: every mean, then every std."
        )
    return Normalization(numbers[:channels], numbers[channels:], floats)


def _float_moments(x: Tensor) -> Normalization:
    """Mean and std of every channel of floats; a channel that is constant is not divided."""
    flat = x.double().transpose(0, 1).flatten(1)
    mean, std = flat.mean(1), flat.std(1, correction=0)
    std = torch.where(std > 0, std, 1.0)
    digits = [tuple(float(f"{v:.6g}") for v in moment.tolist()) for moment in (mean, std)]
    return Normalization(digits[0], digits[1], floats=True)


def raw_floats(x: ImageView, setting: str | Sequence[float] | None) -> tuple[str, ...]:
    """A note on images that are floats from 0 to 1, which nothing normalises by itself."""
    if setting is not None or x.dtype == torch.uint8 or x.ndim != 4:
        return ()
    low, high = value_range(x)
    if low < 0 or high > 1:
        return ()
    return (
        f"The images are floats from {low:g} to {high:g} and are read as they are; bytes (uint8) "
        f"would be normalised. To normalise them: normalization=moments (a run: --set "
        f"data.normalization=moments). normalization=none says that it is meant so.",
    )


def value_range(x: ImageView) -> tuple[float, float]:
    """The smallest and the largest value."""
    ends = [part.aminmax() for part in x.chunks()]
    return float(min(low for low, _ in ends)), float(max(high for _, high in ends))


def _value_counts(x: ImageView) -> list[Tensor]:
    """How often each channel of uint8 images has each of the 256 values."""
    counts = [torch.zeros(256, dtype=torch.int64) for _ in range(x.shape[3])]
    for part in x.chunks():
        for channel, count in enumerate(counts):
            count += part[..., channel].flatten().bincount(minlength=256)
    return counts


def _channel_moments(counted: Tensor) -> tuple[float, float]:
    """Mean and std through the counts of the 256 values: exact, and no copy of it in floats."""
    counts = counted.double()
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = (counts * values).sum() / counts.sum()
    variance = (counts * (values - mean) ** 2).sum() / counts.sum()
    return round(mean.item(), 4), max(round(variance.sqrt().item(), 4), 1e-3)


def listed(names: Iterable[Label]) -> str:
    """Up to ten names, and how many more there are."""
    every = [repr(name) for name in names]
    more = f" and {len(every) - 10} more" if len(every) > 10 else ""
    return ", ".join(every[:10]) + more
