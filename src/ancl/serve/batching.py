"""Requests that wait are answered together: one call of the network for many images."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import NamedTuple

from ancl.picture import Pixels
from ancl.serve.model import Model, Scores

MOST = 8
"""How many images one call of the network answers, at most.

On a processor an image costs least in calls of up to 8. In calls of 32 it costs a fifth to two
fifths more (ResNet-8 at 32 and EfficientNet-Lite0 at 224 pixels): layers leave the cache.
"""


class _Waiting(NamedTuple):
    model: Model
    image: Pixels
    scores: asyncio.Future[Scores]


class Batcher:
    """Answers images in batches; nobody waits for a batch to fill.

    While one batch is computed, images that come wait, and are the next one. A single client is
    answered at once.

    Args:
        most: The largest number of images in a batch.
        observe: Receives the size of every batch.
    """

    def __init__(
        self, most: int = MOST, observe: Callable[[int], None] = lambda size: None
    ) -> None:
        self._most, self._observe = most, observe
        self._waiting: deque[_Waiting] = deque()
        self._computer = ThreadPoolExecutor(1, "network")
        self._at_work: asyncio.Task[None] | None = None

    async def scores(self, model: Model, image: Pixels) -> Scores:
        """The scores of an image."""
        result: asyncio.Future[Scores] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(model, image, result))
        if self._at_work is None:
            self._at_work = asyncio.create_task(self._work())
        return await result

    async def _work(self) -> None:
        """Compute batches until nobody waits."""
        while batch := self._next():
            model, images = batch[0].model, [waiting.image for waiting in batch]
            self._observe(len(batch))
            loop = asyncio.get_running_loop()
            try:
                rows = await loop.run_in_executor(self._computer, model.scores, images)
            except Exception as error:
                for waiting in batch:
                    if not waiting.scores.done():
                        waiting.scores.set_exception(error)
                continue
            for waiting, row in zip(batch, rows, strict=True):
                if not waiting.scores.done():  # its client may have left, or waited too long
                    waiting.scores.set_result(row)
        self._at_work = None

    def _next(self) -> list[_Waiting]:
        """The images that waited longest, of one model; those of clients that left are dropped."""
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < self._most:
            if batch and self._waiting[0].model is not batch[0].model:
                break
            waiting = self._waiting.popleft()
            if not waiting.scores.done():
                batch.append(waiting)
        return batch


class Budget:
    """Bytes that may be held at once; who comes later waits for room.

    Args:
        size: How many.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Wait for room for this many bytes, and hold it within the block."""
        while self._free < size:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room
        self._free -= size
        try:
            yield
        finally:
            self._free += size
            while self._waiting:
                room = self._waiting.popleft()
                if not room.done():
                    room.set_result(None)
