"""Random streams depend on their path alone, and leave the global generators as they were."""

import contextlib
import random

import numpy as np
import torch

from tests.lab import derive, generator, seeded


def test_a_seed_depends_on_the_whole_path_and_on_nothing_else() -> None:
    paths = [(0,), (1,), (0, 1), (0, 0, 1), (0, "main"), (0, 1, "main"), (0, 1, "main", "epoch", 2)]

    seeds = [derive(*path) for path in paths]

    assert seeds == [derive(*path) for path in paths]
    assert len(set(seeds)) == len(paths)
    assert all(0 <= seed < 2**63 for seed in seeds)
    # The first 8 bytes of sha256("0"), halved: stored keys and results rest on this number.
    assert derive(0) == 0x5FECEB66FFC86F38 >> 1


def test_a_stream_is_its_own() -> None:
    torch.manual_seed(5)
    one = torch.rand(3, generator=generator(0, "a"))
    torch.manual_seed(6)

    assert torch.equal(one, torch.rand(3, generator=generator(0, "a")))
    assert not torch.equal(one, torch.rand(3, generator=generator(0, "b")))


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def interrupted() -> tuple[float, float, float]:
    """What is drawn in a block that ends with an error."""
    with contextlib.suppress(KeyboardInterrupt), seeded(3, "epoch", 0):
        values = drawn()
        raise KeyboardInterrupt
    return values


def test_global_generators_are_seeded_inside_and_put_back() -> None:
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()

    with seeded(3, "epoch", 0):
        first = drawn()
    with seeded(3, "epoch", 1):
        other = drawn()
    again = interrupted()

    assert first == again
    assert first != other
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()
    assert torch.equal(torch.get_rng_state(), before[2])
