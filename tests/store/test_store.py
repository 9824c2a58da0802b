"""The store as its users meet it: damage, full disks, two processes, pruning."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ancl import Store, StoreError
from tests.lab import HEADER, TENSORS, StageResult, patch_part, read_entry


def entry(value: float = 1.0, size: int = 100, **meta: object) -> StageResult:
    return StageResult({"x": torch.full((size,), value)}, dict(meta))


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> Store:
    return Store(tmp_path / "store", said.append)


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_nothing_is_created_before_it_is_needed(store: Store) -> None:
    assert store.load("abc") is None
    assert not store.has("abc")
    assert list(store.entries()) == []
    assert store.prune([]) == (0, 0)
    assert not store.root.exists()


def test_an_entry_lies_under_the_first_two_letters_of_its_key(store: Store) -> None:
    store.save("abcdef", entry(2.0, stage="main"))
    loaded = store.load("abcdef")
    assert loaded is not None
    assert loaded.tensors["x"].eq(2.0).all()
    assert loaded.meta == {"stage": "main"}
    assert store.has("abcdef")
    assert not store.has("abcdee")
    assert files_below(store.root) == {f"entries/ab/abcdef/{name}" for name in (HEADER, TENSORS)}


def test_a_damaged_entry_is_reported_counts_as_absent_and_can_be_replaced(
    store: Store, said: list[str]
) -> None:
    store.save("abc", entry())
    store.save("abd", entry())
    directory = store.root / "entries" / "ab" / "abc"
    os.truncate(directory / TENSORS, 50)

    assert store.load("abc") is None
    assert len(said) == 1
    assert str(directory) in said[0]
    assert "50 bytes instead of" in said[0]
    assert said[0].endswith("it is computed again.")
    assert [key for key, _ in store.verify()] == ["abc"]
    assert {info.key: info.state == "ok" for info in store.entries()} == {"abc": False, "abd": True}

    store.save("abc", entry(5.0))
    loaded = store.load("abc")
    assert loaded is not None
    assert loaded.tensors["x"].eq(5.0).all()
    assert store.verify() == []


def test_warnings_go_to_standard_error_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    store.save("abc", entry())
    (tmp_path / "entries" / "ab" / "abc" / TENSORS).unlink()
    assert store.load("abc") is None
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{TENSORS} is missing; it is computed again." in captured.err


def test_a_changed_tensor_is_found_by_verify_and_not_by_a_listing(store: Store) -> None:
    store.save("abc", entry())
    path = store.root / "entries" / "ab" / "abc" / TENSORS
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert [info.state for info in store.entries()] == ["ok"]
    assert store.verify() == [("abc", f"the checksum of {TENSORS} does not fit")]


def test_verify_tells_how_far_it_is_and_stops_at_once_where_it_is_told_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        store.save(f"{number:03d}", entry(size=10))
    os.truncate(store.root / "entries" / "00" / "003" / TENSORS, 7)
    told: list[tuple[int, int]] = []

    damaged = store.verify(lambda done, total: told.append((done, total)))

    assert [key for key, _ in damaged] == ["003"]
    assert told == [(done, 40) for done in range(1, 41)]

    checked: list[Path] = []

    def slow(directory: Path, key: str) -> None:
        checked.append(directory)
        time.sleep(0.02)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    patch_part(monkeypatch, "store_check_entry", slow)
    with pytest.raises(KeyboardInterrupt):
        store.verify(interrupt)
    assert len(checked) < 20


def test_tensors_that_fit_their_checksum_but_are_none_are_damaged(store: Store) -> None:
    directory = store.root / "entries" / "ab" / "abc"
    with pytest.MonkeyPatch.context() as patch:
        patch_part(patch, "encoded_tensors", lambda tensors: b"no tensors at all")
        store.save("abc", entry())
    assert [reason.split(":")[0] for _, reason in store.verify()] == [
        f"{TENSORS} cannot be decoded"
    ]
    with pytest.raises(StoreError, match="cannot be decoded"):
        read_entry(directory)


def test_an_entry_under_another_key_is_damaged(store: Store, said: list[str]) -> None:
    store.save("abc", entry())
    (store.root / "entries" / "ab" / "abc").rename(store.root / "entries" / "ab" / "abd")
    assert store.load("abd") is None
    assert "it was written as abc" in said[0]


def test_checkpoints_are_apart_from_entries_and_replace_each_other(
    store: Store, said: list[str]
) -> None:
    assert store.load_checkpoint("abc") is None
    store.save_checkpoint("abc", entry(epoch=1))
    store.save_checkpoint("abc", entry(epoch=2))
    loaded = store.load_checkpoint("abc")
    assert loaded is not None
    assert loaded.meta == {"epoch": 2}
    assert not store.has("abc")

    (store.root / "checkpoints" / "abc" / HEADER).write_text("{}")
    assert store.load_checkpoint("abc") is None
    assert "foreign" in said[0]

    store.drop_checkpoint("abc")
    store.drop_checkpoint("abc")
    assert files_below(store.root) == set()
    assert len(said) == 1


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (errno.ENOSPC, "No space left on device", "ancl store prune"),
        (errno.EROFS, "Read-only file system", "--store DIR"),
        (errno.EACCES, "Permission denied", "--store DIR"),
    ],
)
@pytest.mark.parametrize("write", ["save", "save_checkpoint"])
def test_a_failed_write_is_explained_and_leaves_the_old_state(
    store: Store, monkeypatch: pytest.MonkeyPatch, write: str, code: int, reason: str, remedy: str
) -> None:
    getattr(store, write)("abc", entry(1.0))
    before = files_below(store.root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(code))
        with pytest.raises(StoreError) as caught:
            getattr(store, write)("abc", entry(2.0))
    message = str(caught.value)
    for part in (str(store.root), reason, remedy, "finished before is kept", "same command"):
        assert part in message
    assert files_below(store.root) == before
    loaded = getattr(store, write.replace("save", "load"))("abc")
    assert loaded.tensors["x"].eq(1.0).all()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_met_by_a_real_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def open_full(self: Path, mode: str = "r") -> object:
        return open("/dev/full", mode) if "w" in mode else real(self, mode)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.save("abc", entry(size=100_000))
    monkeypatch.undo()
    assert files_below(store.root) == set()
    assert [path.name for path in (store.root / "entries" / "ab").iterdir()] == []


def test_check_passes_on_a_new_directory_and_leaves_no_file(store: Store) -> None:
    store.check()
    assert store.root.is_dir()
    assert files_below(store.root) == set()


def test_check_explains_a_directory_that_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, data: bytes) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_bytes", denied)
    with pytest.raises(StoreError) as caught:
        store.check()
    assert f"The store {store.root} is not writable: Permission denied" in str(caught.value)
    assert "--store DIR" in str(caught.value)


def test_check_explains_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("notes")
    with pytest.raises(StoreError, match=r"is not writable: (Not a directory|File exists)"):
        Store(tmp_path / "store").check()
    assert (tmp_path / "store").read_text() == "notes"


def test_loading_marks_the_time_of_use_and_tolerates_a_read_only_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save("abc", entry())
    for name in (HEADER, TENSORS):
        os.utime(store.root / "entries" / "ab" / "abc" / name, (1e9, 1e9))
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", failing(errno.EROFS))
        assert store.load("abc") is not None
    assert next(store.entries()).modified == 1e9
    store.load("abc")
    assert time.time() - next(store.entries()).modified < 60


def test_an_error_inside_a_lock_is_not_mistaken_for_one_of_the_store(store: Store) -> None:
    with pytest.raises(OSError, match="data set"), store.lock("abc"):
        raise OSError("the data set is gone")


def test_a_listing_names_stages_tasks_and_sizes(store: Store) -> None:
    store.save("bbb", entry(size=1000, stage="main", task=3))
    store.save("aaa", entry(size=10))
    first, second = store.entries()
    assert (first.key, first.stage, first.task, first.state) == ("aaa", "", None, "ok")
    assert (second.key, second.stage, second.task, second.state) == ("bbb", "main", 3, "ok")
    directory = store.root / "entries" / "bb" / "bbb"
    assert second.bytes == sum(path.stat().st_size for path in directory.iterdir()) > 4000


def test_300_entries_are_listed_in_less_than_300_ms(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        for number in range(300):
            store.save(f"{number * 7919 % 997:03d}{number}", entry(size=10, stage="main", task=1))
    start = time.process_time()
    found = list(store.entries())
    assert time.process_time() - start < 0.3
    assert len(found) == 300


def test_prune_removes_all_that_is_not_kept(store: Store) -> None:
    for key in ("aaa", "bbb", "ccc"):
        store.save(key, entry())
    size = sum(info.bytes for info in store.entries() if info.key != "bbb")
    assert store.prune(["bbb", "unknown"]) == (2, size)
    assert [info.key for info in store.entries()] == ["bbb"]
    assert store.load("bbb") is not None


def test_prune_to_a_size_removes_the_least_recently_used_first(store: Store) -> None:
    for age, key in enumerate(("aaa", "bbb", "ccc", "ddd")):
        store.save(key, entry())
        for path in (store.root / "entries" / key[:2] / key).iterdir():
            os.utime(path, (1e9 - age, 1e9 - age))
    store.load("ddd")
    one = next(store.entries()).bytes
    assert store.prune([], max_bytes=4 * one) == (0, 0)
    # oldest first: ccc is kept, so bbb goes; ddd was used just now
    assert store.prune(["ccc"], max_bytes=3 * one) == (1, one)
    assert [info.key for info in store.entries()] == ["aaa", "ccc", "ddd"]
    assert store.prune(["ccc"], max_bytes=0) == (2, 2 * one)
    assert [info.key for info in store.entries()] == ["ccc"]


def test_prune_removes_checkpoints_of_finished_and_of_unknown_stages(store: Store) -> None:
    store.save("done", entry())
    for key in ("done", "open", "gone"):
        store.save_checkpoint(key, entry(size=500))
    removed, freed = store.prune(["done", "open"])
    assert removed == 0
    assert freed > 4000
    assert store.load_checkpoint("open") is not None
    assert store.load_checkpoint("done") is None
    assert store.load_checkpoint("gone") is None
    assert store.load("done") is not None


def test_prune_removes_old_temporaries_and_leaves_new_ones(store: Store) -> None:
    store.save("abc", entry())
    shard = store.root / "entries" / "ab"
    for name in (".abc.1.tmp", ".abc.2.tmp", ".abc.old"):
        (shard / name).mkdir()
        (shard / name / TENSORS).write_bytes(bytes(10))
    for name in (".abc.1.tmp", ".abc.old"):
        os.utime(shard / name, (1e9, 1e9))
    assert store.prune(["abc"]) == (0, 20)
    assert sorted(path.name for path in shard.iterdir()) == [".abc.2.tmp", "abc"]


def test_prune_never_removes_a_directory_with_other_files(store: Store) -> None:
    theirs = store.root / "checkpoints" / "my-model"
    theirs.mkdir(parents=True)
    (theirs / "weights.pt").write_text("years of work")
    assert store.prune([]) == (0, 0)
    assert (theirs / "weights.pt").read_text() == "years of work"
