"""The result of an analysis over seeds: tables as CSV, a summary, and one JSON file."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.analysis.context import REFERENCES, AnalysisOptions, Row, Tables
from ancl.errors import StoreError
from ancl.experiments.results import environment
from ancl.files import STAGES, claim, csv_cell, replace_text, write_stages
from ancl.hashing import digest
from ancl.metrics import Estimate, mean_and_error
from ancl.recipe.recipe import RunSpec


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """The analyses of several seeds.

    Args:
        specs: The ANCL variant's run of every seed; every λ_a is in the options.
        options: What was measured.
        tables: Rows of all seeds, by the table's name.
        keys: The stored entries it is made of, so that ``ancl store prune`` keeps them.
        directory: Where it was written, if it was.
        figures: The figures that were drawn.
        seconds: How long it took.
    """

    specs: Sequence[RunSpec]
    options: AnalysisOptions
    tables: Tables
    keys: tuple[str, ...]
    directory: Path | None = None
    figures: tuple[Path, ...] = ()
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Deterministic directory name."""
        spec = self.specs[0]
        specs = [run_spec.plain() for run_spec in self.specs]
        mark = digest([specs, asdict(self.options)])[:8]
        method = "".join(c if c.isalnum() or c in "-_" else "-" for c in spec.method)
        return f"{spec.benchmark.replace('/', '-')}_{method}_{mark}"

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return [spec.seed for spec in self.specs]

    def rows(self, table: str, **wanted: Any) -> list[Row]:
        """The rows of a table that have these values."""
        rows = self.tables.get(table, [])
        return [row for row in rows if all(row[name] == v for name, v in wanted.items())]

    def curve(self, table: str, column: str, **wanted: Any) -> list[Estimate]:
        """Mean and error over seeds for every λ_a of ANCL."""
        return [
            mean_and_error([row[column] for row in self.rows(table, lamb_a=lamb_a, **wanted)])
            for lamb_a in self.options.lamb_as
        ]

    def correlations(self) -> dict[str, Estimate]:
        """Rank correlations over λ_a, one per seed: their mean and error."""
        return rank_correlations(self.tables, self.seeds)

    def json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            **self._content(),
            "directory": self.directory and str(self.directory),
            "figures": [str(path) for path in self.figures],
            "seconds": self.seconds,
        }

    def _content(self) -> dict[str, Any]:
        """What ``result.json`` holds: nothing that changes from one call to the next."""
        spec = self.specs[0]
        return {
            "method": spec.method,
            "benchmark": spec.stream,
            "seeds": self.seeds,
            "lamb": spec.options.get("lamb"),
            "options": asdict(self.options),
            "rank_correlations": {
                name: {"mean": _number(e.mean), "error": _number(e.error), "n": e.n}
                for name, e in self.correlations().items()
            },
            "tables": self.tables,
            "spec": spec.plain(),
            "keys": list(self.keys),
            "environment": environment(spec),
        }

    def place(self, runs: Path, *, overwrite: bool = False) -> Path:
        """The directory it is written to.

        Raises:
            StoreError: It holds files that ancl did not write, and they may not be replaced.
        """
        directory = runs / "analyses" / self.name
        files = [STAGES, "result.json", "figures", *(f"{name}.csv" for name in self.tables)]
        claim(directory, files, [STAGES], overwrite=overwrite)
        return directory

    def write(self, runs: Path, *, overwrite: bool = False) -> Path:
        """Write tables and summary; ``result.json`` comes last, so that it marks a whole one.

        Args:
            runs: Where results go.
            overwrite: Whether files that ancl did not write are replaced.

        Raises:
            StoreError: The directory cannot be written, or holds files that ancl did not write.
        """
        directory = self.place(runs, overwrite=overwrite)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_stages(directory, self.keys)
            for name, rows in self.tables.items():
                replace_text(directory / f"{name}.csv", as_csv(rows))
            replace_text(directory / "result.json", json.dumps(self._content(), indent=1))
        except OSError as error:
            raise StoreError(
                f"The analysis cannot be written to {directory} ({error.strerror}). Make room or "
                f"give another --runs DIR; the same command finds everything computed."
            ) from error
        return directory


def as_csv(rows: Sequence[Row]) -> str:
    """Rows under the names of their columns; a cell without a value is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _number(value: float) -> float | None:
    return value if value == value else None


def rank_correlations(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], seeds: Sequence[int]
) -> dict[str, Estimate]:
    """Rank correlations over λ_a of the tables of an analysis: their mean and error over seeds."""

    def columns(table: str, names: Sequence[str], seed: int) -> list[list[float]]:
        wanted = {"seed": seed, "network": "ancl"} | ({"layer": "mean"} if table == "cka" else {})
        rows = [r for r in tables.get(table, ()) if all(r[k] == v for k, v in wanted.items())]
        return [[row[name] for row in rows] for name in names]

    correlations = {
        f"{table}_{reference}_with_lamb_a": mean_and_error(
            [spearman(*columns(table, ("lamb_a", reference), seed)) for seed in seeds]
        )
        for table in ("distance", "cka")
        for reference in REFERENCES
    }
    correlations["cka_multi_with_mean_accuracy"] = mean_and_error(
        [
            spearman(*columns("cka", ["multi"], seed), *columns("accuracy", ["mean"], seed))
            for seed in seeds
        ]
    )
    return correlations


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; NaN where a list has fewer than two distinct values.

    >>> spearman([1, 10, 100], [0.2, 0.3, 0.9])
    1.0
    """
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    length = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / length if length else math.nan


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks in ascending order from 1; equal values share the mean of their ranks."""
    given = np.asarray(values, dtype=np.float64)
    below = (given[:, None] > given[None, :]).sum(axis=1)
    equal = (given[:, None] == given[None, :]).sum(axis=1)
    result: NDArray[np.float64] = below + (equal + 1) / 2
    return result
