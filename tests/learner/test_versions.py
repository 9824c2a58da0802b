"""Versions of a saved learner: listed, opened, gone back to, shared on disk and bounded."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ancl
from ancl import Events, Learner, Memory, StoreError
from tests.lab import (
    PARTS,
    Note,
    StageResult,
    add_version,
    digits,
    list_images,
    part_name,
    patch_part,
    read_bundle,
    read_version,
    read_versions,
    write_bundle,
    write_entry,
)


def part(*classes: int, skip: int = 0, count: int = 20) -> tuple[Tensor, list[str]]:
    train = digits().train
    index = torch.cat([train.of_class(number)[skip : skip + count] for number in classes])
    return train.x[index], [f"d{number}" for number in train.y[index].tolist()]


def begun(**options: Any) -> Learner:
    given = {
        "training": {"epochs": 2, "batch_size": 32},
        "network_options": {"hidden": (16,)},
        "memory": Memory(per_class=4),
    }
    return Learner("icarl", "mlp", events=Events(), **{**given, **options})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of two versions."""
    learner, directory = begun(), tmp_path_factory.mktemp("saved") / "L"
    learner.learn(*part(0, 1))
    learner.save(directory)
    learner.learn(*part(1, 2, 3, skip=20))
    learner.save(directory)
    return directory


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "L")
    return tmp_path / "L"


def load(place: Path, **options: Any) -> Learner:
    return Learner.load(place, events=Events(), **options)


def scores(place: Path, **options: Any) -> Tensor:
    return load(place, **options).scores(digits().test.x)


def test_a_version_says_what_it_is_and_answers_as_it_did(tmp_path: Path) -> None:
    learner, answers = begun(), []
    for task in (part(0, 1), part(1, 2, 3, skip=20)):
        learner.learn(*task)
        learner.save(tmp_path / "L")
        answers.append(learner.scores(digits().test.x))
    learner.save(tmp_path / "L")  # nothing was learned since: no new version

    first, second = ancl.versions(tmp_path / "L")

    assert (first.number, first.parent, second.number, second.parent) == (1, None, 2, 1)
    assert dict(first.images) == {"d0": 20, "d1": 20}
    assert dict(second.images) == {"d0": 20, "d1": 40, "d2": 20, "d3": 20}
    assert [row[:2] for row in second.held] == [
        ("classes known before", 4),
        ("new images of known classes", 2),
        ("new classes", 4),
    ]
    assert first.made.endswith("+00:00")
    for number, expected in enumerate(answers, start=1):
        assert torch.equal(scores(tmp_path / "L", version=number), expected)
    assert torch.equal(scores(tmp_path / "L"), answers[1])


def test_undo_goes_back_and_forth_and_what_is_learned_then_comes_from_there(place: Path) -> None:
    old, new = scores(place, version=1), scores(place, version=2)
    card = (place / "README.md").read_text()

    assert ancl.undo(place).number == 1
    assert torch.equal(scores(place), old)
    assert "A classifier of 2 classes" in (place / "README.md").read_text()
    assert ancl.undo(place, 2).number == 2
    assert torch.equal(scores(place), new)
    assert (place / "README.md").read_text() == card
    ancl.undo(place)
    learner = load(place)
    learner.learn(*part(5, 6))
    learner.save(place)

    assert [(v.number, v.parent) for v in ancl.versions(place)] == [(1, None), (2, 1), (3, 1)]
    assert load(place).classes == ["d0", "d1", "d5", "d6"]
    ancl.undo(place, 2)
    assert load(place).classes == ["d0", "d1", "d2", "d3"]


def test_what_cannot_be_gone_back_to_is_said(place: Path, tmp_path: Path) -> None:
    ancl.undo(place)
    before = files(place)
    with pytest.raises(StoreError, match="has no version before the one that it is at"):
        ancl.undo(place)
    for call in (lambda: ancl.undo(place, 7), lambda: load(place, version=7)):
        with pytest.raises(StoreError, match=r"has no version 7\. It has: 1, 2\."):
            call()
    with pytest.raises(StoreError, match="is not a saved learner"):
        ancl.undo(tmp_path / "none")
    assert files(place) == before
    assert os.listdir(tmp_path) == ["L"]


