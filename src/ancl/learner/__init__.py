"""Incremental classifier: learn tasks, predict, save, load, or open a finished run."""

from ancl.learner.learner import Learner
from ancl.learner.opening import load_run

__all__ = ["Learner", "load_run"]
