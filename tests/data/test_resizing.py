"""``data.size``: one rule of resizing, for arrays, files and published data, as they are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ancl
from ancl import ScenarioError, SpecError
from tests.lab import (
    ImageStorage,
    ImageView,
    MappedStorage,
    PictureRule,
    build,
    fingerprint,
    labelled_part,
    load_source,
    pixels_of,
    resized,
    spec_hash,
)

RANDOM = np.random.default_rng(7)
COLOUR = RANDOM.integers(0, 256, (6, 5, 7, 3), np.uint8)


def by_hand(images: np.ndarray, size: int) -> np.ndarray:
    """Each channel of each image by itself, which is another way than the library's."""
    layers = [
        [
            np.asarray(Image.fromarray(image[:, :, c]).resize((size, size), Image.BICUBIC))
            for c in range(image.shape[2])
        ]
        for image in images
    ]
    return np.stack([np.stack(each, axis=2) for each in layers])


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_bytes_are_resized_by_bicubic_interpolation(channels: int) -> None:
    images = RANDOM.integers(0, 256, (3, 5, 7, channels), np.uint8)

    view = resized(ImageView.of(torch.from_numpy(images)), 9)

    assert view.shape == (3, 9, 9, channels)
    assert view.dtype == torch.uint8
    assert np.array_equal(view.dense().numpy(), by_hand(images, 9))
    order = torch.tensor([2, 0])
    assert np.array_equal(view.take(order).dense().numpy(), by_hand(images, 9)[[2, 0]])


def test_images_of_that_size_and_of_no_size_stay_as_they_are() -> None:
    view = ImageView.of(torch.from_numpy(COLOUR[:, :5, :5].copy()))
    assert resized(view, 5) is view
    assert resized(view, None) is view


class Watched(ImageStorage):
    """Notes how many rows were read at once."""

    def __init__(self, inner: ImageStorage) -> None:
        super().__init__(inner.shape, inner.dtype)
        self.inner, self.most = inner, 0

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        self.most = max(self.most, len(index))
        return self.inner.rows(index)


