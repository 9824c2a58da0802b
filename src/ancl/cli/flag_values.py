"""What flags say, from text to values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ancl.errors import SpecError, printable

MOST_SEEDS = 10_000
"""More runs than this in one command are taken for a mistake."""


def scalar(text: str) -> Any:
    """A value as YAML reads it; YAML is loaded only where there is one."""
    from ancl.recipe.yaml_file import read_scalar

    return read_scalar(text)


def read_text(value: str) -> str:
    """The text itself."""
    return value


def read_order(value: str) -> Any:
    """Class numbers may be written with commas alone."""
    plain = re.fullmatch(r"\d{1,9}(,\d{1,9})*", value)
    return [int(n) for n in value.split(",")] if plain else scalar(value)


def read_list(value: str) -> Any:
    """A value, or several with commas.

    >>> read_list("30"), read_list("30,10"), read_list("search")
    (30, [30, 10], 'search')
    """
    return [scalar(part) for part in value.split(",")] if "," in value else scalar(value)


def without_bad_images(source: object) -> str:
    """The name of a folder without its files that are not images.

    Raises:
        SpecError: It is not a folder.
    """
    from ancl.data.formats.folders import SKIP_BAD

    if not isinstance(source, str) or not source.startswith("folder:"):
        raise SpecError("--skip-bad-images is for a folder of images: --data folder:PATH.")
    return source.removesuffix(SKIP_BAD) + SKIP_BAD


def parse_seeds(text: str) -> list[int]:
    """Seeds from a list with ranges, each once.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        last = int(match[2] or match[1]) if match else -1
        if match is None or last < int(match[1]):
            raise SpecError(
                f"--seeds: {printable(part.strip(), 40)!r} in {printable(text, 80)!r} is not a "
                f"seed or range. Write 0-2,7 for the seeds 0, 1, 2 and 7."
            )
        if len(seeds) + last - int(match[1]) >= MOST_SEEDS:
            raise SpecError(
                f"--seeds: {part.strip()!r} asks for more than {MOST_SEEDS:,} runs. Give fewer."
            )
        seeds += range(int(match[1]), last + 1)
    return list(dict.fromkeys(seeds))


def parse_numbers(flag: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers from a list with commas, each once; None where nothing is given.

    >>> parse_numbers("--lamb-grid", "1,10,1")
    (1.0, 10.0)
    """
    if text is None:
        return None
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise SpecError(
            f"{flag}: {text!r} is not a list of numbers ≥ 0. Write {flag} 0.1,1,10."
        ) from None


def exported_name(learner: Path, format: str = "onnx") -> Path:
    """The file that a learner is exported to, and served from, where none is named.

    >>> str(exported_name(Path("models/birds")))
    'birds.onnx'
    """
    return Path(f"{learner.absolute().name}.{format}")


def read_share(flag: str, text: str | None, kind: str = "share") -> float | None:
    """A number from 0 to 1, a share or what ``kind`` calls it; None where nothing is given.

    >>> read_share("--min-accuracy", "0.85")
    0.85

    Raises:
        SpecError: It is not a share.
    """
    if text is None:
        return None
    if not re.fullmatch(r"0*(0(\.\d{1,18})?|1(\.0{1,18})?|\.\d{1,18})", text):
        raise SpecError(
            f"{flag}: {printable(text, 40)!r} is not a {kind}. Write a number from 0 to 1, such "
            f"as 0.85."
        )
    return float(text)


def read_shares(flag: str, texts: Iterable[str]) -> dict[str | int, float]:
    """Shares by class.

    >>> read_shares("--min-recall", ["robin=0.8"])
    {'robin': 0.8}

    Raises:
        SpecError: One has no class or no share.
    """
    shares: dict[str | int, float] = {}
    for text in texts:
        label, equals, share = text.rpartition("=")
        if not equals or not label:
            raise SpecError(f"{flag}: {printable(text, 40)!r} names no class. Write robin=0.8.")
        shares[label] = read_share(flag, share) or 0.0
    return shares


@contextmanager
def thread_limit(text: str | None) -> Iterator[None]:
    """Compute with the number of threads that ``--threads`` gives, if it is given."""
    from ancl.recipe.build import threads

    count = read_count("--threads", text)
    with threads(count) if count else nullcontext():
        yield


def is_count(text: str | None) -> bool:
    """Whether a text is a number from 1 to ``MOST_AT_ONCE``."""
    from ancl.runtime import MOST_AT_ONCE

    whole = re.fullmatch(r"0*([1-9]\d{0,5})", text or "")
    return whole is not None and int(whole[1]) <= MOST_AT_ONCE


def read_count(flag: str, text: str | None) -> int | None:
    """A number from 1 to ``MOST_AT_ONCE``; None where nothing is given.

    >>> read_count("--workers", "2")
    2

    Raises:
        SpecError: It is not such a number.
    """
    if text is None:
        return None
    if not is_count(text):
        from ancl.runtime import MOST_AT_ONCE

        raise SpecError(
            f"{flag}: {printable(text, 40)!r} is not a number of {flag[2:]}. Write 1 to "
            f"{MOST_AT_ONCE}."
        )
    return int(text)
