"""Ω: what ties a network to an anchor, without its λ."""

from ancl.regularizers.base import Evidence, Regularizer, Watcher, WeightRegularizer
from ancl.regularizers.dark import LogitDistance
from ancl.regularizers.dmc import Dmc
from ancl.regularizers.eeil import Eeil, eeil_noise
from ancl.regularizers.ewc import Ewc
from ancl.regularizers.icarl import Icarl
from ancl.regularizers.lfl import Lfl
from ancl.regularizers.lucir import LessForget
from ancl.regularizers.lwf import Lwf
from ancl.regularizers.lwm import Lwm
from ancl.regularizers.mas import Mas
from ancl.regularizers.podnet import Pod
from ancl.regularizers.rwalk import RWalk
from ancl.regularizers.si import Si

__all__ = [
    "Dmc",
    "Eeil",
    "Evidence",
    "Ewc",
    "Icarl",
    "LessForget",
    "Lfl",
    "LogitDistance",
    "Lwf",
    "Lwm",
    "Mas",
    "Pod",
    "RWalk",
    "Regularizer",
    "Si",
    "Watcher",
    "WeightRegularizer",
    "eeil_noise",
]
