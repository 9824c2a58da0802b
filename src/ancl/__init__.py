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
    from ancl.experiments.compare import Comparison, compare
    from ancl.experiments.results import RunResult
    from ancl.experiments.run import run
    from ancl.experiments.search import search
    from ancl.experiments.search_base import SearchResult
    from ancl.experiments.study import StudyResult, study
    from ancl.learner.edit_saved import forget, merge_classes, rename
    from ancl.learner.learner import Learner
    from ancl.learner.opening import load_run, open_learner
    from ancl.learner.teach import LearnOutcome, teach
    from ancl.learner.version_writing import undo
    from ancl.learner.versions import Version, versions
    from ancl.memory import Memory
    from ancl.methods.differences import list_differences
    from ancl.methods.method import Method
    from ancl.methods.registry import list_methods, make_method
    from ancl.recipe.benchmarks import list_benchmarks
    from ancl.recipe.listing import list_options
    from ancl.recipe.method_rows import specs
    from ancl.recipe.recipe import RunSpec
    from ancl.recipe.request import spec
    from ancl.reporting.report import report
    from ancl.reporting.tidy import results
    from ancl.stages.events import Events
    from ancl.store.store import Store
    from ancl.training.config import Training

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
    "recipe.benchmarks": ("list_benchmarks",),
    "experiments.compare": ("Comparison", "compare"),
    "experiments.results": ("RunResult",),
    "experiments.run": ("run",),
    "experiments.search": ("search",),
    "experiments.search_base": ("SearchResult",),
    "recipe.listing": ("list_options",),
    "recipe.method_rows": ("specs",),
    "recipe.request": ("spec",),
    "recipe.recipe": ("RunSpec",),
    "experiments.study": ("StudyResult", "study"),
    "learner.learner": ("Learner",),
    "learner.opening": ("load_run", "open_learner"),
    "learner.edit_saved": ("forget", "merge_classes", "rename"),
    "learner.teach": ("LearnOutcome", "teach"),
    "learner.version_writing": ("undo",),
    "learner.versions": ("Version", "versions"),
    "memory": ("Memory",),
    "methods.differences": ("list_differences",),
    "methods.method": ("Method",),
    "stages.events": ("Events",),
    "store.store": ("Store",),
    "reporting.report": ("report",),
    "reporting.tidy": ("results",),
    "training.config": ("Training",),
    "methods.registry": ("list_methods", "make_method"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__version__ = "0.3.0"
__all__ = [
    "AnclError",
    "Comparison",
    "Events",
    "ExportError",
    "LearnOutcome",
    "Learner",
    "Memory",
    "Method",
    "MethodError",
    "RunResult",
    "RunSpec",
    "ScenarioError",
    "SearchResult",
    "SpecError",
    "Store",
    "StoreError",
    "StudyResult",
    "Training",
    "Version",
    "analyze",
    "compare",
    "data",
    "errors",
    "extend",
    "forget",
    "list_benchmarks",
    "list_differences",
    "list_methods",
    "list_options",
    "load_run",
    "make_method",
    "merge_classes",
    "open_learner",
    "rename",
    "report",
    "results",
    "run",
    "search",
    "spec",
    "specs",
    "study",
    "teach",
    "undo",
    "versions",
]


def __getattr__(name: str) -> Any:
    if name in ("data", "extend"):
        return import_module(f"ancl.{name}")
    if name not in _PLACE_OF:
        message = f"module 'ancl' has no attribute {name!r}"
        if not name.startswith("_") and name in import_module("ancl.extend").__all__:
            message += f"; names for authors are in ancl.extend: ancl.extend.{name}"
        raise AttributeError(message)
    return getattr(import_module(f"ancl.{_PLACE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
