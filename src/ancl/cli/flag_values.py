"""What flags say, from text to values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ancl.errors import SpecError, printable

MOST_SEEDS = 10_000
"""More runs than this in one command are taken for a mistake."""


def scalar(text: str) -> Any:
    """A value as YAML reads it; what is not YAML is the text itself.

    >>> scalar("1e-3"), scalar("true"), scalar("[80, 120]"), scalar("50,10x5")
    (0.001, True, [80, 120], '50,10x5')
    """
    from ruamel.yaml.error import YAMLError

    from ancl.recipe.yaml_file import parse_yaml

    try:
        return parse_yaml(text)
    except (YAMLError, ValueError):
        return text


def read_text(value: str) -> str:
    """The text itself."""
    return value


def read_order(value: str) -> Any:
    """Class numbers may be written with commas alone."""
    plain = re.fullmatch(r"\d{1,9}(,\d{1,9})*", value)
    return [int(n) for n in value.split(",")] if plain else scalar(value)


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


def read_share(flag: str, text: str | None) -> float | None:
    """A number from 0 to 1; None where nothing is given.

    >>> read_share("--reject", "0.5")
    0.5

    Raises:
        SpecError: It is not such a number.
    """
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SpecError(
            f"{flag}: {printable(text, 40)!r} is not a probability. Write a number from 0 to 1, "
            f"such as {flag} 0.5."
        )
    return share


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
