"""Random streams derived from (seed, task, role, epoch), never from what ran before."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Generator


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed that depends on the whole path and on nothing else."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *path: int | str) -> Generator:
    """A CPU generator for one stream."""
    return Generator().manual_seed(derive(seed, *path))


@contextmanager
def seeded(seed: int, *path: int | str) -> Iterator[None]:
    """Seed the global generators for one stream and put them back afterwards.

    Dropout in a user's network and PyTorch's own initialisers read the global generators.
    """
    value = derive(seed, *path)
    python_state, numpy_state = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices):
        random.seed(value)
        np.random.seed(value % 2**32)
        _seed_torch(value)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def _seed_torch(value: int) -> None:
    """Seed torch's generators; its own function formats a stack trace where there is no GPU."""
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(value)
