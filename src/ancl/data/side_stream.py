"""Batches that travel to a GPU beside the computation of those before them."""

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

B = TypeVar("B", bound=tuple[Any, ...])


def ahead(batches: Iterator[B], device: torch.device) -> Iterator[B]:
    """The same tuples of tensors, each begun before the one before it is used, for a GPU."""
    return _on_side_stream(batches, device) if device.type == "cuda" else batches


def _on_side_stream(batches: Iterator[B], device: torch.device) -> Iterator[B]:
    """Copies, and what changes images there, run on a stream of their own.

    It waits for what the device was given before, so that tensors that are kept there are whole;
    the computation waits for it in turn, on the device and not on the host.
    """
    main = torch.cuda.current_stream(device)
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin() -> B | None:
        side.wait_stream(main)
        with torch.cuda.stream(side):
            return next(batches, None)

    batch = begin()
    while batch is not None:
        main.wait_stream(side)
        for tensor in batch:
            if isinstance(tensor, Tensor):
                tensor.record_stream(main)  # else its memory might be given away too early
        coming = begin()
        yield batch
        batch = coming
