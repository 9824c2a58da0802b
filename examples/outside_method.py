"""Your own method: hold features by their squared distance to the anchor's.

ancl run examples/outside_method.py:drift digits/5
ancl run a-examples/outside_method.py:drift digits/5 --lamb-a 0.5
ancl run afec-examples/outside_method.py:drift digits/5
"""

from dataclasses import dataclass

from torch import Tensor

from ancl import Method
from ancl.extend import Anchor, Regularizer, Step, Term


@dataclass(frozen=True)
class FeatureDrift(Regularizer):
    """The mean squared distance of features to the anchor's."""

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean; ``step.of`` asks the anchor at most once per batch."""
        return (step.out.features - step.of(anchor).features).square().mean()


def drift(*, lamb: float = 10.0) -> Method:
    """Hold features by their squared distance.

    Args:
        lamb: λ, the pull to the old network.
    """
    return Method("drift", old=Term(FeatureDrift(), lamb))
