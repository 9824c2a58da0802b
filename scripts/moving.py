"""Pretrained networks that move: the runs and tables of docs/evidence/moving.md.

Run:  python scripts/moving.py --data-root DIR   # in a fixed order; the same command resumes
      python scripts/moving.py --part rates      # the tables of rates alone; also: lite0, vit
      python scripts/moving.py --dry-run         # runs to do
      python scripts/moving.py --tables          # tables from the results alone
      python scripts/moving.py --smoke           # every row, tiny: does it work? nothing is kept

Every finished run is a small file in docs/evidence/moving/results. Runs of the transformer need
timm and --weights FILE; the others do without both.
"""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from protocol_runs import (
    ROOT,
    ResultFiles,
    Stored,
    best_value,
    carry_out,
    compute,
    parser_of,
    publish,
    show,
)

import ancl
from ancl.data import class_order
from ancl.experiments.results import spec_hash
from ancl.hashing import digest
from ancl.metrics import t_interval

FOLDER = ROOT / "docs" / "evidence" / "moving"
SEARCH_SEED = 10
SEEDS = (20, 21, 22)
LAMBS = (400.0, 4000.0)
BALANCE = "balance:0.1"
MACHINE = {"device": "cpu", "threads": 1}

# -- rates: how fast may pretrained weights learn? -------------------------------------------

PAIRS = ((0.03, 1.0), (0.01, 1.0), (0.003, 1.0), (0.1, 0.1), (0.03, 0.1), (0.01, 0.1), (0.01, 0.01))
RATES: dict[str, dict[str, Any]] = {
    "before": {
        "training.lr": 0.1,
        "training.backbone_factor": 1.0,
        "network.norms": "moving",
        "data.augment": "none",
    },
    **{
        f"{rate:g} x {factor:g}": {"training.lr": rate, "training.backbone_factor": factor}
        for rate, factor in PAIRS
    },
    **{
        f"{trains}, 0.01 x 0.3": {
            "training.lr": 0.01,
            "training.backbone_factor": 0.3,
            "network.trains": trains,
        }
        for trains in ("affine", "adapter")
    },
    "head, 0.01": {"training.lr": 0.01, "network.trains": "head"},
    "0.01 x 0.1, clip 1": {
        "training.lr": 0.01,
        "training.backbone_factor": 0.1,
        "training.clip": 1.0,
    },
    **{
        f"but embedding, 0.01 x {factor:g}{', clip 1' if clip else ''}": {
            "training.lr": 0.01,
            "training.backbone_factor": factor,
            "training.clip": clip,
            "network.trains": "blocks,norm",
        }
        for factor, clip in ((0.1, None), (0.01, None), (0.1, 1.0))
    },
}
"""Rows: rate of the head x factor of the backbone; ``before`` is how it was trained until now."""
FROZEN = ("ncm", "slda")
BUT_EMBEDDING = tuple(row for row in RATES if row.startswith("but embedding"))
COMPUTED = {
    f"{row}, slda": row
    for row in (
        "0.01 x 0.1",
        "0.01 x 0.01",
        "adapter, 0.01 x 0.3",
        "0.01 x 0.1, clip 1",
        *BUT_EMBEDDING,
    )
}
"""Rows that are trained as another one, and the discriminant of their features answers."""
RATES |= {row: {**RATES[trained], "classifier": "slda"} for row, trained in COMPUTED.items()}
RATES = {row: {"network.trains": "all", **settings} for row, settings in RATES.items()}
OF_THE_TRANSFORMER = (
    "0.01 x 0.01",
    "head, 0.01",
    "0.01 x 0.1, clip 1",
    *BUT_EMBEDDING,
    *COMPUTED,
)
UNDECIDED = (
    "head, 0.01",
    *(f"{row}{end}" for row in BUT_EMBEDDING[:2] for end in ("", ", slda")),
    "adapter, 0.01 x 0.3, slda",
)
"""Rows that were no more than two points below the frozen classifier on the first classes, and the
head alone."""
RATE_DATA = {
    "data.source": "tinyimagenet",
    "data.scenario": "cil",
    "data.tasks": 1,
    "data.size": 96,
    "data.per_class": 40,
    "data.test_per_class": 50,
    **MACHINE,
}
VIT = {"network.name": "timm:vit_small_patch14_dinov2", "data.size": 112}
RATE_NETWORKS: dict[str, dict[str, Any]] = {
    "rates": {"network.name": "efficientnet_lite0"},
    "rates-vit": VIT,
}
"""The tables of rates, and the network of each."""
RATE_ROWS = {
    "rates": tuple(row for row in RATES if row not in OF_THE_TRANSFORMER),
    "rates-vit": tuple(row for row in RATES if not row.startswith("affine")),
}
RATE_TRAINING = {
    "training.epochs": 4,
    "training.schedule": "cosine",
    "training.batch_size": 32,
    "training.lr_first": None,
}

