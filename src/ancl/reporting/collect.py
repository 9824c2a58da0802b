"""Stored results read from disk: whole ones to report, damaged ones to list."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ancl.errors import StoreError
from ancl.experiments.read_results import DECISION, read_json, read_run, read_search
from ancl.experiments.results import Damaged, Finished
from ancl.metrics import ROUNDED

_MARKS = ("spec.yaml", "result.json")


class Document(NamedTuple):
    """The JSON of a search or an analysis, and the name of its directory."""

    name: str
    content: dict[str, Any]


@dataclass
class Collected:
    """Everything a report is made of; ``baseline`` are the runs that comparisons name as theirs."""

    runs: list[Finished] = field(default_factory=list)
    searches: list[Document] = field(default_factory=list)
    analyses: list[Document] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    baseline: list[Path] = field(default_factory=list)


def collect(paths: Sequence[Path]) -> Collected:
    """Read the results at each path.

    Args:
        paths: Directories of runs, searches and analyses, JSON files of comparisons, or
            directories that contain any of these.

    Raises:
        StoreError: A path does not exist.
    """
    collected = Collected()
    for path in paths:
        if path.is_file() and path.suffix == ".json":
            collected.baseline += _comparison_runs(path, baseline=True)
            stream = str(read_json(path).get("benchmark"))
            collected.searches += searches_on(path.resolve().parent.parent, stream)
    for directory in dict.fromkeys(inner for path in paths for inner in _directories(path)):
        try:
            if (directory / DECISION).is_file():
                collected.searches.append(Document(directory.name, read_search(directory)))
            elif _is_analysis(directory):
                collected.analyses += _analysis(directory)
            else:
                collected.runs.append(_run(directory, collected.damaged))
        except StoreError as error:
            collected.damaged.append(Damaged(directory, str(error)))
    return collected


def searches_on(runs: Path, stream: str) -> list[Document]:
    """Whole searches below a directory of runs, on one stream: they may have chosen runs' λ."""
    documents = []
    for file in sorted((runs / "searches").glob(f"*/{DECISION}")):
        with suppress(StoreError):  # it is reported where it is asked for
            content = read_search(file.parent)
            documents += [Document(file.parent.name, content)] * (content["benchmark"] == stream)
    return documents


def from_results(finished: Iterable[Finished], baseline: Sequence[Path] = ()) -> Collected:
    """Finished runs, without reading them again."""
    collected = Collected(baseline=list(baseline))
    collected.runs = [
        run._replace(environment=_environment(run.directory, collected.damaged)) for run in finished
    ]
    return collected


def _directories(path: Path) -> Iterator[Path]:
    if path.is_file() and path.suffix == ".json":
        yield from _comparison_runs(path)
    elif not path.is_dir():
        raise StoreError(
            f"{path} does not exist. Give run directories, a file of runs/comparisons, or a "
            f"directory that contains them (--runs DIR)."
        )
    elif _has_results(path):
        yield path
    else:
        inner = (p for p in sorted(path.iterdir()) if p.is_dir() and not p.name.startswith("."))
        for directory in inner:
            yield from _directories(directory)


def _has_results(path: Path) -> bool:
    return any((path / name).is_file() for name in (*_MARKS, DECISION))


