"""Classifiers that are computed instead of trained, and the exact sums they are computed from."""

from ancl.statistics.choice import (
    Choice,
    choose,
    choose_penalty,
    fit_temperature,
    held_loss,
    penalties_to_try,
)
from ancl.statistics.kept import knn_scores, logistic
from ancl.statistics.ledger import Keep, Ledger, Statistics
from ancl.statistics.lift import Lift
from ancl.statistics.linear import (
    Cosine,
    Linear,
    RidgePath,
    cosine_means,
    discriminant,
    nearest_mean,
    ridge,
)
from ancl.statistics.sums import Grid, GridRows, Sums
from ancl.statistics.transport import Drift, drift_of, drift_text, fit_map, transported

__all__ = [
    "Choice",
    "Cosine",
    "Drift",
    "Grid",
    "GridRows",
    "Keep",
    "Ledger",
    "Lift",
    "Linear",
    "RidgePath",
    "Statistics",
    "Sums",
    "choose",
    "choose_penalty",
    "cosine_means",
    "discriminant",
    "drift_of",
    "drift_text",
    "fit_map",
    "fit_temperature",
    "held_loss",
    "knn_scores",
    "logistic",
    "nearest_mean",
    "penalties_to_try",
    "ridge",
    "transported",
]