def test_no_more_than_a_bounded_part_is_resized_at_a_time() -> None:
    images = np.zeros((900, 4, 4, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(900) % 251
    watched = Watched(MappedStorage(images))
    view = resized(ImageView.of(watched), 256)

    view.digests()  # what a learner does to know its images
    sum(len(part) for part in view.chunks())

    # 2^24 bytes are 85 images of 256x256 pixels
    assert 0 < watched.most <= 85


def test_digests_are_those_of_the_pixels_so_that_known_images_are_found_again() -> None:
    view = resized(ImageView.of(torch.from_numpy(COLOUR)), 8)
    dense = ImageView.of(view.dense())
    assert np.array_equal(view.digests(), dense.digests())


def test_floats_are_refused_with_the_way_out() -> None:
    with pytest.raises(ScenarioError, match=r"data.size=8 resizes images of bytes.*floats"):
        resized(ImageView.of(torch.zeros(2, 3, 5, 5)), 8)


# -- sources ----------------------------------------------------------------------------------


def test_a_named_source_keeps_its_order_and_has_a_fingerprint_of_its_own() -> None:
    plain, large = load_source("digits"), load_source("digits", None, 20)

    assert large.train.input_shape == (1, 20, 20)
    assert torch.equal(plain.train.y, large.train.y)
    first = plain.train.x[:3].numpy()
    assert np.array_equal(large.train.x[:3].numpy(), by_hand(first, 20))
    assert np.array_equal(large.test.x[:3].numpy(), by_hand(plain.test.x[:3].numpy(), 20))
    others = {load_source("digits", None, size).fingerprint for size in (None, 8, 20, 21)}
    assert len(others) == 3  # 8 is their own size
    assert large.normalization == plain.normalization


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos of several sizes, one of them grey."""
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(6):
            height, width = 6 + number, 9
            pixels = RANDOM.integers(0, 256, (height, width, 3), np.uint8)
            picture = Image.fromarray(pixels if number else pixels[:, :, 0])
            picture.save(tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


def test_photos_of_any_size_are_resized_by_the_same_rule(photos: Path) -> None:
    source = load_source(f"folder:{photos}", None, 12)
    assert source.train.input_shape == (3, 12, 12)

    x, labels = labelled_part(f"folder:{photos}", "train", size=12)
    files = sorted(photos.rglob("*.png"))
    assert labels == [file.parent.name for file in files]
    for image, file in zip(x.dense().numpy(), files, strict=True):
        with Image.open(file) as opened:
            colour = np.asarray(opened.convert("RGB"))
        assert np.array_equal(image, by_hand(colour[None], 12)[0]), file.name


def test_the_older_way_of_a_folder_is_as_it_was(photos: Path) -> None:
    x, _ = labelled_part(f"folder:{photos}@12", "train")
    with Image.open(photos / "cat" / "3.png") as opened:
        expected = np.asarray(opened.resize((12, 12), Image.BILINEAR))
    assert np.array_equal(x[3].numpy(), expected)


def test_two_sizes_are_refused_before_an_image_is_read(photos: Path) -> None:
    told = rf"folder:{photos}@12 asks for images of 12x12 pixels, and .* for 9x9"
    with pytest.raises(ScenarioError, match=told):
        labelled_part(f"folder:{photos}@12", "train", size=9)
    with pytest.raises(SpecError, match=told):
        ancl.spec(
            "finetune", data=f"folder:{photos}@12", settings={"data.tasks": 1, "data.size": 9}
        )


@pytest.mark.parametrize("resize", ["stretch", "crop", "fit"])
def test_another_rule_is_that_of_pictures_and_gives_another_fingerprint(resize: Any) -> None:
    rule = PictureRule(resize, "lanczos", "black")
    tall = RANDOM.integers(0, 256, (3, 20, 12, 3), np.uint8)
    images = resized(ImageView.of(torch.from_numpy(tall)), 10, rule).dense().numpy()
    for image, pixels in zip(images, tall, strict=True):
        assert np.array_equal(image, pixels_of(Image.fromarray(pixels), "x", rule, (10, 10))[0])

    plain, other = load_source("digits", None, 20), load_source("digits", None, 20, rule)
    assert plain.fingerprint != other.fingerprint


def test_a_run_has_the_rule_of_its_settings() -> None:
    size = {"data.size": 10}
    plain = ancl.spec("finetune", "digits/5", settings=size)
    other = ancl.spec("finetune", "digits/5", settings={**size, "data.filter": "box"})
    assert plain.plain()["data"].keys().isdisjoint({"filter", "resize", "background"})
    first, second = (build(chosen).stream.tasks[0].load().train for chosen in (plain, other))
    assert fingerprint(first) != fingerprint(second)
    keys = [{s.key for s in build(each).stages if s.name == "main"} for each in (plain, other)]
    assert keys[0]
    assert not keys[0] & keys[1]


# -- runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"), [(0, "equal to 1"), (5000, "4096"), ("large", "integer")]
)
def test_sizes_that_are_none_are_refused(given: object, told: str) -> None:
    with pytest.raises(SpecError, match=f"data.size is {given!r}; .*{told}"):
        ancl.spec("finetune", "digits/5", settings={"data.size": given})


def test_a_run_without_a_size_is_filed_as_ever_and_one_with_a_size_is_another() -> None:
    plain = ancl.spec("finetune", "digits/5")
    large = ancl.spec("finetune", "digits/5", settings={"data.size": 10})
    assert "size" not in plain.plain()["data"]
    assert large.plain()["data"]["size"] == 10
    assert spec_hash(plain) != spec_hash(large)
    keys = [{stage.key for stage in build(each).stages} for each in (plain, large)]
    assert not keys[0] & keys[1]
    assert build(large).setting.architecture.input_shape == (1, 10, 10)


def test_images_resized_beforehand_give_the_same_run(tmp_path: Path) -> None:
    images = RANDOM.integers(0, 256, (40, 4, 4, 3), np.uint8)
    labels = np.arange(40) % 4
    np.savez(tmp_path / "small.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    large = by_hand(images, 6)
    np.savez(tmp_path / "large.npz", x_train=large, y_train=labels, x_test=large, y_test=labels)
    settings = {"network.name": "mlp", "network.hidden": (4,), "training.epochs": 1}
    settings |= {
        "data.val_fraction": 0,
        "data.normalization": "none",
        "data.tasks": 2,
        "training.schedule": "cosine",
    }

    def row(name: str, more: dict[str, object]) -> str:
        where = f"arrays:{tmp_path / name}"
        stream = build(ancl.spec("finetune", data=where, settings=settings | more)).stream
        return fingerprint(stream.tasks[0].load().train)

    assert row("small.npz", {"data.size": 6}) == row("large.npz", {})
