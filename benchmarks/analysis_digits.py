"""Does ANCL's network move from the old to the auxiliary one as λ_a grows?  On embedded digits.

    python benchmarks/analysis_digits.py [--seeds 3] [--epochs 10] [--store DIR]

λ and the largest λ_a are fixed by stability alone, never by a result: the largest powers of ten
with lr · λ · max F below half of 2 (1 + momentum), for every seed. Every other λ_a is a tenth of
the next. Prints distances and Spearman's rank correlation for A-EWC and A-MAS.
"""

import argparse
import math
from pathlib import Path
from time import monotonic

import torch

from ancl.analysis import (
    AnalysisOptions,
    AnalysisResult,
    measure,
    plan_networks,
    train_networks,
)
from ancl.experiments.build import Experiment, build, threads
from ancl.experiments.spec import Layer, RunSpec, resolve
from ancl.metrics import Estimate
from ancl.regularizers import WeightRegularizer
from ancl.stages.events import Events
from ancl.stages.runner import MemoryStore, Storage
from ancl.store.store import Store

COUNT = 6


def spec(method: str, seed: int, epochs: int, lamb: float) -> RunSpec:
    values = {
        "seed": seed,
        "threads": 1,
        "network.name": "resnet8",
        "training.epochs": epochs,
        "lamb": lamb,
        "lamb_a": 1.0,
    }
    return resolve(method, "digits/5", [Layer("benchmark", values)]).spec


def steepest(experiment: Experiment, store: Storage) -> tuple[float, float]:
    """The largest F of old and auxiliary network, which depend on neither λ nor λ_a."""
    plans = plan_networks(experiment, 1, (1e-6,))
    networks = train_networks(plans, experiment, store, Events())
    assert plans.cl.method.old is not None
    omega = plans.cl.method.old.regularizer
    assert isinstance(omega, WeightRegularizer)
    found = [
        max(float(each.max()) for each in omega.curvature(importance).values())
        for importance in (networks.importance, networks.auxiliary_importance)
    ]
    return found[0], found[1]


def stable(method: str, seeds: int, epochs: int, store: Storage) -> tuple[float, float]:
    """The largest powers of ten for λ and λ_a that plain steps can follow."""
    most = [0.0, 0.0]
    for seed in range(seeds):
        experiment = build(spec(method, seed, epochs, 1e-6))
        most = [max(pair) for pair in zip(most, steepest(experiment, store), strict=True)]
    training = experiment.setting.training
    limit = (1 + training.momentum) / training.lr
    lamb, lamb_a = (10.0 ** math.floor(math.log10(limit / each)) for each in most)
    return lamb, lamb_a


def analyse(method: str, seeds: int, epochs: int, store: Storage) -> AnalysisResult:
    lamb, most = stable(method, seeds, epochs, store)
    options = AnalysisOptions(
        tuple(most * 10.0 ** (index - COUNT + 1) for index in range(COUNT)), grid=0
    )
    specs = [spec(method, seed, epochs, lamb) for seed in range(seeds)]
    tables: dict[str, list[dict[str, object]]] = {}
    for each in specs:
        for name, rows in measure(build(each), options, store).tables.items():
            tables.setdefault(name, []).extend(rows)
    return AnalysisResult(specs, options, tables, ())


def shown(estimate: Estimate, digits: int = 3) -> str:
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def report(analysis: AnalysisResult) -> None:
    lamb = analysis.specs[0].options["lamb"]
    print(f"\n{analysis.specs[0].method}, λ = {lamb:g}, mean ± standard error of seeds")
    print("| λ_a | to old | to auxiliary | to multitask | CKA to auxiliary | accuracy, % |")
    print("|---|---|---|---|---|---|")
    columns = [analysis.curve("distance", ref) for ref in ("old", "auxiliary", "multi")]
    columns.append(analysis.curve("cka", "auxiliary", layer="mean"))
    for index, lamb_a in enumerate(analysis.options.lamb_as):
        mean = analysis.curve("accuracy", "mean")[index]
        accuracy = f"{100 * mean.mean:.1f} ± {100 * mean.error:.1f}"
        cells = [shown(column[index]) for column in columns]
        print(f"| {lamb_a:g} | {' | '.join(cells)} | {accuracy} |")
    for name, found in analysis.correlations().items():
        print(f"{name}: {found.mean:+.3f} ± {found.error:.3f} (n = {found.n})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    store: Storage = Store(given.store) if given.store else MemoryStore()
    began = monotonic()
    with threads(1):
        for method in ("a-ewc", "a-mas"):
            report(analyse(method, given.seeds, given.epochs, store))
    print(f"\n{monotonic() - began:.0f} s, torch {torch.__version__}")


if __name__ == "__main__":
    main()
