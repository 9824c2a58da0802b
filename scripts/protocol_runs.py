"""What the scripts of the evidence share: results as small files, and one run after another.

A protocol names its runs; a run whose file is there is not computed again. A study file of ``ancl
study`` does the same where it can say the protocol.
"""

import argparse
import fcntl
import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

import ancl
from ancl.errors import TrainingError
from ancl.experiments.results import environment
from ancl.metrics import Interval, aac, aiac
from ancl.recipe.build import images_per_epoch, validation_weights
from ancl.training.cost import Cost

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
Stored = dict[str, Any]


class Run(Protocol):
    """One run of a protocol."""

    @property
    def spec(self) -> ancl.RunSpec:
        """Everything that decides it."""

    @property
    def plain(self) -> Mapping[str, Any]:
        """The same as a file holds it: equal on every machine."""

    @property
    def file(self) -> str:
        """The name of its result."""


AnyRun = TypeVar("AnyRun", bound=Run)


class ResultFiles:
    """Finished runs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, run: Run) -> Stored | None:
        """What is stored of a run; nothing where it is not done."""
        file = self.folder / run.file
        if not file.is_file():
            return None
        stored: Stored = json.loads(file.read_text())
        if stored["spec"] != run.plain:
            raise SystemExit(f"{file} is of another run. Move it.")
        return stored

    def write(self, run: Run, stored: Mapping[str, Any]) -> None:
        """Write a result, whole or not at all."""
        file = self.folder / run.file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in stored.items()]
        temporary = file.with_suffix(f".{os.getpid()}.part")
        temporary.write_text("{" + ",\n".join(lines) + "}\n")
        temporary.replace(file)

    def scores(self, runs: Iterable[Run]) -> list[float]:
        """Validation accuracies of the runs that are done; failed ones have NaN."""
        done = [stored for run in runs if (stored := self.get(run))]
        return [math.nan if stored["failed"] else stored["score"] for stored in done]


def best_value(tried: Mapping[float, Sequence[float]], seeds: int) -> float | None:
    """The value with the best mean score, the smallest of equals; nothing while runs are missing.

    Args:
        tried: The scores of every value, one for each seed; ascending.
        seeds: How many there will be.
    """
    if any(len(scores) < seeds for scores in tried.values()):
        return None
    # Sums of equal counts may differ in their last bit.
    means = {value: round(float(np.mean(scores)), 9) for value, scores in tried.items()}
    finite = {value: mean for value, mean in means.items() if math.isfinite(mean)}
    return max(finite, key=lambda value: finite[value]) if finite else None


def passes(log: Iterable[Mapping[str, Any]], per_epoch: Sequence[Sequence[int]]) -> dict[str, int]:
    """Backward passes of images by network, counted from the epochs that were trained.

    Args:
        log: The epochs of a result.
        per_epoch: For every task, the images of an epoch of the main and of the auxiliary network.
    """
    counted = {"main": 0, "auxiliary": 0}
    for epoch in log:
        if epoch["role"] in counted:
            counted[epoch["role"]] += per_epoch[epoch["task"]][epoch["role"] == "auxiliary"]
    return counted


def flops(costs: Mapping[str, Cost]) -> dict[str, float]:
    """Floating-point operations by network, counted while it was trained."""
    roles = ("main", "auxiliary")
    return {r: sum(c.flops for name, c in costs.items() if name.split()[0] == r) for r in roles}


def commit() -> str:
    """The commit of the code, marked where files were changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    changed = [*git, "status", "--porcelain", "--", "src", "scripts"]
    dirty = subprocess.run(changed, capture_output=True, text=True, check=True).stdout.strip()
    return head.stdout.strip() + (" with changes" if dirty else "")


def compute(
    run: Run,
    work: Path,
    data_root: str | None,
    named: Mapping[str, Any],
    images: Sequence[Sequence[int]] | None = None,
) -> tuple[Stored, ancl.RunResult | None]:
    """Carry out a run; what was trained before it was stopped is found in ``work``.

    Args:
        run: Which one.
        work: Where it is trained.
        data_root: Where data sets are.
        named: What else is stored of it: its table, its row.
        images: Training, validation and test images of every task, where the protocol says them.

    Returns:
        What every script stores of it, and the result; none where the training failed.
    """
    spec = run.spec
    stored = {
        **named,
        "spec": run.plain,
        "commit": commit(),
        "environment": environment(spec),
        "failed": "",
    }
    try:
        result = ancl.run(spec, runs=work, data_root=data_root)
    except TrainingError as error:
        return {**stored, "failed": str(error)}, None
    if images is not None and list(result.images) != images:
        raise SystemExit(f"The tasks have {result.images} images; the protocol says {images}.")
    val = result.matrices[f"{spec.accuracy}_val"]
    weights = validation_weights(spec, result.images)
    return {
        **stored,
        "score": float(aac(val) if spec.task_aware else aiac(val, weights)),
        "metrics": {k: None if math.isnan(v) else v for k, v in result.metrics.items()},
        "passes": passes(result.log, images_per_epoch(spec, result.images)),
        "flops": flops(result.costs),
        "seconds": round(sum(result.seconds.values()), 1),
        "notes": list(result.notes),
        "images": result.images,
    }, result


