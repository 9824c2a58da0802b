"""What every computation that is stored has in common: one result per key, and checkpoints."""

from pathlib import Path

import pytest
import torch

from ancl import Store
from tests.lab import CheckpointWriter, StageResult, obtained


def test_a_stored_result_is_loaded_and_a_missing_one_computed_and_saved(tmp_path: Path) -> None:
    store, computed = Store(tmp_path), list[int]()

    def compute() -> StageResult:
        computed.append(1)
        return StageResult({"x": torch.ones(2)}, {"stage": "own"})

    key = "a" * 64
    store.save_checkpoint(key, StageResult({}, {}))
    first, second = obtained(store, key, compute), obtained(store, key, compute)

    assert computed == [1]
    assert torch.equal(first.tensors["x"], second.tensors["x"])
    assert store.load_checkpoint(key) is None


def test_an_interrupt_saves_the_newest_state_and_an_error_none(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def stop(key: str, error: type[BaseException]) -> None:
        with CheckpointWriter(store, key) as checkpoint:
            for step in range(3):
                checkpoint.offer(StageResult({}, {"step": step}))
            raise error

    with pytest.raises(KeyboardInterrupt):
        stop("a" * 64, KeyboardInterrupt)
    with pytest.raises(ValueError):  # noqa: PT011 - any error will do
        stop("b" * 64, ValueError)

    saved = store.load_checkpoint("a" * 64)
    assert saved is not None
    assert saved.meta["step"] == 2
    assert store.load_checkpoint("b" * 64) is None
