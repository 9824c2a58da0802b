"""A sequence of tasks cut from a source, each with the key of exactly what decides its images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ancl.data.arrival import Arrival, Arrived
from ancl.data.class_split import class_order, task_sizes
from ancl.data.domains import Domain
from ancl.data.domains import domains as make_domains
from ancl.data.image_draw import HashDraw, ImageDraw
from ancl.data.repetition import ClassVisit, check_repetition, class_visits, returning_classes
from ancl.data.samples import Label, Samples, canonical, fingerprint
from ancl.data.source import Source
from ancl.errors import ScenarioError, unknown

SCENARIOS = ("til", "cil", "dil", "cir")
Visit = ClassVisit | Arrived
"""Which images of a class come with a task."""


@dataclass(frozen=True, eq=False)
class Split:
    """A task's images; labels are global positions, along the order of the stream."""

    train: Samples
    val: Samples
    test: Samples


@dataclass(frozen=True, eq=False)
class Task:
    """One task of a stream, described without loading it.

    Args:
        index: Its place in the stream, from 0.
        classes: The global positions of the classes that it is the first to bring; in ``dil`` of
            all classes. It is empty where known classes come again alone.
        names: The user's label of each.
        key: Hash of what decides its training and validation images and their labels.
        test_key: The same for its test images, which no seed, fraction or limit changes.
        sizes: How many images it trains on, validates on and is tested on.
        counts: How many images of each of the ``present`` classes it trains on.
        load: Makes the images.
        present: The global positions of all classes whose images it brings, ascending.
    """

    index: int
    classes: slice
    names: tuple[Label, ...]
    key: str
    test_key: str
    sizes: tuple[int, int, int]
    counts: tuple[int, ...]
    load: Callable[[], Split]
    present: tuple[int, ...]

    @property
    def returning(self) -> tuple[int, ...]:
        """The classes that it brings and that an earlier task brought first."""
        return tuple(position for position in self.present if position < self.classes.start)

    @property
    def is_column(self) -> bool:
        """Whether an accuracy matrix has a column for it: it has classes to be tested on."""
        return bool(self.classes.stop > self.classes.start)


@dataclass(frozen=True, eq=False)
class Stream:
    """Tasks in the order in which they are learned; ``order`` holds the source's class numbers."""

    scenario: str
    source: Source
    order: tuple[int, ...]
    tasks: tuple[Task, ...]
    seed: int


