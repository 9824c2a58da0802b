"""Images and labels as they are handed to a learner, read into its form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ancl.data import Label, as_labels, labelled_part
from ancl.data.convert import as_view, is_mapped, read_items, read_loader, stacked, to_tensor
from ancl.data.pictures import is_picture_like, is_pixels, read_pictures
from ancl.data.resizing import resized
from ancl.data.storage import ImageView, in_colour
from ancl.errors import ScenarioError
from ancl.learner.form import Form
from ancl.picture import PLAIN, PictureRule
from ancl.recipe.data_spec import TaskSpec

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

Data = Any
"""Images: an array or tensor, one image or many; a memory-mapped array, which stays in its file; a
view (``source.train.x``); a list of arrays, of Pillow images, of files or of their contents as
``bytes``; a map-style torch ``Dataset`` or a ``DataLoader``, of images or of (image, label)."""


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
    raw, yielded = _read(data, _Wanted(form, size, rule), say, ordered=labels is not None)
    if yielded is not None and labels is not None:
        raise ScenarioError(
            f"This {type(data).__name__} yields labels, and others are given too. Leave them out."
        )
    given = yielded if yielded is not None else _labels(labels)
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
        if all(hasattr(item, "shape") for item in data):
            return stacked(data), None
    return to_tensor(data), None


def source_images(
    learner: Learner,
    data: str,
    part: str,
    data_root: str | Path | None,
    say: Callable[[str], None],
    shape: tuple[int, ...] | None = None,
) -> tuple[ImageView, list[Label]]:
    """The images of a source, as a learner has them.

    Args:
        learner: The learner.
        data: The source, such as ``folder:photos``.
        part: ``train`` or ``test``.
        data_root: Where data is.
        say: Takes a warning.
        shape: The shape that they have before its first task.
    """
    form: dict[str, Any] = {"size": learner.resizes_to, "rule": learner.picture_rule}
    return labelled_part(data, part, data_root, learner.input_shape or shape, say, **form)
