"""Incremental classifier: learn tasks, predict, save, load, or open a finished run."""

from ancl.learner.directory import load_run
from ancl.learner.learner import Learner

__all__ = ["Learner", "load_run"]
