"""When does an auxiliary network pay? The runs, tables and figure of docs/evidence/regimes.md.

Run:  python scripts/regimes.py --data-root DIR   # in a fixed order; the same command resumes
      python scripts/regimes.py --dry-run         # runs to do, and about how long they take
      python scripts/regimes.py --tables          # tables and figure from the results alone

Every finished run is a small file in docs/evidence/regimes/results. A study file cannot say this
protocol: its class order changes with the seed, and its runs go seed by seed over all methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from protocol_runs import (
    ResultFiles,
    Stored,
    best_value,
    carry_out,
    compute,
    matrices,
    parser_of,
)

import ancl
from ancl.data import class_order
from ancl.experiments.results import spec_hash
from ancl.recipe.build import equal_epochs, images_per_epoch

SEARCH_SEEDS = (10, 11)
TABLE_SEEDS = (20, 21, 22, 23, 24)
BALANCE = "balance:0.1"
ROWS = {
    "cl": "CL",
    "ancl": "ANCL, balance",
    "equal": "CL, equal compute",
    "third": "ANCL, a third of the auxiliary epochs",
    "last": "ANCL, the auxiliary network's last stage alone",
}
"""Rows of a table by name; ``search`` is the name of a trial of λ."""
WITH_AUXILIARY = ("ancl", "third", "last")
GRIDS = {
    "lwf": (3.0, 10.0, 30.0),
    "ewc": (4000.0, 16000.0, 64000.0),
    "icarl": (0.08, 0.3, 1.2),
    "lucir": (0.5, 1.5, 5.0),
}
BLIND_GRIDS = {
    # What the small study chose; nothing to search.
    "lfl": (160.0,),
    "mas": (20.0,),
    "bic": (3.0,),
    "podnet": (0.025,),
    # Not searched before.
    "si": (1.0, 10.0, 100.0),
    "rwalk": (1.0, 10.0, 100.0),
    "eeil": (0.3, 1.0, 3.0),
    "wa": (0.3, 1.0, 3.0),
}
TASK_AWARE = ("lwf", "ewc", "lfl", "mas", "si", "rwalk")
"""Methods of the task-incremental protocol; the others have a memory and are class-incremental."""
ON_WEIGHTS = ("ewc", "mas", "si", "rwalk")
"""Methods with proximal steps, as in the small protocols: plain ones diverge at a large λ."""
MILLISECONDS = {"main": (0.9, 0.45), "auxiliary": (0.7, 0.35)}
"""Of one image forwards and backwards at 16x16, ResNet-14 and ResNet-8: measured, see the page."""
LAST_STAGE = 0.53
"""FLOPs of a pass whose last stage alone learns, of those of a whole one: both networks."""
EVALUATION_SECONDS = 25


@dataclass(frozen=True)
class Regime:
    """A stream and how long it is trained.

    Args:
        tasks: The number of tasks.
        classes: The number of classes of each.
        training: Settings of the training.
        grids: The values of λ of each method.
        source: The images.
        rows: The rows of its table.
        equal: Settings of equal computation where no fixed schedule can be stretched.
    """

    tasks: int
    classes: int
    training: Mapping[str, Any]
    grids: Mapping[str, Sequence[float]] = field(default_factory=lambda: GRIDS)
    source: str = "cifar100-16"
    rows: tuple[str, ...] = ("cl", "ancl", "equal")
    equal: Mapping[str, Any] | None = None

    def order(self, seed: int) -> tuple[int, ...]:
        """The classes of a seed, in their order."""
        known = 200 if self.source == "tinyimagenet" else 100
        return class_order(f"seed:{seed}", known)[: self.tasks * self.classes]


LONG_TRAINING = {"training.epochs": 60, "training.epochs_first": 60}
SHORT_TRAINING = {"training.epochs": 15, "training.epochs_first": 30}
PATIENCE = {"training.schedule": "patience", "training.patience": 5}
REGIMES = {
    "20x5-60": Regime(20, 5, LONG_TRAINING),
    "5x10-60": Regime(5, 10, LONG_TRAINING, rows=("cl", "ancl", "equal", "third", "last")),
    "5x10-15": Regime(5, 10, SHORT_TRAINING),
    "20x5-15": Regime(20, 5, SHORT_TRAINING),
    "5x10-patience": Regime(
        5,
        10,
        {**PATIENCE, "training.epochs": 120, "training.epochs_first": 120},
        {"lwf": GRIDS["lwf"]},
        equal={"training.patience": 10, "training.epochs": 240},
    ),
    "blind": Regime(5, 10, SHORT_TRAINING, BLIND_GRIDS, "tinyimagenet", ("cl", "ancl")),
}
PRIMARY = "20x5-60"
FRONTIER = "5x10-60"
"""The regime with rows of a cheaper auxiliary network."""
STEPS: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = (
    ("20x5-60", SEARCH_SEEDS, ("search",)),
    ("20x5-60", TABLE_SEEDS, ("cl", "ancl", "equal")),
    ("5x10-60", SEARCH_SEEDS, ("search",)),
    ("5x10-60", TABLE_SEEDS[:3], ("cl", "ancl", "equal")),
    ("5x10-15", SEARCH_SEEDS, ("search",)),
    ("5x10-15", TABLE_SEEDS[:3], ("cl", "ancl", "equal")),
    ("20x5-15", SEARCH_SEEDS, ("search",)),
    ("20x5-15", TABLE_SEEDS[:3], ("cl", "ancl", "equal")),
    ("5x10-60", TABLE_SEEDS[3:], ("cl", "ancl", "equal")),
    ("5x10-15", TABLE_SEEDS[3:], ("cl", "ancl", "equal")),
    ("20x5-15", TABLE_SEEDS[3:], ("cl", "ancl", "equal")),
    ("5x10-patience", SEARCH_SEEDS, ("search",)),
    ("5x10-patience", TABLE_SEEDS, ("cl", "ancl", "equal")),
    ("blind", SEARCH_SEEDS, ("search",)),
    ("blind", TABLE_SEEDS, ("cl", "ancl")),
    ("5x10-60", TABLE_SEEDS, ("third",)),
    ("5x10-60", TABLE_SEEDS, ("last",)),
)
"""All runs in their order: regime, seeds, rows. A cut leaves out what is at the end."""


# -- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One run to do.

    Args:
        regime: The name of its regime.
        row: The name of its row, or ``search``.
        method: The plain method.
        spec: Everything that decides it.
    """

    regime: str
    row: str
    method: str
    spec: ancl.RunSpec

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return self.spec.plain()

    @cached_property
    def file(self) -> str:
        """The name of its result."""
        mark = spec_hash(self.spec)[:8]
        return f"{self.regime}_{self.spec.method}_{self.row}_s{self.spec.seed}_{mark}.json"


