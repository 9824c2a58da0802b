"""One rule for what a prune removes: its dry run announces exactly that."""

from pathlib import Path

import pytest
import torch

from ancl import RunSpec, Store, StoreError, run
from tests.lab import (
    Layer,
    Pruned,
    StageResult,
    needed_keys,
    prepare_run,
    prune,
    resolve,
    run_directory,
)


def entry(size: int) -> StageResult:
    return StageResult({"network/w": torch.zeros(size)}, {"stage": "main", "task": 0})


def spec(method: str) -> RunSpec:
    given = {"training.epochs": 1, "data.tasks": 2, "threads": 1, "data.per_class": 20}
    return resolve(method, "digits/5", [Layer("test", given)]).spec


def test_a_dry_run_to_a_size_announces_what_the_prune_removes(tmp_path: Path) -> None:
    store, stopped = Store(tmp_path / ".store"), spec("lwf")
    needed = ["1" * 64, "2" * 64]
    prepare_run(run_directory(tmp_path, stopped), stopped, needed)
    assert needed_keys(tmp_path) == set(needed)
    for key in ("aaa", "bbb", "ccc"):
        store.save(key, entry(500))
    store.save_checkpoint(needed[0], entry(5000))  # kept, and larger than all entries
    store.save_checkpoint("ddd", entry(50))  # nobody needs it
    size = sum(info.bytes for info in store.entries())

    told = prune(tmp_path, max_bytes=size, dry_run=True)
    assert len(list(store.entries())) == 3
    assert store.load_checkpoint("ddd") is not None
    done = prune(tmp_path, max_bytes=size)

    assert told == done
    assert done.removed == 3
    assert list(store.entries()) == []
    assert store.load_checkpoint(needed[0]) is not None
    assert prune(tmp_path, max_bytes=size) == Pruned(0, 0)


def test_what_runs_need_is_kept(tmp_path: Path) -> None:
    result = run(spec("lwf"), runs=tmp_path)
    Store(tmp_path / ".store").save("aaa", entry(10))

    assert needed_keys(tmp_path) == set(result.keys)
    assert prune(tmp_path).removed == 1
    assert prune(tmp_path, keep_runs=False, dry_run=True).removed == len(result.keys)
    with pytest.raises(StoreError, match="There is no directory"):
        prune(tmp_path / "elsewhere")


def stranger(runs: Path, ran: Path) -> Path:
    """A stopped run of somebody else, whose method is a file that does something."""
    evil = runs.parent / "evil.py"
    evil.write_text(f"open({str(ran)!r}, 'w')\ndef m(): pass\ndef data(): pass\n")
    mine = spec("lwf")
    forged = mine.model_copy(update={"method": f"{evil}:m", "network": {"name": f"{evil}:m"}})
    directory = run_directory(runs, mine)
    prepare_run(directory, forged, ["1" * 64])
    return directory


def test_neither_prune_nor_report_imports_what_a_stranger_names(tmp_path: Path) -> None:
    ran, runs = tmp_path / "ran", tmp_path / "runs"
    directory = stranger(runs, ran)

    assert needed_keys(runs) == {"1" * 64}
    (directory / "stages.json").unlink()
    with pytest.raises(StoreError, match="not known what these need"):
        prune(runs)

    assert not ran.exists()


def test_a_prune_removes_only_entries_and_locks_of_ours(tmp_path: Path) -> None:
    store = Store(tmp_path / ".store")
    store.save("aaa", entry(10))
    theirs = tmp_path / ".store" / "entries" / "bb" / "bbb"
    theirs.mkdir(parents=True)
    (theirs / "tensors.safetensors").write_bytes(b"weights")
    named = tmp_path / ".store" / "entries" / "cc" / "ccc"
    named.mkdir(parents=True)
    (named / "entry.json").write_text("{}")
    lock = tmp_path / ".store" / "locks" / "mine.lock"
    lock.parent.mkdir()
    lock.write_text("a list of locks")

    assert prune(tmp_path, keep_runs=False).removed == 1

    assert (theirs / "tensors.safetensors").read_bytes() == b"weights"
    assert (named / "entry.json").read_text() == "{}"
    assert lock.read_text() == "a list of locks"
