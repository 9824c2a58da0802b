"""Continual learning with auxiliary networks.

    loss = task loss + λ Ω(θ; old network) + λ_a Ω(θ; auxiliary network)

Names are imported on first use, so that the command answers quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ancl.analysis.run import analyze
    from ancl.errors import AnclError, MethodError, ScenarioError, SpecError, StoreError
    from ancl.learner.learner import Learner
    from ancl.losses import CrossEntropy
    from ancl.memory import Memory
    from ancl.methods.method import Auxiliary, Method, Rule, Term, with_afec, with_ancl
    from ancl.methods.registry import make_method
    from ancl.networks import Network, architecture, frozen, without_head
    from ancl.regularizers import Regularizer, WeightRegularizer
    from ancl.reporting.write import report
    from ancl.training.config import Training
    from ancl.training.objective import Objective, PenaltyTerm, anchor_for
    from ancl.types import Anchor, Output, Step

_PLACES = {
    "analysis.run": ("analyze",),
    "errors": ("AnclError", "MethodError", "ScenarioError", "SpecError", "StoreError"),
    "learner.learner": ("Learner",),
    "losses": ("CrossEntropy",),
    "memory": ("Memory",),
    "methods.method": ("Auxiliary", "Method", "Rule", "Term", "with_afec", "with_ancl"),
    "networks": ("Network", "architecture", "frozen", "without_head"),
    "training.objective": ("Objective", "PenaltyTerm", "anchor_for"),
    "regularizers": ("Regularizer", "WeightRegularizer"),
    "reporting.write": ("report",),
    "training.config": ("Training",),
    "types": ("Anchor", "Output", "Step"),
    "methods.registry": ("make_method",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Anchor",
    "AnclError",
    "Auxiliary",
    "CrossEntropy",
    "Learner",
    "Memory",
    "Method",
    "MethodError",
    "Network",
    "Objective",
    "Output",
    "PenaltyTerm",
    "Regularizer",
    "Rule",
    "ScenarioError",
    "SpecError",
    "Step",
    "StoreError",
    "Term",
    "Training",
    "WeightRegularizer",
    "analyze",
    "anchor_for",
    "architecture",
    "frozen",
    "make_method",
    "report",
    "with_afec",
    "with_ancl",
    "without_head",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'ancl' has no attribute {name!r}")
    return getattr(import_module(f"ancl.{_PLACE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
