"""Fixed versions of images: which there are, and that they stay what they are."""

import pytest
import torch
from torch import Tensor

from tests.lab import VERSIONS, Batches, Samples, Versions, generator, padding


def images(n: int, height: int = 9, width: int = 12, channels: int = 3) -> Tensor:
    shape = (n, height, width, channels)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(3))


def slow_versions(x: Tensor, drawn: Versions, number: int) -> list[Tensor]:
    """The versions of one image, one after the other."""
    image = x[number].double()
    height, width, _ = image.shape
    means = torch.stack([image[:, :, channel].mean() for channel in range(image.shape[2])])
    brighter = image + drawn.shift[number].double()
    contrast = means + drawn.factor[number].double() * (image - means)
    toned = [each.round().clamp(0, 255) for each in (image, brighter, contrast)]
    pad = padding(height, width)
    crops = []
    for each, top, left in zip(toned, *drawn.corner[:, :, number].tolist(), strict=True):
        padded = torch.zeros(height + 2 * pad, width + 2 * pad, each.shape[2]).double()
        padded[pad : pad + height, pad : pad + width] = each
        crops.append(padded[top : top + height, left : left + width])
    six = [*toned, *crops]
    return [each.to(torch.uint8) for each in [*six, *(each.flip(1) for each in six)]]


@pytest.mark.parametrize(("height", "width", "channels"), [(9, 12, 3), (32, 32, 3), (8, 8, 1)])
def test_versions_equal_one_image_at_a_time(height: int, width: int, channels: int) -> None:
    x = images(5, height, width, channels)
    drawn = Versions.draw(x.shape, generator(7))
    image = torch.arange(5).repeat_interleave(VERSIONS)
    version = torch.arange(VERSIONS).repeat(5)

    found = drawn.of(x[image], image, version)
    expected = torch.stack([each for n in range(5) for each in slow_versions(x, drawn, n)])

    # Half a grey level may be rounded to either side in single and double precision.
    assert (found.int() - expected.int()).abs().max() <= 1
    assert (found != expected).float().mean() < 1e-3
    assert torch.equal(found[version == 0], x)
    assert torch.equal(found[version == 6], x.flip(2))
    assert found.dtype == torch.uint8


def test_what_is_drawn_keeps_to_its_ranges_and_reaches_their_ends() -> None:
    drawn = Versions.draw((4000, 32, 32, 1), generator(0))

    assert drawn.shift.abs().max() <= 63
    assert (int(drawn.shift.min()), int(drawn.shift.max())) == (-62, 62)
    assert drawn.factor.min().item() == pytest.approx(0.2, abs=0.01)
    assert drawn.factor.max().item() == pytest.approx(1.8, abs=0.01)
    # Padding 4: nine places down and across, drawn anew for each of the three.
    assert drawn.corner.unique().tolist() == list(range(9))
    assert not torch.equal(drawn.corner[:, 0], drawn.corner[:, 1])


def enlarged(count: int = 10, exemplars: int = 0, size: int = 16) -> Batches:
    plain = Batches(Samples(images(count), torch.arange(count)), size, None, exemplars=exemplars)
    return plain.enlarged(generator(5))


def epoch(batches: Batches, seed: int) -> dict[int, list[bytes]]:
    """The images of one epoch by their label, sorted."""
    found: dict[int, list[bytes]] = {}
    for batch in batches.shuffled(generator(seed)):
        for x, y in zip(batch.x, batch.y.tolist(), strict=True):
            found.setdefault(y, []).append(x.contiguous().numpy().tobytes())
    return {y: sorted(each) for y, each in found.items()}


def test_an_epoch_is_every_version_once_and_the_same_in_each() -> None:
    batches = enlarged()
    first, second = epoch(batches, 0), epoch(batches, 1)
    labels = [torch.cat([b.y for b in batches.shuffled(generator(s))]).tolist() for s in (0, 1)]

    assert batches.count == 120
    assert len(batches) == len(list(batches.shuffled(generator(0)))) == 8
    assert {y: len(each) for y, each in first.items()} == dict.fromkeys(range(10), VERSIONS)
    assert first == second == epoch(enlarged(), 2)
    assert labels[0] != labels[1]


def test_the_images_themselves_and_the_marks_of_exemplars_stay() -> None:
    batches = enlarged(exemplars=4)

    for batch in batches.shuffled(generator(0)):
        assert batch.exemplars is not None
        assert batch.exemplars.tolist() == (batch.y >= 6).tolist()
    assert sum(len(batch.y) for batch in batches.in_order()) == 10
    assert sum(len(b.y) for b in batches.shuffled(generator(0), augmented=False)) == 10


def test_inputs_that_are_no_images_stay_as_they_are() -> None:
    batches = Batches(Samples(torch.rand(6, 3), torch.arange(6)), 4, None)

    assert batches.enlarged(generator(0)) is batches
    assert batches.count == 6
