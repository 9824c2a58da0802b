"""The command line is a promise: a change of it is a change of frozen.json."""

import json
from pathlib import Path
from typing import Any

from typer.main import get_command

from tests.lab import app


def flags(command: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in getattr(command, "commands", {}).items():
        found[name] = flags(each)
    options = [
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    ]
    return {"options": sorted(options), **({"commands": found} if found else {})}


def test_commands_and_flags_are_the_recorded_ones() -> None:
    recorded = json.loads((Path(__file__).parent / "frozen.json").read_text())

    assert flags(get_command(app)) == recorded