def matrices(result: ancl.RunResult, prefix: str = "") -> dict[str, list[list[float | None]]]:
    """Accuracies of every task after every task, by matrix, rounded; none where not measured."""
    return {
        name: [[None if math.isnan(v) else round(v, 6) for v in row] for row in matrix.tolist()]
        for name, matrix in result.matrices.items()
        if name.startswith(prefix)
    }


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """Whether this process holds a lock; the system frees it if its holder dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def carry_out(
    results: ResultFiles,
    work: Path,
    steps: Iterable[tuple[str, Sequence[AnyRun]]],
    compute: Callable[[AnyRun, Path], Mapping[str, Any]],
    wait: float = 5.0,
) -> None:
    """Compute all that is missing, in order; other processes may take a part of it.

    Args:
        results: What is done.
        work: Where runs are trained.
        steps: Names of folders, each with runs that share their first stages; nothing else reads
            these, and they are removed behind them. Who asks for the next has finished the last.
        compute: From a run and its folder to what is stored of it.
        wait: Seconds between two looks at runs that another process has taken.
    """
    for name, runs in steps:
        while missing := [run for run in runs if results.get(run) is None]:
            taken = [take(results, work, name, run, compute) for run in missing]
            if not any(taken):
                time.sleep(wait)
        shutil.rmtree(work / name, ignore_errors=True)


def take(
    results: ResultFiles,
    work: Path,
    name: str,
    run: AnyRun,
    compute: Callable[[AnyRun, Path], Mapping[str, Any]],
) -> bool:
    """Compute a run, unless another process is at it or has done it; whether this one did."""
    with claimed(work / "locks" / f"{run.file}.lock") as ours:
        if not ours or results.get(run) is not None:
            return False
        began = time.monotonic()
        stored = compute(run, work / name)
        results.write(run, stored)
        took, when = time.monotonic() - began, time.strftime("%F %T")
        print(when, run.file, f"{took:.0f} s", stored["failed"], flush=True)
        return True


def show(interval: Interval | None) -> str:
    """A difference as a table says it."""
    if interval is None:
        return "–"
    if interval.n == 1:
        return f"{interval.mean:+.2f} (n=1)"
    return f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}] (n={interval.n})"


def fill_tables(pages: Iterable[Path], tables: Mapping[str, str]) -> None:
    """Replace every table of these pages by one of today's results.

    Args:
        pages: With lines <!-- table: NAME --> before a table and <!-- end --> behind it.
        tables: By name, in Markdown.
    """
    for page in pages:
        text = re.sub(
            r"(<!-- table: ([\w-]+) -->\n).*?(\n<!-- end -->)",
            lambda match: f"{match[1]}{tables[match[2]] or 'Not run yet.'}{match[3]}",
            page.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        page.write_text(text, encoding="utf-8")


def publish(name: str, results: ResultFiles, tables: Mapping[str, str]) -> None:
    """Fill the page with the tables of the committed results; print those of any others.

    Args:
        name: The name of the page and of its folder.
        results: What the tables were made of.
        tables: By name, in Markdown.
    """
    if results.folder.resolve() == results_of(name):
        fill_tables([EVIDENCE / f"{name}.md"], tables)
    else:
        print("\n".join(f"\n{table}\n{text}" for table, text in tables.items()))


def results_of(name: str) -> Path:
    """The folder of the committed results of a page."""
    return EVIDENCE / name / "results"


def parser_of(about: str, name: str) -> argparse.ArgumentParser:
    """The flags that all of these scripts have.

    Args:
        about: The script's docstring.
        name: The folder of its evidence.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="show what is left, and stop")
    parser.add_argument("--tables", action="store_true", help="train nothing: tables")
    parser.add_argument("--data-root", help="where data sets are")
    told = "where results are; tables of other results touch no page"
    parser.add_argument("--results", type=Path, default=results_of(name), help=told)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / name)
    return parser
