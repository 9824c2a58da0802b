"""The tables of docs/evidence/pretrained.md, from the results alone."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from protocol_runs import fill_tables

Result = Mapping[str, Any]
ROWS = {
    "auto": "`auto`",
    "ncm": "`ncm`",
    "slda": "`slda`",
    "ridge": "`ridge`",
    "logistic": "`logistic`",
    "knn": "`knn`",
    "ranpac": "`ranpac`",
    "photos": "`auto`, from photos",
    "icarl": "`icarl`, frozen network",
    "bic": "`bic`, frozen network",
    "scratch": "`icarl`, ResNet-8 from scratch, 32 px",
    "sklearn": "scikit-learn's logistic regression, all at once",
    "random": "`auto`, random weights",
    "pixels": "`auto`, raw pixels",
    "cifar-lwf": "`lwf`, ResNet-32 from scratch, 32 px",
    "cifar-icarl": "`icarl`, ResNet-32 from scratch, 32 px, 20 of a class kept",
    "cifar-bic": "`bic`, ResNet-32 from scratch, 32 px, 20 of a class kept",
}
UNEQUAL = {
    "auto": "`auto`",
    "ncm": "`ncm`",
    "slda": "`slda`",
    "ridge": "`ridge`",
    "acil": "`ridge`, `balanced=false`",
    "logistic": "`logistic`",
    "unweighted": "`logistic`, `balanced=false`",
}
PUBLISHED = (
    ("iCaRL, ResNet-32 from scratch, 2,000 images kept (published)", "49.7", "65.5"),
    ("replay, ResNet-32 from scratch, 2,000 images kept (published)", "40.2", "57.7"),
    ("fine-tuning, ResNet-32 from scratch (published)", "8.2", "25.3"),
    ("all classes at once, ResNet-32 from scratch (published)", "65.7", ""),
)
"""Last and average accuracy in a public log of re-runs with 500 images a class, order of iCaRL."""


def write_tables(folder: Path, pages: Sequence[Path]) -> None:
    """Replace every table of these pages by one of today's results."""
    results = [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]
    tables = {}
    for name, (part, make) in TABLES.items():
        rows = [result for result in results if result["part"] == part]
        tables[name] = "\n".join(make(rows)) if rows else ""
    fill_tables(pages, tables)


