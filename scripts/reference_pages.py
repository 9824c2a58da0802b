"""Write docs/settings.md and docs/commands.md from the code; a test compares them with it.

Run:  python scripts/reference_pages.py
"""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from typer.main import get_command

import ancl

DOCS = Path(__file__).parents[1] / "docs"
GROUPS = {
    "": (
        "Run",
        "Settings of the whole run: `--seed`, `--device`, `--threads`, or `--set KEY=VALUE`.",
    ),
    "data": ("Data", "The images, and how they become tasks. `--set data.KEY=VALUE`."),
    "network": ("Network", "`--set network.KEY=VALUE`. Each network has its own further options."),
    "memory": ("Memory", "Images of earlier classes that are kept. `--set memory.KEY=VALUE`."),
    "training": (
        "Training",
        "`--set training.KEY=VALUE`. The same keys with `auxiliary.` are those of the auxiliary"
        " network, which follows `training` unless it is set.",
    ),
}
GENERATED = "<!-- Written by scripts/reference_pages.py: change the code, not this page. -->"


def cell(value: Any) -> str:
    """The text of a table's cell."""
    return " ".join(str(value).split()).replace("|", "\\|")


def code(value: Any) -> str:
    """A value as one writes it; nothing where there is none."""
    return "" if value is None else f"`{cell(value)}`"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows_of(options: Any, prefix: str = "") -> list[list[str]]:
    """A row for each setting below the prefix."""
    return [
        [
            code(each["key"]),
            cell(each["type"]),
            "**required**" if each["required"] else code(each["default"]),
            cell(each["explanation"]),
        ]
        for each in options
        if each["key"].rpartition(".")[0] == prefix
    ]


def settings_page() -> str:
    """Every setting of a run, then those of each method."""
    head = ["setting", "type", "default", "meaning"]
    common = {"seed", "device", "threads"}
    every = ancl.list_options("lwf")
    parts = [
        GENERATED,
        "# Settings",
        "Each setting can be given as a flag (`--set KEY=VALUE`), in a file (`--config FILE.yaml`)"
        ' or from Python (`ancl.spec(…, settings={"KEY": VALUE})`). Defaults of this page are those'
        " of LwF without a benchmark; a benchmark's recipe or a method may set others."
        " `ancl run … --dry-run` shows each value with its source.",
    ]
    for prefix, (title, explanation) in GROUPS.items():
        options = [e for e in every if prefix or e["key"] in common]
        parts += [f"## {title}", explanation, table(head, rows_of(options, prefix))]
    parts += [
        "## Methods",
        "The options of each method: `--set KEY=VALUE`, and `--lamb`, `--lamb-a` for λ and λ_a.",
    ]
    names = [each["name"] for each in ancl.list_methods()]
    for name in names:
        own = [e for e in ancl.list_options(name) if "." not in e["key"]]
        rows = rows_of([e for e in own if e["key"] not in common])
        if rows:
            parts += [f"### {name}", table(head, rows)]
    plain = {each["key"] for each in every}
    for variant, title in (("a-lwf", "With ANCL: a-NAME"), ("afec-lwf", "With AFEC: afec-NAME")):
        own = [e for e in ancl.list_options(variant) if "." not in e["key"]]
        rows = rows_of([e for e in own if e["key"] not in plain])
        parts += [f"### {title}", "Besides the options of NAME:", table(head, rows)]
    return "\n\n".join(parts) + "\n"


def describe(name: str, command: Any, depth: int) -> list[str]:
    """The parts of the page for one command and those below it."""
    parts = [f"{'#' * depth} {name}", *map(cell, (command.help or "").split("\n\n"))]
    rows = []
    for parameter in command.params:
        if "--help" in parameter.opts or "completion" in " ".join(parameter.opts):
            continue
        flags = [*parameter.opts, *parameter.secondary_opts]
        argument = parameter.param_type_name == "argument"
        shown = parameter.name.upper() if argument else ", ".join(flags)
        rows.append([code(shown), cell(getattr(parameter, "help", "") or "")])
    if rows and not command.hidden:  # another name of a command says no more
        parts.append(table(["flag or argument", "meaning"], rows))
    for below, each in getattr(command, "commands", {}).items():
        parts += describe(f"{name} {below}", each, depth + 1)
    return parts


def commands_page() -> str:
    """Every command with its flags, and the exit codes."""
    (entry,) = entry_points(group="console_scripts", name="ancl")
    app = __import__(f"{entry.module}.main", fromlist=["app"]).app
    parts = [
        GENERATED,
        "# Commands",
        "`ancl COMMAND --help` says the same. All of it can be called from Python: see the API.",
        "## Exit codes",
        table(
            ["code", "meaning"],
            [
                ["0", "Done."],
                [
                    "1",
                    "Something failed or is damaged; everything else is done.",
                ],
                [
                    "2",
                    "A mistake that you can correct. One message says what to do; nothing is lost.",
                ],
                [
                    "3",
                    "`learn`, `evaluate`: a condition on test images does not hold. `learn` keeps"
                    " the new version, and the old one still answers.",
                ],
                ["130", "Stopped by Ctrl-C. The same command resumes."],
                ["143", "Stopped by SIGTERM, as clusters do. The same command resumes."],
            ],
        ),
    ]
    for name, command in get_command(app).commands.items():
        parts += describe(f"ancl {name}", command, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


PAGES = {"settings.md": settings_page, "commands.md": commands_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
