"""Requests that wait are answered together, each with its own answer."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.lab import Batcher, Budget


@dataclass(eq=False)
class Doubling:
    """A network whose scores are twice the image, and which waits until it may answer."""

    may: threading.Event = field(default_factory=threading.Event)
    sizes: list[int] = field(default_factory=list)

    def scores(self, images: list[Any]) -> Any:
        assert self.may.wait(10)
        self.sizes.append(len(images))
        if any(image[0] < 0 for image in images):
            raise ValueError("negative")
        return 2 * np.stack(images)


def image(value: float) -> Any:
    return np.array([value], np.float32)


def ask(batcher: Any, model: Any, value: float) -> Any:
    return asyncio.create_task(batcher.scores(model, image(value)))


def test_what_comes_while_one_is_computed_is_the_next_batch() -> None:
    async def main() -> tuple[list[float], list[int]]:
        model, batcher = Doubling(), Batcher(most=4)
        asked = [ask(batcher, model, 0)]
        await asyncio.sleep(0.01)  # the first is computed alone: nobody waits for others
        asked += [ask(batcher, model, value) for value in range(1, 8)]
        await asyncio.sleep(0.01)
        model.may.set()
        return [float(row[0]) for row in await asyncio.gather(*asked)], model.sizes

    answers, sizes = asyncio.run(main())
    assert answers == [0, 2, 4, 6, 8, 10, 12, 14]
    assert sizes == [1, 4, 3]


def test_a_batch_is_of_one_model_and_without_those_who_left() -> None:
    async def main() -> tuple[Any, list[int], list[int]]:
        one, other, batcher = Doubling(), Doubling(), Batcher()
        first = ask(batcher, one, 1)
        await asyncio.sleep(0.01)
        asked = [ask(batcher, model, 2) for model in (one, one, other, other, other)]
        await asyncio.sleep(0.01)
        asked[4].cancel()
        await asyncio.sleep(0)
        one.may.set()
        other.may.set()
        rows = await asyncio.gather(first, *asked, return_exceptions=True)
        return rows, one.sizes, other.sizes

    rows, one, other = asyncio.run(main())
    assert (one, other) == ([1, 2], [2])
    assert isinstance(rows[5], asyncio.CancelledError)
    assert [float(row[0]) for row in rows[:5]] == [2, 4, 4, 4, 4]


def test_an_error_is_that_of_its_batch_alone() -> None:
    async def main() -> Any:
        model, batcher = Doubling(), Batcher()
        model.may.set()
        bad = await asyncio.gather(ask(batcher, model, -1), return_exceptions=True)
        return bad, await ask(batcher, model, 3)

    bad, good = asyncio.run(main())
    assert isinstance(bad[0], ValueError)
    assert good[0] == 6


def test_bytes_beyond_the_budget_wait_for_room() -> None:
    held, most = 0, 0

    async def hold(budget: Any, size: int) -> None:
        nonlocal held, most
        async with budget.taken(size):
            held += size
            most = max(most, held)
            await asyncio.sleep(0.001)
            held -= size

    async def main() -> None:
        budget = Budget(10)
        async with asyncio.timeout(10):
            await asyncio.gather(*(hold(budget, 1 + number % 7) for number in range(100)))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), budget.taken(4), budget.taken(7):
                    pass
            async with budget.taken(10):  # who waited too long has given back what it held
                pass

    asyncio.run(main())
    assert 7 <= most <= 10
