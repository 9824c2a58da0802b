"""The result of a run: made from stored stages, and written to a run directory."""

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from ruamel.yaml import YAML

from ancl.checks import checked
from ancl.errors import StoreError
from ancl.experiments.run_networks import (
    Predictions,
    Role,
    network_of,
    predictions_of,
)
from ancl.files import (
    STAGES,
    check_place,
    claim,
    replace_text,
    store_place,
    write_stages,
)
from ancl.hashing import digest
from ancl.metrics import (
    METRICS,
    Estimate,
    Matrix,
    mean_and_error,
    summary,
    write_matrix,
)
from ancl.networks import Network
from ancl.recipe.recipe import RunSpec
from ancl.runtime import numerics
from ancl.stages.final_state import FinalState
from ancl.stages.stage import Stage
from ancl.stages.steps import UpdateMemory
from ancl.state import CHOICE, DRIFT
from ancl.statistics import Choice, Drift
from ancl.training.cost import Cost

MATRICES = ("taw", "tag", "taw_val", "tag_val")


class Places(NamedTuple):
    """Directories: of results, of stored stages, and of data, if it was named.

    ``overwrite`` says whether results replace files in their way that ancl did not write.
    """

    runs: Path
    store: Path
    data: Path | None = None
    overwrite: bool = False

    @classmethod
    def of(
        cls,
        runs: str | Path,
        store: str | Path | None = None,
        data: str | Path | None = None,
        *,
        overwrite: bool = False,
    ) -> Self:
        """The store is ``.store`` below the results unless another directory is named."""
        return cls(Path(runs), store_place(runs, store), Path(data) if data else None, overwrite)

    def check(self) -> None:
        """Refuse, as ``StoreError``, to write into the current directory or the disk's root."""
        check_place(self.runs, "results")
        check_place(self.store, "the store")


class ParameterCount(NamedTuple):
    """How many parameters a network stores, and the most that a training of the task changed.

    ``images`` are the exemplars that are kept from then on, at most.
    """

    stored: int
    trained: int
    images: int = 0


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run found.

    Args:
        spec: What decided it.
        matrices: Accuracy on task j after task i, by ``taw``, ``tag`` (and ``_val``). A task that
            brought no classes of its own has a row and no column.
        images: The number of images of every task to train, validate and test on.
        metrics: Numbers by name, of the matrix that counts in the scenario.
        log: Every epoch of every training, in order.
        keys: The keys of its stages, which ``ancl store prune`` keeps.
        seconds: Seconds of training by stage, wherever they were spent.
        state: What ``load_run`` opens it from; none where its stages are not stored.
        notes: Limits of the result that a reader should know.
        parameters: Of the network after every task; empty where a stage was stored before
            parameters were counted.
        costs: What every training took, by stage, as ``seconds``; without those that were stored
            before this was counted.
        outside: The hashes of your own code, weights and images that decided it, by setting.
        choices: What validation images chose of the classifier after each task, of methods that
            compute it.
        drifts: How far the backbone moved in each task after the first, of methods that compute
            their classifier and train the backbone.
        places: Where its networks and images are; nothing where it was read from files.
    """

    spec: RunSpec
    matrices: Mapping[str, Matrix]
    images: tuple[tuple[int, int, int], ...]
    metrics: Mapping[str, float]
    log: tuple[dict[str, Any], ...]
    keys: tuple[str, ...]
    seconds: Mapping[str, float]
    state: FinalState | None = None
    notes: tuple[str, ...] = ()
    parameters: tuple[ParameterCount, ...] = ()
    outside: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()
    drifts: tuple[Drift, ...] = ()
    places: Places | None = None
    costs: Mapping[str, Cost] = field(default_factory=dict)

    def network(self, task: int, role: Role = "main") -> Network:
        """A network of the run, in eval mode: as a task left it, or its old or auxiliary one.

        Tasks are counted from 0. See ``ancl.experiments.run_networks.network_of``.
        """
        places = self._stored()
        return network_of(self.spec, places.store, places.data, task, role)

    def predictions(self, task: int) -> Predictions:
        """Logits, features and labels of the test images of all tasks so far, after a task."""
        places = self._stored()
        return predictions_of(self.spec, places.store, places.data, task)

    def _stored(self) -> Places:
        if self.places is None or self.state is None:
            raise StoreError(
                "The networks of this result are not on disk. Give ancl.run a directory, as in "
                "runs='runs', and code of your own that can be stored."
            )
        return self.places

    @property
    def sizes(self) -> tuple[int, ...]:
        """Test images of every task that has a column."""
        return column_sizes(self.images)

    @property
    def counted(self) -> Matrix:
        """The matrix that counts in the scenario."""
        return self.matrices[self.spec.accuracy]


class Finished(NamedTuple):
    """A run's result, the directory it was written to, and what it ran on, where that is read."""

    directory: Path
    result: RunResult
    environment: Mapping[str, Any] = {}


