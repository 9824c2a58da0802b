import pytest
import torch
from torch import Tensor

from ancl import SpecError
from tests.lab import augmentation, generator, padding


def batch(n: int = 16, height: int = 9, width: int = 12, channels: int = 3) -> Tensor:
    shape = (n, height, width, channels)
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=generator(3))


def slow_crop(image: Tensor, pad: int, top: int, left: int, mirrored: bool) -> Tensor:
    height, width, _ = image.shape
    result = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            source_row = row + top - pad
            source_column = (width - 1 - column if mirrored else column) + left - pad
            if 0 <= source_row < height and 0 <= source_column < width:
                result[row, column] = image[source_row, source_column]
    return result


@pytest.mark.parametrize(("height", "width", "pad"), [(9, 12, 1), (17, 16, 2), (32, 40, 4)])
def test_crop_equals_one_image_at_a_time(height: int, width: int, pad: int) -> None:
    x = batch(6, height, width)
    draws = generator(7)
    places = torch.randint(0, 2 * pad + 1, (2, 6, 1), generator=draws).flatten(1)
    mirrored = torch.randint(0, 2, (6,), generator=draws).bool()

    expected = [
        slow_crop(image, pad, int(top), int(left), bool(mirror))
        for image, top, left, mirror in zip(x, *places, mirrored, strict=True)
    ]

    assert torch.equal(augmentation("crop")(x, generator(7)), torch.stack(expected))


def test_flip_mirrors_about_half_of_the_images_and_leaves_the_rest() -> None:
    x = batch(400, 2, 3, 1)
    result = augmentation("flip")(x, generator(0))
    mirrored = [torch.equal(a, b.flip(1)) for a, b in zip(result, x, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(result, x, strict=True)]
    assert all(m or s for m, s in zip(mirrored, same, strict=True))
    assert 160 < sum(mirrored) < 240


def test_crop_reaches_every_place_and_mirrors() -> None:
    image = batch(1, 8, 8, 1)
    results = augmentation("crop")(image.expand(500, -1, -1, -1), generator(0))
    # Padding 1: 3 places down, 3 across, mirrored or not.
    assert len({bytes(result.numpy()) for result in results}) == 18


@pytest.mark.parametrize("name", ["flip", "crop", "facil", "resized"])
def test_augmentation_repeats_with_its_generator_and_spares_the_batch(name: str) -> None:
    x = batch()
    before = x.clone()
    one, again, other = (augmentation(name)(x, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(x, before)
    assert (one.dtype, one.shape) == (torch.uint8, x.shape)


def test_none_is_the_batch_itself_and_draws_nothing() -> None:
    x, draws = torch.rand(2, 3), generator(0)
    assert augmentation("none")(x, draws) is x
    assert torch.equal(draws.get_state(), generator(0).get_state())


def test_padding_is_an_eighth_of_the_shorter_side_up_to_four() -> None:
    sides = [(8, 8), (4, 4), (12, 12), (16, 32), (28, 28), (32, 32), (64, 64)]
    assert [padding(*side) for side in sides] == [1, 1, 1, 2, 3, 4, 4]


def test_floats_and_unknown_names_are_refused() -> None:
    for name in ("flip", "crop", "facil", "resized"):
        with pytest.raises(SpecError, match=f"augment={name} works on uint8.*augment=none"):
            augmentation(name)(torch.rand(2, 3, 8, 8), generator(0))
    with pytest.raises(SpecError, match=r"Did you mean 'flip'.* none, flip, crop, facil"):
        augmentation("flipp")
