"""Features of a frozen backbone: computed once per task, and kept for all stages that read images.

Nothing else changes: stages get the same samples, with their features beside the images.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ancl.data import Split
from ancl.hashing import is_ours
from ancl.methods.method import Method
from ancl.networks import Architecture, frozen
from ancl.stages.stage import ImageFormat, Inputs, Stage, StageContext
from ancl.store.entry import StageResult
from ancl.types import strip_prefix

_PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, kw_only=True)
class Features(Stage):
    """What a backbone that never learns makes of a task's images: computed once for all stages.

    Args:
        architecture: The network.
        images: How images become batches.
        blocks: The classes of every block of the head that the network it reads has.
        keys: The keys of the task's images: of those to learn from, and of those to test on.
    """

    name = "features"
    architecture: Architecture
    images: ImageFormat
    blocks: tuple[int, ...]
    keys: tuple[str, str]

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """The features of every image."""
        found = strip_prefix("network", inputs["network"].tensors)
        network = frozen(self.architecture.restore(self.blocks, found)).to(context.device)
        answer, size = self.images.answering(network, context.device), network.head.feature_size
        split = context.images(self.keys[0])
        parts = {part: getattr(split, part) for part in _PARTS}
        features = {
            part: answer(samples).features if len(samples) else torch.zeros(0, size)
            for part, samples in parts.items()
        }
        return StageResult(features, {"features of": list(self.keys)})


def with_features(images: Callable[[str], Split], inputs: Inputs) -> Callable[[str], Split]:
    """A loader of images that adds their features, where a stage has computed them."""
    known = {key: each for each in inputs.values() for key in each.meta.get("features of", ())}

    def load(key: str) -> Split:
        split = images(key)
        if key not in known:
            return split
        found = known[key].tensors
        return Split(*(replace(getattr(split, part), features=found[part]) for part in _PARTS))

    return load


def keeps_features(method: Method) -> bool:
    """Whether a method reads images through the backbone alone.

    Parts from outside may look at images themselves, except for an Ω, which says what it reads.
    """
    others = [method.task_loss, *(extra.part for extra in method.extras), *method.finish]
    others += [method.infer, method.constrain, method.trainer]
    return (
        not method.enlarge
        and all(omega.reads != "maps" for omega in method.omegas)
        and all(part is None or is_ours(part.__module__) for part in others)
    )
