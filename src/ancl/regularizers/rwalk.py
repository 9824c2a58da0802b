"""Riemannian Walk: weights matter by their Fisher information and by their path."""

from dataclasses import dataclass
from typing import Literal

from ancl.regularizers.base import Evidence
from ancl.regularizers.ewc import Ewc
from ancl.regularizers.si import PathWatcher
from ancl.types import Importance, Params


@dataclass(frozen=True)
class RWalk(Ewc):
    """Σ (F + S) (θ − θ*)² with Fisher information F and path scores S.  Equation: [rwalk].

    S is what a weight's path gained, over the distance F (θ − θ_start)² it walked. Both are
    averaged over tasks from zero, so a first task counts half. What is not merged with earlier
    tasks, as the auxiliary network's, counts in full.

    Differs: the path is followed through the whole task and F is estimated at its end, instead
    of both in windows of steps.

    Args:
        damping: Added to the distance, so that weights at rest do not divide by zero.
    """

    labels: Literal["true", "predicted", "sampled"] = "predicted"
    watcher = PathWatcher
    damping: float = 0.1

    def importance(self, evidence: Evidence) -> Importance:
        """F, the path integral, and the squared way of each weight in one task."""
        way = {
            name: (weight.detach() - evidence.start[name]).square()
            for name, weight in evidence.weights.items()
        }
        return {**super().importance(evidence), "path": evidence.watched, "way": way}

    def merge(self, before: Importance | None, now: Importance) -> Importance:
        """F as in EWC; S averaged with the scores before, by the merged F."""
        fisher = super().merge(before, now)["gradients"]
        fresh = self._scores(fisher, now)
        scores = {
            n: 0.5 * (s if before is None else before["scores"][n] + s) for n, s in fresh.items()
        }
        return {"gradients": fisher, "scores": scores}

    def curvature(self, importance: Importance) -> Params:
        """2 (F + S): the penalty has no factor ½."""
        fisher = importance["gradients"]
        scores = importance.get("scores") or self._scores(fisher, importance)
        return {name: 2 * (fisher[name] + scores[name]) for name in fisher}

    def _scores(self, fisher: Params, task: Importance) -> Params:
        """ReLU(path / (F · way + damping)): a path that raised the loss counts as none."""
        return {
            name: (path / (fisher[name] * task["way"][name] + self.damping)).clamp(min=0)
            for name, path in task["path"].items()
        }
