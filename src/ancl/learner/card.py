"""The model card: what a learner knows, from which data, and how well, as Markdown.

It is for readers. Nothing is read back from it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Le

from ancl.checks import checked
from ancl.data import Label
from ancl.errors import counted, printable
from ancl.files import MARK
from ancl.learner.ledger import statistics_of
from ancl.learner.moves import drift_line
from ancl.methods.method import Method
from ancl.networks import weights_notice
from ancl.recipe.data_spec import TaskSpec
from ancl.recipe.recipe import Recipe
from ancl.stages.final_state import FinalState, TaskState
from ancl.wording import byte_size

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

CARD = "README.md"
"""The card's name in the directory of a saved learner."""
Share = Annotated[float, Ge(0), Le(1)]
_SCENARIOS = {
    "til": "the task of an image is known, and the classes of this task compete",
    "cil": "all classes compete",
    "dil": "all tasks have the same classes, in other domains",
}


class Measured(NamedTuple):
    """The accuracy on every task so far, after one of them.

    Args:
        on: The images it was measured on.
        accuracy: A share for each task that brought classes, none where it was not measured.
    """

    on: str
    accuracy: tuple[Share | None, ...]


def read_measured(values: Any, columns: Sequence[int]) -> tuple[Measured | None, ...]:
    """What was saved of measurements, of this number of tasks with classes after each task.

    Raises:
        ValueError: It does not fit these tasks.
    """
    rows: tuple[Measured | None, ...] = checked(tuple[Measured | None, ...], values)
    if len(rows) != len(columns) or any(
        row and len(row.accuracy) != count for row, count in zip(rows, columns, strict=True)
    ):
        raise ValueError("what was measured does not fit the tasks")
    return rows


def one_line_summary(learner: Learner) -> str:
    """What a learner is, what it knows and how large it is."""
    network = network_title(learner._recipe)
    start = f"<Learner {learner.method.name} on {network}, {learner.scenario}: "
    if learner.input_shape is None:
        return f"{start}nothing learned>"
    memory, held = learner._exemplars(), learner._held_out()
    parts = [
        f"{len(learner.classes)} classes in {counted(len(learner.tasks), 'task')}",
        f"images {'x'.join(map(str, learner.input_shape))}",
        *([f"{len(memory.samples)} in memory"] if memory else []),
        *([f"{len(held.y)} held"] if held else []),
        byte_size(learner.size().disk),
    ]
    return f"{start}{', '.join(parts)}>"


def card_of(learner: Learner, file: str = "") -> str:
    """See ``Learner.card``."""
    network, _ = learner._built()
    memory = learner._exemplars()
    return model_card(
        learner._recipe,
        learner._final_state(),
        learner._measured,
        parameters=sum(weights.numel() for weights in network.parameters()),
        kept=len(memory.samples) if memory else 0,
        features=len(statistics_of(learner).ledger) if learner.method.infer.holds else 0,
        choice=str(learner.choice or ""),
        drift=drift_line(learner.drifts),
        accepted=learner.accepted_changes,
        file=file,
    )


def model_card(
    recipe: Recipe,
    state: FinalState,
    measured: Sequence[Measured | None],
    *,
    parameters: int,
    kept: int,
    features: int = 0,
    choice: str = "",
    drift: str = "",
    accepted: Sequence[str] = (),
    file: str = "",
) -> str:
    """The card of a learner.

    Args:
        recipe: What the learner was made of.
        state: What it learned.
        measured: What was measured after each task; none where nothing was.
        parameters: The number of the network's parameters.
        kept: The number of images in its memory.
        features: The number of images that it keeps as features.
        choice: What was chosen of its classifier.
        drift: How far its network moved.
        accepted: Parts whose code differs from what was trained with.
        file: Lines on an exported file.
    """
    classes = len({name for task in state.tasks for name in task.names})
    method = recipe.method.name if isinstance(recipe.method, Method) else recipe.method
    parts = [
        f"<!-- A model card, {MARK}. The next save or export replaces it. -->\n",
        f"# A classifier of {classes} classes\n\nLearned in {len(state.tasks)} "
        f"{'task' if len(state.tasks) == 1 else 'tasks'} with {_code(method)}.\n",
        _facts(recipe, state, method, parameters, kept, features, choice, drift),
        _data(state.tasks),
        _accuracy(measured, [number for number, t in enumerate(state.tasks, 1) if t.names]),
        "## Limits\n\nIt answers one of its classes for every image, also for images of none of "
        "them. Accuracy\nholds for images like those it was measured on.\n",
    ]
    if accepted:
        listed = "\n".join(f"- {_plain(change)}" for change in accepted)
        parts.append(
            f"## Accepted changes\n\nCode that differs from what was trained with:\n\n{listed}\n"
        )
    if file:
        parts.append(f"## File\n\n{file}")
    return "\n".join(parts)


