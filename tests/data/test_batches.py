"""Batches: cuts, order, exemplars, and randomness that comes from the generator alone."""

import pytest
import torch

from tests.lab import Batches, Normalization, Samples, bounded_size


def make(count: int, size: int, exemplars: int = 0, augment: str = "none") -> Batches:
    """Images whose first pixel is their number."""
    x = torch.zeros(count, 4, 4, 1, dtype=torch.uint8)
    x[:, 0, 0, 0] = torch.arange(count)
    return Batches(Samples(x, torch.arange(count)), size, None, augment, exemplars=exemplars)


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (10, 4, [4, 4, 2]),
        (8, 4, [4, 4]),
        (9, 4, [4, 5]),
        (5, 4, [5]),
        (3, 4, [3]),
        (1, 4, [1]),
        (3, 1, [1, 2]),
    ],
)
def test_a_last_batch_of_one_joins_the_one_before(count, size, sizes) -> None:
    batches = make(count, size)

    assert [len(batch.y) for batch in batches.in_order()] == sizes
    assert [len(b.y) for b in batches.shuffled(torch.Generator().manual_seed(0))] == sizes
    assert len(batches) == len(sizes)


def test_in_order_is_every_sample_as_it_lies() -> None:
    y = torch.cat([batch.y for batch in make(11, 4).in_order()])

    assert y.tolist() == list(range(11))


def test_shuffled_is_a_permutation_from_the_generator() -> None:
    def drawn(seed: int) -> list[int]:
        found = list(make(50, 8).shuffled(torch.Generator().manual_seed(seed)))
        # Image and label stay together: the first pixel is the number of the image.
        pixels = torch.cat([batch.x[:, 0, 0, 0] for batch in found]) * 255
        labels = torch.cat([batch.y for batch in found])
        assert pixels.round().long().tolist() == labels.tolist()
        return labels.tolist()

    assert sorted(drawn(0)) == list(range(50))
    assert drawn(0) == drawn(0) != drawn(1)
    assert drawn(0) != list(range(50))


def test_exemplars_are_the_last_samples_wherever_they_are_drawn() -> None:
    batches = make(20, 6, exemplars=5)

    for batch in [*batches.in_order(), *batches.shuffled(torch.Generator().manual_seed(0))]:
        assert batch.exemplars is not None
        assert batch.exemplars.tolist() == (batch.y >= 15).tolist()
    assert all(batch.exemplars is None for batch in make(20, 6).in_order())


def test_images_are_augmented_only_when_shuffled_and_asked() -> None:
    batches = make(30, 30, augment="flip")
    (plain,) = batches.in_order()
    (bare,) = batches.shuffled(torch.Generator().manual_seed(0), augmented=False)
    (changed,) = batches.shuffled(torch.Generator().manual_seed(0))

    order = bare.y
    assert torch.equal(bare.x, plain.x[order])
    # A flipped image has its mark in the last column.
    assert 0 < int((changed.x[:, 0, 0, 3] > 0).sum()) < 30


def test_pixels_are_normalized_and_lie_channels_last() -> None:
    samples = Samples(torch.full((4, 3, 3, 2), 51, dtype=torch.uint8), torch.zeros(4).long())
    (batch,) = Batches(samples, 4, Normalization((0.1, 0.2), (0.5, 0.1))).in_order()

    # 51/255 = .2: (.2 − .1)/.5 and (.2 − .2)/.1
    assert batch.x.shape == (4, 2, 3, 3)
    assert batch.x[0, :, 0, 0].tolist() == pytest.approx([0.2, 0.0], abs=1e-6)
    assert batch.x.is_contiguous(memory_format=torch.channels_last)


def test_batches_where_nothing_is_trained_are_bounded_by_pixels() -> None:
    # 2^19 pixels: 512 images of 32x32, 20.5 of 160x160, 10.4 of 224x224
    sizes = [bounded_size(128, (3, side, side)) for side in (32, 64, 160, 224, 1024)]
    assert sizes == [128, 128, 20, 10, 1]
    assert bounded_size(1000, (3, 32, 32)) == 512
    assert bounded_size(64, (1280,)) == 64  # vectors have no pixels
