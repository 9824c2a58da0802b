"""Where a default differs from a public implementation: whose, why, and the setting for theirs.

``ancl list methods --options NAME`` and ``docs/methods.md`` show the table ``differences.csv``.
"""

import csv
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from ancl.methods.registry import MethodRef

SOURCES = {
    "ANCL paper": "Kim et al., CVPR 2023, its formulas and text",
    "ANCL code": "kim-sanghwan/ANCL, what its authors released: ewc, mas, lwf, lfl, lwm, dmc",
    "FACIL": "mmasana/FACIL, which the ANCL code is built on",
    "PyCIL": "LAMDA-CL/PyCIL",
    "Mammoth": "aimagelab/mammoth",
    "AFEC code": "lywang3081/AFEC, by its authors",
    "ChannelGatedCL": "the one public implementation of CCGN, not by its authors",
    "the original": "the paper or the code of the method's own authors",
}
"""The implementations that are compared with."""


class PaperDifference(NamedTuple):
    """One default that differs from another implementation.

    Args:
        methods: To which it applies: ``ewc`` means its variants too, ``a-*`` every method with
            ANCL, ``afec-*`` every one with AFEC, ``*`` all.
        about: What is done in two ways.
        ours: What is done here by default.
        whose: Who does it in another way, of ``SOURCES``.
        theirs: What they do.
        why: The reason for the default.
        settings: What gives theirs, by key; nothing where no setting does.
    """

    methods: tuple[str, ...]
    about: str
    ours: str
    whose: tuple[str, ...]
    theirs: str
    why: str
    settings: Mapping[str, Any]

    @property
    def setting(self) -> str:
        """The settings as ``--set`` reads them."""
        return " ".join(f"{key}={_text(value)}" for key, value in self.settings.items())


def list_differences(method: str) -> tuple[PaperDifference, ...]:
    """The differences of one method, its own first.

    Examples:
        >>> [each.setting for each in list_differences("wa") if "PyCIL" in each.whose]
        ['nonnegative=false', 'bias=true']
    """
    ref = MethodRef(method)
    host = ref.base.removeprefix("aanets-")  # on two branches a host is what it is
    names, general = {ref.base, ref.name, host}, {"*", f"{ref.variant}-*"}
    rows = [difference for difference in DIFFERENCES if names & {*difference.methods}]
    return (*rows, *(difference for difference in DIFFERENCES if general & {*difference.methods}))


def differences_table() -> str:
    """All differences as a table in Markdown."""
    lines = [
        "| method | what | here | elsewhere | why | setting that gives theirs |",
        "|---|---|---|---|---|---|",
    ]
    for difference in DIFFERENCES:
        setting = f"`{difference.setting}`" if difference.settings else "none"
        methods = ", ".join("all" if name == "*" else f"`{name}`" for name in difference.methods)
        theirs = f"{' and '.join(difference.whose)}: {difference.theirs}"
        cells = (methods, difference.about, difference.ours, theirs, difference.why, setting)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _value(text: str) -> Any:
    """A value as ``_text`` writes it; lists are tuples in a spec."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _read(table: str) -> tuple[PaperDifference, ...]:
    """The rows of the table: methods and settings between spaces, implementations by commas."""
    return tuple(
        PaperDifference(
            tuple(row["methods"].split()),
            row["about"],
            row["ours"],
            tuple(row["whose"].split(", ")),
            row["theirs"],
            row["why"],
            {
                key: _value(value)
                for key, _, value in (setting.partition("=") for setting in row["settings"].split())
            },
        )
        for row in csv.DictReader(table.splitlines())
    )


DIFFERENCES = _read((files("ancl.methods") / "differences.csv").read_text(encoding="utf-8"))
"""The table, method by method. What is equal everywhere, or only a name, is left out."""
