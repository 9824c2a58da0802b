"""The places of learners: no work is replaced, nothing strange is touched, nothing is left."""

import os
import re
import shutil
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ancl
from ancl import AnclError, Events, Learner, StoreError, Training
from tests.lab import HEADER, PARTS, TENSORS, delete, discard, exchange, flush, patch_part

TRAINING = Training(epochs=1, batch_size=8)
SETTINGS = {"training.epochs": 1, "network.hidden": [8]}
TEXT = "a stranger's"


class Count(Events):
    """Counts the epochs, and keeps what is said."""

    def __init__(self) -> None:
        self.epochs, self.said = 0, list[str]()

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1

    def say(self, message: str) -> None:
        self.said.append(message)


def images(*labels: str) -> tuple[Tensor, list[str]]:
    draw = torch.Generator().manual_seed(sum(map(ord, "".join(labels))))
    x = torch.randint(0, 256, (6 * len(labels), 8, 8, 1), generator=draw).to(torch.uint8)
    return x, [label for label in labels for _ in range(6)]


def made() -> Learner:
    return Learner(
        "lwf", "mlp", training=TRAINING, network_options={"hidden": (8,)}, events=Events()
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory, write_digits: Callable[..., str]) -> str:
    """A month of images."""
    return write_digits(tmp_path_factory.mktemp("data") / "m", {"c": 2, "d": 3}, each=6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A learner of one task."""
    learner = made()
    learner.learn(*images("a", "b"))
    place: Path = tmp_path_factory.mktemp("saved") / "L"
    learner.save(place)
    return place


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "L")
    return tmp_path / "L"


def contents(folder: Path) -> dict[str, bytes | str | None]:
    """All that is below a folder; links as what they name."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


# -- no lost update --------------------------------------------------------------------------


def test_a_learner_that_changed_meanwhile_is_not_replaced(place: Path) -> None:
    first, second = Learner.load(place), Learner.load(place)
    first.learn(*images("c", "d"))
    second.learn(*images("e", "f"))
    first.save(place)
    first.save(place)  # what it saved itself is its own

    with pytest.raises(StoreError, match="has changed since this one was read") as caught:
        second.save(place)

    assert "overwrite=True" in str(caught.value)
    assert Learner.load(place).tasks == [["a", "b"], ["c", "d"]]
    second.save(place, overwrite=True)
    assert Learner.load(place).tasks == [["a", "b"], ["e", "f"]]
    assert os.listdir(place.parent) == ["L"]


def test_a_learner_is_not_replaced_by_one_that_did_not_come_from_it(place: Path) -> None:
    other = made()
    other.learn(*images("x", "y"))
    before = contents(place)
    with pytest.raises(StoreError, match="holds another learner"):
        other.save(place)
    assert contents(place) == before

    later = Learner.load(place)
    later.learn(*images("c", "d"))
    shutil.copytree(place, place.with_name("copy"))
    later.save(place.with_name("copy"))  # a copy of what it came from
    assert Learner.load(place.with_name("copy")).tasks == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_reader_finds_a_whole_learner_at_every_moment(
    exchange: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        patch_part(monkeypatch, "exchange", lambda one, other: False)
    old, new = Learner.load(place), Learner.load(place)
    new.learn(*images("c", "d"))
    new._descent = old._descent  # each came from the other: they replace each other for ever
    done, failed = threading.Event(), list[Exception]()

    def write() -> None:
        try:
            while not done.is_set():
                for learner in (new, old):
                    learner.save(place)
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [len(Learner.load(place).tasks) for _ in range(60)]
    finally:
        done.set()
        writer.join()

    assert not failed
    assert set(seen) == {1, 2}


@pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged on Linux")
def test_the_name_of_a_learner_never_vanishes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[bool] = []
    steps = {"exchange": exchange, "flush": flush, "discard": discard, "delete": delete}
    for name, step in steps.items():

        def watched(*args: Any, step: Callable[..., Any] = step) -> Any:
            there.append((place / HEADER).is_file() and any((place / PARTS).iterdir()))
            result = step(*args)
            there.append((place / HEADER).is_file() and any((place / PARTS).iterdir()))
            return result

        patch_part(monkeypatch, name, watched)
    Learner.load(place).save(place)
    assert len(there) >= 6
    assert all(there)


# -- places ----------------------------------------------------------------------------------


def strange(path: Path, kind: str) -> None:
    """Put a stranger's file, directory or link into a place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
        (path / "notes").write_text(TEXT)
    elif kind == "file":
        path.write_text(TEXT)
    else:
        path.symlink_to(path.parent.parent / "elsewhere")


_WATCHED: list[set[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHED:
        return
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | 2):
        _WATCHED[-1].add(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else "")
    elif event == "os.mkdir":
        _WATCHED[-1].add(os.fsdecode(arguments[0]))
    elif event == "os.rename":
        _WATCHED[-1].add(os.fsdecode(arguments[1]))


@pytest.fixture(scope="module")
def written(saved: Path, source: str, tmp_path_factory) -> dict[str, str]:
    """Every path that learn, save and export write, one for each form of a name."""
    sys.addaudithook(_audit)
    work: Path = tmp_path_factory.mktemp("watched") / "work"
    shutil.copytree(saved, work / "L")
    _WATCHED.append(set())
    try:
        taught = ancl.teach(work / "L", source, output=work / "new")
        ancl.teach(work / "L", source)
        taught.learner.export(work / "m.pt2")
    finally:
        paths = _WATCHED.pop()
    forms: dict[str, str] = {}
    for path in sorted(paths):
        name = os.path.relpath(path, work)
        if name.startswith("..") or name == "." or re.search(r"\b[0-9a-f]{32}\b", name):
            continue  # a name that nobody has had before
        form = re.sub(r"/[0-9a-f]{2}(?=/|$)", "/XX", re.sub(r"[0-9a-f]{64}", "KEY", name))
        forms[form] = name
    # Written under a temporary name first, or only where names cannot be exchanged, or only after
    # a long training.
    unseen = (f"L/{HEADER}", f"L/{TENSORS}", "L/README.md", "L", "new", ".L.old", ".new.old")
    unseen += (f"L/{PARTS}", f"L/{PARTS}/{HEADER}", f"L/{PARTS}/README.md")
    for name in (*unseen, ".L.learning/checkpoints", ".new.learning/checkpoints"):
        forms[name] = name
    return forms


def test_all_that_is_written_is_known(written: dict[str, str]) -> None:
    """The list below is what the next test goes through: a new path must be thought of here."""
    rooms = {f".{name}.learning" for name in ("L", "new")}
    inside = ("lock", "entries", "entries/XX", "entries/XX/KEY", "checkpoints", "locks")
    expected = rooms | {f"{room}/{part}" for room in rooms for part in (*inside, "locks/KEY.lock")}
    expected |= {"L", f"L/{HEADER}", f"L/{TENSORS}", "L/README.md", ".L.old", ".new.old"}
    expected |= {"new", "m.pt2", "m.pt2.md"}
    expected |= {f"L/{PARTS}", f"L/{PARTS}/{HEADER}", f"L/{PARTS}/README.md"}
    assert set(written) == expected


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_strangers_thing_is_refused_before_training_or_left_alone(
    kind: str, written: dict[str, str], saved: Path, source: str, tmp_path: Path
) -> None:
    refused = set[str]()
    for number, (form, name) in enumerate(written.items()):
        folder = tmp_path / str(number)
        shutil.copytree(saved, folder / "work" / "L")
        (folder / "elsewhere").mkdir()
        (folder / "elsewhere" / "notes").write_text(TEXT)
        path = folder / "work" / name
        strange(path, kind)
        mine = contents(path) if path.is_dir() else None
        text = os.readlink(path) if path.is_symlink() else None
        counted = Count()
        try:
            if name.startswith("m.pt2"):
                Learner.load(folder / "work" / "L").export(folder / "work" / "m.pt2")
            else:
                to = folder / "work" / ("new" if "new" in name else "L")
                ancl.teach(folder / "work" / "L", source, output=to, events=counted)
        except AnclError:
            refused.add(form)
        # Below the names of our own stages nobody looks before a stage is stored.
        assert form not in refused or counted.epochs == 0 or "/entries/XX" in form, form
        assert (folder / "elsewhere" / "notes").read_text() == TEXT, form
        if text is not None:
            assert os.readlink(path) == text, form
        elif mine is not None:
            assert mine.items() <= contents(path).items(), form
        else:
            assert path.read_text() == TEXT, form
    always = {f"L/{HEADER}", f"L/{TENSORS}", "L/README.md", ".L.learning/lock", "m.pt2", "m.pt2.md"}
    always |= {f"L/{PARTS}", f"L/{PARTS}/{HEADER}", f"L/{PARTS}/README.md"}
    if kind != "link":
        assert always <= refused
    if kind != "directory":
        assert {".L.learning", ".new.learning"} <= refused
    assert {"L", f"L/{HEADER}", f"L/{TENSORS}", ".L.learning/lock"} <= refused


def edit_readme(place: Path) -> None:
    card = place / "README.md"
    card.write_text(card.read_text() + "\nMy own remark.\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [(lambda place: (place / ".DS_Store").touch(), ".DS_Store"), (edit_readme, "README.md")],
)
def test_what_is_not_ours_inside_is_named_before_training(
    change: Callable[[Path], None], named: str, place: Path, source: str
) -> None:
    change(place)
    before, counted = contents(place.parent), Count()

    with pytest.raises(StoreError, match=rf"did not write it as it is \({named}\)"):
        ancl.teach(place, source, events=counted)
    with pytest.raises(StoreError, match=named):
        Learner.load(place).save(place)

    assert counted.epochs == 0
    assert contents(place.parent) == before
    ancl.teach(place, source, overwrite=True, events=counted)
    assert len(Learner.load(place).tasks) == 2


def test_an_occupied_output_is_refused_before_training(place: Path, source: str) -> None:
    junk, counted = place.with_name("junk"), Count()
    strange(junk, "directory")
    before = contents(place.parent)
    with pytest.raises(StoreError, match=r"junk exists, and ancl did not write it .*notes"):
        ancl.teach(place, source, output=junk, events=counted)
    assert counted.epochs == 0
    assert contents(place.parent) == before


def test_a_link_to_a_learner_is_followed(place: Path, source: str) -> None:
    link = place.with_name("cur")
    link.symlink_to("L")
    taught = ancl.teach(link, source)
    assert taught.directory == place
    assert os.readlink(link) == "L"
    assert Learner.load(link).tasks == Learner.load(place).tasks == [["a", "b"], ["c", "d"]]
    assert sorted(os.listdir(place.parent)) == ["L", "cur"]

    loaded = Learner.load(link)
    loaded.learn(*images("e", "f"))
    loaded.save(link)
    assert (os.readlink(link), len(Learner.load(place).tasks)) == ("L", 3)
    link.unlink()
    link.symlink_to("gone")
    with pytest.raises(StoreError, match=r"is a link to .*gone, which does not exist"):
        ancl.teach(link, source, method="lwf")


@pytest.mark.parametrize("inside", ["model.pt2", "deep/model.pt2"])
def test_an_export_into_a_learner_is_refused_at_once(inside: str, place: Path) -> None:
    before = contents(place.parent)
    with pytest.raises(StoreError, match=r"is inside the learner .* Give a name outside it"):
        Learner.load(place).export(place / inside)
    with pytest.raises(StoreError, match="is inside the learner"):
        Learner.load(place).save(place / inside)
    with pytest.raises(StoreError, match=r"The store .* is inside"):
        ancl.teach(place, "folder:none", store=place / inside)
    assert contents(place.parent) == before


def test_what_comes_while_a_learner_is_replaced_goes_along(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(one: Path, other: Path) -> bool:
        (place / "late.txt").write_text(TEXT)
        return exchange(one, other)

    patch_part(monkeypatch, "exchange", late)
    learner = Learner.load(place)
    learner.learn(*images("c", "d"))
    learner.save(place)
    assert (place / "late.txt").read_text() == TEXT
    assert len(Learner.load(place).tasks) == 2
    assert os.listdir(place.parent) == ["L"]


# -- what a kill leaves ----------------------------------------------------------------------


def left(place: Path, form: str) -> Path:
    """What a writer leaves that is killed at some moment."""
    temporary = place.with_name(f".L.{uuid.uuid4().hex}.tmp")
    if form == "whole":
        shutil.copytree(place, temporary)
        return temporary
    temporary.mkdir()
    if form != "empty":
        header = (place / HEADER).read_bytes()
        (temporary / HEADER).write_bytes(header[: {"begun": 9, "half": 200}.get(form, len(header))])
    if form == "no text":
        (temporary / PARTS).mkdir()
        part = next((place / PARTS).iterdir())
        (temporary / PARTS / part.name).write_bytes(part.read_bytes()[:9])
        (temporary / "README.md").touch()
    return temporary


@pytest.mark.parametrize("form", ["whole", "empty", "begun", "half", "no text"])
def test_what_a_kill_left_is_removed_by_the_next_command(form: str, place: Path) -> None:
    left(place, form)
    ancl.open_learner(place, events=Events())
    assert os.listdir(place.parent) == ["L"]
    left(place, form)
    Learner.load(place).save(place)
    assert os.listdir(place.parent) == ["L"]


def test_what_only_looks_like_it_stays_and_is_named(place: Path, source: str) -> None:
    strangers = [
        place.with_name(f".L.{uuid.uuid4().hex}.tmp"),
        place.with_name(".L.notes.tmp"),
        place.with_name(f".L2.{uuid.uuid4().hex}.tmp"),
    ]
    for path in strangers:
        strange(path, "directory")
    mixed = left(place, "whole")
    (mixed / "holiday.png").write_text(TEXT)
    counted = Count()

    ancl.teach(place, source, events=counted)

    assert all((path / "notes").read_text() == TEXT for path in strangers)
    assert (mixed / "holiday.png").read_text() == TEXT
    (said,) = [message for message in counted.said if "may have left" in message]
    assert strangers[0].name in said
    assert mixed.name in said
    assert ".L.notes.tmp" not in said


def test_a_store_whose_learner_was_saved_is_removed(place: Path, source: str) -> None:
    """Killed between the saving and the end: the same command has nothing to do, but cleans."""
    ancl.teach(place, source, store=place.with_name(".L.learning"))
    assert place.with_name(".L.learning").is_dir()
    shard = next(place.with_name(".L.learning").glob("entries/*"))
    (shard / f".{'0' * 64}.{uuid.uuid4().hex}.tmp").mkdir()

    assert ancl.teach(place, source).found

    assert os.listdir(place.parent) == ["L"]
