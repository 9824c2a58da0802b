import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from tests.lab import Boxes, augmentation, draw_boxes, generator, padding, resize_boxes


def with_pillow(image: Tensor, boxes: Boxes, index: int, pad: int) -> Tensor:
    """Pad, crop, resize, mirror: one image, as torchvision's transforms do it with Pillow."""
    height, width, channels = image.shape
    top, left, tall, wide = (int(part[index]) for part in boxes[:4])
    array = image.numpy() if channels == 3 else image[:, :, 0].numpy()
    padded = ImageOps.expand(Image.fromarray(array), border=pad, fill=0)
    part = padded.crop((left, top, left + wide, top + tall))
    resized = part.resize((width, height), Image.Resampling.BILINEAR)
    if boxes.mirrored[index]:
        resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(resized)).view(image.shape)


@pytest.mark.parametrize("name", ["facil", "resized"])
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (12, 20, 3), (64, 64, 3), (48, 16, 1)])
def test_both_are_pillows_resize_to_within_one_grey_level(
    shape: tuple[int, int, int], name: str
) -> None:
    x = torch.randint(0, 256, (64, *shape), dtype=torch.uint8, generator=generator(1))
    height, width, _ = shape
    pad = padding(height, width) if name == "facil" else 0
    boxes = draw_boxes(64, height + 2 * pad, width + 2 * pad, generator(2))
    result = augmentation(name)(x, generator(2))
    expected = torch.stack([with_pillow(image, boxes, i, pad) for i, image in enumerate(x)])
    assert (result.int() - expected.int()).abs().max() <= 1
    # Rounding alone differs: Pillow rounds halves up twice, here it is once.
    assert (result.double() - expected.double()).mean().abs() < 0.1


def test_the_whole_image_stays_as_it_is() -> None:
    x = torch.randint(0, 256, (4, 9, 7, 3), dtype=torch.uint8, generator=generator(0))
    numbers = [torch.full((4,), value) for value in (2.0, 2.0, 9.0, 7.0)]
    same = Boxes(*numbers, torch.tensor([False, True, False, True]))
    result = resize_boxes(x, same, pad=2)
    assert torch.equal(result[::2], x[::2])
    assert torch.equal(result[1::2], x[1::2].flip(2))


def test_boxes_have_the_areas_and_shapes_asked_for() -> None:
    boxes = draw_boxes(20_000, 40, 40, generator(0))
    area = boxes.height * boxes.width / 1600
    aspect = (boxes.width / boxes.height).log()
    assert 0.07 < area.min() < 0.09
    assert area.max() == 1
    # Areas are even from 8 % to 100 % but for the largest, of which oblong ones do not fit.
    assert area[area < 0.6].mean().item() == pytest.approx((0.08 + 0.6) / 2, abs=0.01)
    assert aspect.abs().max() < math.log(4 / 3) + 0.1
    assert aspect.mean().abs() < 0.01
    for start, length in ((boxes.top, boxes.height), (boxes.left, boxes.width)):
        assert start.min() == 0
        assert (start + length).max() == 40
        free = (40 - length) > 0
        assert (start / (40 - length))[free].mean().item() == pytest.approx(0.5, abs=0.01)
    assert boxes.mirrored.double().mean().item() == pytest.approx(0.5, abs=0.02)


def slow_box(
    sizes: list[float], shapes: list[float], height: int, width: int
) -> tuple[int, int] | None:
    """The first candidate that fits, one after the other."""
    for size, shape in zip(sizes, shapes, strict=True):
        area = height * width * (0.08 + 0.92 * size)
        aspect = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * shape)
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return tall, wide
    return None


@pytest.mark.parametrize(("height", "width"), [(40, 40), (10, 90), (90, 10)])
def test_the_first_candidate_that_fits_is_taken_else_the_middle(height: int, width: int) -> None:
    boxes = draw_boxes(300, height, width, generator(5))
    sizes, shapes = torch.rand(2, 300, 10, generator=generator(5), dtype=torch.float64)
    fallen_back = 0
    for index in range(300):
        expected = slow_box(sizes[index].tolist(), shapes[index].tolist(), height, width)
        found = tuple(int(part[index]) for part in boxes[:4])
        if expected is None:
            fallen_back += 1
            # At most 4:3: 10 x 13 (or 13 x 10) in the middle of 90, (90 - 13) // 2 = 38 from it.
            assert found == ((0, 38, 10, 13) if width == 90 else (38, 0, 13, 10))
        else:
            assert found[2:] == expected
    assert (fallen_back > 0) == (height != width)
