"""The paper's analyses on real images: where does ANCL's network end as λ_a grows?

    python benchmarks/analysis_small.py [METHOD …] [--data-root DIR] [--runs DIR]

`cifar100-small/5`, the second task, seeds 20 to 22. λ is the one that the small study chose.
λ_a are the four values of its grid and one step more at each end, whatever they show. Measured are
weight distance and CKA to the old, the auxiliary and the multitask network, test accuracy,
the landscape, and Spearman's rank correlation with λ_a for every seed. What is computed is kept in
docs/evidence/small/analysis, one file per method; a method that has its file is only printed.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import ancl
from ancl.experiments.study import Study
from ancl.metrics import mean_and_error

BENCHMARK = "cifar100-small/5"
SEEDS = (20, 21, 22)
EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence" / "small"
PLACES = ("old", "auxiliary", "multi")


def widened(grid: list[float]) -> list[float]:
    """The grid and one step more at each end, with the factor of its first and last step."""
    return [grid[0] ** 2 / grid[1], *grid, grid[-1] ** 2 / grid[-2]]


def estimates(result: Any, network: str, lamb_a: float | None) -> dict[str, list[float]]:
    """Mean, standard error of every measure of one network, over seeds."""
    wanted = {"network": network, **({} if lamb_a is None else {"lamb_a": lamb_a})}
    found = {}
    for name, table, more in (
        *((f"distance_{ref}", "distance", {}) for ref in PLACES),
        *((f"cka_{ref}", "cka", {"layer": "mean"}) for ref in PLACES),
        ("accuracy", "accuracy", {}),
    ):
        column = "mean" if table == "accuracy" else name.partition("_")[2]
        rows = result.rows(table, **wanted, **more)
        found[name] = list(mean_and_error([float(row[column]) for row in rows])[:2])
    return found


def analyse(method: str, lamb: float, lamb_a: list[float], given: argparse.Namespace) -> None:
    result = ancl.analyze(
        method,
        BENCHMARK,
        lamb=lamb,
        lamb_a=lamb_a,
        seeds=SEEDS,
        runs=given.runs,
        data_root=given.data_root,
        threads=1,
    )
    content = {
        "method": method,
        "lamb": lamb,
        "seeds": SEEDS,
        "cl": estimates(result, "cl", None),
        "ancl": {f"{value:g}": estimates(result, "ancl", value) for value in lamb_a},
        "correlations": {name: list(e[:2]) for name, e in result.correlations().items()},
    }
    place = EVIDENCE / "analysis"
    place.mkdir(exist_ok=True)
    figures = result.place(Path(given.runs)) / "figures"
    for name in ("distance", "cka", f"landscape_s{SEEDS[0]}"):
        if (figures / f"{name}.png").is_file():
            shutil.copy(figures / f"{name}.png", place / f"{method}_{name}.png")
    (place / f"{method}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def cells(found: dict[str, list[float]]) -> str:
    parts = [f"{m:.2f} ± {e:.2f}" for m, e in (found[f"distance_{ref}"] for ref in PLACES)]
    parts += [f"{m:.3f} ± {e:.3f}" for m, e in (found[f"cka_{ref}"] for ref in PLACES)]
    mean, error = found["accuracy"]
    return " | ".join([*parts, f"{100 * mean:.1f} ± {100 * error:.1f}"])


def show(method: str) -> None:
    content = json.loads((EVIDENCE / "analysis" / f"{method}.json").read_text(encoding="utf-8"))
    print(f"\n### {method}, λ = {content['lamb']:g}\n")
    heads = ["λ_a", *(f"to {ref}" for ref in PLACES), *(f"CKA to {ref}" for ref in PLACES)]
    print(f"| {' | '.join([*heads, 'accuracy, %'])} |\n|{'---|' * 8}")
    print(f"| 0 (CL) | {cells(content['cl'])} |")
    for value, found in content["ancl"].items():
        print(f"| {value} | {cells(found)} |")
    print()
    for name, (mean, error) in content["correlations"].items():
        print(f"- {name.replace('_', ' ')}: {mean:+.2f} ± {error:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=["lwf", "ewc", "mas", "lfl"])
    parser.add_argument("--data-root")
    parser.add_argument("--runs", default="runs")
    given = parser.parse_args()
    study = Study(EVIDENCE / "study.yaml")
    found = {each.method: each for each in study.result().methods if each.benchmark == BENCHMARK}
    for method in given.methods:
        if not (EVIDENCE / "analysis" / f"{method}.json").is_file():
            each = found[method]
            if "lamb_a" not in each.chosen:
                print(f"{method}: the small study has not chosen its λ and λ_a yet.")
                continue
            grid = study.plan.benchmarks[BENCHMARK].methods[method].lamb_a
            analyse(method, each.chosen["lamb"], widened(list(grid)), given)
        show(method)


if __name__ == "__main__":
    main()
