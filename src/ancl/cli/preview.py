"""``--dry-run`` as text: the tasks, stages and settings of a run, and what is stored."""

import json
from collections.abc import Sequence
from typing import Any

from ancl.cli.text import table
from ancl.errors import counted
from ancl.experiments.spec import SEARCH
from ancl.training.config import FIRST_RATES, LATER_RATES, TRIALS

Preview = dict[str, Any]

_SEARCHED = (
    f"A searched rate is the one with which fine-tuning has the best validation accuracy: of "
    f"{FIRST_RATES} for the first task, of the {TRIALS} largest of {LATER_RATES} below it for "
    f"each later one."
)


def preview_text(shown: Sequence[Preview]) -> str:
    """What every seed has in common once, then the stages of each."""
    first = shown[0]
    parts = [f"{first['method']} on {first['benchmark']}", _tasks(first), _settings(first)]
    for each in shown:
        parts.append(_stages(each))
    return "\n\n".join(parts)


def _tasks(shown: Preview) -> str:
    count = len(shown["tasks"])
    rows = [
        [
            f"{task['task'] + 1}/{count}",
            ", ".join(map(str, task["classes"])),
            *(str(task[part]) for part in ("train", "val", "test")),
        ]
        for task in shown["tasks"]
    ]
    return table(["task", "classes", "train", "val", "test"], rows, "llrrr")


def _settings(shown: Preview) -> str:
    """What was set first, then the defaults; the auxiliary network's only where it differs."""
    has_auxiliary = any("auxiliary" in stage["stage"] for stage in shown["stages"])
    rows = [
        [setting_name(key), shown_value(each["value"]), each["source"]]
        for key, each in shown["settings"].items()
        if not key.startswith("auxiliary.") or (has_auxiliary and _differs(shown, key))
    ]
    rows.sort(key=lambda row: row[2] == "default")
    notes = []
    if has_auxiliary:
        notes.append("The auxiliary network's other settings are those of training.")
    if shown["settings"]["training.lr"]["value"] == SEARCH:
        notes.append(_SEARCHED)
    return "\n".join([table(["setting", "value", "from"], rows, "lll"), *notes])


def _differs(shown: Preview, key: str) -> bool:
    twin = key.replace("auxiliary.", "training.", 1)
    return bool(shown["settings"][key]["value"] != shown["settings"][twin]["value"])


def _stages(shown: Preview) -> str:
    tasks, stages = len(shown["tasks"]), shown["stages"]
    rows = [
        [
            f"{stage['task'] + 1}/{tasks}",
            stage["stage"],
            stage["key"][:12],
            "stored" if stage["stored"] else _todo(stage["most_epochs"]),
        ]
        for stage in stages
    ]
    left = sum(not stage["stored"] for stage in stages)
    text = table(["task", "stage", "key", "state"], rows, "llll")
    return (
        f"Seed {shown['seed']}: {left} of {counted(len(stages), 'stage')} to do\n{text}\n"
        f"Results would go to {shown['directory']}"
    )


def _todo(epochs: int) -> str:
    return f"to do, at most {counted(epochs, 'epoch')}" if epochs else "to do"


def setting_name(key: str) -> str:
    """A setting as it is written, with the symbol it stands for."""
    return {"lamb": "lamb (λ)", "lamb_a": "lamb_a (λ_a)"}.get(key, key)


def shown_value(value: Any) -> str:
    """A value as ``--set`` reads it."""
    return value if isinstance(value, str) else json.dumps(value)
