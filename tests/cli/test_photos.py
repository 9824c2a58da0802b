"""Photos as people have them, through the command: one bad file costs no other its answer."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tests.cli.conftest import Ancl
from tests.lab import app, digits, patch_part


def write(place: Path, size: int = 12) -> None:
    """Pictures of four digits, of another size than the learner's."""
    samples = digits().test
    for number in range(4):
        (place / f"d{number}").mkdir(parents=True)
        for at in (samples.y == number).nonzero().flatten().tolist()[:6]:
            image = Image.fromarray(samples.x[at].squeeze(2).numpy())
            image.resize((size, size)).save(place / f"d{number}" / f"{at}.png")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learner of four digits, and photos of them."""
    place = tmp_path_factory.mktemp("photos")
    write(place / "photos")
    given = f"learn {place}/digits --data folder:{place}/photos@8 --method wa --network mlp --quiet"
    ended = CliRunner().invoke(app, [*given.split(), "--epochs", "8", "--lr", "0.05"])
    assert ended.exit_code == 0, ended.output
    return place


@pytest.fixture
def photos(kept: Path, tmp_path: Path) -> Path:
    """Photos with some among them that cannot be read."""
    write(tmp_path / "mine")
    (tmp_path / "mine" / "d0" / "torn.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (tmp_path / "mine" / "d1" / "raw.NEF").write_bytes(b"II*\0")
    return tmp_path / "mine"


def test_bad_files_are_named_and_all_others_answered(ancl: Ancl, kept: Path, photos: Path) -> None:
    learner, missing = str(kept / "digits"), str(photos / "nowhere.png")

    ended = ancl("predict", learner, str(photos), missing, "--json")
    skipped = ancl("predict", learner, str(photos), missing, "--csv", "--skip-bad-images")

    images = ended.json["images"]
    errors = {Path(image["image"]).name: image["error"] for image in images if "error" in image}
    assert (ended.code, skipped.code) == (1, 0)
    assert set(errors) == {"torn.jpg", "raw.NEF", "nowhere.png"}
    assert len([image for image in images if image["labels"]]) == 24
    assert "3 of 27 files cannot be read" in ended.err
    assert "raw file of a camera" in errors["raw.NEF"]
    rows = list(csv.DictReader(io.StringIO(skipped.out)))
    assert len(rows) == 24
    good = [row["label"] == Path(row["image"]).parent.name for row in rows]
    assert np.mean(good) > 0.8


def test_where_no_file_can_be_read_that_is_a_mistake(ancl: Ancl, kept: Path, photos: Path) -> None:
    ended = ancl("predict", str(kept / "digits"), str(photos / "d0" / "torn.jpg"), "none.png")
    assert ended.code == 2
    assert "torn.jpg is not an image" in ended.err
    assert "There is no file none.png" in ended.err


def test_answers_that_are_not_sure_are_rejected(ancl: Ancl, kept: Path) -> None:
    learner, data = str(kept / "digits"), str(kept / "photos")
    plain = ancl("predict", learner, data, "--json").json["images"]
    shares = [image["labels"][0]["probability"] for image in plain]
    level = str(float(np.median(shares)))

    found = ancl("predict", learner, data, "--json", "--reject", level).json["images"]
    table = ancl("predict", learner, data, "--reject", level, "--threads", "1").out
    rows = list(
        csv.DictReader(io.StringIO(ancl("predict", learner, data, "--csv", "--reject", level).out))
    )

    assert "rejected" not in plain[0]
    assert [image["rejected"] for image in found] == [share < float(level) for share in shares]
    assert table.count("rejected (d") == sum(share < float(level) for share in shares)
    assert [row["label"] == "" for row in rows] == [image["rejected"] for image in found]


def test_the_accuracy_of_what_is_not_rejected(ancl: Ancl, kept: Path) -> None:
    given = ["evaluate", str(kept / "digits"), "--data", f"folder:{kept / 'photos'}"]
    images = ancl("predict", str(kept / "digits"), str(kept / "photos"), "--json").json["images"]
    sure = [image for image in images if image["labels"][0]["probability"] >= 0.6]
    right = [i["labels"][0]["label"] == Path(i["image"]).parent.name for i in sure]

    found = ancl(*given, "--reject", "0.6", "--threads", "1", "--json").json
    text = ancl(*given, "--reject", "0.6").out

    assert (found["images"], found["rejected"]) == (len(sure), 24 - len(sure))
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert f"; rejected: {24 - len(sure)} more" in text
    assert "rejected" not in ancl(*given).out
    assert ancl(*given, "--json").json["rejected"] == 0
    none = ancl(*given, "--reject", "1")
    assert (none.code, "All 24 images are rejected" in none.err) == (2, True)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_level_that_is_no_probability_is_refused(ancl: Ancl, kept: Path, command: str) -> None:
    data = [str(kept / "photos")] if command == "predict" else ["--data", f"folder:{kept}/photos"]
    ended = ancl(command, str(kept / "digits"), *data, "--reject", "60%")
    assert (ended.code, "--reject: '60%' is not a probability" in ended.err) == (2, True)


@pytest.mark.parametrize("more", [["--min-accuracy", "0.5"], ["--against", "1"]])
def test_conditions_count_all_images_so_none_is_rejected(
    ancl: Ancl, kept: Path, more: list[str]
) -> None:
    given = ["evaluate", str(kept / "digits"), "--data", f"folder:{kept}/photos"]
    ended = ancl(*given, "--reject", "0.5", *more)
    assert (ended.code, "which count all images, are not possible" in ended.err) == (2, True)


def test_check_advises_flags_that_it_has(ancl: Ancl, photos: Path) -> None:
    name = f"folder:{photos}@8"
    refused = ancl("data", "check", name)
    assert refused.code == 1
    assert "--skip-bad-images" in refused.out

    checked = ancl("data", "check", name, "--skip-bad-images", "--threads", "1", "--resize", "crop")

    assert checked.code == 0
    assert re.search(r"(\d+) training and \d+ test images of 4 classes", checked.out)
    assert "Left out, as they are not images: 2 files: d0/torn.jpg, d1/raw.NEF." in checked.out
    wrong = ancl("data", "check", name, "--background", "grass")
    assert (wrong.code, "must be a colour" in wrong.err) == (2, True)


def test_a_rule_of_resizing_is_that_of_the_learner_for_good(
    ancl: Ancl, photos: Path, tmp_path: Path
) -> None:
    for file in photos.rglob("*.png"):
        Image.open(file).resize((24, 12)).save(file)
    begin = ["--method", "wa", "--network", "mlp", "--epochs", "1", "--quiet"]
    data = ["--data", f"folder:{photos}", "--skip-bad-images", "--set", "data.size=8"]

    for how in ("crop", "fit"):
        ended = ancl("learn", how, *data, *begin, "--resize", how, "--background", "black")
        assert ended.code == 0, ended.err

    cards = [(tmp_path / how / "README.md").read_text() for how in ("crop", "fit")]
    assert "resized: `crop`, filter `bicubic`; transparent pixels are laid on `black`" in cards[0]
    assert "resized: `fit`" in cards[1]
    for how in ("crop", "fit"):
        same = ancl("learn", how, *data[:3], "--quiet")
        assert "has learned exactly these images before" in same.out
    wrong = ancl("learn", "crop", *data[:3], "--resize", "fit")
    assert (wrong.code, "--resize: crop keeps the settings" in wrong.err) == (2, True)


def test_caches_are_listed_and_removed(
    ancl: Ancl, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path / "cache"))
    patch_part(monkeypatch, "WORTH_KEEPING", 1)
    assert ancl("data", "caches").out.startswith("Kept: 0 B of 10.0 GB possible, in ")
    assert ancl("data", "check", f"folder:{photos}@8+skip-bad").code == 0

    listed = ancl("data", "caches", "--json").json
    text = ancl("data", "caches").out
    cleared = ancl("data", "caches", "--clear").out

    assert [entry["place"] for entry in listed["caches"]] == [str(photos)]
    assert listed["caches"][0]["images"] == 24
    assert listed["most"] == 10**10
    assert str(photos) in text
    assert cleared.splitlines()[-1].startswith("Removed: ")
    assert json.loads(ancl("data", "caches", "--json").out)["caches"] == []
