"""What becomes of a network between its old and its auxiliary one: distances, CKA, landscapes."""

from ancl.analysis.cka import cka, layer_grams
from ancl.analysis.context import AnalysisContext, AnalysisOptions
from ancl.analysis.figures import draw
from ancl.analysis.forgetting import top_eigenvalue
from ancl.analysis.landscape import Plane
from ancl.analysis.networks import ComparedNetworks, Trained, learn_regime, plan_regime
from ancl.analysis.results import Analysis, spearman
from ancl.analysis.run import carry_out, choose_lamb
from ancl.analysis.tables import Study

__all__ = [
    "Analysis",
    "AnalysisContext",
    "AnalysisOptions",
    "ComparedNetworks",
    "Plane",
    "Study",
    "Trained",
    "carry_out",
    "choose_lamb",
    "cka",
    "draw",
    "layer_grams",
    "learn_regime",
    "plan_regime",
    "spearman",
    "top_eigenvalue",
]
