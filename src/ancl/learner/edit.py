"""An edit of what a learner holds: images that are forgotten, classes renamed or made one.

Methods that compute their classifier are, to the bit, as if they had been taught so from the start,
as far as no weight has learned from what changes. A trained network has learned from an image: what
is stored of it goes, the network stays, unless it is trained again from what is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ancl.data import ImageView, Label, Samples, Split, Task
from ancl.errors import ScenarioError, counted, one_line
from ancl.hashing import digest
from ancl.learner.held import renumbered
from ancl.learner.images import (
    LEFT_OUT,
    TRAINED,
    VALIDATED,
    LearnedImages,
    pixel_hashes,
)
from ancl.learner.learning import learner_after
from ancl.learner.ledger import statistics_of
from ancl.learner.next_task import sorted_labels
from ancl.learner.relearn import relearn
from ancl.memory import Exemplars
from ancl.methods.task_history import ClassHistory
from ancl.stages.final_state import TaskState
from ancl.state import CARRIED, MEMORY, NETWORK, STATISTICS
from ancl.statistics import Ledger, Statistics
from ancl.types import Params, strip_prefix

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

FORGET, RENAME, MERGE_CLASSES = "forget", "rename", "merge-classes"
"""The kinds of edits."""
_BLOCK = re.compile(r"(head\.\w+)\.(\d+)")
"""The name of a tensor of a head's block: the list that it is in, and its number."""


class Edit(NamedTuple):
    """What changes.

    Args:
        kind: ``FORGET``, ``RENAME`` or ``MERGE_CLASSES``.
        removed: The hashes of images that are forgotten.
        names: The new name of classes, by the old one; of two with one new name one class.
        images: The images that are forgotten, where they were given: sums need them.
        keep_networks: Whether earlier versions stay whose network learned from what is forgotten.
        whole: Those of the hashes that are all of a class: other versions lose all of it, too.
        allow_again: Whether what is forgotten may be learned again.
    """

    kind: str
    removed: frozenset[bytes] = frozenset()
    names: Mapping[Label, Label] = MappingProxyType({})
    images: ImageView | None = None
    keep_networks: bool = False
    whole: frozenset[bytes] = frozenset()
    allow_again: bool = False

    def labels(self, classes: Sequence[Label]) -> list[Label]:
        """What classes are called then."""
        return [self.names.get(name, name) for name in classes]

    def merges(self, classes: Sequence[Label]) -> bool:
        """Whether two of these classes become one."""
        return len(set(self.labels(classes))) < len(classes)

    def kept(self, rows: Sequence[bytes]) -> Tensor:
        """A mask of the images that stay, of these by their hashes."""
        return torch.tensor([row not in self.removed for row in rows], dtype=torch.bool)

    def why(self, state: Mapping[str, str]) -> list[Any]:
        """What names the pieces that it makes: the keys of the old ones, and its own fields."""
        pairs = [[str(old), str(new)] for old, new in self.names.items()]
        return [self.kind, dict(state), sorted(row.hex() for row in self.removed), pairs]


def edited(learner: Learner, edit: Edit) -> Learner:
    """The learner after an edit; the one given stays as it is.

    Raises:
        ScenarioError: Too little would be left, or the method cannot be edited so.
    """
    if not edit.removed and not edit.merges(learner.classes):
        return _renamed(learner, edit)
    computed = learner.method.infer.holds is not None
    return (_recomputed if computed else _without_images)(learner, edit)


def weights_saw(learner: Learner, rows: Collection[bytes]) -> bool:
    """Whether the network, or what followed it when it moved, depends on any of these images.

    Args:
        learner: The learner.
        rows: Their hashes.
    """
    if learner.method.infer.holds is None:
        return True
    trained = [number for number, move in enumerate(learner._moves) if move.weights]
    if not trained:
        return False
    known = statistics_of(learner)
    if known.moves:  # all that came before the last move was a part of it, or followed it
        trained = list(range(trained[-1] + 1))
    listed = _listed(learner, known)
    seen = {
        row
        for images in (listed[number] for number in trained)
        for row, use in zip(images.rows(), images.use.tolist(), strict=True)
        if use != LEFT_OUT
    }
    return bool(seen.intersection(rows))


