import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ancl import ScenarioError
from tests.lab import (
    PUBLISHED,
    Normalization,
    Published,
    Source,
    data_root,
    list_caches,
    patch_part,
)

Write = Callable[[Path], None]


def cells(source: Source) -> dict[str, set[bytes]]:
    """The training images of each class, whatever their order."""
    names = [source.classes[number] for number in source.train.y.tolist()]
    found: dict[str, set[bytes]] = {str(name): set() for name in source.classes}
    for name, image in zip(names, source.train.x.dense().numpy(), strict=True):
        found[str(name)].add(image.tobytes())
    return found


def test_cifar100_is_read_from_its_folder(
    tmp_path: Path, cifar100: Published, write_cifar100: Write
) -> None:
    write_cifar100(tmp_path)
    source = cifar100.load(tmp_path)
    rows = np.random.RandomState(0).randint(0, 256, (12, 3072)).astype(np.uint8)
    images = np.moveaxis(rows.reshape(12, 3, 32, 32), 1, 3)
    assert source.classes == ("apple", "bear", "can")
    assert cells(source)["bear"] == {images[i].tobytes() for i in (1, 4, 7, 10)}
    assert source.test.y.bincount().tolist() == [2, 2, 2]
    assert source.normalization == Normalization((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023))
    assert source.notes == ()


def test_cifar100_at_half_its_size_is_made_of_means(
    tmp_path: Path, cifar100: Published, write_cifar100: Write
) -> None:
    write_cifar100(tmp_path)
    half = PUBLISHED["cifar100-16"]
    source = replace(half, classes=3, images=cifar100.images).load(tmp_path)
    rows = np.random.RandomState(0).randint(0, 256, (12, 3072)).astype(np.uint8)
    images = np.moveaxis(rows.reshape(12, 3, 32, 32), 1, 3)
    means = images.reshape(12, 16, 2, 16, 2, 3).mean((2, 4))
    expected = np.floor(means + 0.5).astype(np.uint8)
    assert cells(source)["bear"] == {expected[i].tobytes() for i in (1, 4, 7, 10)}
    assert source.test.x.shape[1:] == (16, 16, 3)
    assert (half.folder, half.files) == (cifar100.folder, PUBLISHED["cifar100"].files)
    # Means vary less than pixels, so they have moments of their own.
    assert source.normalization is not None
    assert max(source.normalization.std) < 0.2


def test_an_archive_is_read_as_it_is_and_gives_the_same(
    tmp_path: Path, packed_cifar100: tuple[Published, Path], write_cifar100: Write
) -> None:
    data, archive = packed_cifar100
    write_cifar100(tmp_path / "root")
    assert data.find(archive.parent) == archive
    assert data.load(archive.parent).fingerprint == data.load(tmp_path / "root").fingerprint
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(ScenarioError, match=r"not the file that was published: its MD5 is"):
        data.load(archive.parent)


def test_cifar10_joins_its_five_files(tmp_path: Path, write_cifar10: Write) -> None:
    write_cifar10(tmp_path)
    data = replace(PUBLISHED["cifar10"], classes=2, images=(20, 2))
    source = data.load(tmp_path)
    assert source.classes == ("cat", "dog")
    assert source.train.y.bincount().tolist() == [10, 10]


