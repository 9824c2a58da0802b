"""Statistics that follow a network whose weights have moved, without the images of old tasks."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor

from ancl.errors import ScenarioError
from ancl.statistics.ledger import Statistics
from ancl.statistics.sums import Grid, Sums, in_chunks

_RIDGE = 0.01
"""γ as a share of the mean square of a feature. Measured on EfficientNet-Lite0 with fewer images
than features: a hundred times less was a little worse."""
_LISTED = 6
"""Of more tasks that moved, the least and the largest drift are said."""


class Drift(NamedTuple):
    """How far the features of new images moved while their task was learned.

    Args:
        moved: ‖P − I‖ / √D of the map P from features before to features after.
        residual: ‖H P − H'‖ / ‖H' − H‖: the part of the movement that no linear map explains.
        transported: Whether what is known of earlier images followed by that map.
        clipped: How many numbers of earlier images' features no longer fit the grid.
    """

    moved: Annotated[float, Ge(0)]
    residual: Annotated[float, Ge(0)]
    transported: bool = True
    clipped: Annotated[int, Ge(0)] = 0

    def __str__(self) -> str:
        """One sentence, and one more where features were cut."""
        follows = "followed by that map" if self.transported else "stayed as they were"
        if not self.moved and not self.residual:
            return "The backbone has not moved in this task."
        cut = f" {self.clipped} numbers were cut to the grid." if self.clipped else ""
        return (
            f"The backbone moved: the map from old to new features is {self.moved:.3g} from none "
            f"and leaves {100 * self.residual:.0f} % of the movement unexplained; statistics of "
            f"earlier images {follows}.{cut}"
        )

    def json(self) -> dict[str, Any]:
        """What is stored."""
        return self._asdict()


def drift_text(drifts: Mapping[int, Drift]) -> str:
    """How far the backbone moved in some tasks, by their index, in a sentence or two."""
    moved = {task: drift for task, drift in drifts.items() if drift.moved or drift.residual}
    if not moved:
        return "The backbone has not moved since the first task."
    measured = [drift.moved for drift in moved.values()]
    shares = sorted({f"{100 * drift.residual:.0f}" for drift in moved.values()}, key=int)
    tasks = ", ".join(str(task + 1) for task in moved)
    ways = ", ".join(f"{way:.3g}" for way in measured)
    if len(moved) > _LISTED:
        tasks = f"{min(moved) + 1} to {max(moved) + 1}"
        ways = f"{min(measured):.3g} to {max(measured):.3g}"
    rest = " to ".join(dict.fromkeys((shares[0], shares[-1])))
    follows = all(drift.transported for drift in moved.values())
    cut = {task + 1: drift.clipped for task, drift in moved.items() if drift.clipped}
    clipped = ", ".join(f"{count} (task {task})" for task, count in cut.items())
    return (
        f"The backbone moved in task{'s' * (len(moved) > 1)} {tasks}: {ways} (the map from old to "
        f"new features, from none), and {rest} % of the movement is unexplained; statistics of "
        f"earlier images {'followed' if follows else 'stayed as they were'}."
        + (f" Numbers of their features that were cut to the grid: {clipped}." if cut else "")
    )


def fit_map(before: Tensor, after: Tensor, ridge: float = _RIDGE) -> Tensor:
    """P = (HᵀH + γI)⁻¹ (HᵀH' + γI), float64: ridge regression towards no change.

    Equation: [transport]. Exact where H' = H P and γ is 0; the identity where nothing moved.

    Args:
        before: H, (N, D): features of some images before the network moved.
        after: H', (N, D): features of the same images now.
        ridge: γ, as a share of the mean of the diagonal of HᵀH.
    """
    old, new = before.double(), after.double()
    gram = old.T @ old
    gamma = ridge * float(gram.diagonal().mean()) or 1.0
    identity = gamma * torch.eye(len(gram), dtype=torch.double)
    matrix: Tensor = torch.linalg.solve(gram + identity, old.T @ new + identity)
    return matrix


def drift_of(before: Tensor, after: Tensor, matrix: Tensor) -> Drift:
    """How far these images' features moved, and how much of it the map explains."""
    old, new = before.double(), after.double()
    way = float((new - old).norm())
    rest = float((old @ matrix - new).norm())
    moved = float((matrix - torch.eye(len(matrix))).norm()) / math.sqrt(len(matrix))
    return Drift(moved, rest / way if way else 0.0)


def transported(known: Statistics, matrix: Tensor) -> tuple[Statistics, int]:
    """What is known of earlier images as if their features had followed the map.

    Features are brought back to the grid: Q P, Pᵀ G P and f P up to its steps. From then on
    statistics are approximate.

    Args:
        known: The statistics.
        matrix: P, (D, D).

    Returns:
        The statistics; and how many numbers no longer fitted the grid, and became its largest.
    """
    steps = Grid(0)  # the rows are in steps of their grid already
    parts = [steps.put(part.double() @ matrix) for part in in_chunks(known.ledger.rows)]
    clipped = sum(part.clipped for part in parts)
    ledger = replace(known.ledger, rows=torch.cat([part.rows for part in parts]))
    moved = replace(known, ledger=ledger, moves=known.moves + 1)
    if known.keep == "ledger":
        return replace(moved, sums=moved.sums_of(ledger.take(~ledger.held))), clipped
    if known.lift:
        raise ScenarioError(
            "keep is sums, and sums of lifted features cannot follow a network that moves. Use "
            "keep=ledger, or a classifier without a lift."
        )
    sums, gram = known.sums, matrix.T @ known.sums.gram @ matrix
    totals, gram = (sums.totals @ matrix).round(), ((gram + gram.T) / 2).round()
    return replace(moved, sums=Sums(sums.images, totals, gram)), clipped