def what_it_means(learner: Learner, removed: Collection[bytes], retrain: bool) -> tuple[bool, str]:
    """Whether a learner forgets these images exactly, and in words what that means.

    Args:
        learner: The learner before.
        removed: The hashes of what it forgets.
        retrain: Whether its network is trained again.
    """
    again = retrain and not learner.method.trains_nothing
    if not again and not weights_saw(learner, removed):
        return True, (
            "Exact: no weight was trained on these images. All that is computed from images (the "
            "classifier, its choice, penalty and temperature) was computed again without them. The "
            "learner is, to the bit, one that never saw them; normalization and grid stay as they "
            "were."
        )
    if again:
        return False, (
            "The network was trained again, from its beginning, on the images that are kept. It "
            "has not learned from what was forgotten; which other images were kept may have "
            "depended on it."
        )
    if learner.method.infer.holds is not None:
        moves = statistics_of(learner).moves
        followed = f", and features of earlier images have followed it {counted(moves, 'time')}"
        advice = " --retrain (retrain=True) learns again from what is kept."
        return False, (
            f"Approximate: the classifier was computed again without them, but the network has "
            f"learned from them{followed if moves else ''}.{advice if learner._exemplars() else ''}"
        )
    return False, (
        "They are no longer stored; the network has learned from them. --retrain (retrain=True) "
        "learns again from what is kept."
    )


# -- other names -----------------------------------------------------------------------------


def _renamed(learner: Learner, edit: Edit) -> Learner:
    """The same with other names: every number stays."""
    tasks = tuple(replace(task, names=tuple(edit.labels(task.names))) for task in learner._tasks)
    parts = (learner._state, learner._entries(), learner._held, learner._history)
    after = learner_after(learner, learner._learned(), learner._form, tasks, *parts)
    after._measured = learner._measured
    return after


# -- methods that compute their classifier -----------------------------------------------------


def _recomputed(learner: Learner, edit: Edit) -> Learner:
    """As if it had been taught so from the start; weights that were trained stay as they are."""
    known = statistics_of(learner)
    listed = _listed(learner, known)
    masks = [edit.kept(images.rows()) for images in listed]
    left = [images.take(mask) for images, mask in zip(listed, masks, strict=True)]
    labels = edit.labels(learner.classes)
    check_enough({labels[y] for images in left for y in images.y.tolist()})
    known = _removed_from(learner, edit, known, listed)
    tasks, names = _tasks_again(learner, left, labels)
    numbers = [names.index(label) if label in names else 0 for label in labels]
    stays = [bool(len(images.y)) for images in left]
    order = [sum(stays[:number]) for number in range(len(stays))]
    history = tuple(
        images.renumbered(numbers) if before else None
        for images, before, stay in zip(left, learner._history, stays, strict=True)
        if stay
    )
    known = known.renumbered(numbers, order, len(names))
    pieces, why = {STATISTICS: known.tensors()}, edit.why(learner._state)
    if memory := learner._exemplars():
        rest = _exemplars_left(learner, memory, edit)
        pieces[MEMORY] = renumbered(rest, numbers, order).tensors()
    pieces |= _with_rows_of(learner, tasks, [labels.index(name) for name in names])
    held = _held_left(learner, edit)
    held = renumbered(held, numbers, order) if held else None
    after = relearn(learner, pieces, tasks, learner._form, held, history, why)
    after._moves = tuple(move for move, stay in zip(learner._moves, stays, strict=False) if stay)
    return after


def _held_left(learner: Learner, edit: Edit) -> Exemplars | None:
    """The images that are held as they are, without those that are forgotten."""
    held = learner._held
    rest = held.take(edit.kept(_rows(held)).nonzero().squeeze(1)) if held else None
    return Exemplars.of(rest.tensors()) if rest and len(rest.task) else None


def _with_rows_of(
    learner: Learner, tasks: Sequence[Task], classes: Sequence[int]
) -> dict[str, Params]:
    """The networks that are kept, with the head's rows of these classes alone, in this order.

    The head answers nothing here, but the next task is learned with it.
    """
    blocks = [ClassHistory.of(of).blocks for of in (learner._tasks, tasks)]
    if blocks[0] == blocks[1] and list(classes) == list(range(sum(blocks[0]))):
        return {}
    pieces = {}
    for piece in (NETWORK, CARRIED):
        if piece in learner._state:
            stored = learner._obtain(learner._state[piece]).tensors
            tensors = strip_prefix(piece, stored) or strip_prefix(NETWORK, stored)
            pieces[piece] = _with_rows(tensors, sum(blocks[0]), blocks[1], classes)
    return pieces


