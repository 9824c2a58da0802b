"""What a race saves, and how often it stops the value that the whole grid would choose.

    python benchmarks/race.py            # on made-up accuracies of five values
    python benchmarks/race.py recorded   # on the recorded searches of the small study

Made up: the true accuracies are the same after every task. Every measured accuracy has noise, half
of it (in variance) the same after each task. Which value is the best is drawn.
Recorded: the validation accuracies in docs/evidence/small/results, as if the search were a race.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ancl.experiments.grid import FAVOURED, Standing, race, standing
from ancl.experiments.results import decode_matrix
from ancl.experiments.study import Study
from ancl.experiments.study_results import StudyRun
from ancl.files import read_json
from ancl.recipe.build import validation_weights

RACES, NOISE = 400, 0.03
POINTS_BELOW = {
    "all equal": (0, 0, 0, 0, 0),
    "0.5, 1, 2, 4 points worse": (0, 0.5, 1, 2, 4),
    "1, 3, 6, 10 points worse": (0, 1, 3, 6, 10),
}
STUDY = Path(__file__).parents[1] / "docs" / "evidence" / "small" / "study.yaml"


class Recorded:
    """Values that have learned all tasks already; notes how far a race lets each learn."""

    def __init__(self, standings: Mapping[float, Standing]) -> None:
        self.standings, self.learned = standings, dict[float, int]()

    def race(self, tasks: int, step: str) -> list[float]:
        """The values that are not stopped."""
        stopped = race(list(self.standings), tasks, self._learn, FAVOURED[step])
        return [value for value in self.standings if value not in stopped]

    def _learn(self, values: Sequence[float], learned: int) -> dict[float, Standing]:
        self.learned |= dict.fromkeys(values, learned)
        return {value: self.standings[value][:learned] for value in values}


def simulate(below: Sequence[float], tasks: int, seeds: int) -> tuple[float, ...]:
    """Share of races that stop the grid's choice, points lost as measured, in truth, epochs."""
    rng, count = np.random.default_rng(0), len(below)
    wrong = lost = in_truth = epochs = 0.0
    for _ in range(RACES):
        true = -rng.permutation(below) / 100
        lasting = rng.normal(size=(count, seeds, tasks)) * NOISE / 2**0.5
        rows: list[NDArray[np.float64]] = [
            true[:, None, None]
            + lasting[:, :, :learned]
            + rng.normal(size=(count, seeds, learned)) * NOISE / 2**0.5
            for learned in range(1, tasks + 1)
        ]
        recorded = Recorded({float(v): [row[v] for row in rows] for v in range(count)})
        left = [int(value) for value in recorded.race(tasks, "lamb")]
        final = rows[-1].mean(axis=(1, 2))
        ours, grids = left[int(final[left].argmax())], int(final.argmax())
        wrong += ours != grids
        lost += 100 * (final[grids] - final[ours])
        in_truth += 100 * (true[grids] - true[ours])
        epochs += (1 + sum(k - 1 for k in recorded.learned.values())) / (1 + count * (tasks - 1))
    return wrong / RACES, lost / RACES, in_truth / RACES, epochs / RACES


def made_up() -> None:
    """Print the first table of docs/search.md."""
    print("| values | tasks | seeds | another choice | points lost | in truth | epochs |")
    print("|---|---|---|---|---|---|---|")
    for name, below in POINTS_BELOW.items():
        for tasks, seeds in ((5, 1), (5, 2), (5, 5), (10, 1), (10, 3)):
            wrong, lost, true, epochs = simulate(below, tasks, seeds)
            numbers = f"{wrong:.0%} | {lost:.2f} | {true:.2f} | {epochs:.0%}"
            print(f"| {name} | {tasks} | {seeds} | {numbers} |")


def epochs_of(step: str, learned: Mapping[float, int], spec: StudyRun) -> int:
    """Epochs per seed; values share the first task, and those of λ_a its auxiliary network too."""
    training, auxiliary = spec.spec.training, spec.spec.auxiliary
    first = training.epochs_first or training.epochs
    main = sum(training.epochs * (tasks - 1) for tasks in learned.values())
    if step == "lamb":
        return first + main
    return auxiliary.epochs + main + sum(auxiliary.epochs * (n - 2) for n in learned.values())


def replay(step: str, tried: Mapping[float, Sequence[StudyRun]], study: Study) -> tuple[float, ...]:
    """Epochs of the race and of the whole grid, and the points lost on validation images."""
    standings, some = {}, next(iter(tried.values()))[0]
    for value, runs in tried.items():
        matrices = []
        for run in runs:
            stored = read_json(study.folder.file(run.spec))
            matrix = decode_matrix(stored["matrices"][f"{run.spec.accuracy}_val"])
            matrices.append((matrix, validation_weights(run.spec, run.images)))
        standings[value] = standing(matrices, task_aware=some.spec.task_aware)
    recorded, tasks = Recorded(standings), len(some.images)
    left = recorded.race(tasks, step)
    score = {value: float(np.mean([run.score for run in runs])) for value, runs in tried.items()}
    lost = 100 * (max(score.values()) - max(score[value] for value in left))
    whole = epochs_of(step, dict.fromkeys(tried, tasks), some)
    return epochs_of(step, recorded.learned, some), whole, lost


def of_the_study() -> None:
    """Print the second table of docs/search.md."""
    study = Study(STUDY)
    shares = []
    print("| method | λ | λ_a | both | points lost, λ | points lost, λ_a |")
    print("|---|---|---|---|---|---|")
    for each in study.result().methods:
        found = {step: replay(step, each.trials[step], study) for step in ("lamb", "lamb_a")}
        cells = [f"{ours / whole:.0%}" for ours, whole, _ in found.values()]
        both = sum(f[0] for f in found.values()) / sum(f[1] for f in found.values())
        shares.append(both)
        lost = [f"{f[2]:.2f}" for f in found.values()]
        print(f"| {each.method} | {' | '.join([*cells, f'{both:.0%}', *lost])} |")
    print(f"| mean | | | {np.mean(shares):.0%} | | |")


if __name__ == "__main__":
    of_the_study() if sys.argv[1:] == ["recorded"] else made_up()
