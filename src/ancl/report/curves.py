"""Loss terms over epochs from a run's log, thinned to what an eye can tell apart."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ancl.report.groups import Group

MOST_POINTS = 60
SPLITS = ("train", "val")


class Training(NamedTuple):
    """One training's terms: ``terms["train"]["old"][k]`` at ``epochs[k]``; none if not finite."""

    task: int
    stage: str
    role: str
    epochs: list[int]
    terms: dict[str, dict[str, list[float | None]]]


def trainings(group: Group) -> list[Training]:
    """Every training of the group's first seed, in order."""
    found: dict[tuple[int, str, str], list[Mapping[str, Any]]] = {}
    for record in group.runs[0].result.log:
        key = (record["task"], record["stage"], record["role"])
        found.setdefault(key, []).append(record)
    return [_training(*key, records) for key, records in found.items()]


def _training(task: int, stage: str, role: str, records: Sequence[Mapping[str, Any]]) -> Training:
    step = math.ceil(len(records) / MOST_POINTS)
    # The last epoch is always shown: it is where the training ended.
    shown = [r for i, r in enumerate(records) if i % step == 0 or i == len(records) - 1]
    terms: dict[str, dict[str, list[float | None]]] = {}
    for split in SPLITS:
        names = dict.fromkeys(name for record in shown for name in record[split])
        terms[split] = {name: [_finite(r[split].get(name)) for r in shown] for name in names}
    return Training(task, stage, role, [r["epoch"] for r in shown], terms)


def _finite(value: object) -> float | None:
    """A number; the log writes what is not finite as text."""
    return float(f"{value:.5g}") if isinstance(value, int | float) else None
