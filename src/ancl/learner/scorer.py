"""From images to scores: the network that tasks left behind, and what answers are computed by."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ancl.data import ImageView, Samples, Task
from ancl.errors import ScenarioError
from ancl.inference import Answer, InferenceInputs
from ancl.methods.method import Method
from ancl.methods.parts import inference_inputs, read_base
from ancl.methods.task_history import ClassHistory
from ancl.networks import Network
from ancl.stages.setting import Setting
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
    weights = strip_prefix("network", entries["network"].tensors)
    base = {name: tensor.to(setting.device) for name, tensor in read_base(entries).items()}
    blocks = ClassHistory.of(tasks, setting.rows).blocks
    network = setting.architecture.restore(blocks, weights, base, device=setting.device)
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
