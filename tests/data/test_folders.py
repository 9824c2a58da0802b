from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ancl import ScenarioError
from tests.lab import (
    PictureRule,
    folder_source,
    known_source,
    load_source,
    patch_part,
    pixels_of,
)


def picture(file: Path, colour: tuple[int, ...], size: tuple[int, int] = (5, 4)) -> None:
    """A (width x height) image of one colour, or of one grey."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = "L" if len(colour) == 1 else "RGB"
    Image.new(mode, size, colour if len(colour) > 1 else colour[0]).save(file)


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    for name, red in (("dog", 10), ("cat", 100)):
        for i in range(5):
            picture(tmp_path / name / f"{i}.png", (red + i, 0, 0))
    return tmp_path


def test_a_folder_a_class_and_a_fifth_for_the_test(flat: Path) -> None:
    (flat / "cat" / "notes.txt").write_text("not an image")
    picture(flat / ".hidden" / "0.png", (1, 1, 1))
    known = known_source(f"folder:{flat}")
    source = known.load()
    assert (known.classes, source.classes) == (2, ("cat", "dog"))
    assert source.train.x.shape == (8, 4, 5, 3)
    assert (len(source.train), len(source.test)) == (8, 2)
    reds = sorted(
        source.train.x.dense()[:, 0, 0, 0].tolist() + source.test.x.dense()[:, 0, 0, 0].tolist()
    )
    assert reds == [10, 11, 12, 13, 14, 100, 101, 102, 103, 104]
    assert (source.train.x[source.train.y == 0][:, 0, 0, 0] >= 100).all()


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_train_and_test_folders(tmp_path: Path, test: str) -> None:
    for number, name in enumerate(("a", "b")):
        picture(tmp_path / "train" / name / "deeper" / "0.JPG", (number,))
        picture(tmp_path / test / name / "0.png", (100 + number,))
    source = known_source(f"folder:{tmp_path}").load()
    # All are grey: one channel.
    assert source.train.x.shape == (2, 4, 5, 1)
    assert source.test.x.dense()[:, 0, 0, 0].tolist() == [100, 101]


def test_grey_images_beside_coloured_ones_get_three_channels(flat: Path) -> None:
    picture(flat / "cat" / "0.png", (77,))
    source = known_source(f"folder:{flat}").load()
    together = [*source.train.x.dense()[:, 0, 0].tolist(), *source.test.x.dense()[:, 0, 0].tolist()]
    assert [77, 77, 77] in together


def test_images_of_different_sizes_are_refused_or_resized(flat: Path) -> None:
    picture(flat / "dog" / "9.png", (9, 0, 0), size=(8, 8))
    with pytest.raises(ScenarioError, match=r"cat/0.png is 5x4 and dog/9.png 8x8.*@32"):
        known_source(f"folder:{flat}").load()
    source = known_source(f"folder:{flat}@6").load()
    assert source.train.x.shape[1:] == (6, 6, 3)


def test_resizing_is_pillows_bilinear(tmp_path: Path) -> None:
    array = np.random.RandomState(0).randint(0, 256, (8, 8, 3)).astype(np.uint8)
    for name in ("a", "b"):
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.fromarray(array).save(tmp_path / part / name / "0.png")
    source = known_source(f"folder:{tmp_path}@3").load()
    expected = Image.fromarray(array).resize((3, 3), Image.Resampling.BILINEAR)
    assert np.array_equal(source.train.x[0].numpy(), np.asarray(expected))


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, flat: Path) -> None:
    with pytest.raises(ScenarioError, match=r"There is no folder .*nowhere"):
        known_source(f"folder:{tmp_path}/nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScenarioError, match="has no sub-folders"):
        known_source(f"folder:{tmp_path}/empty")
    with pytest.raises(ScenarioError, match="no images in the folder of 'empty'"):
        known_source(f"folder:{flat}").load()
    (tmp_path / "empty").rmdir()
    (flat / "dog" / "5.png").write_bytes(b"not an image")
    with pytest.raises(ScenarioError, match=r"dog/5.png is not an image that can be read"):
        known_source(f"folder:{flat}").load()
    Image.new("I;16", (5, 4)).save(flat / "dog" / "5.png")
    with pytest.raises(ScenarioError, match=r"dog/5.png has more than 8 bits"):
        known_source(f"folder:{flat}").load()
    with pytest.raises(ScenarioError, match="images of no possible size"):
        known_source(f"folder:{flat}@0")


def bad_folder(tmp_path: Path) -> Path:
    """Two classes of 8 images, and three files that are none."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(8):
            pixels = np.full((4, 5, 3), 20 * i + len(name) + ord(name[0]), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    (tmp_path / "cat" / "3.png").write_bytes(b"not an image")
    (tmp_path / "dog" / "x.jpg").write_bytes(b"")
    Image.fromarray(np.full((4, 5), 300, np.uint16)).save(tmp_path / "dog" / "deep.png")
    return tmp_path


GROUNDS = ("white", "black")


def plain_folder(place: Path, add: int = 0) -> Path:
    """Two classes of 8 images of 5x4 pixels."""
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
        for i in range(8):
            pixels = np.full((4, 5, 3), 20 * i + len(name) + ord(name[0]) + add, np.uint8)
            Image.fromarray(pixels).save(place / name / f"{i}.png")
    return place


def test_all_bad_images_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        folder_source(bad_folder(tmp_path))

    lines = str(caught.value).splitlines()
    assert lines[0] == f"3 of 18 images in {tmp_path} cannot be used:"
    assert [line.split()[0] for line in lines[1:4]] == ["cat/3.png", "dog/deep.png", "dog/x.jpg"]
    assert "more than 8 bits" in lines[2]
    assert "0x" not in str(caught.value)
    assert lines[4].startswith("Remove or replace them. Or leave out bad files: --skip-bad-images")


def test_bad_images_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    found = known_source(f"folder:{bad_folder(tmp_path)}@6+skip-bad").load()

    assert (len(found.train), len(found.test)) == (12, 3)
    assert found.train.input_shape == (3, 6, 6)
    assert found.notes == (
        "Left out, as they are not images: 3 files: cat/3.png, dog/deep.png, dog/x.jpg.",
    )
    for bad in ("cat/3.png", "dog/deep.png", "dog/x.jpg"):
        (tmp_path / bad).unlink()
    assert folder_source(tmp_path, 6).fingerprint == found.fingerprint


def test_a_class_of_bad_images_alone_is_named(tmp_path: Path) -> None:
    bad_folder(tmp_path)
    for file in (tmp_path / "cat").iterdir():
        file.write_bytes(b"")
    with pytest.raises(ScenarioError, match="no images in the folder of 'cat'"):
        folder_source(tmp_path, skip_bad=True)


def heic(path: Path) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    Image.effect_noise((16, 16), 40).convert("RGB").save(path, "HEIF")


def test_photos_of_a_telephone_are_read(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path)
    heic(folder / "cat" / "IMG_1.HEIC")
    heic(folder / "dog" / "IMG_2.heic")
    Image.new("RGB", (16, 16), (7, 8, 9)).save(folder / "dog" / "web.avif")

    source = folder_source(folder, 8)

    assert len(source.train) + len(source.test) == 16 + 3


def test_photos_that_need_the_extra_are_counted_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plain_folder(tmp_path)
    for number in range(3):
        heic(folder / "cat" / f"IMG_{number}.HEIC")
    (folder / "dog" / "torn.png").write_bytes(b"")
    patch_part(monkeypatch, "picture_heif", lambda: False)

    with pytest.raises(ScenarioError) as caught:
        folder_source(folder, 8)

    lines = str(caught.value).splitlines()
    assert lines[0] == f"4 of 20 images in {folder} cannot be used:"
    assert lines[1].startswith("cat/IMG_0.HEIC is a HEIC or AVIF picture")
    assert lines[-1].startswith("3 of them can be read with pillow-heif: pip install 'ancl[heif]'.")
    assert "--skip-bad-images" in lines[-1]


def test_no_picture_is_passed_over_in_silence(tmp_path: Path) -> None:
    """Pictures without an ending are read, and those outside of classes are counted."""
    folder = plain_folder(tmp_path)
    image = Image.new("RGB", (5, 4), (1, 2, 3))
    image.save(folder / "cat" / "no-ending", "PNG")
    image.save(folder / "stray.jpg")
    (folder / "cat" / "notes.txt").write_text("not a picture")
    (folder / "labels.csv").write_text("a,b")

    source = folder_source(folder)

    assert len(source.train) + len(source.test) == 17
    assert source.notes == (
        f"Not read, as they are in no folder of a class that is read: 1 picture (1 in {folder}).",
    )


def test_pictures_of_a_part_that_is_not_read_are_counted(tmp_path: Path) -> None:
    for part in ("train", "test", "val"):
        plain_folder(tmp_path / part, add=len(part))
    source = folder_source(tmp_path)
    assert (len(source.train), len(source.test)) == (16, 16)
    assert "16 pictures (8 in" in source.notes[0]


def test_transparent_pixels_are_laid_on_a_colour_and_that_is_said(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path)
    Image.new("RGBA", (5, 4), (255, 0, 0, 0)).save(folder / "cat" / "logo.png")

    white, black = (folder_source(folder, rule=PictureRule(background=name)) for name in GROUNDS)

    assert white.notes == (
        "1 of 17 images has transparent pixels: they are laid on white (data.background).",
    )
    assert "laid on black" in black.notes[0]
    for source, value in ((white, 255), (black, 0)):
        images = [*source.train.x[:], *source.test.x[:]]
        assert sum(bool((image == value).all()) for image in images) == 1


def test_the_rule_of_resizing_is_that_of_each_picture(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path)
    found = {}
    for how in ("stretch", "crop", "fit"):
        rule = PictureRule(how)
        source = load_source(f"folder:{folder}", None, 3, rule)
        expected = {
            pixels_of(Image.open(file), "x", rule, (3, 3))[0].tobytes()
            for file in folder.rglob("*.png")
        }
        found[how] = {image.numpy().tobytes() for image in source.train.x[:]}
        assert found[how] < expected
    assert found["fit"] != found["crop"]


def test_a_size_is_said_once(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path)
    for size in (3, 5):
        told = rf"@3 asks for images of 3x3 pixels, and data.size, .* for {size}x{size}"
        with pytest.raises(ScenarioError, match=told):
            load_source(f"folder:{folder}@3", None, size)
