"""Which images a learner has learned: what each is called, its hash, its class and its task."""

import hashlib
import os
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ancl.data import ImageView, Label, Split
from ancl.data.pictures import is_picture_like
from ancl.data.storage import Digests
from ancl.errors import ScenarioError, counted, one_line
from ancl.memory import Exemplars
from ancl.types import Params

TRAINED, VALIDATED, LEFT_OUT = 0, 1, 2
"""What was done with an image: trained on; validated on, and maybe held; or not used, since the
learner holds it to measure on."""
USES = ("train", "validate", "measure")
"""The same in words."""
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class LearnedImages:
    """All images that were given for a task, in the order they came.

    Args:
        ids: What each is called: its file, or its position.
        hashes: The sha256 of each one's pixels in the learner's form (N, 4).
        y: The position of its class (N,).
        use: ``TRAINED``, ``VALIDATED`` or ``LEFT_OUT`` (N,).
    """

    ids: tuple[str, ...]
    hashes: Digests
    y: Tensor
    use: Tensor

    def tensors(self) -> Params:
        """As named tensors, to be stored."""
        texts = [name.encode("utf-8", "surrogateescape") for name in self.ids]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return {
            "ids": torch.frombuffer(bytearray(b"".join(texts) + b"\n"), dtype=torch.uint8),
            "ends": torch.from_numpy(ends),
            "hashes": torch.from_numpy(self.hashes.view(np.int64).copy()),
            "y": self.y,
            "use": self.use,
        }

    @classmethod
    def of(cls, tensors: Params, classes: int) -> "LearnedImages":
        """From named tensors, checked: they may be forged.

        Raises:
            ValueError: They are not a list of images of this number of classes.
        """
        kinds = {"ids": torch.uint8, "ends": torch.long, "hashes": torch.long}
        kinds |= {"y": torch.long, "use": torch.uint8}
        if {name: tensor.dtype for name, tensor in tensors.items()} != kinds:
            raise ValueError("the list of learned images is not of the form of one")
        n, (text, ends) = len(tensors["y"]), (tensors["ids"], tensors["ends"])
        shapes = [tuple(tensors[name].shape) for name in ("ends", "hashes", "y", "use")]
        if not n or shapes != [(n,), (n, 4), (n,), (n,)] or text.dim() != 1:
            raise ValueError("the list of learned images has columns of several lengths")
        steps = torch.cat([ends[:1], ends.diff()])
        if bool((steps < 0).any()) or int(ends[-1]) != len(text) - 1:
            raise ValueError("the names of learned images do not fit each other")
        for name, most in (("y", classes), ("use", LEFT_OUT + 1)):
            if bool((tensors[name] < 0).any()) or bool((tensors[name] >= most).any()):
                raise ValueError(f"the list of learned images has a {name} that is not possible")
        raw, stops = text.numpy().tobytes(), ends.tolist()
        parts = (raw[start:end] for start, end in zip([0, *stops], stops, strict=False))
        ids = tuple(part.decode("utf-8", "surrogateescape") for part in parts)
        hashes = tensors["hashes"].numpy().view(np.uint64)
        return cls(ids, hashes, tensors["y"], tensors["use"])

    def rows(self) -> list[bytes]:
        """The sha256 of every image."""
        return hash_rows(self.hashes)

    def take(self, mask: Tensor) -> "LearnedImages":
        """Those where a mask is true."""
        places = mask.nonzero().squeeze(1).tolist()
        ids = tuple(self.ids[position] for position in places)
        return LearnedImages(ids, self.hashes[places], self.y[mask], self.use[mask])

    def renumbered(self, classes: Sequence[int]) -> "LearnedImages":
        """With another number for each class."""
        return replace(self, y=torch.tensor(classes)[self.y])


History = Sequence[LearnedImages | None]
"""The images of every task; none of a task that a run learned, whose images are not listed."""


