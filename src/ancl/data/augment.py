"""Random changes of whole uint8 batches, drawn from one CPU generator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from ancl.catalogue import Catalogue
from ancl.data.random_resized_crop import draw_boxes, resize_boxes
from ancl.data.samples import Normalization
from ancl.errors import AnclError, SpecError
from ancl.outside import Loaded
from ancl.runtime import send
from ancl.seeding import seeded

Augmentation = Callable[[Tensor, Generator], Tensor]
"""From a batch of images (B, H, W, C) and a source of randomness to a batch of the same shape."""
Augment = str | Callable[..., Tensor]
"""A name, or a function of your own: of a batch, or of a batch and a generator."""

_WANTED = (
    "a function of a batch of uint8 images (N, H, W, C), or of a batch and a torch.Generator, that "
    "returns a batch of the same type and shape: def jitter(x, generator)"
)


def find_augmentation(given: Augment) -> Augment:
    """A name of ours as it is; else the function that is given, or that a name stands for.

    Raises:
        SpecError: There is none, or it takes other arguments.
    """
    if isinstance(given, str):
        code = augmentation_code(given)
        if code is None:
            return given
        given = code.value
        assert not isinstance(given, str)
    if not callable(given):
        raise SpecError(
            f"augment is of type {type(given).__name__}. Give a name ({', '.join(AUGMENTATIONS)}), "
            f"or {_WANTED}."
        )
    _takes_generator(given)
    return given


def augmentation_code(name: str) -> Loaded | None:
    """The code that the name of an augmentation stands for; none for one of ours.

    Raises:
        SpecError: There is none.
    """
    return _CATALOGUE.code(name)


def augmentation(given: Augment) -> Augmentation:
    """What changes batches: ours by its name, or a user's own, whose results are checked."""
    named = find_augmentation(given)
    return AUGMENTATIONS[named] if isinstance(named, str) else _guarded(named)


def check_augmentation(
    given: Augment, shape: Sequence[int], normalization: Normalization | None
) -> None:
    """Call a user's own once, on two black images of this shape (channels first).

    Raises:
        SpecError: It stops, or returns something else than such images; or the data are not images,
            which have a normalization.
    """
    if isinstance(given, str):
        return
    if normalization is None or normalization.floats:
        raise SpecError(
            "Your own augmentation changes uint8 images (N, H, W, C), and this data has other "
            "inputs. Use augment=none, or give uint8 images."
        )
    channels, height, width = shape
    black = torch.zeros(2, height, width, channels, dtype=torch.uint8)
    with seeded(0, "augmentation"):
        _guarded(given)(black, Generator().manual_seed(0))


def _guarded(own: Callable[..., Tensor]) -> Augmentation:
    """A user's augmentation; every epoch seeds torch's own generator for one that takes none."""
    name, both = getattr(own, "__name__", type(own).__name__), _takes_generator(own)

    def change(x: Tensor, generator: Generator) -> Tensor:
        _only_images(x, name)
        try:
            result: object = own(x, generator) if both else own(x)
        except AnclError:
            raise
        except Exception as error:  # a user's code may raise anything
            raise SpecError(
                f"The augmentation {name} stopped with {type(error).__name__}: {error}. It was "
                f"given uint8 images of shape {tuple(x.shape)}. Give {_WANTED}."
            ) from error
        if not isinstance(result, Tensor) or result.dtype != x.dtype or result.shape != x.shape:
            shown = type(result).__name__
            if isinstance(result, Tensor):
                shown = f"{result.dtype} of shape {tuple(result.shape)}"
            raise SpecError(
                f"The augmentation {name} returned {shown} for uint8 images of shape "
                f"{tuple(x.shape)}. Give {_WANTED}."
            )
        return result

    return change


