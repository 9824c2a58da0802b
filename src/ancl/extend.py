"""Names for those who write methods, networks, stages, analyses and executors of their own."""

from ancl.analysis.context import AnalysisContext
from ancl.compute import ExecutorChoice
from ancl.compute.graph import Graph, Schedule, StageEnd
from ancl.compute.serial import StageComputer
from ancl.data import Source, from_arrays
from ancl.experiments.results import Places
from ancl.experiments.run import run_all
from ancl.inference import Infer, InferenceInputs
from ancl.losses import CrossEntropy, TaskLoss
from ancl.memory import Exemplars, Record, StoredLogits
from ancl.methods.method import Finish, MainTrainer, Method
from ancl.methods.registry import make_method
from ancl.methods.variants import with_afec, with_ancl, with_auto
from ancl.methods.work import TaskWork
from ancl.networks import Network, adapt, architecture, frozen, merge_adapters, without_head
from ancl.regularizers import LogitDistance, Regularizer, WeightRegularizer
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.lambda_rules import Auto, Balance, Rule
from ancl.training.loop import Epoch, Fit, Saved
from ancl.training.objective import (
    Auxiliary,
    Extra,
    Objective,
    PenaltyTerm,
    Reference,
    Replayed,
    Term,
    anchor_for,
    anchor_from,
)
from ancl.types import Anchor, Output, Params, Step, prefixed, strip_prefix

__all__ = [
    "AnalysisContext",
    "Anchor",
    "Auto",
    "Auxiliary",
    "Balance",
    "Constraint",
    "CrossEntropy",
    "Epoch",
    "ExecutorChoice",
    "Exemplars",
    "Extra",
    "Finish",
    "Fit",
    "Graph",
    "Infer",
    "InferenceInputs",
    "LogitDistance",
    "MainTrainer",
    "Method",
    "Network",
    "Objective",
    "Output",
    "Params",
    "PenaltyTerm",
    "Places",
    "Record",
    "Reference",
    "Regularizer",
    "Replayed",
    "Rule",
    "Saved",
    "Schedule",
    "Source",
    "StageComputer",
    "StageEnd",
    "StageResult",
    "Step",
    "StoredLogits",
    "TaskLoss",
    "TaskWork",
    "Term",
    "WeightRegularizer",
    "adapt",
    "anchor_for",
    "anchor_from",
    "architecture",
    "from_arrays",
    "frozen",
    "make_method",
    "merge_adapters",
    "prefixed",
    "run_all",
    "strip_prefix",
    "with_afec",
    "with_ancl",
    "with_auto",
    "without_head",
]