Setting = tuple[str, Any]


@cache
def make_task(
    name: str, row: str, method: str, seed: int, lamb: float, extra: tuple[Setting, ...] = ()
) -> Task:
    """A run of a regime; ``extra`` are the settings of its row."""
    regime = REGIMES[name]
    known = "cifar100-small/5" if method in TASK_AWARE else "cifar100-small/4"
    own: dict[str, Any] = {
        "data.source": regime.source,
        "data.order": regime.order(seed),
        "data.tasks": regime.tasks,
        "data.first": None,
        "device": "cpu",
        "threads": 1,
        **regime.training,
        **dict(extra),
    }
    if method in ON_WEIGHTS:
        own["training.penalty_step"] = "proximal"
    if method == "eeil":
        own["enlarge"] = False
    own["lamb"] = lamb
    auxiliary = row in WITH_AUXILIARY
    if auxiliary:
        own["lamb_a"] = BALANCE
    if row == "third":
        own["auxiliary.epochs"] = regime.training["training.epochs"] // 3
    if row == "last":
        own["auxiliary_trains"] = "last"
    spec = ancl.spec(f"a-{method}" if auxiliary else method, known, seed=seed, settings=own)
    return Task(name, row, method, spec)


class Results(ResultFiles):
    """Finished runs, and what they decide."""

    def trials(self, name: str, method: str) -> dict[float, list[float]]:
        """Validation accuracies of every λ that is tried; failed runs have NaN."""
        return {
            lamb: self.scores(make_task(name, "search", method, s, lamb) for s in SEARCH_SEEDS)
            for lamb in REGIMES[name].grids[method]
        }

    def chosen(self, name: str, method: str) -> float | None:
        """λ by validation accuracy, the smallest of equals; nothing while runs are missing."""
        grid = REGIMES[name].grids[method]
        if len(grid) == 1:
            return grid[0]
        return best_value(self.trials(name, method), len(SEARCH_SEEDS))

    def given_up(self, name: str, method: str) -> bool:
        """Whether the search is over without a λ, since a run of every value failed."""
        trials = self.trials(name, method)
        over = all(len(scores) == len(SEARCH_SEEDS) for scores in trials.values())
        return over and self.chosen(name, method) is None

    def task(self, name: str, row: str, method: str, seed: int, lamb: float) -> Task:
        """A run of a table; equal computation has the backward passes of the auxiliary network."""
        regime = REGIMES[name]
        if row != "equal":
            return make_task(name, row, method, seed, lamb)
        if regime.equal is not None:
            return make_task(name, row, method, seed, lamb, tuple(regime.equal.items()))
        auxiliary = make_task(name, "ancl", method, seed, lamb).spec
        epochs = equal_epochs(auxiliary, images(regime))
        return make_task(name, row, method, seed, lamb, (("training.epochs", epochs),))