def with_error(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard error, where there are several."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _months(results: Sequence[Result]) -> Iterator[str]:
    head = ["row", "n", "% of 16 classes", "images kept", "seconds of fitting a month"]
    yield f"| {' | '.join([*head, 'MB on disk', 'GB of memory'])} |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for row, title in ROWS.items():
        found = [result for result in results if result["row"] == row]
        if not found:
            continue
        shares = [100 * result["accuracy"] for result in found]
        cells = [title, str(len(found)), with_error(shares), *_costs(found)]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from _differences(results)


def _costs(found: Sequence[Result]) -> list[str]:
    """What a row keeps, and what it takes: the largest of its months and seeds."""
    peak = f"{max(result['peak_bytes'] for result in found) / 1e9:.2f}"
    if "stages" not in found[0]:
        return ["all", f"{max(result['seconds'][0] for result in found):.1f}", "", peak]
    images = max(result["images_kept"] for result in found)
    fits = [max(map(_fit, result["stages"])) for result in found]
    disk = max(result["disk_bytes"] for result in found) / 1e6
    return [str(images or "none"), f"{max(fits):.1f}", f"{disk:.0f}", peak]


def _fit(stages: Mapping[str, float]) -> float:
    """Seconds of all stages but those that compute features or store what never learns."""
    return sum(taken for name, taken in stages.items() if name not in ("features", "base"))


def _differences(results: Sequence[Result]) -> Iterator[str]:
    """Paired differences to scikit-learn, of every row on the same features."""
    shares = {(result["row"], result["seed"]): 100 * result["accuracy"] for result in results}
    yield "| minus scikit-learn's logistic regression | n | mean of differences | each seed |"
    yield "|---|--:|--:|---|"
    for row, title in ROWS.items():
        pairs = [
            share - shares["sklearn", seed]
            for (name, seed), share in shares.items()
            if name == row and ("sklearn", seed) in shares
        ]
        if pairs and row != "sklearn":
            each = ", ".join(f"{pair:+.1f}" for pair in pairs)
            yield f"| {title} | {len(pairs)} | {with_error(pairs, 2)} | {each} |"


def _cifar(results: Sequence[Result]) -> Iterator[str]:
    yield "| row | 100 images a class: last | average | n | 500: last | average | n |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for row, title in ROWS.items():
        cells = [title]
        for size in (100, 500):
            found = [each for each in results if (each["row"], each["size"]) == (row, size)]
            averages = [100 * each["average"] for each in found if "average" in each]
            cells.append(with_error([100 * e["accuracy"] for e in found]) if found else "")
            cells += [with_error(averages) if averages else "", str(len(found) or "")]
        if any(cells[1:]):
            yield f"| {' | '.join(cells)} |"
    for title, last, average in PUBLISHED:
        yield f"| {title} | | | | {last} | {average} | |"


def _large(results: Sequence[Result]) -> Iterator[str]:
    yield "| method | seconds of the month | of which fitting | GB of memory | MB on disk |"
    yield "|---|--:|--:|--:|--:|"
    for result in results:
        fit = _fit(result["stages"][1])
        memory, disk = result["peak_bytes"] / 1e9, result["disk_bytes"] / 1e6
        yield (
            f"| `{result['row']}` | {result['seconds'][1]:.1f} | {fit:.1f} | {memory:.2f} | "
            f"{disk:.0f} |"
        )


def _speed(results: Sequence[Result]) -> Iterator[str]:
    (result,) = results
    yield "| images | ours, a second | plain loop, a second | ours / plain, 95 % interval |"
    yield "|---|--:|--:|--:|"
    for title, more in (("224x224", ""), ("64x64, resized to 224", ", resized")):
        ratio = result[f"ratio{more}"]
        interval = f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        cells = [title, *(f"{result[name + more]:.0f}" for name in ("ours", "plain")), interval]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"The process of ours alone, 200 images: {result['peak_bytes'] / 1e9:.2f} GB at most."


def _unequal(results: Sequence[Result]) -> Iterator[str]:
    yield "| row | n | 2 classes of 40, 14 of 5 | 8 classes of 90, 8 of 10 |"
    yield "|---|--:|--:|--:|"
    for row, title in UNEQUAL.items():
        shares = [result["shares"] for result in results if result["row"] == row]
        if shares:
            draws = ("two large", "half large")
            cells = [with_error([100 * share[draw] for share in shares]) for draw in draws]
            yield f"| {title} | {len(shares)} | {' | '.join(cells)} |"


SHORT = {
    "auto": "photos, and pretrained weights: the default, `auto`",
    "sklearn": "the same features by hand: scikit-learn's logistic regression, all months at once",
    "icarl": "the same network, its classifier trained: `icarl`",
    "bic": "the same, `bic`",
    "scratch": "no pretrained weights: `icarl`, ResNet-8 from scratch, 32 px",
}
"""Rows of the table that other pages lead with."""


def _short(results: Sequence[Result]) -> Iterator[str]:
    yield "| you have, and take | % right of 16 classes | n | images kept |"
    yield "|---|--:|--:|--:|"
    for row, title in SHORT.items():
        found = [result for result in results if result["row"] == row]
        if found:
            share = with_error([100 * result["accuracy"] for result in found])
            yield f"| {title} | {share} | {len(found)} | {_costs(found)[0]} |"


TABLES: dict[str, tuple[str, Callable[[Sequence[Result]], Iterator[str]]]] = {
    "months": ("months", _months),
    "cifar": ("cifar", _cifar),
    "unequal": ("unequal", _unequal),
    "large": ("large", _large),
    "speed": ("speed", _speed),
    "short": ("months", _short),
}
