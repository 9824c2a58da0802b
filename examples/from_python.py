"""All that `ancl compare`, `search`, `analyze` and `report` do, from Python, on embedded digits.

Networks that several calls need are trained once: all calls share one store.
"""

import tempfile
from pathlib import Path

import ancl

BENCHMARK = "digits/5"
SETTINGS = {"training.epochs": 3, "network.hidden": [32], "threads": 1}


def compare(runs: Path) -> None:
    """Plain LwF, LwF with ANCL, and joint training, on two seeds."""
    methods = ["lwf", "a-lwf", "joint"]
    found = ancl.compare(methods, BENCHMARK, seeds=[0, 1], settings=SETTINGS, runs=runs)
    for method in methods:
        print(f"{method}: AAC {found.estimates(method)['aac'].mean:.1%}")


def search(runs: Path) -> dict[str, float]:
    """λ with the plain method, then λ_a with ANCL, decided on validation images of seed 0."""
    found = ancl.search(
        "a-lwf",
        BENCHMARK,
        lamb_grid=[1.0, 10.0],
        lamb_a_grid=[0.5, 5.0],
        search_seeds=[0],
        settings=SETTINGS,
        runs=runs,
    )
    print(f"chosen by {found.decided_by}: {found.chosen}")
    return dict(found.chosen)


def analyze(runs: Path, lamb: float) -> None:
    """How far the network ends from the old and from the auxiliary one, for each λ_a."""
    found = ancl.analyze(
        "a-lwf",
        BENCHMARK,
        lamb=lamb,
        lamb_a=[0.1, 1.0, 10.0],
        grid=3,
        images=200,
        settings=SETTINGS,
        runs=runs,
    )
    for row in found.rows("distance", network="ancl"):
        print(
            f"λ_a = {row['lamb_a']:g}: {row['old']:.3f} to old, {row['auxiliary']:.3f} to auxiliary"
        )
    print("tables:", ", ".join(found.tables))


def report(runs: Path) -> None:
    """One page, tables and figures of everything above."""
    found = ancl.report(runs=runs)
    for group in found.report.groups:
        estimate = group.estimate(group.decisive)
        print(f"{group.stream} {group.title}: {estimate.mean:.1%}, n = {estimate.n}")
    print(f"{len(found.files)} files, the page is {found.page}")


def main(runs: Path) -> None:
    """Everything, in an order in which each step uses the one before."""
    compare(runs)
    chosen = search(runs)
    analyze(runs, chosen["lamb"])
    report(runs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
