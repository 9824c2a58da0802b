"""What a learner without training knows of every image, and two such learners as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from ancl.data import Label, Task
from ancl.errors import ScenarioError, SpecError
from ancl.hashing import describe, digest
from ancl.methods.method import Method
from ancl.methods.task_history import adds_classes
from ancl.networks.network import BACKBONE
from ancl.recipe.recipe import Recipe
from ancl.stages.setting import Setting
from ancl.state import BASE, NETWORK, STATISTICS
from ancl.statistics import Statistics
from ancl.store.entry import StageResult
from ancl.types import Params, strip_prefix

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


Ids = Mapping[str, Sequence[str]]
"""What images are called, by the hash of each."""


class LedgerEntry(NamedTuple):
    """One image that was learned or held; no pixel of it is kept.

    Args:
        ids: What it is called: the files it came as, or as the caller said; none if nobody did.
        hash: The sha256 of its type, shape and pixels.
        task: The task that brought it first, from 0.
        label: Its class.
        held: Whether nothing is learned from it.
    """

    ids: tuple[str, ...]
    hash: str
    task: int
    label: Label
    held: bool


def ledger_entries(known: Statistics, labels: Sequence[Label], ids: Ids) -> tuple[LedgerEntry, ...]:
    """Every image, in the order of the hashes; with ``keep=sums`` the held ones alone."""
    ledger = known.ledger
    rows = zip(
        ledger.hex(), ledger.tasks.tolist(), ledger.y.tolist(), ledger.held.tolist(), strict=True
    )
    return tuple(
        LedgerEntry(tuple(ids.get(text, ())), text, task, labels[number], held)
        for text, task, number, held in rows
    )


def statistics_of(learner: Learner) -> Statistics:
    """The statistics of all images that a learner has learned or holds.

    Raises:
        ScenarioError: Its method keeps none.
    """
    learner._learned()
    piece = learner.method.infer.holds
    if piece is None:
        raise ScenarioError(
            f"{learner.method.name} trains a network, which does not know what it has of which "
            f"image. Methods that compute their classifier do: auto, ncm, slda, ridge, knn …"
        )
    return read_statistics(learner._obtain(learner._state[piece]).tensors, piece)


def read_statistics(tensors: Params, piece: str = STATISTICS) -> Statistics:
    """Statistics, from the tensors of a piece of the state."""
    return Statistics.read(strip_prefix(piece, tensors))


# -- two learners as one -----------------------------------------------------------------------


class Site(NamedTuple):
    """A learner, as far as it is merged.

    Args:
        recipe: What it was made of.
        method: Its method.
        setting: What else decides its stages.
        tasks: What it learned.
        entries: What it left behind, by piece.
        known: The statistics of its images.
    """

    recipe: Recipe
    method: Method
    setting: Setting
    tasks: tuple[Task, ...]
    entries: Mapping[str, StageResult]
    known: Statistics


def check_mergeable(here: Site, there: Site) -> None:
    """Refuse two learners that are not made of the same parts, naming all that differs.

    Raises:
        SpecError: One that saw all images would not be the same as both together.
    """
    problems = list(_differences(here, there))
    if problems:
        raise SpecError(
            "\n".join(
                [
                    "These learners cannot be merged: one that saw all images would not know the "
                    "same as both together.",
                    *problems,
                ]
            )
        )


def _differences(here: Site, there: Site) -> Iterable[str]:
    recipe, other = here.recipe, there.recipe
    always = [site for site in (here, there) if _trains_always(site)]
    if always and _apart(here, there):
        yield _why_apart(always[0])
        return
    if digest(describe(here.method)) != digest(describe(there.method)):
        names = (here.method.name, there.method.name)
        shown = " and ".join(names) if names[0] != names[1] else f"two {names[0]}"
        yield f"Their methods differ, or settings of these: {shown}. Begin both with the same."
    for what, one, two, remedy in (
        ("scenarios", recipe.data.scenario, other.data.scenario, "Begin both with the same."),
        ("seeds", recipe.seed, other.seed, "Seeds decide which images are held."),
        ("val_fraction", recipe.data.val_fraction, other.data.val_fraction, "It decides the same."),
        ("normalization", here.setting.normalization, there.setting.normalization, "Give it."),
    ):
        if one != two:
            yield f"Their {what} differ: {one} and {two}. {remedy}"
    yield from _network_differences(here, there)
    same_features = here.method.trains_nothing or not _apart(here, there)
    if same_features and here.known.grid != there.known.grid:
        one, two = here.known.grid.exponent, there.known.grid.exponent
        other_method = (
            "" if here.method.trains_nothing else "slda or another that takes a grid, and "
        )
        yield (
            f"Their features lie on two grids, 2^-{one} and 2^-{two}, which the first task of each "
            f"chose. Begin both with {other_method}one: grid={min(one, two)}."
        )


def _network_differences(here: Site, there: Site) -> Iterable[str]:
    nets = (here.setting.architecture, there.setting.architecture)
    if nets[0].input_shape != nets[1].input_shape:
        shapes = " and ".join(str(net.input_shape) for net in nets)
        yield f"Their images have other shapes: {shapes}. Resize those of one when it begins."
    elif nets[0].pretrained != nets[1].pretrained:
        digests = " and ".join((net.pretrained or "random")[:12] for net in nets)
        yield f"Their networks began with other weights (sha256 {digests}). Use one file."
    elif nets[0].identity() != nets[1].identity():
        yield f"Their networks differ: {' and '.join(net.name for net in nets)}. Use one network."
    elif _apart(here, there):
        yield _why_apart(here)


def _trains_always(site: Site) -> bool:
    """Whether a learner's network learns with every task."""
    return site.setting.architecture.learns and site.method.main not in ("none", "first")


