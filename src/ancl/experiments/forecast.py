"""About how long stages will take: a few steps are timed, and images are counted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import torch

from ancl.compute import cores
from ancl.compute.graph import Graph, Holds, Node, epochs_done
from ancl.methods.parts import StageContext
from ancl.recipe.build import build, images_per_epoch, threads
from ancl.recipe.recipe import RunSpec
from ancl.stages.runner import image_loader
from ancl.training.objective import Objective

_TIMED_BATCHES = 2
_START_SECONDS = process_time()
"""What this process computed before: its start. A worker's takes as long."""


def seconds_an_image(spec: RunSpec, root: Path | None = None) -> float:
    """Seconds of training per image: a few steps on the first task, timed after a warm-up."""
    with threads(spec.threads):
        experiment = build(spec, root)
        images = image_loader(experiment.stream.tasks)
        device = experiment.setting.device
        context = StageContext(device, lambda trainer: [], lambda message: None, images)
        grow, main = (
            next(stage for stage in experiment.stages if stage.name == name)
            for name in ("grow", "main")
        )
        work = main.work({"start": grow.run({}, context)}, context)
        training = replace(
            spec.training.at(0), epochs=2, schedule="constant", warmup=0.0, lr_search=False
        )
        count = min(len(work.split.train), _TIMED_BATCHES * training.batch_size)
        few = work.split.train.take(torch.arange(count))
        network, objective = work.main_network(), Objective(work.task_loss)
        fit = work.fit(network, objective, [few], [], training, "main")
        next(fit)
        began = perf_counter()
        next(fit)
        return (perf_counter() - began) / count


class TimeEstimate(NamedTuple):
    """About how long work takes on this machine, from a few timed steps.

    Args:
        seconds: At most about this long, the start of processes included.
        start: Of these, the start of processes.
    """

    seconds: float
    start: float


def estimate_time(graph: Graph, store: Holds, workers: int = 1) -> TimeEstimate:
    """At most about how long the stages of a graph take that the store lacks.

    Args:
        graph: The runs.
        store: Where stored stages and checkpoints are.
        workers: The number of stages computed at the same time.
    """
    todo = [n for n in graph.nodes.values() if n.stage.unstored or not store.has(n.stage.key)]
    rounds = math.ceil(workers / cores()) if workers > 1 else 0
    start = _START_SECONDS * (1 + rounds)
    specs = [node.spec for node in todo if node.epochs]
    if not specs:
        return TimeEstimate(start, start)
    speed = seconds_an_image(specs[0], graph.root)
    done = {node.stage.key: epochs_done(node.stage, store) for node in todo}
    return TimeEstimate(start + estimated_seconds(todo, speed, done) / workers, start)


def estimated_seconds(
    nodes: Sequence[Node], an_image: float, done: Mapping[str, int] | None = None
) -> float:
    """At most this long the trainings take one by one; a frozen network's forward pass is 1/3.

    Args:
        nodes: The stages.
        an_image: Seconds of training per image.
        done: The epochs that checkpoints hold, by key.
    """
    total = 0.0
    for node in nodes:
        anchors = 0
        if node.stage.name == "main" and node.stage.task:
            anchors = 1 + ("auxiliary" in node.stage.inputs)
        epochs = node.epochs - (done or {}).get(node.stage.key, 0)
        total += epochs * node.images * an_image * (1 + anchors / 3)
    return total


def passes(node: Node, images: Sequence[tuple[int, int, int]]) -> float:
    """Images that a stage trains on; a forward pass alone counts as a third."""
    stage, task = node.stage, node.stage.task
    if stage.name == "evaluate":
        return sum(val + test for _, val, test in images[: task + 1]) / 3
    if stage.name not in ("main", "auxiliary"):
        return 0.0
    main, auxiliary = images_per_epoch(node.spec, images)[task]
    if stage.name == "auxiliary":
        return stage.epochs * (auxiliary + images[task][1] / 3)
    anchors = bool(stage.parts.old) + bool(stage.parts.auxiliary)
    # AFEC's auxiliary network takes turns with the main one, and importance is estimated each time.
    turns = 2 * auxiliary if stage.parts.alternating else 0
    return stage.epochs * (main * (1 + anchors / 3) + images[task][1] / 3 + turns)
