"""How things are said: numbers, differences, intervals, signs, scenarios, methods and tables."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ancl.errors import one_line

if TYPE_CHECKING:
    from ancl.metrics import Estimate, Interval

SIGNS = {"lamb": "λ", "lamb_a": "λ_a"}
"""The settings that have a sign."""
LEGEND = "R[i,j]: accuracy on task j after task i of T; n_j: test images of task j."
SCENARIOS = {
    "til": "the task is known at test time",
    "cil": "the task is not known at test time",
    "dil": "the domain changes",
    "cir": "the task is not known at test time, and classes come again",
}
"""What the scenarios are."""
VARIANTS = {"CL": "", "AFEC": "afec-", "ANCL": "a-"}
"""The variants of a method, and what its name then starts with."""
METHOD_TITLES = {
    "finetune": "Fine-tuning",
    "joint": "Joint",
    "freeze": "Freezing",
    "lwm": "LwM",
    "dmc": "DMC",
    "eeil": "EEIL",
    "ewc": "EWC",
    "mas": "MAS",
    "si": "SI",
    "rwalk": "R-Walk",
    "lwf": "LwF",
    "lfl": "LFL",
    "icarl": "iCaRL",
    "bic": "BiC",
    "wa": "WA",
    "lucir": "LUCIR",
    "podnet": "PODNet",
    "connector": "Connector",
    "der": "DER",
    "aanets": "AANets",
    "ccgn": "CCGN",
}
"""Methods as papers write them, in the order of tables."""
_CROSS_ENTROPIES = ("lwf", "lwm", "icarl", "eeil", "bic", "wa")
"""Methods whose Ω is a cross-entropy to another network's answers."""
_GAP = "  "
_NARROWEST = 30
_LONGEST = 100_000


# -- numbers ---------------------------------------------------------------------------------


def percent(fraction: float) -> str:
    """A fraction in percent with one decimal, and a dash where there is none."""
    return "–" if math.isnan(fraction) else f"{round(100 * fraction, 1) + 0.0:.1f}"


