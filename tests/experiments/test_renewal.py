"""A memory of a stream that comes once which takes every batch as soon as it is learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import ancl
from ancl import Events, SpecError
from tests.lab import MemoryStore, Runner, Samples, arrival_keys, build, generator

# All classes come in every part, so that the head never grows.
ONLINE: dict[str, Any] = {
    "data.scenario": "cir",
    "data.every": 6,
    "data.order": [0, 1, 2],
    "data.classes": "2,1",
    "data.gradual": 5.0,
    "data.per_class": 67,
    "data.val_fraction": 0.0,
    "network.name": "mlp",
    "network.hidden": [16],
    "training.epochs": 1,
    "training.schedule": "constant",
    "training.batch_size": 10,
    "training.momentum": 0.0,
    "training.lr": 0.1,
    "training.lr_first": 0.1,
    "memory.total": 25,
    "memory.batch": 7,
    "memory.selection": "reservoir",
    "threads": 1,
}


def online(method: str, **settings: Any) -> ancl.RunSpec:
    return ancl.spec(method, "digits/5", settings={**ONLINE, **settings})


class Slow:
    """ER and DER++ with a list of images that every batch enters, image by image."""

    def __init__(self, experiment: Any, runner: Any) -> None:
        self.experiment, self.runner = experiment, runner
        self.main = experiment.setting.architecture.restore((3,), self.result("main", 0))
        held = self.result("memory", 0, "memory/")
        keys = arrival_keys(Samples(held["x"], held["y"]), 0).tolist()
        logits = held.get("extra/logits", torch.zeros(len(keys), 3))
        columns = (held["x"], held["y"].tolist(), keys, logits)
        self.memory = [list(row) for row in zip(*columns, strict=True)]

    def result(self, name: str, task: int, prefix: str = "network/") -> dict[str, Tensor]:
        key = [s.key for s in self.experiment.stages if (s.name, s.task) == (name, task)][-1]
        tensors = self.runner.obtain(key).tensors
        return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

    def inputs(self, x: Tensor) -> Tensor:
        moments = self.experiment.setting.normalization
        mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (moments.mean, moments.std))
        return (x.permute(0, 3, 1, 2).float() / 255 - mean) / std

    def learn(self, task: int, alpha: float | None) -> None:
        train = self.experiment.stream.tasks[task].load().train
        x, y = train.x.dense(), train.y
        keys = arrival_keys(train, 0).tolist()
        order = torch.randperm(len(x), generator=generator(0, task, "main", "batches", 0))
        draws = generator(0, task, "main", "replay", 0)
        sgd = torch.optim.SGD(self.main.parameters(), lr=0.1, weight_decay=2e-4)
        cuts = [(a, min(a + 10, len(x))) for a in range(0, len(x), 10)]
        if cuts[-1][1] - cuts[-1][0] == 1:
            cuts[-2:] = [(cuts[-2][0], cuts[-1][1])]
        # Old images come first, then the part's own in their canonical order, as in its file.
        place = {id(row): number for number, row in enumerate(self.memory)}
        for begin, end in cuts:
            index = order[begin:end]
            now = sorted(self.memory, key=lambda row: place[id(row)])
            drawn = torch.randperm(len(now), generator=draws)[:7].tolist()
            again = [now[number] for number in drawn]
            own, other = (
                self.main(self.inputs(images)).logits
                for images in (x[index], torch.stack([row[0] for row in again]))
            )
            labels = torch.tensor([row[1] for row in again])
            if alpha is None:
                loss = F.cross_entropy(torch.cat([own, other]), torch.cat([y[index], labels]))
            else:
                stored = torch.stack([row[3] for row in again])
                loss = F.cross_entropy(own, y[index]) + alpha * F.mse_loss(other, stored)
                loss = loss + 0.5 * F.cross_entropy(other, labels)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            for number, answer in zip(index.tolist(), own.detach(), strict=True):
                row = [x[number], int(y[number]), keys[number], answer]
                place[id(row)] = 1000 + number
                self.memory.append(row)
                if len(self.memory) > 25:
                    least = min(self.memory, key=lambda each: each[2])
                    self.memory = [each for each in self.memory if each is not least]
        self.memory.sort(key=lambda row: place[id(row)])


@pytest.mark.parametrize(("method", "alpha"), [("er", None), ("dark-er-pp", 0.1)])
def test_it_is_what_a_slow_loop_does(method: str, alpha: float | None) -> None:
    experiment = build(online(method, **{"memory.renewed": "batch"}))
    tasks, device = experiment.stream.tasks, experiment.setting.device
    slow = Slow(experiment, Runner(experiment.stages, tasks, device, MemoryStore(), Events()))
    for task in range(1, len(tasks)):
        slow.learn(task, alpha)
        made = slow.result("main", task)
        for name, value in slow.main.tensors().items():
            assert torch.allclose(made[name], value, atol=2e-6), (task, name)
        memory = slow.result("memory", task, "memory/")
        assert torch.equal(memory["x"], torch.stack([row[0] for row in slow.memory]))
        assert memory["y"].tolist() == [row[1] for row in slow.memory]
        if alpha is not None:
            stored = torch.stack([row[3] for row in slow.memory])
            assert torch.allclose(memory["extra/logits"], stored, atol=2e-6)


@pytest.mark.parametrize("selection", ["reservoir", "balanced"])
def test_in_the_end_a_memory_holds_the_same_images(selection: str) -> None:
    held = []
    for renewed in ("part", "batch"):
        own = {"memory.selection": selection, "memory.renewed": renewed}
        experiment = build(online("er", **own))
        tasks, device = experiment.stream.tasks, experiment.setting.device
        runner = Runner(experiment.stages, tasks, device, MemoryStore(), Events())
        tensors = runner.obtain(experiment.state["memory"]).tensors
        held.append(sorted(image.flatten().tolist() for image in tensors["memory/x"]))
    assert held[0] == held[1]


@pytest.mark.parametrize("method", ["er", "er-ace", "mir", "agem", "a-dark-er-pp"])
def test_methods_learn_so_and_a_run_is_resumed(method: str, tmp_path: Path) -> None:
    growing = {"data.order": "natural", "data.classes": None, "data.gradual": 0.0}
    own = {**growing, "data.per_class": 30, "memory.renewed": "batch"}
    spec = online(method, **own)
    one, again = (ancl.run(spec, runs=tmp_path) for _ in range(2))
    part = ancl.run(online(method, **{**own, "memory.renewed": "part"}), runs=tmp_path)

    assert np.array_equal(one.matrices["tag"], again.matrices["tag"], equal_nan=True)
    assert one.keys[:2] == part.keys[:2]
    assert one.keys[-1] != part.keys[-1]
    assert "renewed" not in part.spec.plain()["memory"]
    directory = next(path for path in tmp_path.glob("digits*") if path.is_dir())
    assert len(ancl.load_run(directory).classes) == 10


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("icarl", {"memory.batch": None}, "memory.renewed=batch is of methods that replay"),
        ("er", {"memory.selection": "ring"}, "Use reservoir or balanced"),
        ("a-dark-er-pp", {"data.window": 2}, "learns a part in pieces"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, settings: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ancl.run(online(method, **{"memory.renewed": "batch", **settings}))


def in_tasks(method: str, renewed: str) -> Any:
    settings = {
        "data.scenario": "cil",
        "data.tasks": 5,
        "data.per_class": 60,
        "training.epochs": 8,
        "memory.total": 60,
        "memory.per_class": None,
        "memory.selection": "reservoir",
        "memory.renewed": renewed,
    }
    return ancl.spec(method, "digits/5", settings=settings, seed=0)


def test_in_tasks_of_several_epochs_an_image_is_held_once() -> None:
    held = []
    for renewed in ("part", "batch"):
        experiment = build(in_tasks("er", renewed))
        tasks, device = experiment.stream.tasks, experiment.setting.device
        runner = Runner(experiment.stages, tasks, device, MemoryStore(), Events())
        tensors = runner.obtain(experiment.state["memory"]).tensors
        held.append(sorted(image.flatten().tolist() for image in tensors["memory/x"]))
    assert len(held[0]) == 60
    assert held[0] == held[1]


def test_new_classes_are_answered_where_replay_batches_hold_them() -> None:
    """Of er-ace: nothing else teaches them against old classes."""
    specs = [in_tasks("er-ace", renewed) for renewed in ("part", "batch")]

    told = ["nothing teaches the newest classes" in " ".join(build(s).warnings) for s in specs]
    assert told == [True, False]
    newest = [ancl.run(spec).matrices["tag"][-1, -1] for spec in specs]
    assert newest[0] < 0.1
    assert newest[1] > 0.3
