"""How images are learned from; which images a run learns, in which tasks, and their names."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from ancl.checks import Text
from ancl.data import Augment, class_order, task_domains, task_sizes
from ancl.data.arrival import Arrival, check_arrival, check_windows
from ancl.data.registry import known_source, names_code
from ancl.data.repetition import check_repetition
from ancl.data.resizing import MOST_PIXELS
from ancl.errors import printable
from ancl.hashing import LATER
from ancl.picture import PLAIN, Filter, PictureRule, Resize, plain_rule, read_colour
from ancl.runtime import MOST_AT_ONCE

Scenario = Literal["til", "cil", "dil", "cir"]


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """How the images of a task are learned from, whoever gives them.

    Args:
        scenario: ``til``: the task is known at test time. ``cil``: it is not. ``dil``: new domains.
            ``cir``: as cil, and known classes come again.
        val_fraction: Share of each class's training images kept for validation.
        augment: Augmentation of training images: none, flip, crop, facil, resized, or
            path/file.py:NAME.
        normalization: A mean that is subtracted from images, and a deviation that they are divided
            by: moments (each channel's own), none, or numbers such as 0.5,0.25 (mean,std; or every
            channel's mean, then every std). If left out, bytes have moments, or what pretrained
            weights expect, and floats are read as they are.
        size: Height and width to which all images are resized first, as bytes. If left out, images
            keep their size, or have that of folder:PATH@32.
        resize: How images are resized: stretch, crop (what is too long is cut off) or fit (filled
            up with the background); the last two keep proportions.
        filter: How pixels are interpolated when images are resized; if left out, bicubic with
            data.size, else bilinear.
        background: The colour that transparent pixels are laid on, such as white or #808080.
    """

    scenario: Scenario = "cil"
    val_fraction: Annotated[float, Ge(0), Lt(1)] = 0.1
    augment: Augment = "none"
    normalization: Annotated[str | tuple[float, ...] | None, LATER] = None
    size: Annotated[Annotated[int, Ge(1), Le(MOST_PIXELS)] | None, LATER] = None
    resize: Annotated[Resize, LATER] = PLAIN.resize
    filter: Annotated[Filter | None, LATER] = None
    background: Annotated[str, Text("colour", read_colour), LATER] = PLAIN.background

    @property
    def pictures(self) -> PictureRule:
        """How images of any form become images of one form."""
        chosen = self.filter or plain_rule(self.size).filter
        return PictureRule(self.resize, chosen, self.background)


@dataclass(frozen=True, kw_only=True)
class DataSpec(TaskSpec):
    """Which images, and how they become tasks.

    Args:
        source: Where the images come from: a name of ``ancl list data``, folder:PATH@32,
            arrays:FILE.npz, or path/file.py:NAME for a function that returns them.
        tasks: The number of equal tasks.
        classes: Or the number of classes of each task, such as 50,10x5.
        first: The number of classes of the first task, if it is larger.
        order: Order of classes: natural, icarl, tinyimagenet, seed:N, or a list.
        domains: What changes in ``dil``: rotation, permutation, corruption, or rotation:0,30,60.
        per_class: Largest number of training images per class.
        test_per_class: Largest number of test images per class.
        returning: In ``cir``, the share of known classes that come again in a task; 0.5 if left
            out.
        per_coming: In ``cir``, how many training images of a class one task brings; if left out,
            the tasks in which the class comes share its images equally.
        workers: Number of processes that decode images which stay in their files
            (imagenet-folder); 0 decodes in the process that trains; one for each CPU if left out.
            It changes no result.
        short_side: Pixels to which the shorter side of an image file is resized before its middle
            is cut out (imagenet-folder): in the evaluation, and in a training without
            data.augment=resized. If left out, 256 for images of 224 pixels, and in proportion for
            others.
        every: In ``cir``, makes the stream come once, in batches: the number of batches between
            two evaluations. The old and the auxiliary network are renewed as often, unless
            data.old_every and data.window say otherwise.
        window: With ``every``, the number of batches that are buffered: the auxiliary network
            learns them first, then the main one. It must divide ``every``, and is equal to it if
            left out.
        old_every: With ``every``, the number of batches after which the old network becomes a new
            copy of the main one. It must divide ``every`` or be a multiple of it, and is equal to
            it if left out.
        blurry: In ``cir``, the share of each class's images that come in other tasks than its own.
        gradual: In ``cir``, how gradually a task passes into the next: the deviation of the time at
            which an image comes, in tasks.
        imbalance: The number of training images of the largest class, divided by that of the
            smallest; the others lie between them, by equal factors.
        noise: Share of each class's training labels that are replaced by those of other classes of
            the task.
    """

    source: str = field(default="digits", kw_only=False)
    scenario: Scenario = "til"
    tasks: Annotated[int, Ge(1)] | None = None
    classes: str | tuple[int, ...] | None = None
    first: Annotated[int, Ge(1)] | None = None
    order: str | tuple[int, ...] = "natural"
    domains: str | None = None
    per_class: Annotated[int, Ge(1)] | None = None
    test_per_class: Annotated[int, Ge(1)] | None = None
    augment: str = "none"
    returning: Annotated[Annotated[float, Gt(0), Le(1)] | None, LATER] = None
    per_coming: Annotated[Annotated[int, Ge(1)] | None, LATER] = None
    workers: Annotated[Annotated[int, Ge(0), Le(MOST_AT_ONCE)] | None, LATER] = None
    short_side: Annotated[Annotated[int, Ge(1), Le(2 * MOST_PIXELS)] | None, LATER] = None
    every: Annotated[Annotated[int, Ge(1)] | None, LATER] = None
    blurry: Annotated[Annotated[float, Ge(0), Lt(1)], LATER] = 0.0
    gradual: Annotated[Annotated[float, Ge(0)], LATER] = 0.0
    imbalance: Annotated[Annotated[float, Ge(1)], LATER] = 1.0
    noise: Annotated[Annotated[float, Ge(0), Lt(1)], LATER] = 0.0
    window: Annotated[Annotated[int, Ge(1)] | None, LATER] = None
    old_every: Annotated[Annotated[int, Ge(1)] | None, LATER] = None

    def arrival(self, batch_size: int) -> Arrival | None:
        """When images come, where the stream has no boundaries; batches are of this size."""
        part = self.every and self.every * batch_size
        return Arrival(self.blurry, self.gradual, part) or None

    def sizes(self) -> tuple[int, ...] | None:
        """The number of classes of every task; None where the images must be read to know."""
        again = {"data.returning": self.returning, "data.per_coming": self.per_coming}
        check_arrival(self.scenario, self.every, self.blurry, self.gradual, again)
        check_windows(self.every, self.window, self.old_every)
        classes = known_source(self.source).classes
        if classes is None:
            return None
        order = class_order(self.order, classes)
        check_repetition(self.scenario, self.returning, self.per_coming)
        seen = task_domains(
            self.scenario, self.domains, tasks=self.tasks, classes=self.classes, first=self.first
        )
        if seen:
            return (len(order),) * len(seen)
        sizes = task_sizes(
            len(order),
            tasks=self.tasks,
            classes=self.classes,
            first=self.first,
            again=self.scenario == "cir",
        )
        # Which classes come with a part of a stream without boundaries, the images decide.
        return None if self.arrival(1) else sizes


def data_name(data: DataSpec, tasks: int | None) -> str:
    """What stands in the benchmark's place where a run names its data instead.

    Examples:
        >>> data_name(DataSpec("folder:/my/photos@32"), 5), data_name(DataSpec("my.py:cats"), 2)
        ('folder-photos-32/5', 'code-my-cats/2')
    """
    where, colon, name = data.source.rpartition(":")
    if names_code(data.source):
        text = f"code {Path(where).name.removesuffix('.py')} {name}"
    elif colon:
        text = f"{where} {Path(name).name.removesuffix('.npz')}"
    else:
        text = f"data {name}"
    return "-".join(re.findall(r"[\w.]+", text)) + (f"/{tasks}" if tasks else "")


DEFINING = (
    *("source", "scenario", "tasks", "classes", "first", "order", "domains", "returning"),
    *("per_coming", "every", "blurry", "gradual", "imbalance", "noise"),
)
"""The settings of data that make a benchmark what it is: which images, in which tasks."""


def data_title(data: DataSpec) -> str:
    """The images and the tasks of a stream that is no benchmark, in a few words.

    Examples:
        >>> data_title(DataSpec("arrays:/my/tiny.npz", tasks=5))
        'tiny.npz, 5 tasks, til'
        >>> data_title(DataSpec("digits", scenario="dil", domains="rotation:0,30"))
        'digits, rotation:0,30, dil'
    """
    where, _, name = data.source.rpartition(":")
    parts = [f"{Path(where).name}:{name}" if names_code(data.source) else Path(name).name]
    parts += [f"{data.tasks} tasks"] if data.tasks else []
    parts += [f"classes {_few(data.classes)}"] if data.classes else []
    parts += [f"first {data.first}"] if data.first else []
    parts += [f"order {_few(data.order)}"] if data.order != DataSpec.order else []
    parts += [data.domains] if data.domains else []
    parts += [f"every {data.every} batches"] if data.every else []
    parts += [f"blurry {data.blurry:g}"] if data.blurry else []
    parts += [f"gradual {data.gradual:g}"] if data.gradual else []
    parts += [f"imbalance {data.imbalance:g}"] if data.imbalance != 1 else []
    parts += [f"label noise {data.noise:g}"] if data.noise else []
    return printable(", ".join([*parts, data.scenario]), 200)


def _few(numbers: str | tuple[int, ...]) -> str:
    text = numbers if isinstance(numbers, str) else ",".join(map(str, numbers))
    return text if len(text) <= 24 else f"{text[:23]}…"
