"""What is handed to a learner, as the images it learned from: converted where that is certain.

Nothing is guessed: images whose layout or values may mean two things are refused with the way out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ancl.data import Label, Samples, Task, as_labels, task_from
from ancl.data.convert import (
    as_view,
    check_finite,
    is_mapped,
    read_items,
    read_loader,
    stacked,
    to_tensor,
)
from ancl.data.pictures import is_picture_like, is_pixels, read_pictures
from ancl.data.resizing import resized
from ancl.data.source import value_range
from ancl.data.storage import ImageView, in_colour
from ancl.errors import ScenarioError, SpecError
from ancl.methods.method import Method
from ancl.methods.task_history import check_hold_out
from ancl.picture import PLAIN, PictureRule
from ancl.recipe.data_spec import TaskSpec
from ancl.recipe.recipe import Recipe
from ancl.recipe.resolve import memory_problems
from ancl.stages.setting import Setting

Data = Any
"""Images: an array or tensor, one image or many; a memory-mapped array, which stays in its file; a
view (``source.train.x``); a list of arrays, of Pillow images, of files or of their contents as
``bytes``; a map-style torch ``Dataset`` or a ``DataLoader``, of images or of (image, label)."""

_CHANNELS = (1, 3, 4)
_SHOWN = 5
_DARK = 128
"""Bytes that end below this may have another largest value than 255."""
_FAR = 10
"""Values this many times larger than training's are on another scale."""


