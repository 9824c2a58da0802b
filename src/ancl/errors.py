"""The errors a user can cause: what was given, what is possible, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from unicodedata import category


class AnclError(Exception):
    """Anything a user can correct; the command prints only the message and exits with 2."""


class SpecError(AnclError):
    """A setting that does not exist or does not fit."""


class MethodError(AnclError):
    """A method that cannot be built, or not in this variant or scenario."""


class ScenarioError(AnclError):
    """Data, classes or tasks that do not fit together."""


class StoreError(AnclError):
    """A directory that cannot be written or read."""


class TrainingError(AnclError):
    """Training that found no finite loss."""


class ExportError(AnclError):
    """A learner that cannot be exported, or whose file would answer otherwise."""


def did_you_mean(given: str, possible: Iterable[str]) -> str:
    """A question that names the nearest possibility, or nothing where none is near.

    >>> did_you_mean("a-lfw", ["a-lwf", "a-lwm"])  # of equally near ones, that of the same letters
    " Did you mean 'a-lwf'?"
    """
    word = given.lower()
    near = get_close_matches(word, [str(name) for name in possible], n=5, cutoff=0.5)
    swapped = [name for name in near if sorted(name) == sorted(word)]
    return f" Did you mean {(swapped or near)[0]!r}?" if near else ""


def unknown(kind: str, given: str, possible: Iterable[str]) -> str:
    """The message for an unknown name: what was given, the nearest, all of them."""
    names = list(possible)
    return (
        f"There is no {kind} {given!r}.{did_you_mean(given, names)} Possible: {', '.join(names)}."
    )


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    Examples:
        >>> counted(1, "stage"), counted(3, "stage")
        ('1 stage', '3 stages')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def printable(text: str, most: int = 2_000) -> str:
    """Text from a file that may be shown: control characters are written out, the end is cut.

    Examples:
        >>> printable(f"a{chr(27)}b", 2) == f"a{chr(92)}x1b…"
        True
    """
    shown = text if len(text) <= most else f"{text[:most]}…"
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in shown)


def one_line(text: object) -> str:
    """A name as one line, for a cell of a table: line breaks are written out, too.

    Examples:
        >>> one_line(f"a{chr(10)}b{chr(27)}c") == f"a{chr(92)}nb{chr(92)}x1bc"
        True
    """
    # Spaces of other scripts are not printable to Python, and do nothing to a terminal.
    return "".join(
        c if c.isprintable() or category(c) == "Zs" else ascii(c)[1:-1] for c in str(text)
    )
