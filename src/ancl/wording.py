"""Numbers as text: percent, time, bytes."""

import math


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
