from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.lab import MemoryStore, Points, Score, StageResult, evaluate_points


class Fake:
    """Counts points; interrupts at one if asked to."""

    def __init__(self, stop: int | None = None) -> None:
        self.seen: list[float] = []
        self.stop = stop

    def at(self, weights: Tensor) -> list[Score]:
        if len(self.seen) == self.stop:
            raise KeyboardInterrupt
        self.seen.append(float(weights))
        return [Score(float(weights), 0.5, 0.25)]


class Keeping(MemoryStore):
    """Remembers checkpoints as a store on disk does."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, StageResult] = {}

    def load_checkpoint(self, key: str) -> StageResult | None:
        return self.kept.get(key)

    def save_checkpoint(self, key: str, entry: StageResult) -> None:
        self.kept[key] = entry

    def drop_checkpoint(self, key: str) -> None:
        self.kept.pop(key, None)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        yield


def points(count: int = 5, **identity: Any) -> Points:
    weights = [lambda value=value: torch.tensor(float(value)) for value in range(count)]
    return Points("points", 1, {"networks": ["a"], **identity}, weights)


def test_points_are_measured_once_and_found_again() -> None:
    store, first, second, notes = Keeping(), Fake(), Fake(), list[str]()

    found = evaluate_points(points(), first, store, notes.append)  # type: ignore[arg-type]
    again = evaluate_points(points(), second, store, notes.append)  # type: ignore[arg-type]

    assert [scores[0].loss for scores in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert again == found
    assert second.seen == []
    assert len(notes) == 1
    assert notes[0].startswith("points: 3 more points at 0.0")


def test_other_images_or_networks_are_another_points() -> None:
    keys = {
        points().key,
        points(split="val").key,
        points(images=10).key,
        points(networks=["b"]).key,
    }

    assert len(keys) == 4


def test_a_stopped_evaluation_is_resumed() -> None:
    store, rest = Keeping(), Fake()

    with pytest.raises(KeyboardInterrupt):
        evaluate_points(points(), Fake(stop=3), store, lambda text: None)  # type: ignore[arg-type]
    found = evaluate_points(points(), rest, store, lambda text: None)  # type: ignore[arg-type]

    assert rest.seen == [3.0, 4.0]
    assert [scores[0].loss for scores in found] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert store.kept == {}
