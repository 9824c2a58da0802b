"""Which images a memory keeps that all classes share: reservoirs, and GDumb's greedy sampler."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from ancl.data import Samples
from ancl.seeding import derive, generator


def share(
    selection: str,
    samples: Samples,
    kept: int,
    count: int,
    known: int,
    path: tuple[int, int],
) -> Tensor:
    """The positions of what a memory keeps that all classes share, ascending.

    Args:
        selection: ``reservoir``, ``balanced`` or ``greedy``.
        samples: What it held before, then the task's images in the order in which they came.
        kept: How many of them it held before.
        count: The number of images that it may hold.
        known: The number of classes that came before the task.
        path: Seed and task, where randomness comes from.
    """
    y = samples.y
    if selection == "greedy":
        chosen = greedy(y.tolist(), kept, count, known, generator(*path, "memory"))
        return torch.tensor(sorted(chosen), dtype=torch.long)
    return share_by_keys(selection, arrival_keys(samples, path[0]), y, count)


def share_by_keys(selection: str, keys: Tensor, y: Tensor, count: int) -> Tensor:
    """The positions that a ``reservoir`` or a ``balanced`` one keeps, ascending.

    Args:
        selection: One of both.
        keys: Of each image; see ``arrival_keys``.
        y: The class of each.
        count: The number of images that it may hold.
    """
    order = keys.argsort(descending=True, stable=True)
    if selection == "reservoir":
        return order[:count].sort().values
    room = equal_room(y.bincount().tolist(), count)
    by_class = [order[y[order] == label][:most] for label, most in enumerate(room)]
    return torch.cat(by_class).sort().values


def arrival_keys(samples: Samples, seed: int) -> Tensor:
    """A number in [0, 1) of each image, from its content and the seed.  Equation: [reservoir].

    The images with the largest of them are a uniform sample of all that were seen: in whatever
    batches and order they came, and after the memory was stored and read again.
    """
    digests = samples.x.digests()[:, 0]
    with np.errstate(over="ignore"):
        mixed = digests ^ np.uint64(derive(seed, "reservoir"))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return torch.from_numpy((mixed >> np.uint64(11)).astype(np.float64) / 2**53)


def equal_room(available: Sequence[int], count: int) -> list[int]:
    """How many images each class keeps: as equal as can be, and the first classes have one more.

    What a class has fewer of than its part goes to the others.

    >>> equal_room([9, 9, 9, 9], 10), equal_room([9, 1, 9], 10)
    ([3, 3, 2, 2], [5, 1, 4])
    """
    room, left = [0] * len(available), min(count, sum(available))
    while left:
        open_classes = [label for label, most in enumerate(available) if room[label] < most]
        share = max(1, left // len(open_classes))
        for label in open_classes:
            more = min(share, available[label] - room[label], left)
            room[label] += more
            left -= more
    return room


def greedy(
    labels: Sequence[int], kept: int, count: int, known: int, randomness: Generator
) -> list[int]:
    """The positions that GDumb's sampler holds in the end.  Equation: [gdumb].

    An image is taken while its class has fewer than count / (classes seen); in a full memory a
    random image of a largest class makes room for it, of the lowest of equal ones.

    Args:
        labels: Classes of what it held before, then of images in the order in which they came.
        kept: How many it held before.
        count: The number of images that it may hold.
        known: The number of classes that came before.
        randomness: For what makes room.
    """
    held: dict[int, list[int]] = {}
    for position, label in enumerate(labels[:kept]):
        held.setdefault(label, []).append(position)
    seen, size = {*range(known), *labels[:kept]}, kept
    for position, label in enumerate(labels[kept:], start=kept):
        seen.add(label)
        of_label = held.setdefault(label, [])
        if len(of_label) * len(seen) >= count:
            continue
        if size >= count:
            largest = max(sorted(held), key=lambda each: len(held[each]))
            out = int(torch.randint(len(held[largest]), (), generator=randomness))
            held[largest].pop(out)
            size -= 1
        of_label.append(position)
        size += 1
    return [position for positions in held.values() for position in positions]
