"""What sharing stages saves a search: epochs by the plans, and wall time of a small real one.

The plans are the paper's: λ with the plain method, then λ_a with the chosen λ, for every method of
a benchmark. Plans need no training, and their images may be random: sharing depends on what
stages read, not on pixels. The small search is run twice in turn, each time from empty stores.

usage: python benchmarks/search.py [PAIRS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ancl.compute.graph import Graph, Node
from ancl.compute.serial import Serial
from ancl.errors import AnclError
from ancl.experiments.search import validation_matrix, validation_score
from ancl.recipe.paper import grids
from ancl.recipe.recipe import Layer, RunSpec, resolve
from ancl.stages.events import Events
from ancl.store.store import Store

BENCHMARKS = {
    "cifar100/10": 100,
    "cifar100/20": 100,
    "tinyimagenet/10": 200,
    "tinyimagenet/20": 200,
    "cifar100/6": 100,
    "cifar100/11": 100,
    "tinyimagenet/11": 200,
    "tinyimagenet/21": 200,
}
"""The paper's (1) to (8), and their classes."""
PAIRS = 3
LAMBS, AUXILIARY_LAMBS = (1.0, 3.0, 10.0, 30.0, 100.0), (0.1, 0.5, 1.0, 5.0, 10.0)


def random_images(classes: int, directory: Path) -> Path:
    """As many classes as the real data has, 30 images each."""
    file = directory / f"random{classes}.npz"
    draw = np.random.RandomState(0)
    for_test = np.arange(classes)
    labels = np.repeat(np.arange(classes), 30)
    np.savez(
        file,
        x_train=draw.randint(0, 256, (len(labels), 32, 32, 3)).astype(np.uint8),
        y_train=labels,
        x_test=draw.randint(0, 256, (len(for_test), 32, 32, 3)).astype(np.uint8),
        y_test=for_test,
    )
    return file


def searched(benchmark: str, file: Path) -> tuple[list[RunSpec], list[str]]:
    """Every run of the paper's two-stage grids, and the methods that are not there yet."""
    specs, absent = [], []
    common = {"data.source": f"arrays:{file}", "data.order": "natural", "threads": 1}
    found = grids(benchmark)
    for method, grid in found.items():
        settings: dict[str, object] = dict(common)
        if grid.setting == "lamb_a":
            settings["lamb"] = found[method.removeprefix("a-")].chosen
        try:
            specs += [
                spec_of(method, benchmark, {**settings, grid.setting: value})
                for value in grid.values
            ]
        except AnclError:
            absent.append(method)
    return specs, absent


def work(nodes: Iterable[Node]) -> int:
    """Images seen, where every training has as many epochs as it may."""
    return sum(node.epochs * node.images for node in nodes)


def plans() -> None:
    print("Epochs (at most) of all grids of a benchmark, seed 0", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        files = {n: random_images(n, Path(directory)) for n in (100, 200)}
        nothing = Store(Path(directory) / "empty")
        for benchmark, classes in BENCHMARKS.items():
            specs, absent = searched(benchmark, files[classes])
            if not specs:
                print(f"{benchmark}: none of its methods can be planned: {', '.join(absent)}")
                continue
            graph = Graph(specs)
            counts = graph.counts(nothing)
            alone, shared = counts["most_epochs"], counts["unique_most_epochs"]
            each = [node for plan in graph.plans for node in plan.values()]
            images = work(each) / work(graph.nodes.values())
            without = f"; not planned: {', '.join(absent)}" if absent else ""
            print(
                f"{benchmark}: {counts['runs']} runs, {alone} epochs without sharing, {shared} "
                f"with it: ratio {alone / shared:.3f}, weighted by images {images:.3f}{without}",
                flush=True,
            )


def small_search() -> list[RunSpec]:
    short = {"training.epochs": 3, "threads": 1}
    plain = [spec_of("lwf", "hard-digits/5", {**short, "lamb": lamb}) for lamb in LAMBS]
    return plain + [
        spec_of("a-lwf", "hard-digits/5", {**short, "lamb": 10.0, "lamb_a": lamb_a})
        for lamb_a in AUXILIARY_LAMBS
    ]


def spec_of(method: str, benchmark: str, settings: Mapping[str, object]) -> RunSpec:
    return resolve(method, benchmark, [Layer("benchmarks/search.py", settings)]).spec


def timed(groups: Iterable[list[RunSpec]]) -> tuple[float, list[float]]:
    """Seconds of computing each group from an empty store, and the scores that would decide."""
    scores, seconds = [], 0.0
    for specs in groups:
        with tempfile.TemporaryDirectory() as directory:
            store = Store(Path(directory))
            began = time.perf_counter()
            graph = Graph(specs)
            assert not Serial().run(graph, store, Events())
            seconds += time.perf_counter() - began
            scores += [
                validation_score(plan, validation_matrix(plan, store)) for plan in graph.plans
            ]
    return seconds, scores


def measured(pairs: int) -> None:
    specs = small_search()
    counts = Graph(specs).counts(Store(Path("does-not-exist")))
    timed([specs[:1]])  # the first training of a process is slow
    ratios = []
    for _ in range(pairs):
        alone, expected = timed([spec] for spec in specs)
        shared, found = timed([specs])
        assert found == expected, "sharing must not change a result"
        ratios.append(alone / shared)
        print(
            f"each run alone {alone:.1f} s, sharing {shared:.1f} s: ratio {alone / shared:.2f}",
            flush=True,
        )
    print(
        f"LwF and A-LwF on hard-digits/5, {len(specs)} runs: median ratio of wall times "
        f"{statistics.median(ratios):.2f} over {pairs} pairs; by the plan "
        f"{counts['most_epochs'] / counts['unique_most_epochs']:.2f}; results identical"
    )


if __name__ == "__main__":
    plans()
    measured(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