class Forgotten(NamedTuple):
    """Which images were forgotten and must not come again: of each a salted hash, and no more.

    Who has an image can tell that it is one of them; from the hashes alone nothing is known.

    Args:
        groups: Salts, each with hashes of sha256(salt + sha256 of the pixels), as hexadecimal text.
    """

    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __len__(self) -> int:
        return sum(len(hashes) for _, hashes in self.groups)

    def mask(self, rows: Sequence[bytes]) -> list[bool]:
        """Of images by their hashes, whether each was forgotten."""
        forgotten = [False] * len(rows)
        for salt, hashes in self.groups:
            known = set(hashes)
            forgotten = [
                was or _salted(salt, row) in known for was, row in zip(forgotten, rows, strict=True)
            ]
        return forgotten

    def added(self, rows: Collection[bytes]) -> "Forgotten":
        """With these images."""
        rows = [row for row, there in zip(rows, self.mask([*rows]), strict=True) if not there]
        if not rows:
            return self
        salt, hashes = self.groups[0] if self.groups else (secrets.token_hex(16), ())
        # In the order of the hashes: in that of the images, it would tell something of them.
        mixed = tuple(sorted({*hashes, *(_salted(salt, row) for row in rows)}))
        return Forgotten(((salt, mixed), *self.groups[1:]))

    def without(self, rows: Collection[bytes]) -> "Forgotten":
        """Without these images, which may come again."""
        groups = []
        for salt, hashes in self.groups:
            out = {_salted(salt, row) for row in rows}
            groups.append((salt, tuple(text for text in hashes if text not in out)))
        return Forgotten(tuple((salt, hashes) for salt, hashes in groups if hashes))

    def joined(self, other: "Forgotten") -> "Forgotten":
        """All that one of both has."""
        groups = {salt: set(hashes) for salt, hashes in self.groups}
        for salt, hashes in other.groups:
            groups.setdefault(salt, set()).update(hashes)
        return Forgotten(tuple((salt, tuple(sorted(texts))) for salt, texts in groups.items()))


def _salted(salt: str, row: bytes) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + row).hexdigest()


def check_not_forgotten(rows: Sequence[bytes], ids: Sequence[str], forgotten: Forgotten) -> None:
    """Refuse images that were forgotten.

    Args:
        rows: Their hashes.
        ids: What they are called.
        forgotten: What must not come again.

    Raises:
        ScenarioError: Some were.
    """
    names = [name for name, was in zip(ids, forgotten.mask(rows), strict=True) if was]
    if names:
        raise ScenarioError(
            f"This learner was told to forget {counted(len(names), 'image')} of these, so nothing "
            f"was learned:\n"
            + _first_lines([*map(one_line, names)])
            + "\nTake them out. If they may be learned again: ancl forget LEARNER --images FILE "
            "--allow-again (learner.forget(images=…, allow_again=True))."
        )


class Arrival(NamedTuple):
    """Images that came to be learned.

    Args:
        x: The images, in the learner's form.
        labels: Their labels.
        ids: What they are called.
        used: The positions of those that are learned from: all but those held already (N,).
    """

    x: ImageView
    labels: Sequence[Label]
    ids: tuple[str, ...]
    used: Tensor

    def part(self) -> tuple[ImageView, list[Label]]:
        """The images that are learned from, and their labels."""
        return self.x.take(self.used), [self.labels[index] for index in self.used.tolist()]

    def learned(self, classes: Sequence[Label], split: Split) -> LearnedImages:
        """All of them, once they were split into those to train and to validate on."""
        hashes = self.x.digests()
        position = {label: number for number, label in enumerate(classes)}
        train, val = (set(pixel_hashes(part.x)) for part in (split.train, split.val))
        use = torch.full((len(self.ids),), LEFT_OUT, dtype=torch.uint8)
        rows = hash_rows(hashes)
        for index in self.used.tolist():  # of equal images some may be for each
            held = rows[index] in val and rows[index] not in train
            use[index] = VALIDATED if held else TRAINED
        y = torch.tensor([position[label] for label in self.labels])
        return LearnedImages(self.ids, hashes, y, use)


def arrival(
    x: ImageView,
    labels: Sequence[Label],
    ids: tuple[str, ...],
    history: History,
    classes: Sequence[Label],
    held: Exemplars | None,
) -> Arrival:
    """Images that came to be learned, those left out that a learner measures on.

    Args:
        x: The images, in the learner's form.
        labels: Their labels.
        ids: What they are called.
        history: All images learned before.
        classes: The classes known before.
        held: The images that are held.

    Raises:
        ScenarioError: One of them has two labels, or all are held.
    """
    rows = pixel_hashes(x)
    check_one_label(rows, labels, ids, history, classes)
    out = set(pixel_hashes(held.samples.x)) if held else set[bytes]()
    used = [index for index, row in enumerate(rows) if row not in out]
    if not used and len(x):
        raise ScenarioError(
            f"All {len(x)} images are held images of this learner: it measures on them, and never "
            f"trains on them. Give other images."
        )
    return Arrival(x, labels, ids, torch.tensor(used, dtype=torch.long))


def hash_rows(digests: Digests) -> list[bytes]:
    """The sha256 of every image, as bytes."""
    whole = digests.astype(">u8").tobytes()
    return [whole[start : start + 32] for start in range(0, len(whole), 32)]


def pixel_hashes(x: ImageView) -> list[bytes]:
    """The sha256 of the pixels of every image, as bytes."""
    return hash_rows(x.digests())