# -- moving backbones ------------------------------------------------------------------------

STREAM = {
    "data.source": "cifar100",
    "data.scenario": "cil",
    "data.tasks": 5,
    "data.per_class": 50,
    "data.test_per_class": 50,
    **MACHINE,
}
TRAINING = {"training.schedule": "cosine", "training.batch_size": 32}
CLASSES = 40
CLASSIFIER = "slda"
ROWS = {
    "frozen": "frozen",
    "first": "first session",
    "finetune": "fine-tuned",
    "lfl": "LFL to old",
    "a-lfl": "A-LFL",
    "connector": "connector",
}
METHODS = {"frozen": CLASSIFIER, "first": "freeze"}
"""The method of a row, where it has another name."""
STILL = ("frozen", "first")
"""Rows whose statistics need not follow: nothing moves after the first task."""


@dataclass(frozen=True)
class Backbone:
    """What moves.

    Args:
        network: Settings of the network and its images.
        epochs: Of every task.
        seeds: Of the table.
        grid: Values of λ that are tried; the first where it is one.
    """

    network: Mapping[str, Any]
    epochs: int
    seeds: Sequence[int] = SEEDS
    grid: Sequence[float] = LAMBS


LITE0 = {"network.name": "efficientnet_lite0", "data.size": 128}
BACKBONES = {
    "lite0-affine": Backbone({**LITE0, "network.trains": "affine"}, 4),
    "lite0-last": Backbone({**LITE0, "network.trains": "last"}, 4),
    "vit-adapter": Backbone({**VIT, "network.trains": "adapter"}, 3, SEEDS[:1], LAMBS[:1]),
}
PARTS = ("rates", "lite0", "vit")


@dataclass(frozen=True)
class Task:
    """One run to do: the table it is of, its row, whether statistics follow, and its spec."""

    table: str
    row: str
    transport: bool
    spec: ancl.RunSpec

    @property
    def file(self) -> str:
        """The name of its result."""
        row = self.row.replace(" ", "").replace(",", "-")
        kind = "" if self.transport else "-stale"
        return f"{self.table}_{row}{kind}_s{self.spec.seed}_{self.mark}.json"

    @property
    def mark(self) -> str:
        """What tells its settings from others; a file of weights counts by its name."""
        if not self.plain["network"].get("weights"):
            return spec_hash(self.spec)[:8]
        return digest(self.plain)[:8]

    @property
    def plain(self) -> dict[str, Any]:
        """Everything that decides it, as a file holds it: the same on every machine."""
        settings: dict[str, Any] = json.loads(json.dumps(self.spec.plain()))
        if weights := settings["network"].get("weights"):
            settings["network"]["weights"] = Path(weights).name
        return settings