def make_stream(
    source: Source,
    *,
    scenario: str = "til",
    tasks: int | None = None,
    classes: str | Sequence[int] | None = None,
    first: int | None = None,
    order: str | Sequence[int] = "natural",
    domains: str | None = None,
    seed: int = 0,
    val_fraction: float = 0.1,
    per_class: int | None = None,
    test_per_class: int | None = None,
    returning: float | None = None,
    per_coming: int | None = None,
    arrival: Arrival | None = None,
    imbalance: float = 1.0,
    noise: float = 0.0,
) -> Stream:
    """The classes of a source, in an order, cut into tasks; or all of them in every domain.

    In ``cir`` tasks are cut as in ``cil``, and known classes come again: see
    ``returning_classes`` for which, and ``ClassVisit`` for which of their images. Validation images
    of a class are the same whenever it comes.

    Args:
        source: Where the images come from.
        scenario: ``til`` (the task is known at test time), ``cil`` (it is not), ``dil`` (every
            task has all classes, each time in another domain), or ``cir`` (as ``cil``, and known
            classes come again).
        tasks: The number of tasks; see ``task_sizes`` for this and the next two.
        classes: The number of classes of each task instead.
        first: The size of the first task.
        order: The order of the classes; see ``class_order``. Some of them make a shorter stream.
        domains: What changes from task to task in ``dil``; see ``domains``.
        seed: Decides which images are for validation and which are kept under ``per_class``.
        val_fraction: The part of each class's training images to validate on, at least 1 image.
        per_class: How many training images of each class to keep at most.
        test_per_class: The same for test images, which no seed chooses.
        returning: In ``cir``, the share of known classes that come again in a task.
        per_coming: In ``cir``, how many training images of a class one task brings; if left out,
            the tasks in which it comes share its images equally.
        arrival: In ``cir``, when images come in place of these two: then the order of the classes
            is that in which they come, and a task is the part between two evaluations.
        imbalance: How many times as many training images the largest class has as the smallest;
            those of others lie between, by equal factors. The seed decides which class is which.
        noise: The share of each class's training labels that are replaced by those of other classes
            of the task. Labels to validate and test on stay right.
    """
    if scenario not in SCENARIOS:
        raise ScenarioError(unknown("scenario", scenario, SCENARIOS))
    ids = class_order(order, len(source.classes))
    check_repetition(scenario, returning, per_coming)
    seen = task_domains(scenario, domains, tasks=tasks, classes=classes, first=first)
    again = scenario == "cir"
    sizes = (
        (len(ids),) * len(seen)
        if seen
        else task_sizes(len(ids), tasks=tasks, classes=classes, first=first, again=again)
    )
    enough_classes(scenario, sizes)
    draw = ImageDraw(seed, val_fraction, per_class, imbalance, noise, ids)
    if arrival:
        ids, sizes, shown = _arriving(source, ids, sizes, draw, arrival)
        enough_classes(scenario, sizes)
    else:
        shown = _shown(sizes, returning, per_coming, seed) if again else []
    test, prints = source.test, (source.fingerprint, source.fingerprint)
    if test_per_class is not None:
        test = _first_of_each(test, test_per_class)
        prints = (source.fingerprint, f"{source.fingerprint} {test_per_class}")
    built, offset = [], 0
    for index, size in enumerate(sizes):
        domain = seen[index] if seen else None
        class_ids = ids[offset : offset + size]
        inside = _TaskSlice(source.train, test, class_ids, offset, domain)
        if shown:
            known = tuple((position, ids[position]) for position in shown[index][0])
            inside = replace(inside, known=known, visits=shown[index][1])
        built.append(_task(index, inside, source.classes, draw, prints))
        offset += 0 if seen else size
    return Stream(scenario, source, ids, tuple(built), seed)


Shown = list[tuple[tuple[int, ...], tuple[Visit, ...]]]
"""The known classes that come again, task by task, and the visit of each present class."""


def _arriving(
    source: Source, ids: tuple[int, ...], sizes: tuple[int, ...], draw: ImageDraw, arrival: Arrival
) -> tuple[tuple[int, ...], tuple[int, ...], Shown]:
    """Classes in the order in which they come, the number of new ones of each part, and visits."""
    tasks, start = list[dict[int, int]](), 0
    for size in sizes:
        new_ids = ids[start : start + size]
        counts = [len(source.train.of_class(class_id)) for class_id in new_ids]
        named = zip(new_ids, counts, strict=True)
        tasks.append(
            {
                class_id: draw.sizes(n, source.classes[class_id], class_id)[0]
                for class_id, n in named
            }
        )
        start += size
    positions: dict[int, int] = {}
    new: list[int] = []
    shown: Shown = []
    for part in arrival.cut(tasks, draw.seed):
        known = sorted(positions[class_id] for class_id in part.images if class_id in positions)
        came = [class_id for class_id in part.images if class_id not in positions]
        positions |= {class_id: len(positions) + number for number, class_id in enumerate(came)}
        order = tuple(positions)
        visits = (
            part.images[order[position]]
            for position in (*known, *(positions[class_id] for class_id in came))
        )
        new.append(len(came))
        shown.append((tuple(known), tuple(visits)))
    return tuple(positions), tuple(new), shown


def _shown(
    sizes: tuple[int, ...], returning: float | None, per_coming: int | None, seed: int
) -> Shown:
    """The known classes that come again, task by task, and the coming of each present class."""
    again, offset, present = returning_classes(sizes, returning, seed), 0, []
    for known, size in zip(again, sizes, strict=True):
        present.append((*known, *range(offset, offset + size)))
        offset += size
    visits = class_visits(present, per_coming, seed)
    return [(known, tuple(new)) for known, new in zip(again, visits, strict=True)]


