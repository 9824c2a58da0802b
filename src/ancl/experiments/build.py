"""From a spec to a result: names become objects, stages are computed, a directory is written."""

import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML

from ancl.data import Source, Stream, make_stream
from ancl.data.registry import load_source
from ancl.errors import SpecError, StoreError
from ancl.experiments.spec import RunSpec, memory_problems
from ancl.hashing import digest
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.task_history import check_exemplars
from ancl.metrics import Matrix, read_matrix, summary, write_matrix
from ancl.networks import architecture
from ancl.runtime import numerics
from ancl.stages.plan import Setting, StateKeys, plan_each, plan_notes
from ancl.stages.runner import MemoryStore, Reporter, Runner, Storage
from ancl.stages.stage import Stage

Reading = Callable[[str, Path | None], Source]
"""Gives the images of a name; ``lru_cache(1)(load_source)`` reads those of many runs once."""
MATRICES = ("taw", "tag", "taw_val", "tag_val")


@dataclass(frozen=True, eq=False)
class Experiment:
    """A spec as objects: what is learned, by what, and the plan of it.

    ``state`` are the keys of what the last task leaves behind. ``lambs`` are the λ of the tasks
    that are planned, where each has its own.
    """

    spec: RunSpec
    method: Method
    stream: Stream
    setting: Setting
    stages: tuple[Stage, ...]
    state: StateKeys
    lambs: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run found.

    Args:
        spec: What decided it.
        matrices: Accuracy on task j after task i, by ``taw``, ``tag`` (and ``_val``).
        sizes: Test images of every task.
        images: How many images there were to learn from, validation included, and to test on.
        metrics: Numbers by name, of the matrix that counts in the scenario.
        log: Every epoch of every training, in order.
        keys: The stages it is made of, by key: what ``ancl store prune`` keeps.
        seconds: Seconds of training by stage, wherever they were spent.
    """

    spec: RunSpec
    matrices: Mapping[str, Matrix]
    sizes: tuple[int, ...]
    images: tuple[int, int]
    metrics: Mapping[str, float]
    log: tuple[dict[str, Any], ...]
    keys: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def counted(self) -> Matrix:
        """The matrix that counts in the scenario."""
        return self.matrices["taw" if self.spec.data.scenario == "til" else "tag"]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads, and go back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build(
    spec: RunSpec,
    root: Path | None = None,
    read: Reading = load_source,
    lambs: Sequence[float] = (),
) -> Experiment:
    """Turn every name of a spec into an object, and plan the run; call it under ``threads``.

    Args:
        spec: What decides the run.
        root: Where data lies; see ``ancl.data.data_root``. It decides nothing.
        read: What reads the data.
        lambs: The λ of each task, where λ is decided task by task; later tasks are not planned.
    """
    data = spec.data
    source = read(data.source, root)
    stream = make_stream(
        source,
        scenario=data.scenario,
        tasks=data.tasks,
        classes=data.classes,
        first=data.first,
        order=data.order,
        domains=data.domains,
        seed=spec.seed,
        val_fraction=data.val_fraction,
        per_class=data.per_class,
        test_per_class=data.test_per_class,
    )
    method = MethodRef(spec.method).make(spec.options)
    _check_memory(spec, method, stream)
    options = dict(spec.network)
    name = options.pop("name")
    setting = Setting(
        architecture=architecture(
            name,
            source.train.input_shape,
            head=method.head,
            head_options=method.head_options,
            **options,
        ),
        training=spec.training,
        auxiliary=spec.auxiliary,
        normalization=source.normalization,
        augment=data.augment,
        memory=spec.memory if spec.memory.size else None,
        task_aware=data.scenario == "til",
        seed=spec.seed,
        device=torch.device(spec.device),
    )
    for task in stream.tasks:
        if method.data == "current":
            check_exemplars(setting.memory, method.hold_out, stream.tasks[: task.index + 1])
    each = [_method_at(spec, lamb) for lamb in lambs] or [method] * len(stream.tasks)
    stages, state = plan_each(each, stream.tasks, setting)
    return Experiment(spec, method, stream, setting, stages, state, tuple(lambs))


def _check_memory(spec: RunSpec, method: Method, stream: Stream) -> None:
    """Check what a spec cannot where the number of classes is known only after reading."""
    groups = sum(len(task.names) for task in stream.tasks)
    problems = memory_problems(spec.memory, method, spec.data.scenario, groups)
    if problems:
        raise SpecError("\n".join(problems))


def run(
    spec: RunSpec,
    store: Storage | None = None,
    reporter: Reporter | None = None,
    root: Path | None = None,
) -> RunResult:
    """Learn the stream, stage by stage, and measure it."""
    with threads(spec.threads):
        return run_experiment(build(spec, root), store or MemoryStore(), reporter or Reporter())


def run_experiment(experiment: Experiment, store: Storage, reporter: Reporter) -> RunResult:
    """The same for an experiment already built."""
    stream = experiment.stream
    unstored = next((stage.unstored for stage in experiment.stages if stage.unstored), "")
    if unstored:
        reporter.say(f"Results of this run are not stored: {unstored}")
    for note in stream.source.notes:
        reporter.say(note)
    for note in plan_notes(experiment.method, stream.tasks, experiment.setting):
        reporter.say(note)
    device = experiment.setting.device
    runner = Runner(experiment.stages, stream.tasks, device, store, reporter)
    rows: dict[str, list[list[float | None]]] = {name: [] for name in MATRICES}
    log: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    for stage in experiment.stages:
        meta = runner.obtain(stage.key).meta
        where = {"task": stage.task, "stage": stage.name}
        log += [{**where, **epoch} for epoch in meta.get("log", [])]
        seconds[f"{stage.name} {stage.task}"] = meta["seconds"]
        if stage.name == "evaluate":
            for name in MATRICES:
                rows[name].append(meta[name])
    matrices = {name: _matrix(values) for name, values in rows.items()}
    sizes = tuple(task.sizes[2] for task in stream.tasks)
    counted = matrices["taw" if experiment.setting.task_aware else "tag"]
    keys = tuple(stage.key for stage in experiment.stages)
    images = (sum(sum(task.sizes[:2]) for task in stream.tasks), sum(sizes))
    metrics = summary(counted, sizes)
    return RunResult(experiment.spec, matrices, sizes, images, metrics, tuple(log), keys, seconds)


def run_directory(runs: Path, spec: RunSpec) -> Path:
    """Where a run's results go: the same spec always to the same place."""
    method = Path(spec.method.rpartition(":")[0]).stem + spec.method.rpartition(":")[2]
    name = method if ":" in spec.method else spec.method
    mark = digest(json.loads(spec.model_dump_json()))[:8]
    return runs / f"{spec.benchmark.replace('/', '-')}_{name}_s{spec.seed}_{mark}"


