"""How often a race stops the value that the whole grid would choose, on made-up accuracies.

    python benchmarks/race.py

Five values, whose true accuracies are the same after every task. Every measured accuracy has noise,
half of it (in variance) the same after each task.
"""

from collections.abc import Sequence

import numpy as np

from ancl.experiments.search_race import race

RACES, NOISE = 400, 0.03
POINTS_BELOW = {
    "all equal": (0, 0, 0, 0, 0),
    "0.5, 1, 2, 4 points worse": (0, 0.5, 1, 2, 4),
    "1, 3, 6, 10 points worse": (0, 1, 3, 6, 10),
}


def simulate(below: Sequence[float], tasks: int, seeds: int) -> tuple[float, float, float]:
    """Shares of races that stop the grid's choice and of epochs, and the mean points lost."""
    rng, count = np.random.default_rng(0), len(below)
    wrong = lost = epochs = 0.0
    for _ in range(RACES):
        lasting = rng.normal(size=(count, seeds, tasks)) * NOISE / 2**0.5
        rows = [
            -np.reshape(below, (-1, 1, 1)) / 100
            + lasting[:, :, :learned]
            + rng.normal(size=(count, seeds, learned)) * NOISE / 2**0.5
            for learned in range(1, tasks + 1)
        ]
        learned_by: dict[float, int] = {}

        def learn(
            values: Sequence[float],
            learned: int,
            rows: list[np.ndarray] = rows,
            learned_by: dict[float, int] = learned_by,
        ) -> dict[float, list[np.ndarray]]:
            learned_by |= dict.fromkeys(values, learned)
            return {v: [row[int(v)] for row in rows[:learned]] for v in values}

        stopped = race([float(index) for index in range(count)], tasks, learn)
        final = rows[-1].mean(axis=(1, 2))
        left = [index for index in range(count) if index not in stopped]
        wrong += int(final.argmax()) in stopped
        lost += 100 * (final.max() - final[left].max())
        epochs += (1 + sum(k - 1 for k in learned_by.values())) / (1 + count * (tasks - 1))
    return wrong / RACES, lost / RACES, epochs / RACES


def main() -> None:
    """Print the table of docs/search.md."""
    print("| values | tasks | seeds | grid's choice stopped | points lost, mean | epochs |")
    print("|---|---|---|---|---|---|")
    for name, below in POINTS_BELOW.items():
        for tasks, seeds in ((5, 1), (5, 2), (5, 5), (10, 1), (10, 3)):
            wrong, lost, epochs = simulate(below, tasks, seeds)
            print(f"| {name} | {tasks} | {seeds} | {wrong:.1%} | {lost:.2f} | {epochs:.0%} |")


if __name__ == "__main__":
    main()