def task_domains(
    scenario: str,
    domains: str | None,
    *,
    tasks: int | None,
    classes: str | Sequence[int] | None,
    first: int | None,
) -> tuple[Domain, ...]:
    """One domain per task in the scenario ``dil``, none in the others."""
    if scenario != "dil":
        if domains is not None:
            raise ScenarioError(
                f"domains={domains} is for the scenario dil, and this is {scenario}. Use "
                "--scenario dil, or leave the domains out."
            )
        return ()
    if classes is not None or first is not None:
        raise ScenarioError(
            "In the scenario dil every task has all classes: leave out --classes and --first, and "
            "give --tasks."
        )
    return make_domains(domains, tasks)


def task_from(
    train: Samples,
    *,
    index: int,
    classes: slice,
    names: tuple[Label, ...],
    seed: int,
    val_fraction: float,
    test: Samples | None,
    known: tuple[Label, ...] = (),
    by_hash: bool = False,
) -> Task:
    """A task from images given by hand, whose labels are global positions already.

    Args:
        train: Its images.
        index: Its place in the stream, from 0.
        classes: The positions of the classes that it is the first to bring, maybe none.
        names: The label of each.
        seed: Decides which images are for validation.
        val_fraction: The part of each class's images to validate on.
        test: Test images of its ``classes``.
        known: The labels of all classes before it; images of these may come again.
        by_hash: Whether an image's hash alone decides if it is for validation.
    """
    train = canonical(train)
    test = train.take(torch.empty(0, dtype=torch.int64)) if test is None else canonical(test)
    least = 0 if known else classes.start
    for part, samples, start in (("training", train, least), ("test", test, classes.start)):
        outside = samples.y[(samples.y < start) | (samples.y >= classes.stop)]
        if len(outside):
            raise ScenarioError(
                f"A {part} label of task {index + 1} is {int(outside[0])}, and its classes are "
                f"{start} to {classes.stop - 1}. Remove those images."
            )
    again = tuple(
        (position, position)
        for position in sorted(set(train.y.tolist()))
        if position < classes.start
    )
    ids = tuple(range(classes.start, classes.stop))
    inside = _TaskSlice(train, test, ids, classes.start, known=again)
    prints = (fingerprint(train), fingerprint(test))
    labels = dict(enumerate(known)) | dict(zip(ids, names, strict=True))
    draw = HashDraw(seed, val_fraction) if by_hash else ImageDraw(seed, val_fraction)
    return _task(index, inside, labels, draw, prints)


@dataclass(frozen=True, eq=False)
class _TaskSlice:
    """Where a task's images are: the classes ``ids`` become the positions from ``offset`` on.

    ``domain`` is how they are seen. ``known`` are the positions and numbers of known classes that
    come again, and ``visits`` which images of each of them and then of the new ones, if not all.
    """

    train: Samples
    test: Samples
    ids: tuple[int, ...]
    offset: int
    domain: Domain | None = None
    known: tuple[tuple[int, int], ...] = ()
    visits: tuple[Visit, ...] = ()

    @property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """The position and number of every class whose images it brings."""
        return (*self.known, *enumerate(self.ids, start=self.offset))

    def key(self) -> list[object]:
        """What it puts into a task's keys; without a domain, nothing of one."""
        seen = [] if self.domain is None else [[self.domain.kind, self.domain.value]]
        return [list(self.ids), self.offset, *seen]

    def again(self) -> list[object]:
        """What repetition puts into the key of training images; without it, nothing."""
        if not self.known and not self.visits:
            return []
        return [["again", self.known, [visit.key() for visit in self.visits]]]

    def taken(self, place: int, images: Tensor, class_id: int) -> Tensor:
        """Those of a class's training images that come with the task."""
        return self.visits[place].taken(images, class_id) if self.visits else images

    def labels(self, draw: ImageDraw, place: int, n: int) -> Tensor:
        """The labels of the n images of a class, some of them wrong where there is noise."""
        position, class_id = self.classes[place]
        visit = self.visits[place].key() if self.visits else ""
        present = [label for label, _ in self.classes]
        return draw.labels(position, present, n, f"{class_id} {visit} {self.domain}")

    def label_counts(self, draw: ImageDraw, sizes: Sequence[int]) -> list[int]:
        """How many training images have the label of each class, of those that each brings."""
        if not draw.noise:
            return list(sizes)
        labels = torch.cat([self.labels(draw, number, n) for number, n in enumerate(sizes)])
        counts = labels.bincount()
        return [int(counts[position]) for position, _ in self.classes]

    def seen(self, samples: Samples) -> Samples:
        """Samples as seen in the domain."""
        if self.domain is None:
            return samples
        return Samples(samples.x.changed(self.domain), samples.y)


