"""The directories of runs and searches read back.

What is read back is data: every field is checked, no code that it names is imported, and numbers
that follow from the accuracy matrices are computed from them again.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ancl.checks import checked
from ancl.errors import StoreError, counted, printable
from ancl.experiments.results import (
    MATRICES,
    ParameterCount,
    RunResult,
    column_sizes,
    decode_matrix,
)
from ancl.files import read_plain
from ancl.metrics import ROUNDED, Matrix, checked_summary, read_matrix
from ancl.recipe.recipe import RunSpec
from ancl.stages.final_state import FinalState
from ancl.statistics import Choice, Drift
from ancl.training.cost import Cost

T = TypeVar("T")
DECISION = "decision.json"
"""The file that a finished search has."""


def read_run(directory: Path) -> RunResult:
    """Read a run directory back; its metrics are computed from the accuracy matrix again.

    Raises:
        StoreError: A file is missing or damaged, or says another number than the matrix.
    """
    try:
        text = read_plain(directory / "result.json").decode("utf-8")
        loaded = json.loads(text, parse_float=_finite, parse_constant=_finite)
        if not isinstance(loaded, dict):
            raise ValueError("result.json is JSON of another shape than a result")
        written = _checked(_Written, loaded, "result.json")
        lines = read_plain(directory / "log.jsonl").decode("utf-8").splitlines()
        log = [json.loads(line) for line in lines]
        _checked(list[_Epoch], log, "log.jsonl")
        matrices = _matrices(directory, written)
        result = RunResult(
            written.spec,
            matrices,
            written.images,
            checked_summary(
                matrices[written.spec.accuracy], column_sizes(written.images), written.metrics
            ),
            tuple(log),
            written.keys,
            written.seconds,
            None if written.state is None else FinalState.read(written.state),
            written.notes,
            written.parameters,
            written.outside,
            written.choices,
            written.drifts,
            costs=written.costs,
        )
        _check_state(result)
        return result
    except RecursionError as error:
        raise StoreError(f"{directory}: a file is nested too deeply. Remove it.") from error
    except (OSError, ValueError) as error:
        why = printable(f"{type(error).__name__}: {error}", 500)
        raise StoreError(
            f"{directory} is not a whole run directory ({why}). Run the same command again: what "
            f"was trained is found in the store."
        ) from error


Count = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]


class _Written(BaseModel):
    """What is read back of ``result.json``."""

    spec: RunSpec
    images: tuple[tuple[Count, Count, Count], ...]
    metrics: dict[str, float | None]
    matrices: dict[str, tuple[tuple[Share | None, ...], ...]] = {}
    keys: tuple[str, ...]
    seconds: dict[str, float]
    state: Any = None
    notes: tuple[str, ...] = ()
    parameters: tuple[ParameterCount, ...] = ()
    outside: dict[str, str] = {}
    choices: tuple[Choice, ...] = ()
    costs: dict[str, Cost] = {}
    drifts: tuple[Drift, ...] = ()


class _Epoch(BaseModel):
    """What every line of ``log.jsonl`` holds, besides more."""

    model_config = ConfigDict(strict=True)

    task: Annotated[int, Ge(0)]
    stage: str
    role: str
    epoch: int
    train: dict[str, float | str | None]
    val: dict[str, float | str | None]
    lambs: dict[str, float] = {}


def _checked(kind: Any, value: Any, file: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{file}: {where}: {first['msg']}") from error


def _finite(text: str) -> float:
    """A number of JSON; Python would also read NaN and infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _matrices(directory: Path, found: _Written) -> dict[str, Matrix]:
    """The accuracy matrices of ``result.json``, which the CSV files hold with six decimals.

    Raises:
        ValueError: They are not the same, or do not fit the tasks.
    """
    made: dict[str, Matrix] = {}
    tasks = counted(len(found.images), "task")
    for name in MATRICES:
        rounded = read_matrix(directory / f"accuracy_{name}.csv")
        if rounded.shape != (len(found.images), len(column_sizes(found.images))):
            raise ValueError(f"accuracy_{name}.csv: accuracies do not fit {tasks}")
        rows = found.matrices.get(name)
        exact = rounded if rows is None else decode_matrix(rows)
        alike = exact.shape == rounded.shape
        if not alike or not np.allclose(exact, rounded, rtol=0, atol=ROUNDED, equal_nan=True):
            raise ValueError(f"result.json and accuracy_{name}.csv hold different accuracies")
        made[name] = exact
    return made


def _check_state(result: RunResult) -> None:
    state = result.state
    if state is None:
        return
    if not set(state.keys.values()) <= set(result.keys):
        raise ValueError("the state names entries that are not of this run")
    if tuple(task.sizes for task in state.tasks) != result.images:
        raise ValueError("the state does not have the tasks of the accuracy matrix")


# -- searches --------------------------------------------------------------------------------


def read_searches(runs: Path) -> list[dict[str, Any]]:
    """All whole searches below a directory of runs."""
    searches = []
    for file in sorted((runs / "searches").glob(f"*/{DECISION}")):
        with suppress(StoreError):  # a damaged one must not hide the numbers of runs
            searches.append(read_search(file.parent))
    return searches


def read_search(directory: Path) -> dict[str, Any]:
    """The decision of a search with every trial that led to it.

    Raises:
        StoreError: A file is missing or damaged, or its numbers do not agree.
    """
    decision = {**read_json(directory / DECISION), "trials": _read(directory / "trials.json", list)}
    needed = {"protocol", "method", "benchmark", "decided_by"}
    lacking = sorted(needed - set(decision))
    if lacking or not all(isinstance(trial, dict) for trial in decision["trials"]):
        raise StoreError(f"{directory} is not a whole search: it lacks {lacking}.")
    for trial in decision["trials"]:
        _check_trial(directory, trial, decision)
    return decision


def _check_trial(directory: Path, trial: Mapping[str, Any], decision: Mapping[str, Any]) -> None:
    """Refuse a mean that is not its scores', and a choice that is not the decision's."""
    scores, mean, step = trial.get("scores"), trial.get("mean"), trial.get("step")
    try:
        seeds = list(checked(dict[str, float], scores or {}).values())
        written = None if mean is None or not seeds else checked(float, mean)
        other = written is not None and abs(math.fsum(seeds) / len(seeds) - written) > ROUNDED
        unlike = bool(trial.get("chosen")) and trial.get(str(step)) != decision.get(str(step))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{directory}: a trial is damaged ({printable(str(error), 200)})."
        ) from error
    if other or unlike:
        what = f"its mean {mean} is not that of its scores" if other else "the decision is another"
        raise StoreError(
            f"{directory}: a trial of {step} is damaged: {what}. Run the search again."
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a file; ``StoreError`` where there is none."""
    return _read(path, dict)


def _read(path: Path, kind: type[T]) -> T:
    try:
        # JSON has no NaN; a report shows nothing there.
        content = json.loads(read_plain(path).decode("utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError) as error:
        why = printable(f"{type(error).__name__}: {error}", 300)
        raise StoreError(f"{path} cannot be read ({why}).") from error
    if not isinstance(content, kind):
        raise StoreError(f"{path} holds JSON of another shape than was written.")
    return content