def _takes_generator(own: Callable[..., Tensor]) -> bool:
    """Whether it takes two arguments, the second a generator; it may take one alone."""
    try:
        parameters = inspect.signature(own).parameters.values()
    except (TypeError, ValueError):  # no signature at all
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [arg for arg in parameters if arg.default is arg.empty and arg.kind in plain]
    keywords = [
        arg.name
        for arg in parameters
        if arg.default is arg.empty and arg.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    several = any(arg.kind is inspect.Parameter.VAR_POSITIONAL for arg in parameters)
    if keywords or len(needed) > 2 or (not needed and not several):
        name = getattr(own, "__name__", type(own).__name__)
        shown = ", ".join([*(arg.name for arg in needed), *keywords])
        raise SpecError(f"The augmentation {name} takes ({shown}). Give {_WANTED}.")
    return len(needed) == 2


def none(x: Tensor, generator: Generator) -> Tensor:
    """The batch as it is."""
    return x


def flip(x: Tensor, generator: Generator) -> Tensor:
    """Each image mirrored left to right with probability one half."""
    _only_images(x, "flip")
    table, rows = _with_mirrors(x, _coin(len(x), generator))
    return table.index_select(0, send(rows, x.device))


def crop(x: Tensor, generator: Generator) -> Tensor:
    """Each image padded with zeros, cut back to its size at a random place, and flipped or not."""
    _only_images(x, "crop")
    last = 2 * padding(*x.shape[1:3])
    top, left = torch.randint(0, last + 1, (2, len(x), 1), generator=generator)
    return cut(x, top, left, _coin(len(x), generator))


def cut(x: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
    """Each image padded with zeros, cut back to its size from a corner (B, 1), then mirrored.

    A row of the result is a run of bytes in the padded image, or in its mirror image: one
    selection among all runs of that length makes the batch.
    """
    _, height, width, channels = x.shape
    pad = padding(height, width)
    table, image_rows = _with_mirrors(x, mirrored)
    padded = F.pad(table, (0, 0, pad, pad, pad, pad))
    tall, wide = padded.shape[1:3]
    left = torch.where(mirrored.view(-1, 1), 2 * pad - left, left)
    rows = (image_rows.view(-1, 1) * tall + top + torch.arange(height)) * wide + left
    runs = padded.view(-1).unfold(0, width * channels, channels)
    return runs.index_select(0, send(rows.flatten(), x.device)).view(x.shape)


def _with_mirrors(x: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
    """The images followed by mirror images of the marked ones, and where each image's turn is."""
    marked = x.index_select(0, send(mirrored.nonzero().flatten(), x.device))
    counted = len(x) - 1 + mirrored.cumsum(0)
    return torch.cat([x, marked.flip(2)]), torch.where(mirrored, counted, torch.arange(len(x)))


def facil(x: Tensor, generator: Generator) -> Tensor:
    """A random part of each image padded with zeros, resized to its size, and flipped or not.

    FACIL's training transform, and with it the ANCL paper's, for CIFAR-100. Part and filter are
    those of torchvision's ``RandomResizedCrop`` on Pillow images, to within one grey level.
    """
    _only_images(x, "facil")
    batch, height, width, _ = x.shape
    pad = padding(height, width)
    boxes = draw_boxes(batch, height + 2 * pad, width + 2 * pad, generator)
    return resize_boxes(x, boxes, pad)


def resized(x: Tensor, generator: Generator) -> Tensor:
    """A random part of each image, resized to its size, and flipped or not.

    Torchvision's ``RandomResizedCrop`` of the image as it is kept, to within one grey level.
    """
    _only_images(x, "resized")
    return resize_boxes(x, draw_boxes(len(x), x.shape[1], x.shape[2], generator), 0)


def padding(height: int, width: int) -> int:
    """4 pixels, and for images smaller than 32 an eighth of the shorter side, at least 1."""
    return min(4, max(1, min(height, width) // 8))


def _coin(n: int, generator: Generator) -> Tensor:
    return torch.randint(0, 2, (n,), generator=generator).bool()


def _only_images(x: Tensor, name: str) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise SpecError(
            f"data.augment={name} works on uint8 images (N, H, W, C), and this data is {x.dtype} "
            f"of shape {tuple(x.shape)}. Use data.augment=none, or give uint8 images."
        )


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": none,
    "flip": flip,
    "crop": crop,
    "facil": facil,
    "resized": resized,
}
_CATALOGUE = Catalogue("augmentation", AUGMENTATIONS, _WANTED, SpecError)

VERSIONS = 12
BRIGHTNESS = 63.0
"""Largest number of grey levels added or subtracted."""
CONTRAST = (0.2, 1.8)


@dataclass(frozen=True, eq=False)
class Versions:
    """What was drawn for every image, once: its versions are the same in every epoch.

    In order: the image as it is, brighter or darker, with more or less contrast; a crop of each
    of these three; the mirror images of these six. Only what was drawn is kept, since the images
    themselves would take twelve times the memory.

    Differs: the released code keeps fractions of grey levels, and no crop of it begins at the
    last of the 9 places down or across.

    Args:
        shift: Grey levels added to an image (N,).
        factor: What its distance from each channel's mean is multiplied by (N,).
        corner: Where its three crops begin in the padded image: top and left (2, 3, N).
    """

    shift: Tensor
    factor: Tensor
    corner: Tensor

    @staticmethod
    def draw(shape: Sequence[int], randomness: Generator) -> Versions:
        """Versions of uint8 images of the shape (N, H, W, C)."""
        n, last = shape[0], 2 * padding(*shape[1:3])
        return Versions(
            torch.empty(n).uniform_(-BRIGHTNESS, BRIGHTNESS, generator=randomness),
            torch.empty(n).uniform_(*CONTRAST, generator=randomness),
            torch.randint(0, last + 1, (2, 3, n), generator=randomness),
        )

    def of(self, x: Tensor, image: Tensor, version: Tensor) -> Tensor:
        """The images of a batch, which are those of these numbers, each in one of its versions."""
        kind = version % 3
        shift = torch.where(kind == 1, self.shift[image], 0.0)
        factor = torch.where(kind == 2, self.factor[image], 1.0)
        cropped, whole = version // 3 % 2 == 1, padding(*x.shape[1:3])
        top, left = torch.where(cropped, self.corner[:, kind, image], whole).unsqueeze(2)
        return cut(_toned(x, shift, factor), top, left, version >= VERSIONS // 2)


def _toned(x: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    """Images with other brightness and contrast, to the nearest grey level."""
    shift, factor = (send(values, x.device).view(-1, 1, 1, 1) for values in (shift, factor))
    pixels = x.to(torch.float32)
    # (x − mean) · factor + mean + shift: a factor of 1 and no shift give the image to the bit.
    constant = pixels.mean(dim=(1, 2), keepdim=True) * (1 - factor) + shift
    return pixels.mul_(factor).add_(constant).round_().clamp_(0, 255).to(torch.uint8)