def _task(
    index: int,
    inside: _TaskSlice,
    labels: Sequence[Label] | Mapping[int, Label],
    draw: ImageDraw,
    prints: tuple[str, str],
) -> Task:
    """A task without its images.

    Args:
        index: Its place in the stream.
        inside: Where its images are.
        labels: The label of each class number.
        draw: How images of a class are split.
        prints: The fingerprints of training and test data.
    """
    present, sizes = inside.classes, list[tuple[int, int]]()
    for number, (_, class_id) in enumerate(present):
        train_count, held = draw.counts(inside.train, class_id, labels[class_id])
        if inside.visits:
            train_count = inside.visits[number].count(train_count, labels[class_id])
        sizes.append((train_count, held))
    train, val = (sum(part[column] for part in sizes) for column in (0, 1))
    test = sum(len(inside.test.of_class(class_id)) for class_id in inside.ids)
    place_key = inside.key()
    return Task(
        index=index,
        classes=slice(inside.offset, inside.offset + len(inside.ids)),
        names=tuple(labels[class_id] for class_id in inside.ids),
        key=_hash("train", prints[0], place_key, draw.key(), *inside.again()),
        test_key=_hash("test", prints[1], place_key),
        sizes=(train, val, test),
        counts=tuple(inside.label_counts(draw, [part[0] for part in sizes])),
        load=partial(_load, inside, draw),
        present=tuple(position for position, _ in present),
    )


def _load(inside: _TaskSlice, draw: ImageDraw) -> Split:
    """The images, class by class in the order of the stream and canonical within a class."""
    train, val = [], []
    for number, (position, class_id) in enumerate(inside.classes):
        rest, held = draw.divided(inside.train, class_id)
        taken = inside.taken(number, rest, class_id)
        images_of_class = _taken(inside.train, taken, position)
        if draw.noise:
            noisy = inside.labels(draw, number, len(taken))
            images_of_class = Samples(images_of_class.x, noisy)
        train.append(images_of_class)
        val.append(_taken(inside.train, held, position))
    test = [_taken(inside.test, inside.test.y[:0], 0)] + [
        _taken(inside.test, inside.test.of_class(class_id), position)
        for position, class_id in enumerate(inside.ids, start=inside.offset)
    ]
    return Split(*(inside.seen(Samples.concatenate(parts)) for parts in (train, val, test)))


def _taken(samples: Samples, index: Tensor, position: int) -> Samples:
    """The images at an index, as images of the class at a position of the stream."""
    return Samples(samples.x.take(index), torch.full((len(index),), position))


def _first_of_each(samples: Samples, count: int) -> Samples:
    """The first images of every class, in canonical order: by hash, so as good as any."""
    classes = sorted(set(samples.y.tolist()))
    return samples.take(torch.cat([samples.of_class(c)[:count] for c in classes]))


def enough_classes(scenario: str, sizes: tuple[int, ...]) -> None:
    """Refuse a task of one class, except where it is told from the classes before it (CIL)."""
    lone = [index for index, size in enumerate(sizes) if size == 1]
    if scenario not in ("cil", "cir") and lone:
        raise ScenarioError(
            f"Task {lone[0] + 1} has 1 class, and within a task there is no other to tell it from. "
            "Give each task at least 2 classes"
            + (", or use the scenario cil." if scenario == "til" else ".")
        )
    if lone and lone[0] == 0:
        raise ScenarioError(
            "The first task has 1 class, and there is no other to tell it from. Give it at "
            "least 2 classes: in a folder one folder each, in a run --classes 2,…"
        )


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
