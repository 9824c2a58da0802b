"""Do more images of known classes help, and what happens to those that stay away?

    python benchmarks/again.py [--data-root DIR] [--seeds 0,1,2] [--methods icarl,a-icarl,…]
    python benchmarks/again.py --table

The protocol is docs/evidence/again.md. Every run is a file of docs/evidence/again/results, written
when it is finished; the same command computes those that are missing. ``--table`` prints the tables
of what is there. One thread, about half an hour in all.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ancl
from ancl.checks import checked
from ancl.data.registry import load_source
from ancl.files import read_json, replace_text
from ancl.metrics import mean_and_error, t_interval
from ancl.seeding import generator

RESULTS = Path(__file__).parent.parent / "docs" / "evidence" / "again" / "results"
CLASSES = (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)
"""The first ten of iCaRL's order."""
NEW = (5, 2, 3)
RETURNING = 3
PER_CLASS = 100
OLD_ROWS = {"train_old_rows": True}
HOSTS: dict[str, dict[str, Any]] = {
    "icarl": {"lamb": 0.2},
    "bic": {"lamb": 1.0},
    "wa": {},
    "lucir": {"lamb": 1.0, **OLD_ROWS},
    "podnet": {"lamb": 0.5, **OLD_ROWS},
}
METHODS = [f"{variant}{host}" for host in HOSTS for variant in ("", "a-")]
ARMS = ("with", "without")
GROUPS = ("new", "returning", "absent")
TRAINING = ancl.Training(
    epochs=15,
    epochs_first=30,
    batch_size=50,
    lr=0.05,
    lr_first=0.1,
    weight_decay=5e-4,
    schedule="cosine",
    warmup=0.1,
)


