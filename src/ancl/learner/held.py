"""What answers are computed and measured by: a scorer, and images held out of learning."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ancl.data import ImageView, Samples, Task
from ancl.data.samples import not_in
from ancl.errors import ScenarioError
from ancl.inference import Answer, InferenceInputs
from ancl.memory import Exemplars
from ancl.methods.method import Method
from ancl.methods.parts import inference_inputs, read_base
from ancl.methods.task_history import ClassHistory, adds_classes
from ancl.networks import Network
from ancl.stages.plan import Setting
from ancl.statistics import Statistics
from ancl.store.entry import StageResult
from ancl.types import Output, strip_prefix


class Scorer(NamedTuple):
    """From images, or from what a network makes of them, to scores (N, C).

    Args:
        answer: Images -> the network's output.
        score: An output -> scores.
    """

    answer: Answer
    score: Callable[[Output], Tensor]

    def __call__(self, x: Tensor | ImageView) -> Tensor:
        """The scores of images in the learner's form."""
        return self.score(self.answer(Samples(x, torch.zeros(len(x), dtype=torch.long))))


class HeldOut(NamedTuple):
    """Images that nothing is learned from, for measuring.

    Args:
        y: The class of each.
        task: The task that it counts for.
        scores: Computes their scores.
    """

    y: Tensor
    task: Tensor
    scores: Callable[[], Tensor]


def mask_other_tasks(scores: Tensor, of: Tensor, tasks: Sequence[Task], first: int = 0) -> Tensor:
    """Scores with minus infinity outside each image's own task.

    Args:
        scores: (N, C).
        of: The task of each image.
        tasks: Tasks, counted from ``first``.
        first: The number of the first of them.
    """
    masked = torch.full_like(scores, float("-inf"))
    for index, task in enumerate(tasks, start=first):
        rows = of == index
        masked[rows, task.classes] = scores[rows, task.classes]
    return masked


def built(
    method: Method, setting: Setting, tasks: Sequence[Task], entries: Mapping[str, StageResult]
) -> tuple[Network, InferenceInputs]:
    """The network that tasks left behind, and what inference may look at besides its output."""
    found = strip_prefix("network", entries["network"].tensors)
    base = {name: tensor.to(setting.device) for name, tensor in read_base(entries).items()}
    blocks = ClassHistory.of(tasks).blocks
    network = setting.architecture.restore(blocks, found, base, device=setting.device)
    read = {part: entry for part, entry in entries.items() if part in method.infer.reads}
    classes = tasks[-1].classes.stop
    return network, inference_inputs(network, setting.images, setting.device, classes, read)


def make_scorer(method: Method, looked: InferenceInputs) -> Scorer:
    """From images to scores, as the method chooses classes."""
    return Scorer(looked.answer, method.infer.scorer(looked))


def numbers(scores: Tensor) -> Tensor:
    """The scores, if they are an answer.

    Raises:
        ScenarioError: Some are not a number, or infinitely large.
    """
    wrong = (scores.isnan() | scores.isposinf()).any(dim=1)
    if bool(wrong.any()):
        raise ScenarioError(
            f"The learner has no answer to {int(wrong.sum())} of {len(scores)} images: their "
            f"scores are not finite numbers. Its weights are damaged, or the values of the images "
            f"are far too large."
        )
    return scores


@torch.no_grad()
def measured(
    held: HeldOut | None, tasks: Sequence[Task], *, task_known: bool
) -> tuple[float | None, ...]:
    """The accuracy on the held images of every task with classes; nothing where it has none."""
    columns = [task.index for task in tasks if task.is_column]
    if held is None:
        return (None,) * len(columns)
    scores = held.scores()
    scores = mask_other_tasks(scores, held.task, tasks) if task_known else scores
    right = scores.argmax(dim=1) == held.y
    own = [right[held.task == index] for index in columns]
    return tuple(float(each.double().mean()) if len(each) else None for each in own)


def held_by(
    method: Method,
    scorer: Scorer,
    tasks: Sequence[Task],
    entries: Mapping[str, StageResult],
    images: Exemplars | None,
) -> HeldOut | None:
    """What a learner holds: images as they are, or as features in a piece of its state.

    Args:
        method: Its method.
        scorer: What answers.
        tasks: What was learned.
        entries: What was left behind, by piece.
        images: Those that are held as they are, if there are any.
    """
    if method.infer.holds is None:
        if images is None:
            return None
        return HeldOut(images.samples.y, images.task, lambda: scorer(images.samples.x))
    piece = method.infer.holds
    known = Statistics.read(strip_prefix(piece, entries[piece].tensors))
    held = known.held
    if not len(held):
        return None
    features = known.grid.back(held.rows)
    output = Output(features.new_zeros(len(held), known.sums.classes), features)
    domains = tasks[-1].is_column and not adds_classes(tasks[-1])
    task = held.tasks if domains else _first_tasks(tasks, held.y)
    return HeldOut(held.y, task, lambda: scorer.score(output))


def _first_tasks(tasks: Sequence[Task], y: Tensor) -> Tensor:
    """The task that was the first to bring the class of each image."""
    found = torch.zeros(len(y), dtype=torch.long)
    for task in tasks:
        found[(y >= task.classes.start) & (y < task.classes.stop)] = task.index
    return found


def hold_out_images(tasks: Sequence[Task], most: int, before: Exemplars | None) -> Exemplars | None:
    """Held images with those of the last task: the first ``most`` validation images of each class.

    They are in the order of their hashes, so the first are as good as any. None of them is
    trained on: one that comes again to be learned from is held no longer. Those of a known class
    that comes again fill up what it has, and belong to the task that brought it first.
    """
    task = tasks[-1]
    split = task.load()
    val = split.val
    if task.returning and before:
        kept = Samples(before.samples.x, torch.arange(len(before.samples)))
        before = before.take(not_in(kept, split.train).y)
    if task.returning:
        val = not_in(val, before.samples if before else val.take(torch.arange(0)))
    chosen = [torch.arange(0)]
    for number in sorted(set(val.y.tolist())):
        there = int((before.samples.y == number).sum()) if before and task.returning else 0
        chosen.append(val.of_class(number)[: max(most - there, 0)])
    samples = val.take(torch.cat(chosen))
    if not len(samples):
        return before
    n = len(samples)
    own = Exemplars(samples, _brought_by(tasks, samples.y), torch.ones(n, dtype=torch.bool))
    # A copy of these few: a view would keep all images of their task.
    return Exemplars.of((Exemplars.joined([before, own]) if before else own).tensors())


def _brought_by(tasks: Sequence[Task], y: Tensor) -> Tensor:
    """The task of each image: that which was the first to bring its class, or the last in dil."""
    found = torch.full((len(y),), tasks[-1].index)
    for task in tasks if tasks[-1].returning else ():
        found[(y >= task.classes.start) & (y < task.classes.stop)] = task.index
    return found