def images(regime: Regime) -> list[tuple[int, int, int]]:
    """Training, validation and test images of every task; a result with others is refused."""
    train, val, test = (90, 10, 50) if regime.source == "tinyimagenet" else (100, 50, 100)
    of_task = (train * regime.classes, val * regime.classes, test * regime.classes)
    return [of_task] * regime.tasks


def steps(results: Results) -> Iterator[tuple[str, list[Task]]]:
    """Runs of one regime and seed at a time, in the order of the protocol.

    Whoever asks for the next list has finished the one before; λ of a search that failed in all
    its runs has no table.
    """
    for name, seeds, rows in STEPS:
        grids = REGIMES[name].grids
        for seed in seeds:
            if rows == ("search",):
                tasks = [
                    make_task(name, "search", method, seed, lamb)
                    for method, grid in grids.items()
                    if len(grid) > 1
                    for lamb in grid
                ]
            else:
                values = {method: results.chosen(name, method) for method in grids}
                tasks = [
                    results.task(name, row, method, seed, lamb)
                    for method, lamb in values.items()
                    if lamb is not None
                    for row in rows
                ]
            yield f"{name}-s{seed}", tasks


def carry_out_task(task: Task, work: Path, data_root: str | None) -> Stored:
    """What is stored of a run, after it was carried out."""
    named = {"regime": task.regime, "row": task.row}
    stored, result = compute(task, work, data_root, named, images(REGIMES[task.regime]))
    return {**stored, "matrices": matrices(result)} if result else stored


def forecast(results: Results) -> None:
    """Print the runs to do and about how long they take; an undecided λ is the middle one."""
    total = 0.0
    for name, seeds, rows in STEPS:
        regime, left, seconds = REGIMES[name], 0, 0.0
        for seed in seeds:
            for method, grid in regime.grids.items():
                if results.given_up(name, method):
                    continue
                decided = results.chosen(name, method) or grid[len(grid) // 2]
                if rows != ("search",):
                    tasks = [results.task(name, row, method, seed, decided) for row in rows]
                else:
                    values = grid if len(grid) > 1 else ()
                    tasks = [make_task(name, "search", method, seed, v) for v in values]
                todo = [task for task in tasks if results.get(task) is None]
                left += len(todo)
                seconds += sum(guess(task) for task in todo)
        total += seconds
        print(f"{name:14} {','.join(rows):18} seeds {seeds[0]}-{seeds[-1]}: ", end="")
        print(f"{left:3} runs, {seconds / 3600:5.1f} h; {total / 3600:5.1f} h so far")


def guess(task: Task) -> float:
    """About how long a run takes on one quiet thread, in seconds."""
    spec, regime = task.spec, REGIMES[task.regime]
    pixels = 4 if regime.source == "tinyimagenet" else 1
    small = not spec.task_aware
    both, share = task.row in WITH_AUXILIARY, LAST_STAGE if task.row == "last" else 1
    milliseconds = 0.0
    for index, (main, auxiliary) in enumerate(images_per_epoch(spec, images(regime))):
        epochs = spec.training.at(index).epochs
        milliseconds += main * epochs * MILLISECONDS["main"][small] * (1.2 if both else 1)
        if both and index:
            other = spec.auxiliary.at(index).epochs
            milliseconds += share * auxiliary * other * MILLISECONDS["auxiliary"][small]
    return pixels * (milliseconds / 1000 + EVALUATION_SECONDS * regime.tasks * regime.classes / 100)


def main() -> None:
    """Read the command line and do what it says."""
    parser = parser_of(__doc__, "regimes")
    given = parser.parse_args()
    results = Results(given.results)
    if given.tables:
        # It reads this module, so that it is imported when this one is complete.
        from regimes_tables import tables

        tables(results)
    elif given.dry_run:
        forecast(results)
    else:
        computing = partial(carry_out_task, data_root=given.data_root)
        carry_out(results, given.work, steps(results), computing)


if __name__ == "__main__":
    main()
