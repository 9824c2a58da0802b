"""An order of samples, and a hash of them, that depend on the images and labels alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ancl.data.samples import Samples

Digests = NDArray[np.uint64]
"""One sha256 a row as four numbers, the first the most significant."""


def canonical(samples: Samples) -> Samples:
    """The samples by ascending class and, within a class, by the hash of the image."""
    return ordered(samples)[0]


def fingerprint(*parts: Samples) -> str:
    """A hash of images and class numbers, part by part, whatever the order within a part."""
    return hash_parts([ordered(part) for part in parts])


def ordered(samples: Samples) -> tuple[Samples, Digests]:
    """The samples in canonical order, with the hash of each image."""
    digests = _digests(samples)
    keys = (*(digests[:, column] for column in (3, 2, 1, 0)), samples.y.numpy())
    order = np.lexsort(keys)
    return samples.take(torch.from_numpy(order)), digests[order]


def hash_parts(parts: Sequence[tuple[Samples, Digests]]) -> str:
    """The hash of ordered parts: form, images a class, and every image's own hash."""
    whole = hashlib.sha256()
    for samples, digests in parts:
        form = (*_form(samples), samples.y.bincount().tolist())
        whole.update(repr(form).encode())
        whole.update(digests.astype(">u8").tobytes())
    return whole.hexdigest()


def _digests(samples: Samples) -> Digests:
    start = hashlib.sha256(repr(_form(samples)).encode())
    rows = bytearray()
    for image in samples.x.contiguous().numpy():
        digest = start.copy()
        digest.update(image)
        rows += digest.digest()
    return np.frombuffer(rows, dtype=">u8").reshape(-1, 4).astype(np.uint64)


def _form(samples: Samples) -> tuple[str, tuple[int, ...]]:
    return str(samples.x.dtype), tuple(samples.x.shape[1:])