def test_an_earlier_version_does_not_replace_a_later_one(place: Path, tmp_path: Path) -> None:
    early = load(place, version=1)
    early.learn(*part(5, 6))
    with pytest.raises(StoreError, match=r"go back to it first: ancl undo .* --to N"):
        early.save(place)
    early.save(tmp_path / "other")

    assert len(ancl.versions(place)) == 2
    assert load(tmp_path / "other").classes == ["d0", "d1", "d5", "d6"]


def test_a_learner_of_an_earlier_form_says_so_in_one_line(tmp_path: Path) -> None:
    write_entry(tmp_path / "old", StageResult({"network/w": torch.zeros(3)}, {"kind": "learner 6"}))
    calls: list[Callable[[], object]] = [
        lambda: load(tmp_path / "old"),
        lambda: ancl.versions(tmp_path / "old"),
        lambda: ancl.undo(tmp_path / "old"),
        lambda: ancl.teach(tmp_path / "old", "folder:none"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"another version of ancl \(learner 6; ") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_every_image_is_listed_with_where_it_is_kept(tmp_path: Path) -> None:
    learner = Learner("slda", "mlp", events=Events())
    x, labels = part(0, 1, 2)
    learner.learn(x, labels, ids=[f"jan/{n}" for n in range(60)])
    learner.learn(*part(1, 3, skip=20), ids=[f"feb/{n}" for n in range(40)])
    learner.save(tmp_path / "S")

    listed = list_images(tmp_path / "S")

    assert [image.id for image in listed[::60]] == ["jan/0", "feb/0"]
    assert [image.label for image in listed[:60]] == labels
    assert {image.task for image in listed[60:]} == {2}
    assert {image.kept for image in listed} == {("statistics",)}
    held = {entry.hash for entry in learner.ledger if entry.held}
    assert {image.sha256 for image in listed if image.use == "validate"} == held


# -- disk ------------------------------------------------------------------------------------


def files(place: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in sorted(place.rglob("*")) if f.is_file()}


def test_what_versions_have_in_common_is_one_file(tmp_path: Path) -> None:
    """A network that never learns is the largest part, and the same in all versions."""
    frozen = nn.Linear(64, 300).requires_grad_(False)
    module = nn.Sequential(nn.Flatten(), frozen, nn.ReLU(), nn.Linear(300, 8))
    training = {"epochs": 2, "batch_size": 32}
    learner = Learner("icarl", module, training=training, memory=4, events=Events())
    place = tmp_path / "L"
    learner.learn(*part(0, 1))
    learner.save(place)
    base = read_version(place)[0].parts["base"]
    file, once = (place / PARTS / base).stat(), sum(map(len, files(place).values()))
    for number in (2, 4, 6):
        learner.learn(*part(number, number + 1))
        learner.save(place)

    kept = ancl.versions(place)
    assert {version.parts["base"] for version in kept} == {base}
    assert len({version.parts["images of task 1"] for version in kept}) == 1
    assert (place / PARTS / base).stat().st_ino == file.st_ino  # linked, not written again
    assert sum(map(len, files(place).values())) < once + 3 * (once - file.st_size) + 60_000
    assert file.st_size > 0.5 * once


def test_no_more_versions_than_wanted_are_kept(tmp_path: Path, write_digits: Any) -> None:
    place, sizes = tmp_path / "L", []
    settings = {"training.epochs": 1, "network.hidden": [16], "memory.per_class": 3}
    for number in range(5):
        names = {f"a{number}": 2 * number, f"b{number}": 2 * number + 1}
        data = write_digits(tmp_path / str(number), names, each=12)
        first = {"method": "icarl", "network": "mlp", "settings": settings} if not number else {}
        keep = {"keep_versions": 2} if number == 1 else {}
        ancl.teach(place, data, events=Events(), **first, **keep)
        sizes.append(sum(map(len, files(place).values())))

    kept = ancl.versions(place)
    assert [version.number for version in kept] == [4, 5]  # it was said once
    used = {name for version in kept for name in version.parts.values()}
    assert {name for name in os.listdir(place / PARTS) if name.endswith(".safetensors")} == used
    assert sizes[4] < 2 * sizes[1]
    ancl.undo(place)
    with pytest.raises(StoreError, match="has no version 3"):
        ancl.undo(place)


def test_any_changes_leave_what_a_list_of_copies_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An independent slow version: every version as a copy, and rules in the plainest words."""
    patch_part(monkeypatch, "fsync", lambda descriptor: None)
    draw, place = random.Random(3), tmp_path / "L"
    copies: dict[int, tuple[int, dict[str, int]]] = {}
    current, following, keep = None, 1, None
    for _ in range(60):
        if current is None or draw.random() < 0.6:
            values = {part: draw.randrange(3) for part in "abc"}
            refused = ("why",) if draw.random() < 0.3 else ()
            wanted = draw.choice([None, None, None, 2, 4])
            tensors = {name: {"x": torch.full((9,), n)} for name, n in values.items()}
            add_version(place, {}, tensors, Note(refused=refused), "card", keep=wanted)
            keep = wanted or keep
            same = current in copies and copies[current][1] == values and not refused
            if not same:
                copies[following] = (current, values)
                current = current if refused else following
                following += 1
            if keep:
                others = sorted(set(copies) - {current})
                gone = others[: max(len(others) - (keep - 1), 0)]
                copies = {n: copy for n, copy in copies.items() if n not in gone}
        else:
            current = draw.choice(sorted(copies))
            ancl.undo(place, current)
        versions = read_versions(place)
        assert (versions.current, versions.following) == (current, following)
        assert list(versions.kept) == sorted(copies)
        for number, (parent, values) in copies.items():
            version, tensors = read_version(place, number)
            assert version.parent == parent
            assert {name: int(group["x"][0]) for name, group in tensors.items()} == values
        used = {name for version in versions.kept.values() for name in version.parts.values()}
        there = set(os.listdir(place / PARTS))
        assert {name for name in there if name.endswith(".safetensors")} == used
        assert len(there) == len(used) + len(copies)


@pytest.mark.parametrize("fails", [1, 3, 6])
def test_a_full_disk_leaves_the_learner_as_it_was(
    fails: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, learner, calls = files(place), load(place), list[int]()
    learner.learn(*part(5, 6))

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == fails:
            raise OSError(28, "No space left on device")

    patch_part(monkeypatch, "fsync", full)
    with pytest.raises(StoreError, match="nothing was changed"):
        learner.save(place)
    assert files(place) == before
    assert os.listdir(place.parent) == ["L"]


# -- what is read is not trusted -------------------------------------------------------------


def forge(place: Path, change: Callable[[dict[str, Any]], None], *, header: bool) -> None:
    """The learner with another header, or another document of its version, which fit."""
    meta = read_bundle(place, lambda bundle: bundle.meta)
    name = meta["versions"][-1]
    document = json.loads((place / PARTS / name).read_bytes())
    change(meta if header else document)
    data = json.dumps(document).encode()
    if not header:
        meta["versions"][-1] = part_name(data, "json")
    stay = [each for each in os.listdir(place / PARTS) if each != name or header]
    write_bundle(place, meta, {part_name(data, "json"): data}, stay)


@pytest.mark.parametrize(
    ("name", "value", "header"),
    [
        *((name, value, True) for name in ("current", "following") for value in ("x", -1, [])),
        ("current", 99, True),
        *(("versions", value, True) for value in (None, [], ["../x"], ["0" * 64 + ".json"], [3])),
        ("keep", -3, True),
        *(("number", value, False) for value in (None, "x", 0, 10**9)),
        *(("parts", value, False) for value in (None, {}, {"network": "../../etc"}, [1])),
        *(("learner", value, False) for value in (None, {}, [])),
        *(("images", value, False) for value in (3, [["d0"]], [["d0", "many"]])),
        *(("held", value, False) for value in (3, [[1]])),
        *(("refused", value, False) for value in (3, [1])),
        *((name, 3, False) for name in ("made", "card", "data", "test")),
    ],
)
def test_a_forged_list_of_versions_is_refused_in_words(
    name: str, value: Any, header: bool, place: Path
) -> None:
    forge(place, lambda part: part.update({name: value}), header=header)

    with pytest.raises(StoreError):
        load(place)


def test_a_forged_list_of_images_is_refused_in_words(place: Path) -> None:
    version, parts = read_version(place)
    good = parts["images of task 1"]
    forgeries: dict[str, Tensor] = {
        "y": good["y"] + 100,
        "use": good["use"] + 3,
        "ends": good["ends"].flip(0),
        "ids": good["ids"][:-3],
        "hashes": good["hashes"][:-1],
    }
    for name, tensor in forgeries.items():
        for changed in ({**good, name: tensor}, {n: t for n, t in good.items() if n != name}):
            forged = {**parts, "images of task 1": changed}
            add_version(place, version.learner, forged, Note(), "", replace=True)
            with pytest.raises(StoreError, match="cannot be opened"):
                load(place)
