"""The task that images and labels make after others, and whether it can be learned."""

from collections.abc import Collection, Sequence

import torch

from ancl.data import Label, Samples, Task, task_from
from ancl.data.storage import ImageView
from ancl.errors import ScenarioError, SpecError
from ancl.methods.method import Method
from ancl.methods.task_history import check_hold_out
from ancl.recipe.recipe import Recipe
from ancl.recipe.resolve import memory_problems
from ancl.stages.setting import Setting

_SHOWN = 5


def next_task(
    x: ImageView, labels: Sequence[Label], before: Sequence[Task], recipe: Recipe
) -> Task:
    """The task that images and labels make after others.

    In ``dil`` it has the first task's classes, in their order. Else it adds those of its classes
    that are new to all, maybe none; known ones come again.

    Raises:
        ScenarioError: Its classes are not those that the scenario lets it bring.
    """
    known: tuple[Label, ...] = ()
    scenario = recipe.data.scenario
    if scenario == "dil" and before:
        names, start = before[0].names, 0
        _check_same(labels, names)
    else:
        known = tuple(name for task in before for name in task.names)
        new = set(labels) - set(known)
        names = tuple(sorted_labels(new))
        start = len(known)
        if scenario != "cil" or not before:
            _check_several(names)
    position = {name: index for index, name in enumerate((*known, *names))}
    return task_from(
        Samples(x, torch.tensor([position[name] for name in labels])),
        index=len(before),
        classes=slice(start, start + len(names)),
        names=names,
        seed=recipe.seed,
        val_fraction=recipe.data.val_fraction,
        test=None,
        known=known,
        by_hash=recipe.make_method().infer.holds is not None,
    )


def sorted_labels(labels: Collection[Label]) -> list[Label]:
    """Labels in the order that the new classes of a task have: numbers, then texts."""
    return sorted(labels, key=lambda name: (isinstance(name, str), name))


def _check_several(names: Sequence[Label]) -> None:
    """Refuse a single new class, where there is nothing to tell it from."""
    if len(names) == 1:
        raise ScenarioError(
            f"This task has only the new class {names[0]!r}, and no other to tell it from. "
            f"Give at least 2 new classes, or none."
        )


def _check_same(labels: Sequence[Label], names: Sequence[Label]) -> None:
    """Refuse other classes than the first task's: old and auxiliary network know all of them."""
    strangers = sorted(set(labels) - set(names), key=str)
    if strangers:
        raise ScenarioError(
            f"The classes {_listed(strangers)} are new, but in the scenario dil every task has the "
            f"first one's classes: {_listed(names)}. Leave out their images, or learn new classes "
            f"with scenario='cil' or 'til'."
        )
    missing = [name for name in names if name not in set(labels)]
    if missing:
        raise ScenarioError(
            f"There are no images of the classes {_listed(missing)}, but in the scenario dil every "
            f"task has all of the first one's classes. Add images of them."
        )


def _listed(names: Sequence[Label]) -> str:
    """The first few, as they would be written: 1 and '1' are two labels."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


def check_learnable(
    recipe: Recipe, method: Method, tasks: Sequence[Task], setting: Setting
) -> None:
    """Refuse tasks whose images the memory cannot be shared by, or that come again in vain.

    Raises:
        SpecError: It is too small for the number of classes (and domains), the method cannot
            learn known classes again, or its head has no rows for new ones.
        ScenarioError: A class has too few images to hold any of them out.
    """
    groups = sum(len(task.names) for task in tasks)
    memory = setting.memory or recipe.memory
    problems = memory_problems(memory, method, recipe.data.scenario, groups)
    if method.all_classes and tasks[-1].classes.stop > (setting.rows or 0):
        problems.append(
            f"{method.name} has head=fixed: all classes of a run from the start. A learner does "
            f"not know which classes will come. Use head=growing."
        )
    if tasks[-1].returning and method.why_once:
        problems.append(
            f"{method.name} cannot learn known classes again: {method.why_once}. "
            f"Leave their images out, or begin with another method, such as lwf or icarl"
            f"{method.way_out}."
        )
    if problems:
        raise SpecError("\n".join(problems))
    check_hold_out(setting.memory, method.hold_out, tasks)
