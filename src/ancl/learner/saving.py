"""A learner on disk: what is written of it, and what is made of that again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ancl.data import Split, Task
from ancl.errors import MethodError, SpecError, StoreError
from ancl.memory import Memory
from ancl.methods.method import Method
from ancl.store.entry import DamagedError, StageResult, read_entry
from ancl.training.config import Training

KIND = "learner 2"


def read_saved(path: str | Path) -> StageResult:
    """The directory a learner was saved to.

    Raises:
        StoreError: It is not a saved learner, or is damaged.
    """
    try:
        entry = read_entry(Path(path))
    except DamagedError as error:
        raise StoreError(
            f"{path} is not a saved learner: {error.reason}. Give a directory that Learner.save "
            f"wrote."
        ) from error
    if entry.meta.get("kind") != KIND:
        raise StoreError(f"{path} holds no learner. Give a directory that Learner.save wrote.")
    return entry


def given_again(what: str, saved: str | None, given: Any) -> Any:
    """What was saved by name, or what is given for a part of one's own."""
    if saved is None and given is None:
        raise SpecError(
            f"This learner was saved with a {what} of your own. Give it again: "
            f"Learner.load(path, {what}=…)."
        )
    return given if given is not None else saved


def training_again(values: Mapping[str, Any]) -> Training:
    """A training from its JSON."""
    return Training(**{**values, "milestones": tuple(values["milestones"])})


def arguments_again(
    meta: Mapping[str, Any], method: Method | None, network: nn.Module | None
) -> dict[str, Any]:
    """What a saved learner was made with; parts of one's own are given."""
    same = ("network_options", "scenario", "seed", "val_fraction", "augment")
    return {
        "method": given_again("method", meta["method"], method),
        "network": given_again("network", meta["network"], network),
        "training": training_again(meta["training"]),
        "auxiliary": training_again(meta["auxiliary"]),
        "memory": Memory(**meta["memory"]),
        **{name: meta[name] for name in same},
        **meta["settings"],
    }


def task_meta(task: Task) -> dict[str, Any]:
    """A task as JSON, without its images."""
    return {
        "names": list(task.names),
        "start": task.classes.start,
        "key": task.key,
        "test_key": task.test_key,
        "sizes": list(task.sizes),
        "counts": list(task.counts),
    }


def task_again(index: int, meta: Mapping[str, Any]) -> Task:
    """A task whose images are gone."""

    def gone() -> Split:
        raise MethodError(
            f"The images of task {index} are not part of a saved learner, and this method learns "
            f"from the images of all tasks. Learn all tasks in one go, or use another method."
        )

    names = tuple(meta["names"])
    classes = slice(meta["start"], meta["start"] + len(names))
    sizes, counts = tuple(meta["sizes"]), tuple(meta["counts"])
    return Task(index, classes, names, meta["key"], meta["test_key"], sizes, counts, gone)
