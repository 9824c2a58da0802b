"""From arrays, tensors and datasets to checked tensors and plain labels."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    default_collate,
)

from ancl.data.samples import Label
from ancl.data.storage import ImageView, MappedStorage
from ancl.errors import ScenarioError

Images = NDArray[Any] | Tensor | ImageView
Labels = NDArray[Any] | Tensor | Sequence[Label]

_CHANNELS = (1, 3, 4)
_PROBES = 8
_MOST_LABEL = 10**18


def as_view(x: Images) -> ImageView:
    """Checked images, to be kept: a memory-mapped array of bytes stays where it is.

    What is in memory is copied, so that nobody else can change it.
    """
    if isinstance(x, ImageView):
        if x.dtype != torch.uint8 or x.ndim != 4:
            return ImageView.of(as_images(x.dense()))
        _check_bytes(x.shape)
        return x
    if is_mapped(x):
        _check_bytes(x.shape)
        return ImageView.of(MappedStorage(x if x.ndim == 4 else x[..., None]))
    images = as_images(x)
    return ImageView.of(images.clone() if isinstance(x, Tensor) else images)


def is_mapped(x: Any) -> TypeGuard[NDArray[np.uint8]]:
    """Whether it is an array of bytes in a file, which can be read row by row."""
    return isinstance(x, np.memmap) and x.dtype == np.uint8


def as_images(x: Images) -> Tensor:
    """Images as they are kept, in memory: uint8 (N, H, W, C) or finite float32 (N, ...)."""
    images = to_tensor(x.dense() if isinstance(x, ImageView) else x)
    if images.dtype == torch.uint8:
        _check_bytes(images.shape)
        return images if images.ndim == 4 else images.unsqueeze(3)
    shape = tuple(images.shape)
    _check_some(shape)
    check_finite(images)
    if images.ndim == 4 and _channels_last(images[0]):
        raise ScenarioError(
            f"The float images of shape {shape} seem to have their channels last. They go "
            "first: use numpy.moveaxis(x, 3, 1), or x.permute(0, 3, 1, 2) for a tensor. Bytes "
            "(uint8) have them last."
        )
    return images


def _check_some(shape: tuple[int, ...]) -> None:
    if not shape or shape[0] == 0:
        raise ScenarioError(f"There are no images: the array has the shape {shape}.")


def _check_bytes(given: Sequence[int]) -> None:
    """Refuse another shape than that of uint8 images."""
    shape = tuple(given)
    _check_some(shape)
    if len(shape) not in (3, 4):
        raise ScenarioError(
            f"uint8 images have the shape (N, H, W, C) or (N, H, W), not {shape}. "
            "Reshape them, or give other data as float32."
        )
    if len(shape) == 4 and shape[1] in _CHANNELS and shape[3] not in _CHANNELS:
        raise ScenarioError(
            f"The uint8 images of shape {shape} seem to have their channels first. "
            "They go last: use numpy.moveaxis(x, 1, 3), or x.permute(0, 2, 3, 1) for a tensor."
        )


def as_labels(y: Labels) -> list[Label]:
    """Labels as plain ints or plain strings, never both."""
    if isinstance(y, Tensor):
        _refuse_without_values(y, "labels")
    try:
        given = y.tolist() if isinstance(y, np.ndarray | Tensor) else list(y)
    except TypeError:
        given = [y]  # one value, which may be a label
    values = [_plain_label(value) for value in (given if isinstance(given, list) else [given])]
    kinds = {type(value) for value in values}
    if any(type(value) is int and not -_MOST_LABEL < value < _MOST_LABEL for value in values):
        raise ScenarioError("A label is a number of more than 18 digits. Give it as a string.")
    if kinds <= {int} or kinds <= {str}:
        return values
    odd = next((v for v in values if type(v) not in (int, str)), None)
    got = "both" if odd is None else f"{odd!r} ({type(odd).__name__})"
    raise ScenarioError(
        f"Labels are all ints or all strings, but {got} was given. "
        "Convert them, for example with y.astype(int) or one_hot.argmax(1)."
    )


def _plain_label(value: Any) -> Any:
    single = isinstance(value, np.generic) or (isinstance(value, Tensor) and value.numel() == 1)
    return value.item() if single else value


def to_tensor(x: Any) -> Tensor:
    """A copy-safe CPU tensor of uint8 or float32, from an array, a tensor or a PIL image."""
    if isinstance(x, Tensor):
        _refuse_without_values(x, "images")
        if x.dtype == torch.uint8 or x.is_floating_point():
            kind = torch.uint8 if x.dtype == torch.uint8 else torch.float32
            return x.detach().to("cpu", kind).contiguous()
        raise _bad_dtype(str(x.dtype))
    # A palette image's array holds positions in its palette, not colours.
    try:
        array = np.asarray(x.convert("RGB") if getattr(x, "mode", None) == "P" else x)
    except (TypeError, ValueError) as error:  # lists of several lengths, for example
        raise ScenarioError(
            f"Images of type {type(x).__name__} cannot be read as one array ({error}). Give an "
            f"array or a tensor, or a list of images of one size."
        ) from error
    if array.dtype == np.uint8:
        return torch.from_numpy(np.array(array, order="C"))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what overflows is reported as infinite
            return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    raise _bad_dtype(str(array.dtype))


def _refuse_without_values(x: Tensor, what: str) -> None:
    """Refuse tensors that do not hold one value after the other."""
    if x.is_meta or x.is_nested or x.is_quantized or x.layout != torch.strided:
        kind = "of the device meta" if x.is_meta else f"of the layout {x.layout}"
        advice = "one with values" if x.is_meta else "a dense one, for example with x.to_dense()"
        raise ScenarioError(f"The {what} are a tensor {kind}, which is not read. Give {advice}.")


def _bad_dtype(given: str) -> ScenarioError:
    return ScenarioError(
        f"Images of type {given} cannot be used. Possible: uint8 (0 to 255) or floats. "
        "Convert them, for example with x.astype('uint8') or x.astype('float32')."
    )


def check_finite(x: Tensor) -> None:
    """Refuse floats that are not samples, or not all numbers."""
    if x.ndim < 2:
        raise ScenarioError(
            f"Floats have the shape (N, ...), at least one axis per sample, not {tuple(x.shape)}. "
            "Use x.reshape(-1, 1) for one number per sample."
        )
    broken = (~x.flatten(1).isfinite().all(dim=1)).nonzero().flatten()
    if len(broken):
        raise ScenarioError(
            f"{len(broken)} of {len(x)} samples hold NaN or infinite values, the first is number "
            f"{int(broken[0])}. Remove or fill them, for example with numpy.nan_to_num."
        )


def read_dataset(dataset: Dataset[Any]) -> tuple[Tensor, list[Label]]:
    """All images and labels of a map-style dataset, each item read once."""
    images, labels = read_items(dataset)
    if labels is None:
        raise ScenarioError(
            f"Item 0 of {type(dataset).__name__} is not a pair: {type(dataset[0]).__name__}. "
            "Each item is (image, label)."
        )
    return images, labels


def read_items(dataset: Dataset[Any]) -> tuple[Tensor, list[Label] | None]:
    """All images of a map-style dataset, and its labels where its items are pairs."""
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise ScenarioError(
            f"{type(dataset).__name__} cannot be read by position. Give a map-style dataset, one "
            "with __len__ and __getitem__, or collect its items and use from_arrays."
        )
    n = len(dataset)
    if n == 0:
        raise ScenarioError(f"There are no images: {type(dataset).__name__} is empty.")
    _refuse_random(dataset, n)
    first, _ = _item(dataset, 0)
    images = torch.empty((n, *first.shape), dtype=first.dtype)
    labels = []
    for position in range(n):
        image, label = _item(dataset, position)
        if image.shape != first.shape or image.dtype != first.dtype:
            raise ScenarioError(
                f"Item 0 is {_form(first)} and item {position} is {_form(image)}. All images have "
                "one size: resize them or convert them to one mode in the dataset's transform, "
                "for example with image.convert('RGB').resize((64, 64))."
            )
        images[position] = image
        labels.append(label)
    return images, None if all(label is None for label in labels) else as_labels(labels)


def read_loader(loader: DataLoader[Any], *, ordered: bool) -> tuple[Tensor, list[Label] | None]:
    """All images that a loader yields in one pass, and its labels where its batches are pairs.

    Args:
        loader: Yields images, or (images, labels).
        ordered: Whether an answer must belong to the image at its place.
    """
    if ordered and isinstance(loader.sampler, RandomSampler | SubsetRandomSampler):
        raise ScenarioError(
            "This DataLoader shuffles, so nobody could tell which answer belongs to which image. "
            "Use shuffle=False, or give its dataset."
        )
    if loader.collate_fn is default_collate and isinstance(loader.dataset, Sized):
        _refuse_random(loader.dataset, len(loader.dataset))
    images, labels = list[Tensor](), list[Any]()
    for batch in loader:
        pair = isinstance(batch, tuple | list) and len(batch) == 2
        images.append(_channels_moved(batch[0] if pair else batch))
        labels += list(batch[1]) if pair else []
    if not images:
        raise ScenarioError("There are no images: the DataLoader is empty.")
    _refuse_mixed(images)
    return torch.cat(images), as_labels(labels) if labels else None


def stacked(parts: Sequence[Any]) -> Tensor:
    """Images one by one, each an array or a tensor, as one tensor."""
    images = [_channels_moved(part) for part in parts]
    _refuse_mixed([image.unsqueeze(0) for image in images])
    return torch.stack(images)


def _refuse_mixed(parts: Sequence[Tensor]) -> None:
    forms = dict.fromkeys(_form(part[0]) for part in parts)
    if len(forms) > 1:
        raise ScenarioError(
            f"The images are not all alike: {' and '.join(list(forms)[:2])}. All images have one "
            "size and one type: resize or convert them."
        )


def _item(dataset: Any, position: int) -> tuple[Tensor, Any]:
    """An image and its label; no label where the item is an image alone."""
    item = dataset[position]
    if not isinstance(item, tuple | list):
        return _channels_moved(item), None
    if len(item) != 2:
        raise ScenarioError(
            f"Item {position} of {type(dataset).__name__} is not a pair: {type(item).__name__}. "
            "Each item is (image, label)."
        )
    return _channels_moved(item[0]), _plain_label(item[1])


def _channels_moved(given: Any) -> Tensor:
    """Images as a tensor; bytes in a tensor may have their channels first, as torchvision's do."""
    image = to_tensor(given)
    if isinstance(given, Tensor) and image.dtype == torch.uint8:
        if _channels_first(image):
            return image.permute(1, 2, 0)
        if image.ndim == 4 and _channels_first(image[0]):
            return image.permute(0, 2, 3, 1)
    return image


def _channels_first(image: Tensor) -> bool:
    return image.ndim == 3 and image.shape[0] in _CHANNELS and image.shape[2] not in _CHANNELS


def _channels_last(image: Tensor) -> bool:
    return image.ndim == 3 and image.shape[2] in _CHANNELS and image.shape[0] not in _CHANNELS


def _refuse_random(dataset: Any, n: int) -> None:
    """Read a few items three times: a random flip escapes one image's notice, hardly eight's."""
    for position in sorted({round(i * (n - 1) / (_PROBES - 1)) for i in range(_PROBES)}):
        once, *again = (_item(dataset, position)[0] for _ in range(3))
        if any(once.shape != other.shape or not once.equal(other) for other in again):
            raise ScenarioError(
                f"Item {position} of {type(dataset).__name__} differs each time it is read: random "
                "transforms inside the dataset would be frozen at their first draw. Remove them "
                "and use data.augment=crop or data.augment=flip."
            )


def _form(image: Tensor) -> str:
    return f"{tuple(image.shape)} {str(image.dtype).removeprefix('torch.')}"
