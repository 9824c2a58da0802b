"""What a memory holds after a task."""

from dataclasses import replace

import torch

from ancl.data import Samples
from ancl.data.samples import not_in
from ancl.memory import Exemplars, Memory
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.reservoirs import share
from ancl.training.renewal import recorded_extra
from ancl.types import Params


def memory_after(work: TaskWork, network: Network) -> list[Exemplars]:
    """What the memory holds from now on: the old exemplars that it keeps, then new ones.

    Those of a class that comes again are chosen among the kept ones and the new images, unless all
    classes share the memory.

    Args:
        work: The task's.
        network: Which a rule of choice may ask.
    """
    count, held = work.kept
    if work.memory and work.memory.shared:
        return _shared(work, work.memory, count)
    old = _none(work)
    if work.exemplars:
        cut = work.exemplars.truncated(count, held)
        old = cut.of_classes(work.history.returning, inside=False)
    new = [work.chosen(network, count)]
    if held:
        number = len(work.held)
        flags = torch.ones(number, dtype=torch.bool)
        new.append(Exemplars(work.held, torch.full((number,), work.index), flags))
    return [old, *new]


def renewed_memory(work: TaskWork, renewed: Params) -> Exemplars:
    """What the memory holds that took every batch of the task when it was learned.

    Args:
        work: The task's.
        renewed: What its training left: positions, and what was recorded.
    """
    old, new = work.exemplars or _none(work), work.split.train
    came = Exemplars(new, torch.full((len(new),), work.index), torch.zeros(len(new)).bool())
    both = Exemplars.joined([replace(old, extra={}), came])
    return replace(both, extra=recorded_extra(renewed)).take(renewed["held"])


def _shared(work: TaskWork, memory: Memory, count: int) -> list[Exemplars]:
    """The same of a memory that all classes share."""
    old, new = work.exemplars or _none(work), work.split.train
    if work.history.returning:
        new = not_in(new, old.samples)
    new = new.take(work.arrival(len(new)))
    came = Exemplars(new, torch.full((len(new),), work.index), torch.zeros(len(new)).bool())
    both, old_count = Samples.concatenate([old.samples, new]), len(old.task)
    known = work.history.counts[0] if work.index else 0
    stays = share(memory.selection, both, old_count, count, known, (work.seed, work.index))
    return [old.take(stays[stays < old_count]), came.take(stays[stays >= old_count] - old_count)]


def _none(work: TaskWork) -> Exemplars:
    nothing = torch.zeros(0, dtype=torch.long)
    return Exemplars(work.split.train.take(nothing), nothing, nothing.bool())