def _comparison_runs(path: Path, *, baseline: bool = False) -> list[Path]:
    """The run directories a comparison names: as they are, or beside the comparison."""
    content = read_json(path)
    try:
        rows = content["methods"]
        wanted = [content["baseline"]] if baseline and "baseline" in content else []
        names = [name for name in (wanted if baseline else rows) if name in rows]
        named = [Path(run) for name in names for run in rows[name]["runs"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"{path} is not a whole comparison: {error!r}.") from error
    beside = path.resolve().parent.parent
    return [run if run.is_dir() else beside / run.name for run in named]


def _is_analysis(directory: Path) -> bool:
    """Whether it is an analysis, which has a result but no ``spec.yaml``."""
    return not (directory / "spec.yaml").is_file() and directory.parent.name == "analyses"


def _analysis(directory: Path) -> list[Document]:
    content = read_json(directory / "result.json")
    try:
        _check_analysis(content)
        return [Document(directory.name, by_seed) for by_seed in explorer_data(content)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"{directory} is not a whole analysis: {error!r}.") from error


def _run(directory: Path, damaged: list[Damaged]) -> Finished:
    if not (directory / "result.json").exists():
        raise StoreError(
            f"{directory} has no result.json: the run is not finished. The same command resumes it."
        )
    return Finished(directory, read_run(directory), _environment(directory, damaged))


def _environment(directory: Path, damaged: list[Damaged]) -> dict[str, Any]:
    try:
        return read_json(directory / "environment.json")
    except StoreError as error:
        damaged.append(Damaged(directory, f"{error} The rest of the run is reported."))
        return {}


Row = Mapping[str, Any]
_REFERENCES = ("old", "auxiliary", "multi")
_ANCHORS = (*_REFERENCES, "cl", "connector")


def explorer_data(analysis: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Distances, CKA, accuracies and positions on the landscape, for each seed.

    Raises:
        KeyError: The analysis has another layout.
    """
    accuracy = "taw" if analysis["spec"]["data"]["scenario"] == "til" else "tag"
    return [
        {
            "method": analysis["method"],
            "benchmark": analysis["benchmark"],
            "lamb": analysis["lamb"],
            "seed": seed,
            "correlations": _correlations(analysis.get("rank_correlations")),
            **_Seed(analysis["tables"], seed, accuracy).content(),
        }
        for seed in analysis["seeds"]
    ]


def _check_analysis(content: Mapping[str, Any]) -> None:
    """Refuse means that are not those of their tasks, and correlations that are not the tables'.

    Raises:
        ValueError: Such a number was written.
    """
    # Only where there is an analysis: its package is not needed otherwise.
    from ancl.analysis.results import rank_correlations

    for row in content["tables"].get("accuracy", []):
        tasks = [value for name, value in row.items() if name.startswith("task ")]
        if tasks and abs(row["mean"] - math.fsum(tasks) / len(tasks)) > ROUNDED:
            raise ValueError(f"the mean accuracy {row['mean']} is not that of its tasks")
    written = _correlations(content.get("rank_correlations"))
    if not written:
        return
    for name, estimate in rank_correlations(content["tables"], content["seeds"]).items():
        given = [math.nan if part is None else part for part in written.get(name, estimate)]
        if not np.allclose(given, estimate, rtol=0, atol=ROUNDED, equal_nan=True):
            raise ValueError(f"the correlation {name} is not that of its tables")


def _correlations(written: object) -> dict[str, list[float | None]]:
    """Mean, error and seeds of every rank correlation; an older analysis has none."""
    named = written.items() if isinstance(written, Mapping) else ()
    parts = ("mean", "error", "n")
    return {
        str(name): [estimate.get(part) for part in parts]
        for name, estimate in named
        if isinstance(estimate, Mapping)
        and all(isinstance(estimate.get(part), int | float | None) for part in parts)
    }


class _Seed:
    """The tables of an analysis, for one seed.

    Args:
        tables: Rows by table.
        seed: The seed.
        accuracy: The accuracy that counts in the scenario.
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]], seed: int, accuracy: str) -> None:
        self._tables, self._seed, self._accuracy = tables, seed, accuracy

    def rows(self, table: str, **wanted: Any) -> list[Row]:
        rows = self._tables.get(table, [])
        wanted["seed"] = self._seed
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def content(self) -> dict[str, Any]:
        lamb_as = sorted(row["lamb_a"] for row in self.rows("distance", network="ancl"))
        return {
            "points": [{"lamb_a": value, **self.network("ancl", value)} for value in lamb_as],
            "cl": self.network("cl", None),
            "anchors": {name: self.place(name, None) for name in _ANCHORS},
            "landscape": self.landscape(),
        }

    def network(self, name: str, lamb_a: float | None) -> dict[str, Any]:
        which = {"network": name, "lamb_a": lamb_a}
        accuracy = self.rows("accuracy", **which)
        return {
            "place": self.place(name, lamb_a),
            "distances": _references(self.rows("distance", **which)),
            "cka": _references(self.rows("cka", layer="mean", **which)),
            "accuracy": {
                key: value
                for row in accuracy[:1]
                for key, value in row.items()
                if key == "mean" or key.startswith("task ")
            },
        }

    def place(self, name: str, lamb_a: float | None) -> list[float] | None:
        """Coordinates on the plane in Euclidean units, and the distance from it."""
        rows = self.rows("positions", network=name, lamb_a=lamb_a, task="mean")
        row = rows[0] if rows else None
        return [row["x_length"], row["y_length"], row["residual"]] if row else None

    def landscape(self) -> dict[str, Any] | None:
        rows = self.rows("landscape", task="mean")
        if not rows:
            return None
        xs, ys = (sorted({row[name] for row in rows}) for name in ("x_length", "y_length"))
        values = {(row["x_length"], row["y_length"]): row[self._accuracy] for row in rows}
        return {"xs": xs, "ys": ys, "accuracy": [[values[x, y] for x in xs] for y in ys]}


def _references(rows: Sequence[Row]) -> dict[str, float]:
    return {name: row[name] for row in rows[:1] for name in _REFERENCES}
