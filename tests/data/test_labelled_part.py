"""Images with labels to learn or to evaluate: nothing is cut off, and one class is enough."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ancl import ScenarioError
from tests.lab import digits, labelled_part


def test_a_folder_without_parts_gives_all_its_images(
    tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    name = write_digits(tmp_path / "photos", {"three": 3}, each=7)

    for part in ("train", "test"):
        x, labels = labelled_part(name, part)
        assert labels == ["three"] * 7
        assert torch.equal(x.dense(), digits().train.x[digits().train.of_class(3)[:7]])


def test_a_folder_with_parts_gives_the_one_that_is_asked_for(
    tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    folder = tmp_path / "photos"
    write_digits(folder / "train", {"one": 1, "two": 2}, each=3)
    with pytest.raises(ScenarioError, match=r"has a folder train and none for the test"):
        labelled_part(f"folder:{folder}", "test")
    write_digits(folder / "val", {"two": 2}, part="test", each=2)

    assert labelled_part(f"folder:{folder}", "train")[1] == ["one"] * 3 + ["two"] * 3
    x, labels = labelled_part(f"folder:{folder}", "test")
    assert labels == ["two"] * 2
    assert torch.equal(x.dense(), digits().test.x[digits().test.of_class(2)[:2]])


def test_files_are_brought_to_a_shape_unless_the_name_has_a_size(
    tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    name = write_digits(tmp_path / "photos", {"one": 1}, each=2)

    assert labelled_part(name, "train", shape=(3, 16, 16))[0].shape == (2, 16, 16, 3)
    assert labelled_part(f"{name}@12", "train", shape=(1, 16, 16))[0].shape == (2, 12, 12, 1)


def test_arrays_and_named_sources_have_parts(tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.uint8).reshape(4, 2, 2)
    np.savez(tmp_path / "whole.npz", x=x, y=["a"] * 4)
    np.savez(tmp_path / "parts.npz", x_train=x[:3], y_train=[1, 1, 1], x_test=x[3:], y_test=[1])

    assert labelled_part(f"arrays:{tmp_path / 'whole.npz'}", "test")[1] == ["a"] * 4
    images, labels = labelled_part(f"arrays:{tmp_path / 'parts.npz'}", "test")
    assert (images.dense().flatten().tolist(), labels) == ([12, 13, 14, 15], [1])
    images, labels = labelled_part("digits", "test")
    assert torch.equal(images.dense(), digits().test.x.dense())
    assert labels == digits().test.y.tolist()


def test_bad_images_are_named_and_left_out_where_that_is_allowed(
    tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    name = write_digits(tmp_path / "photos", {"one": 1}, each=2)
    (tmp_path / "photos/one/torn.png").write_bytes(b"no image")
    with pytest.raises(ScenarioError, match=r"(?s)one/torn\.png .*--skip-bad-images"):
        labelled_part(name, "train")

    said: list[str] = []
    x, labels = labelled_part(f"{name}+skip-bad", "train", say=said.append)

    assert (len(x), labels) == (2, ["one", "one"])
    assert said == ["Left out, as they are not images: 1 file: one/torn.png."]
