"""A memory that takes every batch as soon as it has been learned, as public online code does."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.data import Batches, ReplayStream
from ancl.memory import Record
from ancl.reservoirs import arrival_keys, share_by_keys
from ancl.types import Output, Params, prefixed, strip_prefix


@dataclass(frozen=True)
class Renewal:
    """How a memory is renewed within a task.

    Args:
        selection: ``reservoir`` or ``balanced``.
        count: The number of images that it may hold.
        records: What it keeps of each image besides, of the output of the step that learned it: of
            the image as it was augmented, in training mode, before the weights were changed.
    """

    selection: str
    count: int
    records: tuple[Record, ...] = ()

    def stream(self, batches: Batches, extra: Params, kept: int, seed: int) -> "RenewedStream":
        """What is replayed.

        Args:
            batches: The images that the memory held before, then those of the task.
            extra: What was recorded of the former.
            kept: The number of the former.
            seed: By which images are kept.
        """
        rows = len(batches.samples)
        whole = {name: _padded(value, rows, value.shape[1]) for name, value in extra.items()}
        keys = arrival_keys(batches.samples, seed)
        return RenewedStream(
            batches, whole, held=torch.arange(kept), renewal=self, keys=keys, kept=kept
        )


@dataclass(eq=False, kw_only=True)
class RenewedStream(ReplayStream):
    """Batches drawn from what a memory holds at the moment; see ``Renewal.stream``."""

    held: Tensor
    renewal: Renewal
    keys: Tensor
    kept: int

    def learned(self, positions: Tensor, output: Output) -> None:
        """Take the task's images at these positions, which have been learned.

        Args:
            positions: Among the task's images.
            output: What the network answered for them.
        """
        rows = positions + self.kept
        for record in self.renewal.records:
            values, whole = record.of(output).detach().cpu(), self.extra.get(record.name)
            if whole is None or whole.shape[1] < values.shape[1]:
                before = torch.zeros(0, 0) if whole is None else whole
                whole = _padded(before, len(self.keys), values.shape[1])
                self.extra[record.name] = whole
            whole[rows, : values.shape[1]] = values
        # An image comes again in the next epoch.
        both = torch.cat([self.held, rows[~torch.isin(rows, self.held)]]).sort().values
        y = self.batches.samples.y[both]
        stays = share_by_keys(self.renewal.selection, self.keys[both], y, self.renewal.count)
        self.held = both[stays]

    def state(self) -> Params:
        """What the memory holds, as positions, and what was recorded; see ``recorded_extra``."""
        known = {name: ~rows.isnan() for name, rows in self.extra.items()}
        values = {name: rows.nan_to_num(nan=0.0) for name, rows in self.extra.items()}
        return {"held": self.held.clone(), **prefixed("known", known), **prefixed("extra", values)}

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``."""
        self.held, self.extra = state["held"], recorded_extra(state)


def recorded_extra(state: Params) -> Params:
    """What was recorded, of a state, which holds no NaN: a network is stored beside it."""
    known = strip_prefix("known", state)
    extra = strip_prefix("extra", state)
    return {name: rows.masked_fill(~known[name], math.nan) for name, rows in extra.items()}


def _padded(values: Tensor, rows: int, columns: int) -> Tensor:
    whole = torch.full((rows, columns), math.nan)
    whole[: len(values), : values.shape[1]] = values
    return whole
