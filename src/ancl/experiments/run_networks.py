"""A run's networks, task by task, and what they answer to test images."""

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ancl.data import Samples
from ancl.errors import ScenarioError, StoreError, unknown
from ancl.methods.parts import read_base
from ancl.methods.task_history import ClassHistory
from ancl.networks import Network
from ancl.recipe.build import Experiment, build, threads
from ancl.recipe.recipe import RunSpec
from ancl.state import AUXILIARY, BASE, NETWORK
from ancl.store.entry import StageResult
from ancl.store.store import Store
from ancl.types import strip_prefix

Role = Literal["main", "old", "auxiliary"]


class Predictions(NamedTuple):
    """What a network answers to the test images of all tasks so far, in order.

    Args:
        logits: (N, C), of all classes so far. A method's inference may choose by other scores.
        features: (N, D).
        labels: (N,): positions of classes, which are the columns of ``logits``.
        tasks: (N,): the task that each image belongs to, from 0.
    """

    logits: Tensor
    features: Tensor
    labels: Tensor
    tasks: Tensor


def network_of(
    spec: RunSpec, store: Path, data: Path | None, task: int, role: Role = "main"
) -> Network:
    """A network of a run, in eval mode; nothing in it learns.

    Args:
        spec: The run.
        store: Where its stages are.
        data: Where its data is; see ``ancl.data.data_root``.
        task: After which task, from 0.
        role: ``main``: as the task left it. ``old``: what the task began with. ``auxiliary``: the
            network that learned the task alone.

    Raises:
        ScenarioError: There is no such task, or no such network in it.
        StoreError: The store does not hold it.
    """
    with threads(spec.threads):
        return _network(_built(spec, data, task), store, task, role)


def predictions_of(spec: RunSpec, store: Path, data: Path | None, task: int) -> Predictions:
    """What the main network answers after a task; see ``network_of``."""
    with threads(spec.threads):
        experiment = _built(spec, data, task)
        network = _network(experiment, store, task, "main")
        setting = experiment.setting
        answer = setting.images.answering(network.to(setting.device), setting.device)
        tasks = [earlier for earlier in experiment.stream.tasks[: task + 1] if earlier.is_column]
        parts = [earlier.load().test for earlier in tasks]
        output = answer(Samples.concatenate(parts))
        labels = torch.cat([part.y for part in parts])
        counts = torch.tensor([len(part) for part in parts])
        numbers = torch.tensor([earlier.index for earlier in tasks]).repeat_interleave(counts)
        return Predictions(output.logits, output.features, labels, numbers)


def _built(spec: RunSpec, data: Path | None, task: int) -> Experiment:
    experiment = build(spec, data)
    count = len(experiment.stream.tasks)
    if not 0 <= task < count:
        raise ScenarioError(
            f"There is no task {task}: the run has {count}, counted from 0 to {count - 1}."
        )
    return experiment


def _network(experiment: Experiment, store: Path, task: int, role: Role) -> Network:
    if role not in get_args(Role):
        raise ScenarioError(unknown("role of a network", str(role), get_args(Role)))
    if role == "old" and task == 0:
        raise ScenarioError("The first task, task 0, has no old network. Give another task.")
    after = task - (role == "old")
    by_name = {stage.name: stage for stage in experiment.stages if stage.task == after}
    if role == "auxiliary" and AUXILIARY not in by_name:
        raise ScenarioError(
            f"{experiment.method.name} stores no auxiliary network of task {task}. ANCL's variants "
            f"(a-NAME) train one in every task after task 0; AFEC's is never stored by itself."
        )
    read = by_name["evaluate"].inputs
    keys = {NETWORK: by_name[AUXILIARY].key if role == "auxiliary" else read[NETWORK]}
    if BASE in read:
        keys[BASE] = read[BASE]
    entries: dict[str, StageResult] = {}
    for part, key in keys.items():
        entry = Store(store, lambda message: None).load(key)
        if entry is None:
            raise StoreError(
                f"The store {store} does not hold the {role} network of task {task} ({key[:12]}). "
                f"Run the same spec again with this store: what is missing is computed."
            )
        entries[part] = entry
    blocks = ClassHistory.of(experiment.stream.tasks[: after + 1]).blocks
    tensors = strip_prefix(NETWORK, entries[NETWORK].tensors)
    network = experiment.setting.architecture.restore(blocks, tensors, read_base(entries))
    return network.eval().requires_grad_(False)
