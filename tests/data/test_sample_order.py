import hashlib

import torch

from tests.lab import Samples, canonical, fingerprint, generator


def make(n: int = 12) -> Samples:
    x = torch.randint(0, 256, (n, 3, 3, 1), dtype=torch.uint8, generator=generator(0))
    return Samples(x, torch.arange(n) % 3)


def shuffled(samples: Samples) -> Samples:
    return samples.take(torch.randperm(len(samples), generator=generator(5)))


def test_canonical_order_is_by_class_then_by_sha256_of_form_and_bytes() -> None:
    samples = make()

    def rank(i: int) -> tuple[int, str]:
        form = repr(("torch.uint8", (3, 3, 1))).encode()
        digest = hashlib.sha256(form + samples.x[i].numpy().tobytes()).hexdigest()
        return int(samples.y[i]), digest

    expected = samples.take(torch.tensor(sorted(range(len(samples)), key=rank)))
    actual = canonical(samples)

    assert torch.equal(actual.x.dense(), expected.x.dense())
    assert torch.equal(actual.y, expected.y)


def test_order_changes_neither_canonical_samples_nor_fingerprint() -> None:
    samples = make()
    other = shuffled(samples)
    assert not torch.equal(samples.x.dense(), other.x.dense())
    assert torch.equal(canonical(samples).x.dense(), canonical(other).x.dense())
    assert torch.equal(canonical(samples).y, canonical(other).y)
    assert fingerprint(samples) == fingerprint(other)


def test_fingerprint_sees_pixel_label_part_shape_and_type() -> None:
    samples = make()
    pixel = samples.x.dense()
    pixel[0, 0, 0, 0] ^= 1
    label = samples.y.clone()
    label[0] = 1
    halves = samples.take(torch.arange(6)), samples.take(torch.arange(6, 12))
    prints = {
        fingerprint(samples),
        fingerprint(Samples(pixel, samples.y)),
        fingerprint(Samples(samples.x, label)),
        fingerprint(Samples(samples.x.dense().view(12, 9, 1, 1), samples.y)),
        fingerprint(Samples(samples.x.dense().float(), samples.y)),
        fingerprint(*halves),
        fingerprint(*reversed(halves)),
    }
    assert len(prints) == 7
