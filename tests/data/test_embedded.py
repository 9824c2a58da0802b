import time

import torch

from tests.lab import digits, fashion_digits, hard_digits


def test_digits_are_the_published_images() -> None:
    source = digits()
    y = torch.cat([source.train.y, source.test.y])
    # The counts of the ten digits in the published test part.
    assert y.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert source.classes == tuple(range(10))
    assert source.train.x.shape == (1198, 8, 8, 1)
    assert source.train.x.dtype == torch.uint8
    x = torch.cat([source.train.x.dense(), source.test.x.dense()])
    assert x.max().item() == 16 * 15
    assert (x % 15).max().item() == 0
    # 4.884 dark points a pixel: 561718 / (1797 * 64).
    assert x.sum(dtype=torch.int64).item() == 561718 * 15


def test_a_third_of_each_digit_is_for_the_test() -> None:
    source = digits()
    counts = (source.train.y.bincount() + source.test.y.bincount()).tolist()
    assert source.test.y.bincount().tolist() == [round(count / 3) for count in counts]


def test_hard_digits_are_shifted_and_the_same_each_time() -> None:
    clean = hard_digits(noise=0.0)
    assert clean.train.input_shape == (1, 14, 14)
    # Each canvas holds one digit unchanged, so the dark points add up to the same.
    total = sum(part.x.dense().sum(dtype=torch.int64).item() for part in (clean.train, clean.test))
    assert total == 561718 * 15
    # Shifts of -3 and +3 bring digits to the first and the last row.
    assert clean.train.x.dense().amax((0, 2, 3)).bool().tolist() == [True] * 14
    assert hard_digits().fingerprint == hard_digits().fingerprint
    assert len({hard_digits(noise=n, shift=s).fingerprint for n in (0.1, 0.2) for s in (1, 2)}) == 4


def test_noise_has_the_given_size() -> None:
    # No digit reaches the first column (its own is blank), so a pixel there is max(0, noise):
    # its root mean square is std / sqrt(2).
    edge = hard_digits(shift=8, noise=0.1).train.x.dense()[:, :, 0, 0].double()
    assert abs((edge**2).mean().sqrt().item() / (25.5 / 2**0.5) - 1) < 0.02


def test_digits_are_read_at_once() -> None:
    digits()
    start = time.perf_counter()
    digits()
    assert time.perf_counter() - start < 1.0


def test_garments_and_digits_share_one_size() -> None:
    source, plain = fashion_digits(), digits()
    assert source.train.y.bincount().tolist() == [100] * 20
    assert source.test.y.bincount().tolist() == [
        *[200] * 10,
        *(count - 100 for count in [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
    ]
    assert source.notes == ()  # no test image is a training image too
    x = torch.cat([source.train.x.dense(), source.test.x.dense()])
    y = torch.cat([source.train.y, source.test.y])
    assert x.shape[1:] == (14, 14, 1)
    # The digits are all there, unchanged, inside a border of zeros.
    own = x[y >= 10].long()
    assert (
        own[:, 3:11, 3:11].sum()
        == own.sum()
        == torch.cat([plain.train.x.dense(), plain.test.x.dense()]).sum()
    )
