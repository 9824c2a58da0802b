"""Incremental classifier: learn tasks, predict, save, load, or open a finished run."""

from ancl.learner.learner import Learner, load_run

__all__ = ["Learner", "load_run"]