def test_missing_data_says_where_it_was_looked_for_and_what_to_do(tmp_path: Path) -> None:
    for name in ("cifar100", "cifar10", "tinyimagenet", "mnist", "fashionmnist"):
        with pytest.raises(ScenarioError, match=rf"ancl data fetch {name}") as caught:
            PUBLISHED[name].load(tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert PUBLISHED[name].folder in str(caught.value)


def test_what_is_not_whole_is_refused(
    tmp_path: Path, cifar100: Published, write_cifar100: Write
) -> None:
    write_cifar100(tmp_path)
    for changed, message in (
        (replace(cifar100, images=(15, 6)), "12 images, 4 per class.*expected: 15 training images"),
        (replace(cifar100, images=(12, 9)), "6 images, 2 per class.*expected: 9 test images, 3"),
        (replace(cifar100, classes=4, images=(12, 6)), "has 3 classes; expected: 4"),
    ):
        with pytest.raises(ScenarioError, match=message):
            changed.load(tmp_path)
    (tmp_path / "cifar-100-python" / "test").unlink()
    with pytest.raises(ScenarioError, match="has no readable file test"):
        cifar100.load(tmp_path)


def test_tinyimagenet_counts_classes_along_wnids_and_tests_on_val(
    tmp_path: Path, tinyimagenet: Published, write_tinyimagenet: Write
) -> None:
    write_tinyimagenet(tmp_path)
    source = tinyimagenet.load(tmp_path)
    # wnids.txt: n03, n01, n02; two classes are called crane.
    assert source.classes == ("Egyptian cat", "crane (n01)", "crane (n02)")
    assert source.train.x.shape == (6, 32, 32, 3)
    folder = tmp_path / "tiny-imagenet-200"
    for number in range(3):
        with Image.open(folder / f"val/images/val_{number}.JPEG") as image:
            expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
        assert np.array_equal(source.test.x[source.test.y == number][0].numpy(), expected)
    with Image.open(folder / "train/n01/images/n01_0.JPEG") as grey:
        assert grey.mode == "L"
        small = np.asarray(grey.resize((32, 32), Image.Resampling.BILINEAR))
    assert np.stack([small] * 3, axis=2).tobytes() in cells(source)["crane (n01)"]


def test_tinyimagenet_from_the_zip_is_the_same(
    tmp_path: Path, packed_tinyimagenet: tuple[Published, Path], write_tinyimagenet: Write
) -> None:
    data, archive = packed_tinyimagenet
    write_tinyimagenet(tmp_path / "root")
    assert data.load(archive.parent).fingerprint == data.load(tmp_path / "root").fingerprint


def test_a_part_of_tinyimagenet_is_used_and_said(
    tmp_path: Path, tinyimagenet: Published, write_tinyimagenet: Write
) -> None:
    write_tinyimagenet(tmp_path)
    (tmp_path / "tiny-imagenet-200/train/n02/images/n02_1.JPEG").unlink()
    source = tinyimagenet.load(tmp_path)
    assert len(source.train) == 5
    assert len(source.notes) == 1
    assert "5 images, 1 to 2 per class, of 6 training images, 2 per class" in source.notes[0]
    more = replace(tinyimagenet, images=(3, 3))
    with pytest.raises(ScenarioError, match="expected: 3 training images, 1 per class"):
        more.load(tmp_path)


def test_decoded_images_are_kept_and_decoded_anew_when_a_file_changes(
    tmp_path: Path,
    tinyimagenet: Published,
    write_tinyimagenet: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_part(monkeypatch, "WORTH_KEEPING", 1)
    write_tinyimagenet(tmp_path)
    folder = tmp_path / "tiny-imagenet-200"
    first = tinyimagenet.load(tmp_path).fingerprint
    kept = [entry.path / "pixels.npy" for entry in list_caches() if entry.place == str(folder)]
    assert len(kept) == 2  # training and test images
    with monkeypatch.context() as patched:
        patched.setattr(Image, "open", None)  # decoding anything would fail
        assert tinyimagenet.load(tmp_path).fingerprint == first
    kept[0].write_bytes(kept[0].read_bytes()[:100])  # a damaged cache is no cache
    with pytest.warns(UserWarning, match=r"The cache .* is damaged: it is made anew"):
        assert tinyimagenet.load(tmp_path).fingerprint == first
    other = io.BytesIO()
    Image.new("RGB", (64, 64), (1, 2, 3)).save(other, "JPEG")
    (folder / "val/images/val_0.JPEG").write_bytes(other.getvalue())
    assert tinyimagenet.load(tmp_path).fingerprint != first


def test_a_cache_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path,
    tinyimagenet: Published,
    write_tinyimagenet: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_part(monkeypatch, "WORTH_KEEPING", 1)

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(np.lib.format, "open_memmap", refuse)
    write_tinyimagenet(tmp_path)
    assert len(tinyimagenet.load(tmp_path).train) == 6
    assert str(tmp_path) not in str(list_caches())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist"])
def test_mnist_is_read_packed_or_not(
    tmp_path: Path, mnist: Published, write_mnist: Callable[..., None], packed: bool, folder: str
) -> None:
    write_mnist(tmp_path / folder, packed=packed)
    source = mnist.load(tmp_path)
    assert source.classes == tuple("0123456789")
    assert source.train.x.shape == (20, 28, 28, 1)
    images = np.random.RandomState(20).randint(0, 256, (20, 28, 28)).astype(np.uint8)
    assert cells(source)["3"] == {images[3].tobytes(), images[13].tobytes()}
    # The moments of these pixels, as no others are agreed on.
    assert source.normalization is not None
    assert source.normalization.mean == (round(float(images.mean()) / 255, 4),)


def test_a_damaged_idx_file_is_refused(
    tmp_path: Path, mnist: Published, write_mnist: Callable[..., None]
) -> None:
    write_mnist(tmp_path / "mnist", packed=False)
    file = tmp_path / "mnist" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ScenarioError, match="train-images-idx3-ubyte is damaged"):
        mnist.load(tmp_path)


def test_the_data_root_is_the_one_given_then_the_environments_then_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANCL_DATA", "/a")
    monkeypatch.setenv("DATA_DIR", "/b")
    assert data_root("/c") == Path("/c")
    assert data_root() == Path("/a")
    monkeypatch.delenv("ANCL_DATA")
    assert data_root() == Path("/b")
    monkeypatch.setenv("DATA_DIR", "")
    assert data_root() == Path("data")


@pytest.mark.parametrize("name", ["cifar100", "tinyimagenet"])
def test_the_real_images(name: str) -> None:
    data = PUBLISHED[name]
    place = data.find(data_root())
    if place is None:
        pytest.skip(f"{name} is not in the data root {data_root()}; set ANCL_DATA to have it read")
    source = data.load(data_root())
    assert len(source.classes) == data.classes
    assert source.test.y.bincount().tolist() == [data.images[1] // data.classes] * data.classes
    assert source.train.x.shape[1:] == (32, 32, 3)
    # The publisher's own statistics of CIFAR-100; ImageNet's are close to Tiny ImageNet's.
    mean = source.train.x.dense()[::10].double().mean((0, 1, 2)) / 255
    expected = {"cifar100": (0.507, 0.487, 0.441), "tinyimagenet": (0.480, 0.448, 0.398)}[name]
    assert mean.tolist() == pytest.approx(expected, abs=0.01)