def duration(seconds: float) -> str:
    """Seconds as a short text.

    >>> duration(1.24), duration(200), duration(7500)
    ('1.2 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def byte_size(count: float) -> str:
    """Bytes in the largest unit of which there is at least one.

    >>> byte_size(999), byte_size(2_340_000)
    ('999 B', '2.3 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit_name in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit_name}"
    return f"{count / 1000:.1f} TB"


def parse_size(text: str) -> int | None:
    """Bytes from a size such as 2GB; nothing where it is none.

    >>> parse_size("2GB"), parse_size("1.5 MB"), parse_size("100"), parse_size("much")
    (2000000000, 1500000, 100, None)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)B?", text.strip().upper())
    return round(float(match[1]) * 1000 ** " KMGT".index(match[2] or " ")) if match else None


def signed(fraction: float) -> str:
    """A difference of fractions in points, with its sign unless it rounds to zero.

    >>> signed(0.012), signed(-0.012), signed(-0.0001)
    ('+1.2', '-1.2', '0.0')
    """
    points = round(100 * fraction, 1)
    return f"{points:+.1f}" if points else "0.0"


def with_error(estimate: Estimate) -> str:
    """A mean in percent with its standard error, where there is one."""
    return percent(estimate.mean) + _error(estimate)


def signed_with_error(estimate: Estimate | None) -> str:
    """A difference in points with its standard error, where there is one."""
    return "" if estimate is None else signed(estimate.mean) + _error(estimate)


def _error(estimate: Estimate) -> str:
    return "" if math.isnan(estimate.error) else f" ± {percent(estimate.error)}"


def points(fraction: float) -> str:
    """A difference of fractions in points: two decimals show on which side of 0 it is.

    >>> points(-0.00031), points(-0.0)
    ('-0.03', '0.00')
    """
    shown = round(100 * fraction, 2)
    return f"{shown:+.2f}" if shown else "0.00"


def number_text(estimate: Estimate, *, signed: bool = False, n: bool = False) -> str:
    """A fraction in percent with its standard error, as in the paper: two decimals.

    >>> from ancl.metrics import Estimate
    >>> number_text(Estimate(0.79424, 0.0057, 3)), number_text(Estimate(0.0123, 0.004, 3), n=True)
    ('79.42 ± 0.57', '1.23 ± 0.40 (n=3)')
    """
    mean, error, count = estimate
    if math.isnan(mean):
        return "–"
    shown = round(100 * mean, 2) + 0.0
    text = f"{shown:+.2f}" if signed else f"{shown:.2f}"
    if not math.isnan(error):
        text += f" ± {100 * error:.2f}"
    return f"{text} (n={count})" if n else text


def interval_text(interval: Interval | None, *, mean: bool = True) -> str:
    """A difference of fractions in points with its interval, or the interval alone.

    >>> from ancl.metrics import Interval
    >>> interval_text(Interval(0.012, 0.005, 0.019, 0.01, 5))
    '+1.20 [+0.50, +1.90]'
    """
    if interval is None:
        return ""
    middle, low, high = (round(100 * value, 2) + 0.0 for value in interval[:3])
    parts = [f"{middle:+.2f}"] if mean else []
    return " ".join(parts if math.isnan(low) else [*parts, f"[{low:+.2f}, {high:+.2f}]"])


# -- settings and methods --------------------------------------------------------------------


def setting_text(key: str) -> str:
    """A setting as a text names it.

    >>> setting_text("lamb_a"), setting_text("training.epochs"), setting_text("network.name")
    ('λ_a', 'epochs', 'network.name')
    """
    return SIGNS.get(key, key.removeprefix("training."))


def value_text(value: object) -> str:
    """A setting's value in a few letters.

    >>> value_text(1e9), value_text("resnet8"), value_text(None)
    ('1e+09', 'resnet8', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def split_method(method: str) -> tuple[str, str]:
    """(base, variant) of a method's name, without loading the code of the method.

    >>> split_method("afec-lwf"), split_method("ewc")
    (('lwf', 'AFEC'), ('ewc', 'CL'))
    """
    for variant, prefix in VARIANTS.items():
        if prefix and method.startswith(prefix):
            return method.removeprefix(prefix), variant
    return method, "CL"


def base_title(base: str) -> str:
    """A base method as papers write it; a user's method by its name in its file.

    >>> base_title("lwf"), base_title("my/own.py:mine")
    ('LwF', 'mine')
    """
    return METHOD_TITLES.get(base, base.rpartition(":")[2])


def term_text(method: str, term: str) -> str:
    """A term of the loss as figures call it.

    A cross-entropy to another network's answers is at least those answers' entropy: where it lies
    flat above 0, nothing is wrong.

    >>> term_text("a-lwf", "old"), term_text("a-lwf", "task"), term_text("ewc", "old")
    ("old, with its teacher's entropy", 'task', 'old')
    """
    distilled = split_method(method)[0] in _CROSS_ENTROPIES and term in ("old", "auxiliary")
    return f"{term}, with its teacher's entropy" if distilled else term


def method_title(method: str) -> str:
    """A method as papers write it.

    >>> method_title("a-lwf"), method_title("afec-ewc")
    ('A-LwF', 'AFEC-EWC')
    """
    base, variant = split_method(method)
    return VARIANTS[variant].upper() + base_title(base)


def method_rank(method: str) -> tuple[int, str, int]:
    """The rank of a method: as in the paper's tables, then the others by name."""
    base, variant = split_method(method)
    known = list(METHOD_TITLES)
    place = known.index(base) if base in METHOD_TITLES else len(known)
    return place, base, list(VARIANTS).index(variant)


def natural(text: str) -> tuple[tuple[float, str], ...]:
    """A key that sorts names by the numbers in them.

    >>> sorted(["EWC (lamb=10100)", "EWC (lamb=4000)", "A"], key=natural)
    ['A', 'EWC (lamb=4000)', 'EWC (lamb=10100)']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    return tuple((float(p), "") if i % 2 else (-1.0, p) for i, p in enumerate(parts))


# -- tables ----------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Aligned columns under a ruled heading.

    Args:
        head: The heading of each column.
        rows: The cells.
        align: ``l`` or ``r`` for each column; ``w`` wraps a last column at the terminal's edge.

    >>> print(table(["task", "%"], [["1/2", "97.9"], ["2/2", "8.0"]], "lr"))
    task     %
    ----  ----
    1/2   97.9
    2/2    8.0
    """
    rows = [[one_line(cell)[:_LONGEST] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    if align.endswith("w"):
        widths[-1] = min(widths[-1], _room(widths[:-1]))
    lines = [list(head), ["-" * width for width in widths], *rows]
    return "\n".join(_line(cells, widths, align) for cells in lines)


def _room(widths: Sequence[int]) -> int:
    if not sys.stdout.isatty():
        return sys.maxsize
    used = sum(widths) + len(_GAP) * len(widths)
    return max(shutil.get_terminal_size().columns - used, _NARROWEST)


def _line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    *fixed, last = (
        cell.rjust(width) if side == "r" else cell.ljust(width)
        for cell, width, side in zip(cells, widths, align, strict=True)
    )
    if align.endswith("w") and len(last) > widths[-1]:
        start = sum(widths[:-1]) + len(_GAP) * len(fixed)
        last = f"\n{' ' * start}".join(textwrap.wrap(cells[-1], widths[-1]))
    return _GAP.join([*fixed, last]).rstrip()