def write_run(directory: Path, result: RunResult) -> None:
    """Write a run directory; ``result.json`` comes last, so that it marks a whole one."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(directory / "spec.yaml", spec_yaml(result.spec))
        for name, matrix in result.matrices.items():
            write_matrix(directory / f"accuracy_{name}.csv", matrix)
        _replace(directory / "log.jsonl", "".join(json.dumps(e) + "\n" for e in result.log))
        _replace(directory / "environment.json", json.dumps(environment(result.spec), indent=1))
        _replace(directory / "result.json", json.dumps(result_json(result), indent=1))
    except OSError as error:
        raise StoreError(
            f"The results of this run cannot be written to {directory} ({error.strerror}). "
            f"What was trained is kept in the store: make room or give another --runs DIR, and "
            f"the same command goes on."
        ) from error


def read_run(directory: Path) -> RunResult:
    """Read a run directory back.

    Raises:
        StoreError: A file is missing or damaged.
    """
    try:
        found = json.loads((directory / "result.json").read_text())
        log = (directory / "log.jsonl").read_text().splitlines()
        matrices = {name: read_matrix(directory / f"accuracy_{name}.csv") for name in MATRICES}
        return RunResult(
            RunSpec.model_validate(found["spec"]),
            matrices,
            tuple(found["sizes"]),
            tuple(found["images"]),
            {name: math.nan if v is None else v for name, v in found["metrics"].items()},
            tuple(json.loads(line) for line in log),
            tuple(found["keys"]),
            found["seconds"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(
            f"{directory} is not a whole run directory ({type(error).__name__}: {error}). Run the "
            f"same command again: what was trained is found in the store."
        ) from error


def result_json(result: RunResult) -> dict[str, Any]:
    """A result as JSON; what does not exist (forgetting of one task) is null."""
    return {
        "spec": json.loads(result.spec.model_dump_json()),
        "metrics": {n: None if math.isnan(v) else v for n, v in result.metrics.items()},
        "sizes": list(result.sizes),
        "images": list(result.images),
        "matrices": {
            name: [[None if math.isnan(v) else v for v in row] for row in matrix.tolist()]
            for name, matrix in result.matrices.items()
        },
        "keys": list(result.keys),
        "seconds": dict(result.seconds),
        "numerics": numerics(torch.device(result.spec.device)) | {"threads": result.spec.threads},
    }


def spec_yaml(spec: RunSpec) -> str:
    """A spec as the YAML that ``--config`` reads."""
    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(json.loads(spec.model_dump_json()), text)
    return text.getvalue()


def environment(spec: RunSpec) -> dict[str, Any]:
    """What the run ran on."""
    packages = ("ancl", "torch", "numpy", "pillow", "safetensors", "pydantic")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "packages": {name: version(name) for name in packages},
        "numerics": numerics(torch.device(spec.device)) | {"threads": spec.threads},
    }


def _method_at(spec: RunSpec, lamb: float) -> Method:
    return MethodRef(spec.method).make({**spec.options, "lamb": lamb})


def _matrix(rows: list[list[float | None]]) -> Matrix:
    matrix = np.full((len(rows), len(rows)), np.nan)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = [np.nan if value is None else value for value in row]
    return matrix


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def most_epochs(spec: RunSpec, stage: Stage) -> int:
    """The largest number of epochs of a stage; 0 where it trains nothing."""
    return stage.epochs