class Damaged(NamedTuple):
    """A directory that cannot be reported, or only in part, and the reason."""

    directory: Path
    reason: str


def column_sizes(images: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """Test images of every task that has any: one without has no classes of its own."""
    return tuple(test for _, _, test in images if test)


def make_result(
    spec: RunSpec,
    stages: Sequence[Stage],
    sizes: Sequence[tuple[int, int, int]],
    metas: Mapping[str, Mapping[str, Any]],
    state: FinalState | None = None,
) -> RunResult:
    """The result of a run whose stages are computed.

    Args:
        spec: What decided the run.
        stages: Its stages in order.
        sizes: Images to train, validate and test on, of every task.
        metas: What each stage stored besides tensors, by key.
        state: What the run is opened from again.
    """
    rows: dict[str, list[Sequence[float | None]]] = {name: [] for name in MATRICES}
    log: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    costs: dict[str, Cost] = {}
    for stage in stages:
        meta = metas[stage.key]
        if "cost" in meta:
            before = costs.get(f"{stage.name} {stage.task}", Cost(0, 0, 0.0))
            costs[f"{stage.name} {stage.task}"] = before.plus(Cost(**meta["cost"]))
        where = {"task": stage.task, "stage": stage.name}
        log += [{**where, **epoch} for epoch in meta.get("log", [])]
        # A part of a stream may be learned in several pieces, each a stage of its own.
        spent = seconds.get(f"{stage.name} {stage.task}", 0)
        seconds[f"{stage.name} {stage.task}"] = spent + meta["seconds"]
        if stage.name == "evaluate":
            for name in MATRICES:
                rows[name].append(meta[name])
    choices = [metas[stage.key][CHOICE] for stage in stages if CHOICE in metas[stage.key]]
    drifts = [metas[stage.key][DRIFT] for stage in stages if DRIFT in metas[stage.key]]
    matrices = {name: decode_matrix(values) for name, values in rows.items()}
    metrics = summary(matrices[spec.accuracy], column_sizes(sizes))
    keys = tuple(stage.key for stage in stages)
    parameters = count_parameters(stages, metas)
    return RunResult(
        *(spec, matrices, tuple(sizes), metrics, tuple(log), keys, seconds, state),
        parameters=parameters,
        choices=tuple(checked(Choice, item) for item in choices),
        costs=costs,
        drifts=tuple(checked(Drift, item) for item in drifts),
    )


def count_parameters(
    stages: Sequence[Stage], metas: Mapping[str, Mapping[str, Any]]
) -> tuple[ParameterCount, ...]:
    """Parameters after every task, and exemplars."""
    stored, trained, images = dict[int, int](), dict[int, int](), dict[int, int]()
    for stage in stages:
        task, meta = stage.task, metas[stage.key]
        if isinstance(stage, UpdateMemory):
            images[task] = sum(stage.parts.kept) * stage.parts.history.groups
        if "stored" in meta:
            stored[task] = meta["stored"]
        if "trained" in meta:
            trained[task] = max(trained.get(task, 0), meta["trained"])
    tasks = sorted({stage.task for stage in stages})
    if not all(task in stored and task in trained for task in tasks):
        return ()
    return tuple(ParameterCount(stored[t], trained[t], images.get(t, 0)) for t in tasks)


def decode_matrix(rows: Sequence[Sequence[float | None]]) -> Matrix:
    """The accuracy matrix of stored rows, one after each task; NaN above the diagonal.

    Examples:
        >>> decode_matrix([[0.5], [0.25, None]]).tolist()
        [[0.5, nan], [0.25, nan]]
    """
    matrix = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = [np.nan if value is None else value for value in row]
    return matrix


def estimates(results: Sequence[RunResult]) -> dict[str, Estimate]:
    """The mean of every metric over runs, with its standard error."""
    return {name: mean_and_error([result.metrics[name] for result in results]) for name in METRICS}


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Mean, standard error and number of seeds; what does not exist is null."""
    mean, error, n = estimate
    return {
        "mean": None if math.isnan(mean) else mean,
        "standard_error": None if math.isnan(error) else error,
        "n": n,
    }


# -- the run directory -----------------------------------------------------------------------


def run_directory(runs: Path, spec: RunSpec) -> Path:
    """Deterministic directory of a run's results."""
    method = Path(spec.method.rpartition(":")[0]).stem + spec.method.rpartition(":")[2]
    name = method if ":" in spec.method else spec.method
    mark = spec_hash(spec)[:8]
    return runs / f"{spec.benchmark.replace('/', '-')}_{name}_s{spec.seed}_{mark}"


_FILES = (
    *("spec.yaml", "log.jsonl", "environment.json", "result.json", STAGES),
    *(f"accuracy_{name}.csv" for name in MATRICES),
)


def prepare_run(
    directory: Path, spec: RunSpec, keys: Iterable[str], *, overwrite: bool = False
) -> None:
    """Write the spec before training, and the keys of all stages, which a prune keeps.

    Args:
        directory: The run's directory, which is ours from then on.
        spec: What decides the run.
        keys: The keys of its stages.
        overwrite: Whether files that ancl did not write are replaced.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    claim(directory, _FILES, [STAGES], overwrite=overwrite)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_stages(directory, keys)
        replace_text(directory / "spec.yaml", spec_yaml(spec))
    except OSError as error:
        raise StoreError(
            f"Results cannot be written to {directory} ({error.strerror}). Choose a directory that "
            f"you may write to with --runs DIR."
        ) from error


def write_run(directory: Path, result: RunResult) -> None:
    """Write a run directory; ``result.json`` comes last and marks a complete one.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    claim(directory, _FILES, [STAGES])
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_stages(directory, result.keys)
        replace_text(directory / "spec.yaml", spec_yaml(result.spec))
        for name, matrix in result.matrices.items():
            write_matrix(directory / f"accuracy_{name}.csv", matrix)
        replace_text(directory / "log.jsonl", "".join(json.dumps(e) + "\n" for e in result.log))
        replace_text(directory / "environment.json", json.dumps(environment(result.spec), indent=1))
        replace_text(directory / "result.json", json.dumps(result_json(result), indent=1))
    except OSError as error:
        raise StoreError(
            f"The results of this run cannot be written to {directory} ({error.strerror}). "
            f"What was trained is kept in the store: make room or give another --runs DIR, and "
            f"the same command resumes."
        ) from error


def result_json(result: RunResult) -> dict[str, Any]:
    """A result as JSON; what does not exist (forgetting of one task) is null."""
    return {
        "spec": result.spec.plain(),
        "metrics": {n: None if math.isnan(v) else v for n, v in result.metrics.items()},
        "sizes": list(result.sizes),
        "images": list(result.images),
        "matrices": {
            name: [[None if math.isnan(v) else v for v in row] for row in matrix.tolist()]
            for name, matrix in result.matrices.items()
        },
        "keys": list(result.keys),
        "seconds": dict(result.seconds),
        "notes": list(result.notes),
        "parameters": [item._asdict() for item in result.parameters],
        "costs": {name: cost._asdict() for name, cost in result.costs.items()},
        "state": result.state and result.state.model_dump(mode="json"),
        "outside": dict(result.outside),
        **({"choices": [item.json() for item in result.choices]} if result.choices else {}),
        **({"drifts": [item.json() for item in result.drifts]} if result.drifts else {}),
        "numerics": numerics(torch.device(result.spec.device)) | {"threads": result.spec.threads},
    }


def spec_yaml(spec: RunSpec) -> str:
    """A spec as the YAML that ``--config`` reads."""
    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(spec.plain(), text)
    return text.getvalue()


def environment(spec: RunSpec) -> dict[str, Any]:
    """The machine, the packages and the numerics of a run."""
    packages = ("ancl", "torch", "numpy", "pillow", "safetensors", "pydantic")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "packages": {name: version(name) for name in packages},
        "numerics": numerics(torch.device(spec.device)) | {"threads": spec.threads},
    }


def spec_hash(spec: RunSpec) -> str:
    """The hash of everything that decides a run."""
    return digest(spec.plain())