def _with_rows(
    tensors: Params, before: int, blocks: Sequence[int], classes: Sequence[int]
) -> Params:
    """A network's tensors with other blocks in its head, of some of the classes of before."""
    parts: dict[str, dict[int, Tensor]] = {}
    after: Params = {}
    for name, tensor in tensors.items():
        if match := _BLOCK.fullmatch(name):
            parts.setdefault(match[1], {})[int(match[2])] = tensor
        else:
            after[name] = tensor
    for name, by_block in parts.items():
        rows = torch.cat([by_block[number] for number in sorted(by_block)])
        # Some heads have several rows of each class.
        by_class = rows.reshape(before, len(rows) // before, *rows.shape[1:])
        for number, part in enumerate(torch.split(by_class[list(classes)], list(blocks))):
            after[f"{name}.{number}"] = part.flatten(0, 1).clone()
    return after


def check_enough(classes: set[Label]) -> None:
    """Refuse to leave less than two classes.

    Raises:
        ScenarioError: So few would be left.
    """
    if not classes:
        raise ScenarioError(
            "These are all images of the learner: nothing would be left. To be rid of all of it, "
            "delete its directory, and the store if you gave one."
        )
    if len(classes) == 1:
        raise ScenarioError(
            f"Only the class {next(iter(classes))!r} would be left, and no other to tell it from. "
            f"Learn another class first, or delete the learner's directory."
        )


def _listed(learner: Learner, known: Statistics) -> list[LearnedImages]:
    """The images of every task; of tasks that a run learned, those of the ledger."""
    listed, ledger = [], known.ledger
    for number, images in enumerate(learner._history):
        if images is None and known.keep == "sums":
            raise ScenarioError(
                "The images of a run were not listed, and with keep=sums only their sums are kept, "
                "so nothing can be taken out of them. Learn the remaining images anew."
            )
        if images is None:
            part = ledger.take(ledger.where(tasks=[number]))
            hashes = part.hashes.numpy().view("uint64")
            use = torch.where(part.held, VALIDATED, TRAINED).to(torch.uint8)
            images = LearnedImages(("",) * len(part), hashes, part.y, use)
        listed.append(images)
    return listed


def _removed_from(
    learner: Learner, edit: Edit, known: Statistics, listed: Sequence[LearnedImages]
) -> Statistics:
    """The statistics without the images that are forgotten."""
    gone = _removed_entries(known, edit)
    if len(gone):
        known = known.remove(gone)
    if known.keep == "ledger" or not edit.removed:
        return known
    # Sums do not know their images: these are given again, and their features are the same bits.
    given = dict[bytes, int]()
    if edit.images is not None:
        given = {row: position for position, row in enumerate(pixel_hashes(edit.images))}
    for task, images in enumerate(listed):
        trained = ~edit.kept(images.rows()) & (images.use == TRAINED)
        if not bool(trained.any()):
            continue
        part = images.take(trained)
        missing = [
            name for name, row in zip(part.ids, part.rows(), strict=True) if row not in given
        ]
        if missing:
            raise ScenarioError(
                f"This learner keeps sums of features alone (keep=sums): it can take out only what "
                f"it is given again. Give {counted(len(missing), 'image')} as files (--images, "
                f"images=): {', '.join(map(one_line, missing[:5]))}"
                f"{', …' if len(missing) > 5 else '.'}"
            )
        known = known.remove(_entered(learner, edit, known, part, given, task))
    return known


def _removed_entries(known: Statistics, edit: Edit) -> Ledger:
    """What the ledger has of the images that are forgotten."""
    ledger = known.ledger
    return ledger.take(ledger.where(hashes=[row.hex() for row in edit.removed]))


def _entered(
    learner: Learner,
    edit: Edit,
    known: Statistics,
    part: LearnedImages,
    given: Mapping[bytes, int],
    task: int,
) -> Ledger:
    """Images as they were entered: their features are computed once more."""
    assert edit.images is not None
    x = edit.images.take(torch.tensor([given[row] for row in part.rows()]))
    setting, (network, _) = learner._learned(), learner._built()
    features = setting.images.exactly(network, setting.device)(Samples(x, part.y))
    hashes = torch.from_numpy(part.hashes.view("int64").copy())
    n = len(part.y)
    rows = known.grid.put(features).rows
    return Ledger.of(hashes, torch.full((n,), task), part.y, torch.zeros(n).bool(), rows)


def _tasks_again(
    learner: Learner, left: Sequence[LearnedImages], labels: Sequence[Label]
) -> tuple[tuple[Task, ...], list[Label]]:
    """The tasks that these images make, in the order they came; and the classes in order."""
    names: list[Label] = []
    tasks: list[Task] = []
    domains = learner.scenario == "dil"
    every = sorted_labels({labels[y] for images in left for y in images.y.tolist()})
    for images, before in zip(left, learner._tasks, strict=True):
        if not len(images.y):
            continue
        here = {labels[y] for y in images.y.tolist()}
        new = every if domains else sorted_labels(here - set(names))
        start = 0 if domains else len(names)
        names = every if domains else [*names, *new]
        returning = [] if domains else sorted(names.index(label) for label in here - set(new))
        trained = Counter(labels[y] for y in images.y[images.use == TRAINED].tolist())
        present = [names[position] for position in (*returning, *range(start, start + len(new)))]
        counts = tuple(trained[label] for label in present)
        held = int((images.use == VALIDATED).sum())
        content = [before.key, sorted(row.hex() for row in images.rows()), list(map(str, present))]
        state = TaskState(
            names=tuple(new),
            start=start,
            key=digest({"edited": content}),
            test_key=before.test_key,
            sizes=(sum(counts), held, before.sizes[2]),
            counts=counts,
            returning=tuple(returning),
        )
        tasks.append(state.task(len(tasks)))
    return tuple(tasks), names


# -- methods that train ------------------------------------------------------------------------


def _without_images(learner: Learner, edit: Edit) -> Learner:
    """The same network; nothing is stored of the images any more."""
    if edit.merges(learner.classes):
        raise ScenarioError(
            f"{learner.method.name} has trained one output for each class, and two of them cannot "
            f"become one without training: give --retrain (retrain=True), which learns again from "
            f"the images that are kept."
        )
    masks = [edit.kept(images.rows()) if images else None for images in learner._history]
    pairs = list(zip(learner._history, masks, strict=True))
    _check_classes_stay(learner, pairs)
    history = tuple(
        images.take(mask) if images and mask is not None and bool(mask.any()) else None
        for images, mask in pairs
    )
    tasks = tuple(
        _fewer(task, edit, images, mask)
        for task, (images, mask) in zip(learner._tasks, pairs, strict=True)
    )
    pieces: dict[str, Params] = {}
    if memory := learner._exemplars():
        rest = _exemplars_left(learner, memory, edit)
        if len(rest.task) < len(memory.task):
            pieces[MEMORY] = rest.tensors()
    held, why = _held_left(learner, edit), edit.why(learner._state)
    return relearn(learner, pieces, tasks, learner._form, held, history, why)


def _rows(images: Exemplars) -> list[bytes]:
    return pixel_hashes(images.samples.x)


def _check_classes_stay(
    learner: Learner, pairs: Sequence[tuple[LearnedImages | None, Tensor | None]]
) -> None:
    """Refuse to leave a class without any image: its trained output would stay."""
    if any(images is None for images in learner._history):
        return  # a run learned them, and it is not known how many there were
    left = {y for images, mask in pairs if images for y in images.y[mask].tolist()}
    before = {y for images in learner._history if images for y in images.y.tolist()}
    check_enough({learner.classes[y] for y in left})
    if gone := sorted(before - left):
        names = ", ".join(repr(learner.classes[y]) for y in gone[:5])
        raise ScenarioError(
            f"These are all images of {names}, and {learner.method.name} has trained an output for "
            f"it, which cannot be taken out: give --retrain (retrain=True), which learns again "
            f"from the images that are kept."
        )


def _exemplars_left(learner: Learner, before: Exemplars, edit: Edit) -> Exemplars:
    """A memory without what is forgotten.

    Raises:
        ScenarioError: A class has no exemplars any more, and answers are computed from them.
    """
    after = before.take(edit.kept(_rows(before)).nonzero().squeeze(1))
    gone = set(before.samples.y.tolist()) - set(after.samples.y.tolist())
    if gone and (MEMORY in learner.method.infer.reads or not len(after.task)):
        names = ", ".join(repr(learner.classes[y]) for y in sorted(gone)[:5])
        raise ScenarioError(
            f"The memory has no other images of {names}, and {learner.method.name} needs some. "
            f"Learn more images of it first, or forget the class: --class with --retrain "
            f"(classes=, retrain=True)."
        )
    return after


def _fewer(task: Task, edit: Edit, images: LearnedImages | None, mask: Tensor | None) -> Task:
    """A task without the images that are forgotten, where they are listed."""
    if images is None or mask is None or bool(mask.all()):
        return task
    gone = images.take(~mask)
    trained = gone.y[gone.use == TRAINED].tolist()
    counts = tuple(
        max(0, count - trained.count(position))
        for position, count in zip(task.present, task.counts, strict=True)
    )
    held = max(0, task.sizes[1] - int((gone.use == VALIDATED).sum()))
    load = task.load

    def without() -> Split:
        split = load()
        return Split(_stay(split.train, edit), _stay(split.val, edit), split.test)

    content = [task.key, sorted(row.hex() for row in gone.rows())]
    return replace(
        task,
        key=digest({"edited": content}),
        sizes=(sum(counts), held, task.sizes[2]),
        counts=counts,
        load=without,
    )


def _stay(samples: Samples, edit: Edit) -> Samples:
    return samples.take(edit.kept(pixel_hashes(samples.x)).nonzero().squeeze(1))
