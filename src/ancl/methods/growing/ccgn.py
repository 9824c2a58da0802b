"""CCGN: a path of gates for every task through shared convolutions.  Equation: [ccgn]."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor
from torch.nn import functional as F

from ancl.inference import Infer
from ancl.methods.growing.gates import Gated, Gates
from ancl.methods.method import Finish, Method
from ancl.methods.work import TaskWork
from ancl.seeding import seeded
from ancl.store.entry import StageResult
from ancl.training.objective import Extra
from ancl.types import Output, Params, Step, prefixed

_SETTLED = "what old tasks use is frozen, and all other weights belong to none of them"
Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class OwnImages:
    """Mean cross-entropy of the task's own images, over its own classes.  Equation: [ccgn].

    Images of earlier tasks are there for the task classifier alone.
    """

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        current = step.current
        wanted = (step.y - current.start).clamp(min=0)
        losses = F.cross_entropy(step.out.logits[:, current], wanted, reduction="none")
        return _mean_of_own(losses, step)


@dataclass(frozen=True)
class OpenGates:
    """The mean share of open gates over layers and the task's own images.  Equation: [ccgn].

    Args:
        patience: The share of a training in which it does not count. It always counts where
            nothing is learned: epochs are judged by one loss.
    """

    patience: float

    def __call__(self, step: Step) -> Tensor:
        """The term of one batch."""
        gates = step.out.side["gates"]
        if torch.is_grad_enabled() and step.progress < self.patience:
            return gates.new_zeros(())
        return _mean_of_own(gates.mean(dim=1), step)


@dataclass(frozen=True)
class TaskEntropy:
    """Cross-entropy of the task classifier over all images, the memory's too.  Equation: [ccgn]."""

    def __call__(self, step: Step) -> Tensor:
        """The term of one batch."""
        side = step.out.side
        task = side["class_tasks"].gather(1, step.y.unsqueeze(1)).squeeze(1)
        return F.cross_entropy(side["tasks"], task)


def _mean_of_own(values: Tensor, step: Step) -> Tensor:
    """The mean over the current task's images; 0 with a gradient where a batch has none."""
    current = (step.y >= step.current.start).to(values.dtype)
    total: Tensor = (values * current).sum() / current.sum().clamp(min=1)
    return total


class Always(Extra):
    """A term of every task's loss, the first one's too."""

    first = True


class Untold(Extra):
    """A term that means something only where the task of an image is not known."""

    first, told = True, False


@dataclass(frozen=True)
class Protect(Finish):
    """Keep for ever the kernels that the task uses, and draw all others anew.  Equation: [ccgn].

    A kernel is used if its gate opens for more than a share ``threshold`` of the task's validation
    images; of its training images where there are none.

    Args:
        threshold: That share; 0 keeps every kernel whose gate opens at all.
    """

    name = "protect"
    first = True
    reads = ()
    threshold: float = 0.0

    def run(self, work: TaskWork) -> StageResult:
        """The network with what the task uses kept."""
        network = work.network().eval()
        gated = network.backbone
        assert isinstance(gated, Gated)
        train, val = work.training_parts()
        images = val[:1] if len(val[0]) else train[:1]
        shares = frequencies(gated, (batch.x for batch in work.batches(images).in_order()))
        before = gated.free()
        with seeded(work.seed, work.index, self.name):
            gated.protect([share > self.threshold for share in shares])
        free = gated.free()
        full = [name for name, count in free.items() if before[name] and not count]
        if full:
            work.say(
                f"Task {work.index + 1} keeps the last free kernels of {', '.join(full)}. Later "
                f"tasks can only open there what earlier ones learned. Raise sparsity, or use a "
                f"wider network."
            )
        return StageResult(prefixed("network", network.tensors()), {"free": free})


@torch.no_grad()
def frequencies(gated: Gated, batches: Iterable[Tensor]) -> list[Tensor]:
    """For which share of images the newest task opens each channel, layer by layer."""
    sums, images = list[Tensor](), 0
    for x in batches:
        opened = [gates.sum(dim=0) for gates in gated.fired(x)]
        sums = [a + b for a, b in zip(sums, opened, strict=True)] if sums else opened
        images += len(x)
    return [opened_sum / images for opened_sum in sums]


@dataclass(frozen=True)
class TaskThenClass(Infer):
    """The task by the task classifier, then the class by that task's own path.  Equation: [ccgn].

    A score is log p(class | task) + log p(task), less log n for all classes but the chosen task's,
    n the largest number of classes of a task: the best class of the chosen task then has the
    largest score. Without a task classifier the logits decide.
    """

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """Scores (B, C)."""
        if "tasks" not in output.side:
            return output.logits
        tasks, of = output.side["tasks"].log_softmax(dim=1), output.side["class_tasks"]
        none = torch.full_like(tasks, -torch.inf)
        relative = output.logits - none.scatter_reduce(1, of, output.logits, "amax").gather(1, of)
        sums = torch.zeros_like(tasks).scatter_add(1, of, relative.exp())
        sizes = torch.zeros_like(tasks).scatter_add(1, of, torch.ones_like(relative))
        others = of != tasks.argmax(dim=1, keepdim=True)
        less = sizes.amax(dim=1, keepdim=True).log() * others
        return relative - sums.log().gather(1, of) + tasks.gather(1, of) - less


def ccgn(
    *,
    sparsity: Annotated[float, Ge(0)] = 0.5,
    patience: Share = 0.1,
    hidden: Annotated[int, Ge(1)] = 16,
    threshold: Share = 0.0,
) -> Method:
    """CCGN: every task has its own gates on shared convolutions, and keeps the kernels it uses.

    Args:
        sparsity: Weight of the share of open gates in the loss.
        patience: The share of a task's epochs in which that does not count yet.
        hidden: Hidden units of a gate; 8 suits a network of 8 channels.
        threshold: A kernel is kept if its gate opens for more than this share of images.
    """
    return Method(
        "ccgn",
        OwnImages(),
        extras=(
            Always("sparsity", OpenGates(patience), sparsity),
            Untold("tasks", TaskEntropy()),
        ),
        trains="new rows",
        head="paths",
        finish=(Protect(threshold),),
        infer=TaskThenClass(),
        growth=Gates(hidden),
        refused={
            "dil": "its paths belong to classes, and there all classes are the same",
            "cir": "what the path of a known class uses is frozen, so that new images of it cannot "
            "change it",
        },
        no_variants={"a": f"it has no regularizer; {_SETTLED}", "afec": _SETTLED},
        needs_memory={"cil": "its task classifier learns from images of every task"},
    )