@dataclass(frozen=True)
class Scale:
    """How large runs are: as the protocol says, or tiny."""

    smoke: bool = False
    weights: str | None = None

    def settings(self, given: Mapping[str, Any], classes: int, seed: int) -> dict[str, Any]:
        """Settings with the classes of a seed."""
        known = 200 if given["data.source"] == "tinyimagenet" else 100
        own = {**given, "data.order": class_order(f"seed:{seed}", known)[:classes]}
        if self.weights and str(own["network.name"]).startswith("timm:"):
            own["network.weights"] = self.weights
        if not self.smoke:
            return own
        tasks = min(2, own["data.tasks"])
        order = own["data.order"][: 2 * tasks]
        tiny = {"data.size": 28, "data.per_class": 8, "data.test_per_class": 4}
        epochs = {"training.epochs": 1} if "training.epochs" in own else {}
        return {**own, **tiny, **epochs, "data.order": order, "data.tasks": tasks}


def rate_task(row: str, seed: int, scale: Scale, table: str = "rates") -> Task:
    """One rate, or a classifier on frozen features, on the ten classes of a seed."""
    method, own = row, {**RATE_DATA, **RATE_NETWORKS[table]}
    if row not in FROZEN:
        method, own = "finetune", {**own, **RATE_TRAINING, **RATES[row]}
    spec = ancl.spec(method, None, seed=seed, settings=scale.settings(own, 10, seed))
    return Task(table, row, True, spec)


def rate_tasks(table: str, scale: Scale) -> list[Task]:
    """Every run of a table of rates, seed by seed; none of a network without its weights.

    Rows that may still be recommended come before those that the first classes have decided.
    """
    if table != "rates" and scale.weights is None:
        return []
    seeds = SEEDS[: 1 if scale.smoke else None]
    first = {*FROZEN, *UNDECIDED}
    rows = (*FROZEN, *RATE_ROWS[table])
    in_order = ([r for r in rows if r in first], [r for r in rows if r not in first])
    return [
        rate_task(row, seed, scale, table) for part in in_order for seed in seeds for row in part
    ]


def make_task(table: str, row: str, seed: int, lamb: float, transport: bool, scale: Scale) -> Task:
    """A run of a table of moving backbones."""
    backbone, method = BACKBONES[table], METHODS.get(row, row)
    own: dict[str, Any] = {**STREAM, **backbone.network}
    if row == "frozen":
        del own["network.trains"]
    else:
        own |= {**TRAINING, "training.epochs": backbone.epochs, "classifier": CLASSIFIER}
    if row not in STILL:
        own["transport"] = transport
    if row in ("lfl", "a-lfl"):
        own["lamb"] = lamb
    if row == "a-lfl":
        own["lamb_a"] = BALANCE
    spec = ancl.spec(method, None, seed=seed, settings=scale.settings(own, CLASSES, seed))
    return Task(table, row, transport, spec)


