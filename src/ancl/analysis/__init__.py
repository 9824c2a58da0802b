"""What becomes of a network between its old and its auxiliary one: distances, CKA, landscapes."""

from ancl.analysis.carrying import carry_out, choose_lamb
from ancl.analysis.cka import cka, layer_grams
from ancl.analysis.curvature import top_eigenvalue
from ancl.analysis.figures import draw
from ancl.analysis.landscape import Plane
from ancl.analysis.ranks import spearman
from ancl.analysis.regime import Regime, Trained, learn_regime, plan_regime
from ancl.analysis.results import Analysis
from ancl.analysis.scene import Scene, Wishes
from ancl.analysis.study import Study

__all__ = [
    "Analysis",
    "Plane",
    "Regime",
    "Scene",
    "Study",
    "Trained",
    "Wishes",
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