@dataclass(frozen=True)
class Form:
    """What the images of a learner are; its first task decides it.

    Args:
        shape: The shape of one image as the network sees it: channels first.
        pixels: Whether they are bytes, which are normalised; floats are read as they are.
        values: The smallest and the largest value learned from; nothing where that is not known.
        rule: How pictures are brought to the shape.
        resized: Whether arrays of any size are brought to it, too, as ``data.size`` does.
    """

    shape: tuple[int, ...]
    pixels: bool
    values: tuple[float, float] | None = None
    rule: PictureRule = PLAIN
    resized: bool = False

    @classmethod
    def of(cls, x: ImageView, rule: PictureRule = PLAIN, *, resized: bool = False) -> Self:
        """The form of checked images."""
        shape = Samples(x, torch.zeros(len(x), dtype=torch.long)).input_shape
        return cls(shape, x.dtype == torch.uint8, value_range(x), rule, resized)

    def widened(self, x: ImageView) -> Self:
        """The same after more images were learned from."""
        (low, high), before = value_range(x), self.values
        return replace(self, values=(min(before[0], low), max(before[1], high)) if before else None)

    def joined(self, other: Self) -> Self:
        """The same after all that another learned from, too."""
        if self.values is None or other.values is None:
            return replace(self, values=None)
        low, high = zip(self.values, other.values, strict=True)
        return replace(self, values=(min(low), max(high)))

    @property
    def is_image(self) -> bool:
        """Whether samples have channels, height and width."""
        return len(self.shape) == 3 and self.shape[0] in _CHANNELS

    @property
    def picture(self) -> tuple[int, int, int] | None:
        """The shape that pictures are converted to; nothing where samples are not images."""
        if len(self.shape) != 3:
            return None
        c, h, w = self.shape
        return c, h, w

    @property
    def square(self) -> int | None:
        """The size that images are brought to whatever theirs is; nothing where it must be this."""
        return self.shape[1] if self.resized else None

    def fit(self, x: Tensor | ImageView, say: Callable[[str], None]) -> Tensor | ImageView:
        """Images in this form; a single one gets an axis for their number.

        A view of images that have it already stays a view.

        Args:
            x: Bytes or floats, channels first or last.
            say: Takes a warning.

        Raises:
            ScenarioError: They have another size, or what their values stand for is not certain.
        """
        x = self._colourful(x)
        if isinstance(x, ImageView):
            c, h, w = self.picture or (0, 0, 0)
            size = x.shape[1:3] if self.resized else (h, w)
            if self.pixels and x.dtype == torch.uint8 and len(x) and x.shape[1:] == (*size, c):
                return resized(x, self.square, self.rule)
            x = x.dense()
        if x.numel() == 0:
            raise ScenarioError(f"There are no images: the array has the shape {tuple(x.shape)}.")
        x = self._arranged(x)
        if x.dtype != torch.uint8:
            check_finite(x)
        if not self.pixels:
            return self._as_floats(x, say)
        x = self._in_channels(self._as_bytes(x), say)
        return resized(ImageView.of(x), self.square, self.rule) if self.resized else x

    def _colourful(self, x: Tensor | ImageView) -> Tensor | ImageView:
        """Grey bytes with three equal channels, where that is what was learned from."""
        if not self.pixels or self.shape[0] != 3 or x.dtype != torch.uint8 or x.shape[-1] != 1:
            return x
        return in_colour(x) if isinstance(x, ImageView) else x.expand(*x.shape[:-1], 3)

    # -- layout ------------------------------------------------------------------------------

    def _arranged(self, x: Tensor) -> Tensor:
        """With the axes (N, H, W, C) for a learner of bytes, as the network reads them else."""
        # One image comes before many grey ones without channels: (3, H, W) is one.
        for layout in (self._batch, self._recoloured):
            for images in (x, x.unsqueeze(0)):
                if (arranged := layout(images)) is not None:
                    return arranged
        own = Samples(x, torch.empty(0)).input_shape if x.ndim == 4 else tuple(x.shape)
        raise ScenarioError(
            f"The images have shape {own}, but this learner began with {self.shape} (channels "
            f"first). "
            + (
                f"It resizes images of any size, with {self.shape[0]} channels: give these."
                if self.resized
                else "Resize them to it; files and Pillow images are resized for you."
            )
        )

    def _batch(self, x: Tensor) -> Tensor | None:
        shape = tuple(x.shape[1:])
        if len(self.shape) != 3:
            return x if shape == self.shape else None
        c, h, w = self.shape
        if self.resized:
            h, w = self._size_of(shape)
        if c == 1 and shape == (h, w):
            return x.unsqueeze(3) if self.pixels else x.unsqueeze(1)
        # Where both fit, bytes have their channels last and floats first, as everywhere here.
        layouts = {(h, w, c): self._last, (c, h, w): self._first}
        if x.dtype == torch.uint8:
            layouts = {(c, h, w): self._first, (h, w, c): self._last}
        return layouts[shape](x) if shape in layouts else None

    def _size_of(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Height and width of images of any size, of this shape: channels are where they fit."""
        if len(shape) == 3 and shape[2] != self.shape[0]:
            return shape[1], shape[2]
        # One pixel wide would be a row of a single image whose channels come last.
        return (shape[0], shape[1]) if len(shape) > 2 or shape[1:] > (1,) else (0, 0)

    def _recoloured(self, x: Tensor) -> Tensor | None:
        """Images of the same size with other channels; floats can only be repeated."""
        if not self.is_image:
            return None
        c, h, w = self.shape
        if self.resized and x.ndim == 4 and x.shape[3] in _CHANNELS:
            h, w = x.shape[1:3]
        x = x.unsqueeze(3) if x.ndim == 3 else x
        shape = tuple(x.shape[1:])
        last, first = shape[:2] == (h, w), shape[1:] == (h, w)
        channels = shape[2] if last and len(shape) == 3 else shape[0] if first else 0
        if channels not in _CHANNELS or (not self.pixels and (channels, c) != (1, 3)):
            return None
        x = self._last(x) if last else self._first(x)
        return x if self.pixels else x.expand(-1, c, -1, -1).contiguous()

    def _first(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous() if self.pixels else x

    def _last(self, x: Tensor) -> Tensor:
        return x if self.pixels else x.permute(0, 3, 1, 2).contiguous()

    def _in_channels(self, x: Tensor, say: Callable[[str], None]) -> Tensor:
        """Bytes in the learner's channels: converted as pictures are."""
        if self.picture is None or x.shape[3] == self.shape[0]:
            return x
        pictures = list(x.numpy())
        return torch.from_numpy(read_pictures(pictures, self.picture, rule=self.rule, say=say))

    # -- values ------------------------------------------------------------------------------

    def _as_bytes(self, x: Tensor) -> Tensor:
        if x.dtype == torch.uint8:
            return x
        low, high = _range(x)
        if low >= 0 and high <= 1:
            if self.values and 1 < self.values[1] < _DARK and high > 0:
                raise ScenarioError(
                    f"The images are floats from {low:g} to {high:g}, and this learner learned "
                    f"from bytes up to {self.values[1]:g}: what 1.0 stands for is not certain. "
                    f"Give bytes (uint8) of the same scale."
                )
            return (x * 255).round().to(torch.uint8)
        if _whole_bytes(x):
            return x.to(torch.uint8)
        raise ScenarioError(
            f"The images are floats from {low:g} to {high:g}, but this learner learned from bytes "
            f"(uint8, 0 to 255) and normalises them itself. Give them as they were before they "
            f"were normalised: uint8, or floats from 0 to 1."
        )

    def _as_floats(self, x: Tensor, say: Callable[[str], None]) -> Tensor:
        unit, byte = self._scale()
        if x.dtype == torch.uint8:
            if self.is_image and (unit or byte):
                return x.float() / 255 if unit else x.float()
            raise ScenarioError(
                f"The images are bytes (uint8), but this learner learned from floats"
                f"{self._learned()}, and how those were made of bytes is not known. Convert them "
                f"as you did for learning."
            )
        if self.values is None:
            return x
        low, high = _range(x)
        if not self.is_image:
            self._warn_if_far(low, high, say)
            return x
        if unit and _whole_bytes(x) and high > 1:
            return x / 255
        if byte and low >= 0 and high <= 1:
            return x * 255
        odd = self._far(low, high) or (self.values[0] < 0 and high > 0 and _shares(x))
        if unit:
            odd = low < 0 or high > 1
        if byte:
            odd = low < 0 or high > 255
        if odd:
            raise ScenarioError(
                f"The images have values from {low:g} to {high:g}, but this learner learned from "
                f"floats{self._learned()}. Prepare them as you did for learning."
            )
        return x

    def _scale(self) -> tuple[bool, bool]:
        """Whether values learned from were shares, 0 to 1, or bytes, 0 to 255."""
        if self.values is None or self.values[0] < 0:
            return False, False
        return self.values[1] <= 1, _DARK <= self.values[1] <= 255

    def _far(self, low: float, high: float) -> bool:
        reach = max(map(abs, self.values or (0.0,)))
        return 0 < _FAR * reach < max(abs(low), abs(high))

    def _warn_if_far(self, low: float, high: float, say: Callable[[str], None]) -> None:
        if self._far(low, high):
            say(
                f"The samples have values from {low:g} to {high:g}, and this learner learned from "
                f"floats{self._learned()}. If that is another scale, prepare them as for learning."
            )

    def _learned(self) -> str:
        return f" from {self.values[0]:g} to {self.values[1]:g}" if self.values else ""


def _range(x: Tensor) -> tuple[float, float]:
    low, high = x.aminmax()
    return float(low), float(high)


def _whole_bytes(x: Tensor) -> bool:
    """Whether floats are whole numbers from 0 to 255."""
    return bool(((x >= 0) & (x <= 255) & (x == x.round())).all())


def _shares(x: Tensor) -> bool:
    """Whether floats are bytes divided by 255: all of them multiples, from 0 to 1."""
    scaled = x * 255
    return bool(((x >= 0) & (x <= 1) & ((scaled - scaled.round()).abs() < 1e-3)).all())


# -- reading ---------------------------------------------------------------------------------


def read_images(data: Data, form: Form, say: Callable[[str], None]) -> Tensor | ImageView:
    """Images alone, in the learner's form; labels that come with them are left out.

    Raises:
        ScenarioError: They cannot be read, or do not have the form.
    """
    return form.fit(_read(data, _Wanted(form, None, form.rule), say, ordered=True)[0], say)


def read_labelled(
    data: Data,
    labels: Any,
    form: Form | None,
    say: Callable[[str], None],
    spec: TaskSpec | None = None,
    colour: bool = False,
) -> tuple[ImageView, list[Label]]:
    """Images and their labels, from both or from a dataset or loader that yields pairs.

    Args:
        data: Images, or images and labels.
        labels: Their labels, if they have none themselves.
        form: The learner's; none before its first task.
        say: Takes a warning.
        spec: Says the size of images, and how they come to it, where there is no form.
        colour: Whether the first task's grey images get three channels.

    Raises:
        ScenarioError: They cannot be read, do not have the form, or have no labels.
    """
    size, rule = (spec.size, spec.pictures) if spec else (None, PLAIN)
    raw, own = _read(data, _Wanted(form, size, rule), say, ordered=labels is not None)
    if own is not None and labels is not None:
        raise ScenarioError(
            f"This {type(data).__name__} yields labels, and others are given too. Leave them out."
        )
    given = own if own is not None else _labels(labels)
    if given is None:
        raise ScenarioError(
            f"Images of type {type(data).__name__} came without labels. Give both, or a torch "
            f"Dataset of (image, label)."
        )
    if form is None:
        x = as_view(raw)
        x = resized(in_colour(x) if colour else x, size, rule)
    else:
        x = as_view(form.fit(raw, say))
    if len(x) != len(given):
        raise ScenarioError(
            f"There are {len(x)} images and {len(given)} labels. Give one label per image."
        )
    return x, given


def _labels(labels: Any) -> list[Label] | None:
    """Labels as a list; a single one is one label, not the letters of its text."""
    if labels is None:
        return None
    return as_labels([labels] if isinstance(labels, str | int) else labels)


class _Wanted(NamedTuple):
    """What pictures are to become: the form of a learner, or what its first task is to have."""

    form: Form | None
    size: int | None
    rule: PictureRule

    def read(self, pictures: Sequence[Any], say: Callable[[str], None]) -> Tensor:
        """Pictures as bytes."""
        odd = next((p for p in pictures if not is_picture_like(p) and not is_pixels(p)), None)
        if odd is not None:
            raise ScenarioError(
                f"The list holds pictures, and a {type(odd).__name__} that is none. Possible: "
                f"files, their contents as bytes, Pillow images, and arrays of bytes (H, W, C)."
            )
        shape, rule = (self.form.picture, self.form.rule) if self.form else (None, self.rule)
        return torch.from_numpy(read_pictures(pictures, shape, size=self.size, rule=rule, say=say))

    def are_pictures(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays are pictures one by one: of several forms, or not of the wanted size."""
        if not all(map(is_pixels, arrays)):
            return False
        shapes = {array.shape for array in arrays}
        size = self.form.shape[1:] if self.form else self.size and (self.size, self.size)
        return len(shapes) > 1 or bool(size and {shape[:2] for shape in shapes} != {size})


def _read(
    data: Data, wanted: _Wanted, say: Callable[[str], None], *, ordered: bool
) -> tuple[Tensor | ImageView, list[Label] | None]:
    """Images as bytes or floats, and labels that come with them."""
    form = wanted.form
    if isinstance(data, ImageView):
        return data, None
    if is_mapped(data) and (form is None or data.ndim == 4):
        return as_view(data), None
    if isinstance(data, DataLoader):
        return read_loader(data, ordered=ordered)
    if isinstance(data, Dataset):
        return read_items(data)
    if is_picture_like(data):
        data = [data]
    if isinstance(data, Sequence) and not isinstance(data, str):
        if len(data) == 0:
            raise ScenarioError("There are no images: the list is empty.")
        if is_picture_like(data[0]) or wanted.are_pictures(data):
            return wanted.read(data, say), None
        if all(hasattr(each, "shape") for each in data):
            return stacked(data), None
    return to_tensor(data), None


# -- the next task ---------------------------------------------------------------------------


def next_task(
    x: ImageView, labels: Sequence[Label], before: Sequence[Task], recipe: Recipe
) -> Task:
    """The task that images and labels make after others.

    In ``dil`` it has the first task's classes, in their order. Else it adds those of its classes
    that are new to all, maybe none; known ones come again.

    Raises:
        ScenarioError: Its classes are not those that the scenario lets it bring.
    """
    known: tuple[Label, ...] = ()
    scenario = recipe.data.scenario
    if scenario == "dil" and before:
        names, start = before[0].names, 0
        _check_same(labels, names)
    else:
        known = tuple(name for task in before for name in task.names)
        new = set(labels) - set(known)
        names = tuple(sorted(new, key=lambda name: (isinstance(name, str), name)))
        start = len(known)
        if scenario != "cil" or not before:
            _check_several(names)
    position = {name: index for index, name in enumerate((*known, *names))}
    return task_from(
        Samples(x, torch.tensor([position[name] for name in labels])),
        index=len(before),
        classes=slice(start, start + len(names)),
        names=names,
        seed=recipe.seed,
        val_fraction=recipe.data.val_fraction,
        test=None,
        known=known,
        by_hash=recipe.make_method().infer.holds is not None,
    )


def _check_several(names: Sequence[Label]) -> None:
    """Refuse a single new class, where there is nothing to tell it from."""
    if len(names) == 1:
        raise ScenarioError(
            f"This task has only the new class {names[0]!r}, and no other to tell it from. "
            f"Give at least 2 new classes, or none."
        )


def _check_same(labels: Sequence[Label], names: Sequence[Label]) -> None:
    """Refuse other classes than the first task's: old and auxiliary network know all of them."""
    strangers = sorted(set(labels) - set(names), key=str)
    if strangers:
        raise ScenarioError(
            f"The classes {_listed(strangers)} are new, but in the scenario dil every task has the "
            f"first one's classes: {_listed(names)}. Leave out their images, or learn new classes "
            f"with scenario='cil' or 'til'."
        )
    missing = [name for name in names if name not in set(labels)]
    if missing:
        raise ScenarioError(
            f"There are no images of the classes {_listed(missing)}, but in the scenario dil every "
            f"task has all of the first one's classes. Add images of them."
        )


def _listed(names: Sequence[Label]) -> str:
    """The first few, as they would be written: 1 and '1' are two labels."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


def check_learnable(
    recipe: Recipe, method: Method, tasks: Sequence[Task], setting: Setting
) -> None:
    """Refuse tasks whose images the memory cannot be shared by, or that come again in vain.

    Raises:
        SpecError: It is too small for the number of classes (and domains), the method cannot
            learn known classes again, or its head has no rows for new ones.
        ScenarioError: A class has too few images to hold any of them out.
    """
    groups = sum(len(task.names) for task in tasks)
    memory = setting.memory or recipe.memory
    problems = memory_problems(memory, method, recipe.data.scenario, groups)
    if method.all_classes and tasks[-1].classes.stop > (setting.rows or 0):
        problems.append(
            f"{method.name} has head=fixed: all classes of a run from the start. A learner does "
            f"not know which classes will come. Use head=growing."
        )
    if tasks[-1].returning and method.why_once:
        problems.append(
            f"{method.name} cannot learn known classes again: {method.why_once}. "
            f"Leave their images out, or begin with another method, such as lwf or icarl"
            f"{method.way_out}."
        )
    if problems:
        raise SpecError("\n".join(problems))
    check_hold_out(setting.memory, method.hold_out, tasks)
