import torch

from tests.lab import Normalization, Samples, as_input, divide, generator

CPU = torch.device("cpu")


def test_input_shape_puts_the_channels_of_bytes_first_and_leaves_floats() -> None:
    y = torch.zeros(2, dtype=torch.int64)
    assert Samples(torch.zeros(2, 5, 6, 3, dtype=torch.uint8), y).input_shape == (3, 5, 6)
    assert Samples(torch.zeros(2, 3, 5, 6), y).input_shape == (3, 5, 6)
    assert Samples(torch.zeros(2, 7), y).input_shape == (7,)


def test_take_and_concatenate_keep_images_and_labels_together() -> None:
    samples = Samples(torch.arange(8.0).view(4, 2), torch.arange(4))

    taken = Samples.concatenate(
        [samples.take(torch.tensor([3, 1])), samples.take(torch.tensor([0]))]
    )

    assert len(taken) == 3
    assert taken.x.dense().tolist() == [[6.0, 7.0], [2.0, 3.0], [0.0, 1.0]]
    assert taken.y.tolist() == [3, 1, 0]


def test_bytes_become_normalized_floats_channels_first_in_channels_last_memory() -> None:
    x = torch.randint(0, 256, (2, 3, 4, 3), dtype=torch.uint8, generator=generator(0))
    before = x.clone()
    normalization = Normalization((0.5, 0.4, 0.3), (0.2, 0.25, 0.5))

    result = as_input(x, normalization, CPU)

    for b in range(2):
        for h in range(3):
            for w in range(4):
                for c in range(3):
                    pixel = x[b, h, w, c].item() / 255
                    expected = (pixel - normalization.mean[c]) / normalization.std[c]
                    assert abs(result[b, c, h, w].item() - expected) < 1e-6
    assert result.shape == (2, 3, 3, 4)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, before)


def test_bytes_without_normalization_lie_between_zero_and_one() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 3, 1)
    assert torch.equal(as_input(x, None, CPU).flatten(), torch.tensor([0.0, 0.2, 1.0]))


def test_floats_are_read_as_they_are() -> None:
    images = torch.arange(2.0 * 3 * 4 * 5).view(2, 3, 4, 5)
    result = as_input(images, None, CPU)
    assert torch.equal(result, images)
    assert result.is_contiguous(memory_format=torch.channels_last)
    vectors = torch.arange(6, dtype=torch.float64).view(2, 3)
    assert as_input(vectors, None, CPU).dtype == torch.float32
    assert as_input(vectors, None, CPU).tolist() == vectors.tolist()


def test_divide_parts_all_positions_in_ascending_order() -> None:
    kept, held = divide(10, 3, generator(1))
    assert len(held) == 3
    assert sorted(kept.tolist() + held.tolist()) == list(range(10))
    assert kept.tolist() == sorted(kept.tolist())
    assert held.tolist() == sorted(held.tolist())
    assert held.tolist() != divide(10, 3, generator(2))[1].tolist()


def test_pixels_are_normalized_however_they_lie_in_memory() -> None:
    x = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8, generator=generator(0))
    moments = Normalization((0.5, 0.25, 0.125), (0.5, 0.25, 1.0))
    # Channels first in memory, seen as channels last.
    result = as_input(x.permute(0, 2, 3, 1), moments, torch.device("cpu"))
    mean, std = (torch.tensor(part).view(1, 3, 1, 1) for part in (moments.mean, moments.std))
    assert torch.equal(result, (x / 255 - mean) / std)


def test_samples_of_a_class_are_found_in_order_and_a_class_without_any_has_none() -> None:
    y = torch.tensor([2, 0, 2, 0, 0])
    samples = Samples(torch.zeros(5, 3), y)

    assert [samples.of_class(c).tolist() for c in range(5)] == [[1, 3, 4], [], [0, 2], [], []]