def known_hashes(history: History, *uses: int) -> set[bytes]:
    """The hashes of all images of these uses; of all if none is named."""
    return {
        row
        for images in history
        if images
        for row, use in zip(images.rows(), images.use.tolist(), strict=True)
        if not uses or use in uses
    }


def ids_of(history: History) -> dict[str, tuple[str, ...]]:
    """What images are called, by the hash of each."""
    ids: dict[str, dict[str, None]] = {}
    for images in history:
        for row, name in zip(images.rows(), images.ids, strict=True) if images else ():
            ids.setdefault(row.hex(), {})[name] = None
    return {text: tuple(names) for text, names in ids.items()}


def image_ids(data: Any, ids: Iterable[str] | None, count: int) -> tuple[str, ...]:
    """What images are called: as given, their files, or their positions.

    Raises:
        ScenarioError: There are more or fewer names than images.
    """
    names: list[str] | None = None
    if ids is not None:
        names = [ids] if isinstance(ids, str) else [str(name) for name in ids]
    elif isinstance(data, ImageView):
        names = data.names()
    elif is_picture_like(data):
        names = [_file_name(data, 0)]
    elif isinstance(data, list | tuple) and data and is_picture_like(data[0]):
        names = [_file_name(picture, index) for index, picture in enumerate(data)]
    if names is None:
        names = [str(index) for index in range(count)]
    if len(names) != count:
        raise ScenarioError(f"There are {count} images and {len(names)} ids. Give one id each.")
    return tuple(names)


def _file_name(picture: Any, index: int) -> str:
    if isinstance(picture, str | os.PathLike):
        return os.fspath(picture)
    return str(getattr(picture, "filename", "")) or str(index)


def _first_lines(lines: Sequence[str]) -> str:
    """The first few lines of a list, and how many there are more."""
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *more])


def check_one_label(
    hashes: Sequence[bytes],
    labels: Sequence[Label],
    ids: Sequence[str],
    history: History,
    classes: Sequence[Label],
) -> None:
    """Refuse an image that has two labels, here or in an earlier task; both places are named.

    Args:
        hashes: Of the images to be learned.
        labels: Their labels.
        ids: What they are called.
        history: All images learned before.
        classes: The labels of these, by position.

    Raises:
        ScenarioError: Some have two labels.
    """
    first: dict[bytes, tuple[Label, str]] = {}
    for number, images in enumerate(history, start=1):
        columns = zip(images.rows(), images.y.tolist(), images.ids, strict=True) if images else ()
        for row, y, name in columns:
            first.setdefault(row, (classes[y], f"{name}, learned in task {number}"))
    problems = []
    for row, label, name in zip(hashes, labels, ids, strict=True):
        other, earlier = first.setdefault(row, (label, name))
        if other != label:
            problems.append(f"{one_line(earlier)} is {other!r}, and {one_line(name)} is {label!r}")
    if problems:
        raise ScenarioError(
            "The same image has two labels:\n" + _first_lines(problems) + "\nRemove the "
            "image, or correct its label. If the earlier label was wrong, forget the image "
            "(ancl forget LEARNER --images FILE --allow-again), and learn it with the right one."
        )


def check_never_learned(
    hashes: Sequence[bytes],
    ids: Sequence[str],
    history: History,
    now: Mapping[bytes, str] | None = None,
) -> None:
    """Refuse test images that were learned, or are about to be: what they measure is no test.

    Args:
        hashes: Of the test images.
        ids: What they are called.
        history: All images learned before.
        now: The images to be learned now, by hash.

    Raises:
        ScenarioError: Some were.
    """
    learned: dict[bytes, str] = {row: f"{name}, to be learned" for row, name in (now or {}).items()}
    for number, images in enumerate(history, start=1):
        for row, name in zip(images.rows(), images.ids, strict=True) if images else ():
            learned.setdefault(row, f"{name}, learned in task {number}")
    both = [
        f"{one_line(name)} is {one_line(learned[row])}"
        for row, name in zip(hashes, ids, strict=True)
        if row in learned
    ]
    if both:
        raise ScenarioError(
            f"{len(both)} of {len(hashes)} test images are images that the learner learns from:\n"
            + _first_lines(both)
            + "\nTest with images that are never learned."
        )


def images_part(task: int) -> str:
    """The part that lists the images of a task."""
    return f"images of task {task + 1}"


def learned_history(
    tensors: Mapping[str, Params], tasks: int, classes: int
) -> tuple[LearnedImages | None, ...]:
    """The images of every task, from what is stored by part.

    Raises:
        ValueError: They are not lists of images of this number of classes.
    """
    parts = map(images_part, range(tasks))
    return tuple(
        LearnedImages.of(tensors[part], classes) if part in tensors else None for part in parts
    )
