"""Augmentations as a user writes them: in a file that reads nothing."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor


def brighter(x: Tensor, generator: Generator) -> Tensor:
    """One grey value more for half of the images."""
    more = torch.randint(0, 2, (len(x), 1, 1, 1), generator=generator)
    return (x.int() + more).clamp(max=255).to(torch.uint8)


def alone(x: Tensor) -> Tensor:
    """Draws from all three global generators."""
    extra = torch.randint(0, 9, ()) + random.randrange(9) + np.random.randint(9)
    return (x.int() + extra).clamp(max=255).to(torch.uint8)


@dataclass(frozen=True)
class Roll:
    """An augmentation with a setting."""

    by: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        return x.roll(self.by, dims=2)
