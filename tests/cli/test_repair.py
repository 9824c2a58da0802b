"""Forget, rename and merge-classes, by commands alone."""

import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ancl import Learner
from tests.lab import app

BEGIN = ("--method", "ridge", "--network", "mlp", "--set", "network.hidden=[16]", "--threads", "1")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, write_digits: Callable[..., str]) -> Path:
    place = tmp_path_factory.mktemp("begun")
    write_digits(place / "m1", {"zero": 0, "one": 1, "School bus": 2})
    write_digits(place / "m2", {"school bus": 2, "three": 3}, skip=20)
    with chdir(place):
        for month in ("m1", "m2"):
            words = ["learn", "L", "--data", f"folder:{month}", "--quiet"]
            words += BEGIN if month == "m1" else ()
            assert CliRunner().invoke(app, words).exit_code == 0
    return place


@pytest.fixture
def photos(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)


def test_a_learner_is_repaired_and_a_photo_forgotten(ancl: Any, photos: None) -> None:
    merged = ancl("merge-classes", "L", "School bus", "school bus", "--into", "bus")
    renamed = ancl("rename", "L", "zero", "nought", "--json")
    exported = ancl("export", "L", "--format", "pt2")
    forgot = ancl("forget", "L", "--images", "m1/one/003.png", "--images", "m2/three", "--quiet")
    again = ancl("forget", "L", "--images", "m1/one/003.png", "--json")
    listed = ancl("versions", "L")
    back = ancl("undo", "L")
    came = ancl("learn", "L", "--data", "folder:m1")

    assert {each.code for each in (merged, renamed, exported, forgot, again, listed)} == {0}
    assert merged.out.startswith("School bus, school bus → bus: to the bit as if")
    assert renamed.json["known_classes"] == ["bus", "one", "nought", "three"]
    assert forgot.out.startswith("Forgot 21 images, all of three.\nExact: ")
    assert "Earlier versions were made again without them: 1, 2, 3, 4." in forgot.out
    assert "Removed L.pt2, which answered with them: ancl export L" in forgot.out
    assert not Path("L.pt2").exists()
    assert not Path("L.pt2.md").exists()
    assert "Your own files stay where they are" in forgot.out
    assert (again.json["images"], again.json["version"]) == (0, 5)
    lines = listed.out.splitlines()[2:7]
    kinds = ("learn", "learn", "merge-classes", "rename", "forget")
    assert all(f" {kind} " in line for kind, line in zip(kinds, lines, strict=True))
    assert "Version 5 forgot images: ancl undo does not go back before it." in listed.out
    assert (back.code, came.code) == (2, 2)
    assert "cannot go back to version 4: version 5 forgot images" in back.err
    assert "m1/one/003.png" in came.err
    assert "--allow-again" in came.err
    assert Learner.load("L").classes == ["bus", "nought", "one"]


def test_with_export_the_file_is_written_anew(ancl: Any, photos: None) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    told = ancl("forget", "L", "--class", "three", "--export", "--json")

    assert told.code == 0
    assert told.json["exported"] == "L.onnx"
    assert b"three" not in Path("L.onnx").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("forget", "L"), "Say what is to be forgotten"),
        (("forget", "L", "--class", "zer"), "Did you mean 'zero'?"),
        (("forget", "L", "--id", "m1/zero/999.png"), "Did you mean 'm1/zero/"),
        (("forget", "L", "--images", "none.png"), "none.png"),
        (
            ("forget", "L", "--images", "m1/zero/000.png", "--id", "x"),
            "No learned image is called x",
        ),
        (("rename", "L", "zero", "one"), "merge-classes"),
        (("rename", "L", "nil", "one"), "The class 'nil' was never learned."),
        (("merge-classes", "L", "zero"), "at least two"),
        (("merge-classes", "L", "zero", "one", "--into", "three"), "is another class"),
        (("forget", "m1", "--class", "zero"), "m1 is not a saved learner"),
        (("forget", "new", "--class", "zero"), "new is not a saved learner"),
    ],
)
def test_mistakes_change_nothing(
    ancl: Any, photos: None, words: tuple[str, ...], message: str
) -> None:
    before = sorted(file.name for file in Path("L/parts").iterdir())

    told = ancl(*words)

    assert told.code == 2
    assert message in told.err
    assert sorted(file.name for file in Path("L/parts").iterdir()) == before
    assert not [path for path in Path().glob(".*") if path.is_dir()]
