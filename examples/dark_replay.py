"""DER++: replay batches of the memory, held to the logits they were stored with.

    L = CE(task's batch) + α · mean (z − s)² + β · CE(replay batch)

s are the logits at the end of the task that stored the image, over the classes known then; both
terms read one draw. Differs: the authors store logits while a task is learned, of a fixed head.

    ancl run examples/dark_replay.py:dark_replay digits/5 --scenario cil
    ancl run examples/dark_replay.py:dark_replay digits/5 --set alpha=0.5 --set memory.batch=64
"""

from dataclasses import dataclass

from torch import Tensor

from ancl import Memory, Method
from ancl.extend import CrossEntropy, Replayed, Step, StoredLogits


@dataclass(frozen=True)
class LogitDistance:
    """(1/m) Σ_i (1/k_i) Σ_j (z_ij − s_ij)², over the k_i classes known when i was stored."""

    def __call__(self, step: Step) -> Tensor:
        """The mean over the replay batch."""
        stored = step.extra["logits"]
        known = ~stored.isnan()
        change = step.out.logits[:, : stored.shape[1]] - stored.nan_to_num()
        rows = (change.square() * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
        return rows.mean()


def dark_replay(*, alpha: float = 0.1, beta: float = 0.5) -> Method:
    """Dark experience replay (DER++).

    Args:
        alpha: α, the pull to the stored logits.
        beta: β, the weight of the replay batch's own task loss.
    """
    terms = (Replayed("logits", LogitDistance(), alpha), Replayed("replay", CrossEntropy(), beta))
    reason = "it is held to stored logits, and the memory holds none of an auxiliary network"
    return Method(
        "dark_replay",
        extras=tuple(term for term in terms if term.weight),
        memory=Memory(per_class=20, batch=32),
        records=(StoredLogits(),),
        no_variants={"a": reason},
    )