class Results(ResultFiles):
    """Finished runs, and what they decide."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        super().__init__(folder)
        self.scale = scale

    def searched(self, table: str) -> list[Task]:
        """The trials of λ, by validation accuracy of LFL with transport."""
        grid = BACKBONES[table].grid
        if len(grid) == 1:
            return []
        return [make_task(table, "lfl", SEARCH_SEED, lamb, True, self.scale) for lamb in grid]

    def lamb(self, table: str) -> float | None:
        """λ of LFL, the smallest of equals; nothing while runs are missing."""
        tasks, grid = self.searched(table), BACKBONES[table].grid
        if not tasks:
            return grid[0]
        tried = zip(grid, tasks, strict=True)
        return best_value({value: self.scores([task]) for value, task in tried}, 1)

    def done(self, table: str) -> dict[tuple[str, bool], dict[int, Stored]]:
        """Finished runs of a table, by row and whether statistics follow, and by seed.

        They are known by what their files say: no weights and no library is needed.
        """
        lamb = self.lamb(table) if table in BACKBONES else None
        runs: dict[tuple[str, bool], dict[int, Stored]] = {}
        for file in sorted(self.folder.glob(f"{table}_*.json")):
            stored: Stored = json.loads(file.read_text())
            seed, tried = stored["spec"]["seed"], stored["spec"]["options"].get("lamb", lamb)
            if seed in SEEDS and tried == lamb and not stored["failed"]:
                runs.setdefault((stored["row"], stored["transport"]), {})[seed] = stored
        return runs

    def table(self, table: str, lamb: float) -> list[Task]:
        """Every run of a table."""
        return [
            make_task(table, row, seed, lamb, transport, self.scale)
            for seed in BACKBONES[table].seeds[: 1 if self.scale.smoke else None]
            for row in ROWS
            for transport in ((True,) if row in STILL else (True, False))
        ]


def steps(results: Results, parts: Sequence[str]) -> Iterator[tuple[str, list[Task]]]:
    """Runs of one table and seed at a time, in the order of the protocol.

    Whoever asks for the next list has finished the last.
    """
    for tasks in _in_order(results, parts):
        for seed, of_seed in groupby(tasks, key=lambda task: task.spec.seed):
            yield f"{tasks[0].table}-s{seed}", list(of_seed)


def _in_order(results: Results, parts: Sequence[str]) -> Iterator[list[Task]]:
    if "rates" in parts:
        for table in RATE_NETWORKS:
            yield rate_tasks(table, results.scale)
    for table in BACKBONES:
        part = table.partition("-")[0]
        if part not in parts or (part == "vit" and results.scale.weights is None):
            continue
        yield results.searched(table)
        lamb = results.lamb(table)
        if lamb is not None:
            yield results.table(table, lamb)


def carry_out_task(task: Task, work: Path, data_root: str | None) -> Stored:
    """What is stored of a run, after it was carried out."""
    named = {"table": task.table, "row": task.row, "transport": task.transport}
    stored, result = compute(task, work, data_root, named)
    return {**stored, "drifts": [drift.json() for drift in result.drifts]} if result else stored


# -- tables ----------------------------------------------------------------------------------


def rate_lines(results: Results, table: str = "rates") -> Iterator[str]:
    """Test accuracy of every rate on the classes of every seed, the frozen classifiers beside."""
    runs = results.done(table)
    if not runs:
        return
    yield (
        "| rate of the head x factor of the backbone | "
        + " | ".join([*(f"classes {seed}" for seed in SEEDS), "mean"])
        + " |"
    )
    yield "|" + "---|" * (len(SEEDS) + 2)
    for row in (*FROZEN, *RATE_ROWS[table]):
        by_seed = runs.get((row, True), {})
        if not by_seed:
            continue
        values = {seed: 100 * run["metrics"]["final_accuracy"] for seed, run in by_seed.items()}
        cells = [f"{values[seed]:.1f}" if seed in values else "" for seed in SEEDS]
        cells += [f"{np.mean([*values.values()]):.1f}" if len(values) == len(SEEDS) else ""]
        yield f"| {row} | {' | '.join(cells)} |"


def table_lines(results: Results, table: str) -> Iterator[str]:
    """Accuracy after the last task and over tasks, drift and backward passes of every row."""
    runs = results.done(table)
    if not runs:
        return
    yield f"λ = {results.lamb(table):g}:\n"
    head = ("row", "statistics", "seeds", "final accuracy", "mean over tasks", "moved", "residual")
    yield f"| {' | '.join((*head, 'backward passes'))} |"
    yield "|" + "---|" * (len(head) + 1)
    for row, transport in ((row, transport) for row in ROWS for transport in (True, False)):
        by_seed = [*runs.get((row, transport), {}).values()]
        if not by_seed:
            continue
        statistics = "exact" if row in STILL else "transported" if transport else "as they were"
        numbers = [_spread([100 * run["metrics"][m] for run in by_seed]) for m in _METRICS]
        drifts = [drift for run in by_seed for drift in run["drifts"]]
        for name in ("moved", "residual"):
            numbers.append(f"{np.mean([d[name] for d in drifts]):.3g}" if drifts else "–")
        total = np.mean([sum(run["passes"].values()) for run in by_seed])
        cells = [ROWS[row], statistics, str(len(by_seed)), *numbers, f"{total:,.0f}"]
        yield f"| {' | '.join(cells)} |"


_METRICS = ("final_accuracy", "aiac")


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}"
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {error:.1f}"


ONE_IMAGE = 100 / (CLASSES * STREAM["data.test_per_class"])
"""Of the test images, in points: no difference is finer."""
Kind = tuple[str, bool]
"""A row, and whether its statistics follow."""
GAPS: tuple[tuple[Kind, Kind], ...] = (
    (("a-lfl", True), ("lfl", True)),
    (("a-lfl", True), ("connector", True)),
    (("a-lfl", True), ("finetune", True)),
    (("a-lfl", True), ("first", True)),
    (("a-lfl", True), ("frozen", True)),
    (("lfl", True), ("frozen", True)),
    (("lfl", True), ("finetune", True)),
    (("finetune", True), ("finetune", False)),
    (("lfl", True), ("lfl", False)),
)
"""Differences that are shown; the first one is the primary number."""


def gap_lines(results: Results) -> Iterator[str]:
    """Differences of final accuracy of each network, and of their mean, paired by seed."""
    runs = {name: results.done(name) for name in BACKBONES if name.startswith("lite0")}
    names = [f"`{name.removeprefix('lite0-')}`" for name in runs]
    yield f"| difference | {' | '.join(names)} | both |"
    yield "|---" + "|---:" * (len(runs) + 1) + "|"
    for ours, other in GAPS:
        gaps = [_gaps(of_network, ours, other) for of_network in runs.values()]
        shared = [seed for seed in SEEDS if all(seed in by_seed for by_seed in gaps)]
        both = [float(np.mean([by_seed[seed] for by_seed in gaps])) for seed in shared]
        values = [[*by_seed.values()] for by_seed in gaps] + [both]
        cells = [show(t_interval(points, ONE_IMAGE) if points else None) for points in values]
        yield f"| {_kind(ours, other)} − {_kind(other, ours)} | {' | '.join(cells)} |"


def _gaps(runs: Mapping[Kind, Mapping[int, Stored]], ours: Kind, other: Kind) -> dict[int, float]:
    a, b = (
        {s: r["metrics"]["final_accuracy"] for s, r in runs.get(k, {}).items()}
        for k in (ours, other)
    )
    return {seed: 100 * (a[seed] - b[seed]) for seed in SEEDS if seed in a and seed in b}


def _kind(kind: Kind, beside: Kind) -> str:
    """A row's name; with its statistics, where these alone are compared."""
    row, transport = kind
    if row != beside[0]:
        return ROWS[row]
    return f"{ROWS[row]}, {'transported' if transport else 'as they were'}"


