"""Ω: what ties a network to an anchor, without its λ."""

from ancl.regularizers.base import Evidence, Regularizer, Watcher, WeightRegularizer
from ancl.regularizers.ewc import Ewc
from ancl.regularizers.lwf import Lwf
from ancl.regularizers.mas import Mas
from ancl.regularizers.si import Si

__all__ = [
    "Evidence",
    "Ewc",
    "Lwf",
    "Mas",
    "Regularizer",
    "Si",
    "Watcher",
    "WeightRegularizer",
]