def _facts(
    recipe: Recipe,
    state: FinalState,
    method: str,
    parameters: int,
    kept: int,
    features: int,
    choice: str,
    drift: str,
) -> str:
    """One row for each decision."""
    settings = ", ".join(f"{name} = {value}" for name, value in recipe.options.items())
    data, network = recipe.data, network_title(recipe)
    rows = {
        "method": f"{_code(method)}{f', {_plain(settings)}' if settings else ''}",
        "scenario": f"`{data.scenario}`: {_SCENARIOS[data.scenario]}",
        "network": f"{_code(network)}, {parameters:,} parameters",
        "input": _input(state),
        **({"pictures": _pictures(data)} if len(state.input_shape) == 3 else {}),
        "images kept": f"{kept:,}" if kept else "none",
        "training": f"{recipe.training.epochs} epochs at most, augmentation `{data.augment}`",
        "seed": str(recipe.seed),
        "versions": f"ancl {version('ancl')}, torch {torch.__version__}, "
        f"Python {platform.python_version()}",
    }
    if recipe.make_method().trains_nothing:
        rows["training"] = "none: the classifier is computed from features"
    if features:
        rows["images kept"] = f"none; {features:,} as features, of which no image can be made"
    if choice:
        rows["classifier"] = _plain(choice)
    if drift:
        rows["drift"] = _plain(drift)
    if notice := weights_notice(state.pretrained):
        rows["pretrained weights"] = notice
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


def _pictures(data: TaskSpec) -> str:
    """How pictures become the input."""
    rule = data.pictures
    return (
        f"resized: `{rule.resize}`, filter `{rule.filter}`; transparent pixels are laid on "
        f"`{rule.background}`"
    )


def network_title(recipe: Recipe) -> str:
    """What the network is called: its name, or the class of a user's own."""
    network = recipe.network["name"]
    return network if isinstance(network, str) else type(network).__name__


def _input(state: FinalState) -> str:
    channels, *size = state.input_shape
    floats = f"float32 ({', '.join(map(str, ('B', *state.input_shape)))})"
    if state.moments is None:
        return floats
    moments = [
        "(" + ", ".join(f"{value:g}" for value in moment) + ")"
        for moment in (state.moments.mean, state.moments.std)
    ]
    if not state.pixels:
        return f"{floats}, normalised inside: mean {moments[0]}, std {moments[1]}"
    return (
        f"uint8 images ({', '.join(map(str, ('B', *size, channels)))}), normalised inside: mean "
        f"{moments[0]}, std {moments[1]} of pixels between 0 and 1"
    )


def _data(tasks: Sequence[TaskState]) -> str:
    """Classes, counts and hashes, task by task."""
    names = [name for task in tasks for name in task.names]
    lines = [
        f"| {number} | {_listed(task.names)}{_again([names[n] for n in task.returning])} | "
        f"{task.sizes[0]:,} | {task.sizes[1]:,} | `{task.key[:16]}` |"
        for number, task in enumerate(tasks, start=1)
    ]
    head = ["| task | classes | images to train on | to validate on | data |"]
    note = "\nData: the start of a hash of these images, their labels and the way they were split."
    return "\n".join(["## Classes and data\n", *head, "|---|---|--:|--:|---|", *lines, note, ""])


def _listed(names: Sequence[Label]) -> str:
    return ", ".join(_code(str(name)) for name in names)


def _again(names: Sequence[Label]) -> str:
    return f" (again: {_listed(names)})" if names else ""


def _accuracy(measured: Sequence[Measured | None], columns: Sequence[int]) -> str:
    """The accuracy on every task that brought classes after every task, and what was forgotten."""
    if not any(measured):
        return "## Accuracy\n\nNot measured.\n"
    head = "| after | " + " | ".join(f"task {number}" for number in columns) + " | on |"
    lines = [head, "|---" + "|--:" * len(columns) + "|---|"]
    for number, row in enumerate(measured, start=1):
        shares = row.accuracy if row else ()
        cells = [
            _percent(shares[j] if j < len(shares) else None, column <= number)
            for j, column in enumerate(columns)
        ]
        lines.append(f"| task {number} | {' | '.join(cells)} | {_plain(row.on) if row else ''} |")
    lost = [
        f"task {column}: {_lost(measured, column, j)}"
        for j, column in enumerate(columns)
        if column < len(measured)
    ]
    forgetting = (
        f"\nForgotten since the best moment before the last task: {'; '.join(lost)}.\n"
        if lost
        else ""
    )
    return "\n".join(["## Accuracy in %\n", *lines, forgetting])


def _percent(share: float | None, learned: bool) -> str:
    if share is None:
        return "not measured" if learned else ""
    return f"{100 * share:.1f}"


def _lost(measured: Sequence[Measured | None], task: int, column: int) -> str:
    """The best accuracy before the last task minus the last, where both are of the same images."""
    last = measured[-1]
    now = last.accuracy[column] if last else None
    rows = [row for row in measured[task - 1 : -1] if row and last and row.on == last.on]
    before = [row.accuracy[column] for row in rows]
    shares = [share for share in before if share is not None]
    if now is None or not shares:
        return "not measured"
    return f"{100 * (max(shares) - now):.1f} points"


def _plain(text: str) -> str:
    """Text in a cell of a table: no markup, no line breaks."""
    shown = printable(text, 500).replace("\n", " ").replace("\t", " ")
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!" else c for c in shown)


def _code(text: str) -> str:
    """A name, as code; a backtick or a bar in it would end the code or the cell."""
    shown = printable(text, 200).replace("\n", " ").replace("\t", " ")
    return _plain(shown) if set("`|") & set(shown) else f"`{shown}`"