class Month(NamedTuple):
    """What one call of ``learn`` brings.

    Args:
        new: The positions of its new classes.
        returning: Of the known ones that come again.
        known: Of all known before.
    """

    new: tuple[int, ...]
    returning: tuple[int, ...]
    known: tuple[int, ...]

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The classes of each group after it."""
        absent = tuple(each for each in self.known if each not in self.returning)
        return {"new": self.new, "returning": self.returning, "absent": absent}


def months(seed: int) -> list[Month]:
    """The classes of every month: which known ones return is drawn by the seed."""
    found, known = [], 0
    for index, size in enumerate(NEW):
        drawn = torch.randperm(known, generator=generator(seed, "again", index))
        again = tuple(sorted(drawn[:RETURNING].tolist()))
        found.append(Month(tuple(range(known, known + size)), again, tuple(range(known))))
        known += size
    return found


class Images:
    """The images of the ten classes: each coming of a class takes the next hundred of them."""

    def __init__(self, source: Any, seed: int) -> None:
        self._source, self._seed = source, seed
        self._taken = dict.fromkeys(range(len(CLASSES)), 0)

    def next(self, position: int) -> Tensor:
        """Training images that did not come before."""
        own = self._source.train.of_class(CLASSES[position])
        order = torch.randperm(len(own), generator=generator(self._seed, "images", position))
        start = self._taken[position]
        self._taken[position] += PER_CLASS
        assert self._taken[position] <= len(own), "no image comes twice"
        return self._source.train.x[own[order[start : start + PER_CLASS]]]

    def test(self, position: int) -> Tensor:
        """All test images."""
        return self._source.test.x[self._source.test.of_class(CLASSES[position])]


def run(method: str, arm: str, seed: int, source: Any, store: str | None = None) -> dict[str, Any]:
    """The accuracy on each group after each month but the first."""
    host = method.rpartition("-")[2]
    settings = HOSTS[host] | ({"lamb_a": "balance:0.3"} if method != host else {})
    learner = ancl.Learner(
        method,
        "resnet8",
        seed=seed,
        training=TRAINING,
        auxiliary=TRAINING,
        memory=ancl.Memory(per_class=20),
        val_fraction=0.0,
        augment="crop",
        store=store,
        events=ancl.Events(),
        **settings,
    )
    images, after = Images(source, seed), []
    for month in months(seed):
        # The new classes first: they have the same images in both arms.
        parts = {position: images.next(position) for position in month.new}
        if arm == "with":
            parts |= {position: images.next(position) for position in month.returning}
        labels = [position for position, each in parts.items() for _ in range(len(each))]
        learner.learn(torch.cat([*parts.values()]), labels)
        if month.known:
            after.append(
                {name: _accuracy(learner, images, of) for name, of in month.groups.items()}
            )
    return {"method": method, "arm": arm, "seed": seed, "settings": settings, "after": after}


def _accuracy(learner: Any, images: Images, classes: Sequence[int]) -> float:
    """The share of right answers among all classes learned so far; classes count the same."""
    return sum(learner.evaluate(images.test(n), [n] * len(images.test(n))) for n in classes) / len(
        classes
    )


def place(method: str, arm: str, seed: int) -> Path:
    return RESULTS / f"{method}_{arm}_s{seed}.json"


def wanted() -> dict[str, Any]:
    """What decides a run besides its name: a file of another protocol is not taken for it."""
    return {"classes": CLASSES, "new": NEW, "returning": RETURNING, "per_class": PER_CLASS}


def read(path: Path) -> dict[str, Any] | None:
    """The run of a file; nothing where there is none of this protocol."""
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = checked(dict[str, Any], read_json(path))
        found["after"] = checked(list[dict[str, float]], found["after"])
        same = found["protocol"] == json.loads(json.dumps(wanted()))
    except (OSError, ValueError, LookupError) as error:
        raise SystemExit(f"{path} is damaged ({error}). Delete it to run it again.") from error
    return found if same else None


def compute(methods: Sequence[str], seeds: Sequence[int], data_root: str | None) -> None:
    """Every run that is missing."""
    torch.set_num_threads(1)
    source = load_source("cifar100-16", Path(data_root) if data_root else None)
    RESULTS.mkdir(parents=True, exist_ok=True)
    todo = [(m, a, s) for s in seeds for m in methods for a in ARMS if not read(place(m, a, s))]
    known = {"protocol": wanted(), "torch": torch.__version__}
    with TemporaryDirectory() as store:  # arms and variants share the first month
        for number, (method, arm, seed) in enumerate(todo, start=1):
            found = run(method, arm, seed, source, store) | known
            path = place(method, arm, seed)
            replace_text(path, json.dumps(found, indent=1) + "\n")
            shown = json.dumps(found["after"])
            print(f"{number}/{len(todo)} {path.name}: {shown}", file=sys.stderr, flush=True)


def table() -> str:
    """Both tables as Markdown, of the runs that are there."""
    runs = {
        (r["method"], r["arm"], r["seed"]): r
        for p in sorted(RESULTS.glob("*.json"))
        if (r := read(p))
    }
    parts = []
    for month in range(len(NEW) - 1):
        head = ["method", *(f"{group}, {arm}" for group in GROUPS for arm in ARMS)]
        head += [f"{group}: difference" for group in GROUPS]
        rows = [row for method in METHODS if (row := _row(runs, method, month))]
        rows += [row for name in ("plain", "ANCL") if (row := _means(runs, name, month))]
        lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
        title = f"### After month {month + 2}, in %"
        parts.append("\n".join([title, "", *(f"| {line} |" for line in lines), ""]))
    return "\n".join(parts)


def _row(runs: dict[Any, Any], method: str, month: int) -> list[str]:
    """Means over seeds ± standard error, and paired differences with their 95 % interval."""
    seeds = [s for m, a, s in runs if m == method and a == "with" and (m, "without", s) in runs]
    if not seeds:
        return []
    values = {
        (group, arm): [100 * runs[method, arm, seed]["after"][month][group] for seed in seeds]
        for group in GROUPS
        for arm in ARMS
    }
    cells = [_estimate(values[group, arm]) for group in GROUPS for arm in ARMS]
    gaps = [
        t_interval([a - b for a, b in zip(*(values[group, arm] for arm in ARMS), strict=True)])
        for group in GROUPS
    ]
    return [f"{method} (n = {len(seeds)})", *cells, *(_interval(gap) for gap in gaps)]


def _means(runs: dict[Any, Any], kind: str, month: int) -> list[str]:
    """The mean over methods for each seed, whose differences are then compared over seeds."""
    names = [m for m in METHODS if m.startswith("a-") == (kind == "ANCL")]
    seeds = {s for _, _, s in runs}
    whole = [s for s in sorted(seeds) if all((m, a, s) in runs for m in names for a in ARMS)]
    if not whole:
        return []

    def mean(arm: str, seed: int, after: int, group: str) -> float:
        return sum(runs[m, arm, seed]["after"][after][group] for m in names) / len(names)

    made = {
        (kind, arm, seed): {
            "after": [{g: mean(arm, seed, i, g) for g in GROUPS} for i in range(len(NEW) - 1)]
        }
        for arm in ARMS
        for seed in whole
    }
    row = _row(made, kind, month)
    return [f"mean of {len(names)} {kind} methods (n = {len(whole)})", *row[1:]]


def _estimate(values: Sequence[float]) -> str:
    mean, error, _ = mean_and_error(values)
    return f"{mean:.1f}" if math.isnan(error) else f"{mean:.1f} ± {error:.1f}"


def _interval(found: Any) -> str:
    if math.isnan(found.low):
        return f"{found.mean:+.1f}"
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--table", action="store_true", help="print the tables of what is there")
    given = parser.parse_args()
    if not given.table:
        seeds = [int(seed) for seed in given.seeds.split(",")]
        compute(given.methods.split(","), seeds, given.data_root)
    print(table())


if __name__ == "__main__":
    main()
