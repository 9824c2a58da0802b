"""One picture to pixels: any kind of file, transparency, and the rule of resizing."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ancl import ScenarioError, SpecError
from tests.lab import PictureRule, begins_as_picture, decode, is_picture, patch_part, pixels_of

PLAIN = PictureRule()


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def ramp(width: int = 12, height: int = 8) -> Image.Image:
    """A different colour at every pixel."""
    values = np.arange(width * height * 3).reshape(height, width, 3) % 251
    return Image.fromarray(values.astype(np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "HEIF", "AVIF"])
def test_every_kind_of_file_is_known_by_its_first_bytes_and_read(kind: str) -> None:
    image = Image.new("RGB", (64, 48), (200, 100, 50))
    data = saved(image, kind)

    pixels, transparent = decode(data, "photo", PLAIN)

    assert begins_as_picture(data[:32])
    assert pixels.shape == (48, 64, 3)
    assert np.abs(pixels.astype(int) - (200, 100, 50)).max() <= 6  # most kinds lose a little
    assert not transparent


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"plain text, long enough to be more",
        b"\0\0\0\x14ftypqt  \0\0\0\0qt  ",
        b"RIFF....WAVE",
    ],
)
def test_other_files_are_not_taken_for_pictures(start: bytes) -> None:
    assert not begins_as_picture(start)


def test_names_of_pictures_are_those_that_cannot_be_read_too() -> None:
    for name in ("a.HEIC", "b.avif", "c.jpg", "d.CR2", "e.svg", "f/g.jfif"):
        assert is_picture(name)
    for name in ("Thumbs.db", "labels.csv", "clip.mov", "png", "README"):
        assert not is_picture(name)


@pytest.mark.parametrize(("kind", "part"), [("HEIF", "picture_heif"), ("AVIF", "picture_avif")])
def test_without_its_library_a_kind_is_named_with_the_way_out(
    kind: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = saved(ramp(64, 64), kind)
    patch_part(monkeypatch, part, lambda: False)

    with pytest.raises(ScenarioError, match=r"me\.heic is a HEIC or AVIF picture.*ancl\[heif\]"):
        decode(data, "me.heic", PLAIN)


def test_the_raw_file_of_a_camera_is_not_read_as_its_small_preview() -> None:
    data = saved(ramp(), "TIFF")  # a raw file is a TIFF file, whose first image is a preview
    with pytest.raises(ScenarioError, match=r"a\.nef is the raw file of a camera"):
        decode(data, "a.nef", PLAIN)


def test_a_file_that_another_program_would_decode_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pillow gives PostScript to Ghostscript: a program that a stranger has written would run."""
    eps = saved(Image.new("RGB", (8, 8)), "EPS")
    assert Image.open(io.BytesIO(eps)).format == "EPS"
    monkeypatch.setattr("subprocess.check_call", None)
    with pytest.raises(ScenarioError, match="not an image that can be read"):
        decode(eps, "photo.jpg", PLAIN)


# -- transparency ----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(colour=st.tuples(*[st.integers(0, 255)] * 4), ground=st.tuples(*[st.integers(0, 255)] * 3))
def test_transparent_pixels_are_mixed_with_the_background(
    colour: tuple[int, ...], ground: tuple[int, ...]
) -> None:
    image = Image.new("RGBA", (2, 1), (9, 9, 9, 255))
    image.putpixel((1, 0), colour)
    rule = PictureRule(background="#{:02x}{:02x}{:02x}".format(*ground))

    pixels, transparent = pixels_of(image, "x", rule)

    share = colour[3] / 255
    mixed = [share * a + (1 - share) * b for a, b in zip(colour, ground, strict=False)]
    assert np.abs(pixels[0, 1] - np.array(mixed)).max() <= 1
    assert pixels[0, 0].tolist() == [9, 9, 9]
    assert transparent == (colour[3] < 255)


def test_hidden_colours_under_transparent_pixels_are_not_seen() -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))  # a red that nobody sees
    for given_image in (image, image.quantize()):  # a palette has it, too
        assert pixels_of(given_image, "x", PLAIN)[0].min() == 255
        assert pixels_of(given_image, "x", PictureRule(background="black"))[0].max() == 0


def test_four_channels_keep_their_transparency() -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 7))
    pixels, transparent = pixels_of(image, "x", PLAIN, mode="RGBA")
    assert pixels[0, 0].tolist() == [255, 0, 0, 7]
    assert not transparent


def test_an_opaque_image_with_an_alpha_channel_is_read_as_without() -> None:
    image = ramp()
    opaque, transparent = pixels_of(image.convert("RGBA"), "x", PLAIN, (5, 5))
    assert np.array_equal(opaque, pixels_of(image, "x", PLAIN, (5, 5))[0])
    assert not transparent


# -- sizes -----------------------------------------------------------------------------------


def marked(width: int, height: int) -> Image.Image:
    """Red with a blue column at the left and at the right, and green ones inside of them."""
    image = Image.new("RGB", (width, height), (255, 0, 0))
    image.paste((0, 0, 255), (0, 0, 1, height))
    image.paste((0, 0, 255), (width - 1, 0, width, height))
    return image


def test_stretch_keeps_all_crop_cuts_both_ends_and_fit_fills_up() -> None:
    image = marked(16, 8)  # twice as wide as high
    size = (8, 8)
    stretch, crop, fit = (
        pixels_of(image, "x", PictureRule(how, "nearest", "#00ff00"), size)[0]
        for how in ("stretch", "crop", "fit")
    )

    assert all(each.shape == (8, 8, 3) for each in (stretch, crop, fit))
    assert crop.reshape(-1, 3).tolist() == [[255, 0, 0]] * 64  # the middle 8 of 16 columns
    assert (fit[:2] == (0, 255, 0)).all()
    assert (fit[-2:] == (0, 255, 0)).all()
    assert (fit[2:-2, 1:-1] == (255, 0, 0)).all()
    assert not (stretch == (0, 255, 0)).all(axis=2).any()


def test_the_default_is_pillows_bilinear_stretch_as_before() -> None:
    image = ramp(13, 9)
    expected = np.asarray(image.resize((5, 7), Image.Resampling.BILINEAR))
    assert np.array_equal(pixels_of(image, "x", PLAIN, (7, 5))[0], expected)
    cubic = np.asarray(image.resize((5, 7), Image.Resampling.BICUBIC))
    assert np.array_equal(pixels_of(image, "x", PictureRule(filter="bicubic"), (7, 5))[0], cubic)


def test_pixels_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(ramp(40, 30), "PNG")

    def decoded(*_: Any) -> None:
        raise AssertionError("the pixels were decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decoded)
    with pytest.raises(ScenarioError, match="more than 1,199 pixels"):
        decode(data, "x", PLAIN, most_pixels=1199)


@pytest.mark.parametrize(
    "wrong", [{"resize": "squash"}, {"filter": "cubic"}, {"background": "grass green"}]
)
def test_a_rule_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"data.{next(iter(wrong))} is"):
        PictureRule(**wrong)
