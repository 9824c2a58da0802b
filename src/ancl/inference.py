"""From a network's output to the scores by which a class is chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.data import Samples
from ancl.memory import Exemplars
from ancl.state import BIAS, MEMORY
from ancl.types import Output, Params

Answer = Callable[[Samples], Output]
"""Samples -> the network's output for all of them, in eval mode, on the CPU."""


class InferenceInputs(NamedTuple):
    """What inference may look at besides a network's output.

    Args:
        answer: The network's output for any samples.
        classes: The number of classes learned so far.
        exemplars: The memory, where there is one.
        state: The other pieces of the state that the inference reads, by name, such as BiC's
            correction; see ``Infer.reads``.
    """

    answer: Answer
    classes: int
    exemplars: Exemplars | None = None
    state: Mapping[str, Params] = {}


class Infer:
    """The largest logit decides, unless a subclass says otherwise.

    ``reads`` names pieces of the state: ``memory``, or what a trainer or a stage after training
    yields. ``holds`` names the piece with the statistics of all images; held ones are among these,
    as features. ``bound_to_ancl`` says why no file can answer alone.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    holds: ClassVar[str | None] = None
    bound_to_ancl: ClassVar[str] = ""

    @property
    def changes_learning(self) -> bool:
        """Whether a network learns otherwise because classes are chosen so."""
        kind = type(self)
        return kind.correct is not Infer.correct or kind.student is not Infer.student

    def correct(self, output: Output, extra: Params) -> Output:
        """The output as the next task's old network is to give it; unchanged by default."""
        return output

    def student(self, extra: Params) -> Callable[[Output], Output] | None:
        """What changes the main network's own output while it learns; nothing by default."""
        return None

    def fixed(self, known: InferenceInputs) -> Params:
        """What scores are computed from besides an output: the same for every image."""
        return {}

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """Scores (B, C), the larger the better; a function of tensors, so that it is exported."""
        return self.correct(output, fixed).logits

    def scorer(self, known: InferenceInputs) -> Callable[[Output], Tensor]:
        """A function from outputs to scores (B, C)."""
        fixed = self.fixed(known)
        return lambda output: self.scores(output, fixed)


@dataclass(frozen=True)
class Argmax(Infer):
    """The largest logit."""


@dataclass(frozen=True)
class NearestMean(Infer):
    """The class whose exemplars' mean feature is nearest.  Equation: [nme].

    A class mean is the mean of unit features of its exemplars, averaged with that of their
    mirror images, and brought back to unit length. Without a memory the logits decide.

    Args:
        mirrored: Whether mirror images take part.
    """

    reads = (MEMORY,)
    mirrored: bool = True

    def fixed(self, known: InferenceInputs) -> Params:
        """The class means, where there is a memory."""
        if known.exemplars is None:
            return super().fixed(known)
        return {"means": self.means(known.exemplars.part(held=False), known)}

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """−‖f̄ − μ‖² for every class: minus the squared distance of the unit feature to its mean."""
        if "means" not in fixed:
            return super().scores(output, fixed)
        unit = F.normalize(output.features, dim=1)
        means = fixed["means"].to(unit)
        if torch.compiler.is_compiling():  # ONNX has no cdist
            lengths = unit.square().sum(dim=1, keepdim=True) + means.square().sum(dim=1)
            return 2 * unit @ means.T - lengths
        return -torch.cdist(unit, means).square()

    def means(self, samples: Samples, known: InferenceInputs) -> Tensor:
        """The mean of every class, of unit length."""
        total = _class_means(samples, known)
        if self.mirrored and samples.x.dtype == torch.uint8:
            # NHWC: the third axis is the width.
            total = total + _class_means(Samples(samples.x.dense().flip(2), samples.y), known)
        return F.normalize(total, dim=1)


@dataclass(frozen=True)
class Corrected(Infer):
    """The largest logit, after α z + β for the newest classes.  Equation: [bic].

    Before a correction was learned nothing is corrected.

    Args:
        correct_student: Whether the network also learns with all earlier corrections in place,
            and keeps them: they add up. Otherwise the old network alone is corrected, and by
            the last one: what it did to older classes was distilled into the logits since.
    """

    reads = (BIAS,)
    correct_student: bool = False

    def fixed(self, known: InferenceInputs) -> Params:
        """A scale and a shift for each class that they were learned for.

        Raises:
            ValueError: They are not for the same classes.
        """
        correction = known.state.get(BIAS, {})
        if correction:
            forms = {(tensor.shape, tensor.dtype) for tensor in correction.values()}
            lengths = [(n,) for n in range(known.classes + 1)]
            if len(forms) > 1 or correction["scale"].shape not in lengths:
                raise ValueError("the correction has not one scale and one shift for each class")
        return correction

    def correct(self, output: Output, extra: Params) -> Output:
        """Logits by a scale and a shift for each class that was there when they were learned."""
        if not extra:
            return output
        known = len(extra["scale"])
        corrected = output.logits[:, :known] * extra["scale"] + extra["shift"]
        return output._replace(logits=torch.cat([corrected, output.logits[:, known:]], dim=1))

    def student(self, extra: Params) -> Callable[[Output], Output] | None:
        """All earlier corrections, where the network is to learn with them."""
        return (lambda output: self.correct(output, extra)) if self.correct_student else None


def _class_means(samples: Samples, known: InferenceInputs) -> Tensor:
    unit = F.normalize(known.answer(samples).features, dim=1)
    sums = torch.zeros(known.classes, unit.shape[1]).index_add_(0, samples.y, unit)
    counts = samples.y.bincount(minlength=known.classes).clamp(min=1)
    return sums / counts.unsqueeze(1)
