"""Where ANCL's network is between the old and the auxiliary one: distances, CKA, landscapes."""

from ancl.analysis.cka import cka, layer_grams
from ancl.analysis.context import AnalysisContext, AnalysisOptions
from ancl.analysis.figures import draw
from ancl.analysis.forgetting import top_eigenvalue
from ancl.analysis.landscape import Plane
from ancl.analysis.networks import ComparedNetworks, Trained, plan_networks, train_networks
from ancl.analysis.results import AnalysisResult, spearman
from ancl.analysis.run import (
    AnalysisPlan,
    AnalysisRequest,
    analyze,
    choose_lamb,
    make_request,
    measure,
    plan_analysis,
    run_analysis,
)
from ancl.analysis.tables import make_tables

__all__ = [
    "AnalysisContext",
    "AnalysisOptions",
    "AnalysisPlan",
    "AnalysisRequest",
    "AnalysisResult",
    "ComparedNetworks",
    "Plane",
    "Trained",
    "analyze",
    "choose_lamb",
    "cka",
    "draw",
    "layer_grams",
    "make_request",
    "make_tables",
    "measure",
    "plan_analysis",
    "plan_networks",
    "run_analysis",
    "spearman",
    "top_eigenvalue",
    "train_networks",
]
