"""Continual learning with auxiliary networks.

    loss = task loss + λ Ω(θ; old network) + λ_a Ω(θ; auxiliary network)

Names are imported on first use, so that the command answers quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ancl import errors

if TYPE_CHECKING:
    from ancl.analysis.run import analyze
    from ancl.errors import (
        AnclError,
        ExportError,
        MethodError,
        ScenarioError,
        SpecError,
        StoreError,
    )
    from ancl.experiments.benchmarks import list_benchmarks
    from ancl.experiments.compare import Comparison, compare
    from ancl.experiments.listing import list_options
    from ancl.experiments.results import RunResult
    from ancl.experiments.run import run
    from ancl.experiments.search import SearchResult, search
    from ancl.experiments.settings import spec, specs
    from ancl.experiments.spec import RunSpec
    from ancl.experiments.study import StudyResult, study
    from ancl.learner.learner import Learner
    from ancl.learner.opening import load_run, open_learner
    from ancl.learner.teaching import Taught, teach
    from ancl.losses import CrossEntropy
    from ancl.memory import Memory
    from ancl.methods.differences import list_differences
    from ancl.methods.lambda_rules import Rule
    from ancl.methods.method import (
        Auxiliary,
        Finish,
        FinishWork,
        MainTrainer,
        Method,
        TaskWork,
        Term,
    )
    from ancl.methods.registry import list_methods, make_method
    from ancl.methods.variants import with_afec, with_ancl, with_auto
    from ancl.networks import Network, architecture, frozen, without_head
    from ancl.regularizers import Regularizer, WeightRegularizer
    from ancl.reporting.write import report
    from ancl.stages.events import Events
    from ancl.store.store import Store
    from ancl.training.auto import Auto
    from ancl.training.balance import Balance
    from ancl.training.config import Training
    from ancl.training.objective import Extra, Objective, PenaltyTerm, anchor_for, anchor_from
    from ancl.types import Anchor, Output, Step

_PLACES = {
    "analysis.run": ("analyze",),
    "errors": (
        "AnclError",
        "ExportError",
        "MethodError",
        "ScenarioError",
        "SpecError",
        "StoreError",
    ),
    "experiments.benchmarks": ("list_benchmarks",),
    "experiments.compare": ("Comparison", "compare"),
    "experiments.results": ("RunResult",),
    "experiments.run": ("run",),
    "experiments.search": ("SearchResult", "search"),
    "experiments.listing": ("list_options",),
    "experiments.settings": ("spec", "specs"),
    "experiments.spec": ("RunSpec",),
    "experiments.study": ("StudyResult", "study"),
    "learner.learner": ("Learner",),
    "learner.opening": ("load_run", "open_learner"),
    "learner.teaching": ("Taught", "teach"),
    "losses": ("CrossEntropy",),
    "memory": ("Memory",),
    "methods.differences": ("list_differences",),
    "methods.lambda_rules": ("Rule",),
    "methods.method": (
        *("Auxiliary", "Finish", "FinishWork", "MainTrainer", "Method"),
        *("TaskWork", "Term"),
    ),
    "methods.variants": ("with_afec", "with_ancl", "with_auto"),
    "networks": ("Network", "architecture", "frozen", "without_head"),
    "training.objective": ("Extra", "Objective", "PenaltyTerm", "anchor_for", "anchor_from"),
    "regularizers": ("Regularizer", "WeightRegularizer"),
    "stages.events": ("Events",),
    "store.store": ("Store",),
    "reporting.write": ("report",),
    "training.auto": ("Auto",),
    "training.balance": ("Balance",),
    "training.config": ("Training",),
    "types": ("Anchor", "Output", "Step"),
    "methods.registry": ("list_methods", "make_method"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__version__ = "0.2.0"
__all__ = [
    "Anchor",
    "AnclError",
    "Auto",
    "Auxiliary",
    "Balance",
    "Comparison",
    "CrossEntropy",
    "Events",
    "ExportError",
    "Extra",
    "Finish",
    "FinishWork",
    "Learner",
    "MainTrainer",
    "Memory",
    "Method",
    "MethodError",
    "Network",
    "Objective",
    "Output",
    "PenaltyTerm",
    "Regularizer",
    "Rule",
    "RunResult",
    "RunSpec",
    "ScenarioError",
    "SearchResult",
    "SpecError",
    "Step",
    "Store",
    "StoreError",
    "StudyResult",
    "TaskWork",
    "Taught",
    "Term",
    "Training",
    "WeightRegularizer",
    "analyze",
    "anchor_for",
    "anchor_from",
    "architecture",
    "compare",
    "errors",
    "frozen",
    "list_benchmarks",
    "list_differences",
    "list_methods",
    "list_options",
    "load_run",
    "make_method",
    "open_learner",
    "report",
    "run",
    "search",
    "spec",
    "specs",
    "study",
    "teach",
    "with_afec",
    "with_ancl",
    "with_auto",
    "without_head",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'ancl' has no attribute {name!r}")
    return getattr(import_module(f"ancl.{_PLACE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