def main() -> None:
    """Read the command line and do what it says."""
    parser = parser_of(__doc__, "moving")
    parser.add_argument("--part", choices=PARTS, action="append", help="this alone")
    parser.add_argument("--smoke", action="store_true", help="tiny runs of every row; not kept")
    parser.add_argument("--weights", help="the file of the transformer's weights")
    given = parser.parse_args()
    parts = given.part or PARTS
    computing = partial(carry_out_task, data_root=given.data_root)
    if given.smoke:
        with tempfile.TemporaryDirectory() as place:
            results = Results(Path(place) / "results", Scale(True, given.weights))
            carry_out(results, Path(place) / "work", steps(results, parts), computing)
            print("\n".join(f"\n{name}\n{table}" for name, table in tables(results).items()))
        return
    results = Results(given.results, Scale(weights=given.weights))
    if given.tables:
        publish("moving", results, tables(results))
    elif given.dry_run:
        for _, tasks in steps(results, parts):
            print("".join(f"{task.file}\n" for task in tasks if results.get(task) is None), end="")
    else:
        carry_out(results, given.work, steps(results, parts), computing)


def tables(results: Results) -> dict[str, str]:
    """Every table of the page, by its name there."""
    lines = {
        **{table: rate_lines(results, table) for table in RATE_NETWORKS},
        **{table: table_lines(results, table) for table in BACKBONES},
        "gaps": gap_lines(results),
    }
    return {name: "\n".join(of_table) for name, of_table in lines.items()}


if __name__ == "__main__":
    main()
