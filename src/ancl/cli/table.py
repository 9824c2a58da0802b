"""Numbers and tables as plain text, the same on a terminal and in a file."""

import math
import shutil
import sys
import textwrap
from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 30


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


def percent(fraction: float) -> str:
    """A fraction in percent with one decimal, and a dash where there is none."""
    return "–" if math.isnan(fraction) else f"{round(100 * fraction, 1) + 0.0:.1f}"


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(1.24), duration(200), duration(7500)
    ('1.2 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def counted(number: int, noun: str) -> str:
    """A number and its noun, which takes an s but for 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def byte_size(count: float) -> str:
    """Bytes in the largest unit of which there is at least one.

    >>> byte_size(999), byte_size(2_340_000)
    ('999 B', '2.3 MB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"