def _apart(here: Site, there: Site) -> bool:
    """Whether the features of two learners are not those of one network."""
    return bool(here.known.moves or there.known.moves) or not _equal_weights(here, there)


def _why_apart(site: Site) -> str:
    """Why two learners with one network have no features in common, and what to do."""
    name, til = site.method.name, site.recipe.data.scenario == "til"
    frozen = "learners whose network is frozen, such as slda"
    if _trains_always(site):
        more = "" if til else ", or learns in the first task alone: freeze with a classifier"
        return (
            f"{name} trains its network in every task: once it has moved, features of one learner "
            f"are not those of the other. Merge {frozen}{more}."
        )
    if site.method.main == "none" or not site.setting.architecture.learns:
        return f"The weights of their networks differ: {site.setting.architecture.name}. Use one."
    start = f"{name} trains its network in the first task, and the weights of these two differ."
    if til:
        return (
            f"{start} With scenario='til' two learners cannot share a first task, since a class "
            f"belongs to one task. Merge {frozen}, or learn with scenario='cil'."
        )
    return f"{start} Learn the first task once, save it, and let both continue from there."


def _equal_weights(here: Site, there: Site) -> bool:
    """Whether features of both are the same; a head answers nothing here."""
    one, two = (
        {
            name: tensor
            for part in (BASE, NETWORK)
            if part in site.entries
            for name, tensor in site.entries[part].tensors.items()
            if BACKBONE in name
        }
        for site in (here, there)
    )
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def merged_tasks(here: Site, there: Site) -> tuple[tuple[Task, ...], list[int]]:
    """All tasks, the other's after the own ones; and the number that each of its classes gets.

    Classes that both know are one class, which comes again.

    Raises:
        ScenarioError: The scenario does not let these tasks follow each other.
    """
    tasks, names = list(here.tasks), [n for t in here.tasks if adds_classes(t) for n in t.names]
    others = [name for task in there.tasks if adds_classes(task) for name in task.names]
    if here.recipe.data.scenario == "dil":
        if sorted(map(repr, names)) != sorted(map(repr, others)):
            raise ScenarioError(
                "In the scenario dil every task has the same classes, and these learners know "
                "others. Merge learners of the same classes, or learn them with scenario='cil'."
            )
        return _same_classes(here, there, [names.index(name) for name in others])
    if here.recipe.data.scenario == "til" and set(names) & set(others):
        shared = ", ".join(repr(name) for name in others if name in names)
        raise ScenarioError(
            f"Both learners know {shared}, and with scenario='til' a class belongs to one task. "
            f"Merge learners of different classes, or learn with scenario='cil'."
        )
    for task in there.tasks:
        start = len(names)
        new = [name for name in task.names if name not in names]
        names += new
        numbers = [names.index(others[position]) for position in task.present]
        counts = dict(zip(numbers, task.counts, strict=True))
        tasks.append(
            replace(
                task,
                index=len(tasks),
                classes=slice(start, len(names)),
                names=tuple(new),
                counts=tuple(counts[number] for number in sorted(counts)),
                present=tuple(sorted(counts)),
            )
        )
    return tuple(tasks), [names.index(name) for name in others]


def _same_classes(
    here: Site, there: Site, numbers: list[int]
) -> tuple[tuple[Task, ...], list[int]]:
    """The domains of both, the classes in the order of the first."""
    tasks = list(here.tasks)
    for task in there.tasks:
        counts = dict(
            zip((numbers[position] for position in task.present), task.counts, strict=True)
        )
        tasks.append(
            replace(
                task,
                index=len(tasks),
                names=here.tasks[0].names,
                counts=tuple(counts[number] for number in sorted(counts)),
            )
        )
    return tuple(tasks), numbers


def merged_statistics(
    here: Site, there: Site, tasks: Sequence[Task], numbers: Sequence[int]
) -> Statistics:
    """The statistics of both: those of one learner that saw all images."""
    places = range(len(here.tasks), len(tasks))
    merged = here.known.merge(there.known, numbers, list(places))
    return merged.padded(max(task.classes.stop for task in tasks))
