"""The incremental classifier: learn tasks, predict, save, load."""

from ancl.learner.learner import Learner

__all__ = ["Learner"]
