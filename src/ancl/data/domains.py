"""Domains for domain-incremental streams: the same classes seen in another way in every task.

A domain is a function of one image and nothing else. Its numbers are fixed, so that they do not
depend on a seed, and come from integers, so that they are equal on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import ScenarioError, unknown

CORRUPTIONS = ("noise", "blur", "contrast", "brightness")
LEVELS = 5
_SEED = 2023
_CHUNK = 1024
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Domain:
    """One way of seeing images.

    Args:
        kind: ``rotation``, ``permutation`` or ``corruption``.
        value: Degrees counter-clockwise; the number of the permutation (0 leaves all in place); or
            a corruption and its level such as ``blur3``, ``none`` for none.
    """

    kind: str
    value: float | str

    def __call__(self, x: Tensor) -> Tensor:
        """The images as seen in this domain, of the same shape and type."""
        if self.kind == "permutation":
            return _permuted(x, int(self.value))
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise ScenarioError(
                f"data.domains={self.kind} works on uint8 images, and this data is {x.dtype} of "
                f"shape {tuple(x.shape)}. Use data.domains=permutation, or give uint8 images."
            )
        # Part by part: floats of a whole data set would need four times its memory.
        return torch.cat([self._seen(part) for part in torch.split(x, _CHUNK)])

    def _seen(self, x: Tensor) -> Tensor:
        if self.kind == "rotation":
            return _rotated(x, float(self.value))
        return _corrupted(x, str(self.value))


def domains(text: str | None, tasks: int | None) -> tuple[Domain, ...]:
    """The domains that a text asks for, one per task.

    Args:
        text: ``rotation`` (equal steps from 0 to below 180 degrees), ``permutation`` or
            ``corruption`` (clean images first, then each corruption, then each at the next
            level); or with the values themselves: ``rotation:0,15,40``,
            ``corruption:none,blur2,noise3``.
        tasks: How many; may be left out where the values are given.
    """
    kind, _, listed = (text or "").partition(":")
    if kind not in _KINDS:
        given = "no domains" if text is None else f"domains {text!r}"
        raise ScenarioError(
            f"The scenario dil was given {given}. Possible: {', '.join(_KINDS)}; for example "
            "data.domains=rotation."
        )
    if listed:
        values = tuple(_value(kind, part.strip()) for part in listed.split(","))
        if tasks not in (None, len(values)):
            raise ScenarioError(
                f"{len(values)} domains were listed for {tasks} tasks. Leave the number out, or "
                "list one for each."
            )
        return values
    if tasks is None:
        raise ScenarioError("The scenario dil needs the number of tasks: --tasks 5.")
    if tasks < 1:
        raise ScenarioError(f"{tasks} tasks were asked for. Give at least 1.")
    return tuple(Domain(kind, value) for value in _KINDS[kind](tasks))


def _angles(tasks: int) -> list[float]:
    return [180 * index / tasks for index in range(tasks)]


def _corruptions(tasks: int) -> list[str]:
    every = ["none", *(f"{name}{level}" for level in range(1, LEVELS + 1) for name in CORRUPTIONS)]
    if tasks > len(every):
        raise ScenarioError(
            f"There are {len(every)} corruptions, and {tasks} tasks were asked for. Use fewer."
        )
    return every[:tasks]


_KINDS: dict[str, Callable[[int], Sequence[float | str]]] = {
    "rotation": _angles,
    "permutation": range,
    "corruption": _corruptions,
}


def _value(kind: str, part: str) -> Domain:
    """A domain listed by its own value."""
    if kind == "corruption":
        matched = re.fullmatch(rf"(\w+?)([1-{LEVELS}])", part)
        if part != "none" and (matched is None or matched[1] not in CORRUPTIONS):
            possible = ["none", *(f"{name}1" for name in CORRUPTIONS)]
            raise ScenarioError(
                unknown("corruption", part, possible) + f" Levels are 1 to {LEVELS}."
            )
        return Domain(kind, part)
    try:
        number = float(part) if kind == "rotation" else int(part)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (kind == "permutation" and number < 0):
        raise ScenarioError(
            f"{part!r} in data.domains={kind}:… is not "
            + ("an angle. Write degrees: rotation:0,30,60." if kind == "rotation" else "a number.")
        )
    return Domain(kind, number)


def _permuted(x: Tensor, number: int) -> Tensor:
    """Pixels in another order, equal for all images and channels."""
    if number == 0:
        return x
    images = x.dtype == torch.uint8 and x.ndim == 4
    pixels = x.flatten(1, 2) if images else x.flatten(1)
    order = np.random.RandomState(_SEED + number).permutation(pixels.shape[1])
    return pixels[:, torch.from_numpy(order)].view(x.shape)


def _rotated(x: Tensor, degrees: float) -> Tensor:
    """Turned about the middle, between pixels linearly; black comes in from the corners."""
    if degrees == 0:
        return x
    _, height, width, _ = x.shape
    turn = math.radians(degrees)
    rows = torch.arange(height, dtype=torch.float64).view(-1, 1) - (height - 1) / 2
    columns = torch.arange(width, dtype=torch.float64).view(1, -1) - (width - 1) / 2
    # Where each pixel comes from; places are in units that grid_sample knows, -1 to 1.
    from_x = columns * math.cos(turn) - rows * math.sin(turn)
    from_y = columns * math.sin(turn) + rows * math.cos(turn)
    grid = torch.stack([from_x * 2 / width, from_y * 2 / height], dim=2).float()
    turned = F.grid_sample(
        x.permute(0, 3, 1, 2).float(), grid.expand(len(x), -1, -1, -1), align_corners=False
    )
    return _bytes(turned).permute(0, 2, 3, 1).contiguous()


def _corrupted(x: Tensor, value: str) -> Tensor:
    """The images under a corruption of a level from 1 to 5."""
    if value == "none":
        return x
    name, level = value[:-1], int(value[-1])
    pixels = x.float()
    if name == "noise":
        return _bytes(pixels + 255 * 0.08 * level * _noise(x))
    if name == "blur":
        return _bytes(_blurred(pixels, level))
    if name == "contrast":
        middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
        return _bytes(middle + (pixels - middle) * (1 - 0.17 * level))
    return _bytes(pixels + 30 * level)


def _blurred(pixels: Tensor, times: int) -> Tensor:
    """The mean over 3 by 3 pixels, several times; edges count as if they continued."""
    planes = pixels.permute(0, 3, 1, 2)
    for _ in range(times):
        planes = F.avg_pool2d(F.pad(planes, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return planes.permute(0, 2, 3, 1)


def _noise(x: Tensor) -> Tensor:
    """Near to Gaussian noise of deviation 1, decided by the image: four even numbers, added.

    Each image is hashed to one number, from which every pixel's 64 random bits follow.
    """
    images: NDArray[np.uint64] = x.flatten(1).numpy().astype(np.uint64)
    places = np.arange(1, images.shape[1] + 1, dtype=np.uint64) * _GOLDEN
    seeds = (_mixed(images + places) ^ places).sum(axis=1, dtype=np.uint64)
    bits = _mixed(_mixed(seeds)[:, None] + places)
    added = sum((bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    # Four numbers from 0 to 65,535: mean 4 · 65,535 / 2 and variance 4 · 65,536² / 12.
    noise = (np.asarray(added, dtype=np.float64) - 2 * 65_535) / (65_536 / math.sqrt(3))
    return torch.from_numpy(noise.astype(np.float32)).view(x.shape)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bits all depend on all bits of the one given (the finish of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _bytes(pixels: Tensor) -> Tensor:
    return pixels.round().clamp(0, 255).to(torch.uint8)
