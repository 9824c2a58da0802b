import gzip
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.lab import PUBLISHED, SOURCES, KnownSource

QUICK = ("--epochs", "1", "--quiet", "--set", "network.name=mlp")


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The four files of a small MNIST, outside any data root."""
    for variable in ("ANCL_DATA", "DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    small = replace(PUBLISHED["mnist"], images=(60, 20))
    monkeypatch.setitem(PUBLISHED, "mnist", small)
    monkeypatch.setitem(SOURCES, "mnist", KnownSource(small.load, 10, "small", 80))
    folder = tmp_path / "files"
    folder.mkdir()
    for part, n in (("train", 60), ("t10k", 20)):
        images = np.random.RandomState(n).randint(0, 256, (n, 28, 28)).astype(np.uint8)
        header = struct.pack(">HBBIII", 0, 8, 3, *images.shape)
        labels = struct.pack(">HBBI", 0, 8, 1, n) + bytes(i % 10 for i in range(n))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return folder


def test_data_is_imported_found_checked_and_learned(ancl: Any, mnist: Path) -> None:
    assert "not here: ancl data fetch mnist" in ancl("data", "list").out

    ended = ancl("data", "import", "mnist", str(mnist))
    assert (ended.code, ended.err) == (0, "")
    assert "mnist: 60 training and 20 test images of 10 classes in data/MNIST/raw" in ended.out

    listed = {each["name"]: each for each in ancl("data", "list", "--json").json["data"]}
    assert listed["mnist"]["place"] == "data/MNIST/raw"
    assert listed["cifar100"]["place"] is None
    assert listed["digits"]["embedded"]
    checked = ancl("data", "check", "--json").json["data"]
    assert [report["name"] for report in checked] == ["mnist"]
    assert (checked[0]["train"], checked[0]["test"]) == (60, 20)

    assert ancl("run", "finetune", "digits/5", "--data", "mnist", *QUICK).code == 0


def test_the_place_of_the_data_changes_neither_directory_nor_keys(
    ancl: Any, mnist: Path, tmp_path: Path
) -> None:
    seen = []
    for root in ("one", "two"):
        ancl("data", "import", "mnist", str(mnist), "--data-root", root)
        run = ("run", "lwf", "digits/5", "--data", "mnist", "--data-root", root, "--dry-run")
        shown = ancl(*run, "--json").json["runs"][0]
        seen.append((shown["directory"], [stage["key"] for stage in shown["stages"]]))
    assert seen[0] == seen[1]


def test_missing_data_is_one_message_with_the_command_that_fetches_it(
    ancl: Any, mnist: Path
) -> None:
    for command in (("run", "lwf", "digits/5", "--data", "mnist"), ("data", "check", "mnist")):
        ended = ancl(*command)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert "ancl data fetch mnist" in ended.err
    offline = ancl("data", "fetch", "mnist", "--offline", "--json")
    assert offline.code == 2
    assert "data/MNIST/raw/train-images-idx3-ubyte.gz" in offline.json["error"]
    assert "Did you mean 'mnist'" in ancl("data", "fetch", "minst").err


def test_damaged_data_is_found_with_exit_code_1(ancl: Any, mnist: Path) -> None:
    ancl("data", "import", "mnist", str(mnist))
    file = Path("data/MNIST/raw/t10k-images-idx3-ubyte")
    file.write_bytes(file.read_bytes()[:-1])
    ended = ancl("data", "check", "--json")
    assert ended.code == 1
    assert "t10k-images-idx3-ubyte is damaged" in ended.json["data"][0]["fault"]


def test_nothing_to_check_is_said(ancl: Any, mnist: Path) -> None:
    ended = ancl("data", "check")
    assert (ended.code, ended.out.count("\n")) == (0, 1)
    assert "ancl data list" in ended.out


def test_a_folder_of_ones_own_is_learned(ancl: Any, tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    for name in "abcd":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(10):
            image = Image.fromarray(random.randint(0, 256, (8, 9, 3)).astype(np.uint8))
            image.save(tmp_path / "pictures" / name / f"{i}.png")
    run = ("run", "finetune", "digits/5", "--data", "folder:pictures@8", "--tasks", "2", *QUICK)
    ended = ancl(*run, "--json")
    assert ended.code == 0
    assert ended.json["runs"][0]["spec"]["data"]["source"] == "folder:pictures@8"
    wrong = ancl("run", "finetune", "digits/5", "--data", "folder:pictures", "--tasks", "3")
    assert (wrong.code, "4 classes cannot be split into 3" in wrong.err) == (2, True)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of 6 images, one of which is none."""
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = np.full((4, 4, 3), 100 * number + 7 * i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "photos" / "dog" / "2.png").write_bytes(b"")
    return tmp_path / "photos"


def test_your_own_folder_is_checked(ancl: Any, photos: Path) -> None:
    ended = ancl("data", "check", f"folder:{photos}")
    assert ended.code == 1
    assert "dog/2.png is not an image that can be read" in ended.out
    report = ancl("data", "check", f"folder:{photos}", "--json").json["data"][0]
    assert list(report["bad"]) == ["dog/2.png"]

    (photos / "dog" / "2.png").unlink()
    ended = ancl("data", "check", f"folder:{photos}")
    assert (ended.code, ended.err) == (0, "")
    assert f"9 training and 2 test images of 2 classes in {photos}" in ended.out
    missing = ancl("data", "check", "folder:nowhere")
    assert (missing.code, "There is no folder nowhere" in missing.out) == (1, True)


def test_bad_images_are_left_out_by_a_flag_and_named(ancl: Any, photos: Path) -> None:
    given = ("run", "finetune", "--data", f"folder:{photos}", "--tasks", "1", *QUICK)
    refused = ancl(*given)
    assert (refused.code, "--skip-bad-images" in refused.err) == (2, True)

    ended = ancl(*given, "--skip-bad-images")
    assert ended.code == 0
    assert "Left out, as they are not images: 1 file: dog/2.png." in ended.err + ended.out

    wrong = ancl("run", "finetune", "digits/5", "--skip-bad-images")
    assert wrong.err.strip() == "--skip-bad-images is for a folder of images: --data folder:PATH."
