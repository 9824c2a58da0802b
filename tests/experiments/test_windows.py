"""Streams that come once: what is buffered, and when the old network is copied."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import ancl
from ancl import Events, SpecError
from ancl.extend import Network
from tests.lab import MemoryStore, Runner, build, generator, pieces

ONLINE: dict[str, Any] = {
    "data.scenario": "cir",
    "data.every": 6,
    "data.per_class": 30,
    "data.val_fraction": 0.0,
    "network.name": "mlp",
    "network.hidden": [16],
    "training.epochs": 1,
    "training.schedule": "constant",
    "training.batch_size": 10,
    "training.momentum": 0.0,
    "training.lr": 0.1,
    "training.lr_first": 0.1,
    "threads": 1,
}
# All classes come in every part, so that the head never grows.
MIXED = {**ONLINE, "data.order": [0, 1, 2], "data.classes": "2,1", "data.gradual": 5.0}
# The last part has 21 images: no window is of a single one.
MIXED |= {"data.per_class": 67, "loss_over": "seen"}


def online(method: str, **settings: Any) -> ancl.RunSpec:
    return ancl.spec(method, "digits/5", settings={**ONLINE, **settings})


def computed(spec: ancl.RunSpec) -> tuple[Any, Any]:
    """A planned run, and what gives the results of its stages."""
    experiment = build(spec)
    tasks, device = experiment.stream.tasks, experiment.setting.device
    return experiment, Runner(experiment.stages, tasks, device, MemoryStore(), Events())


def centred(features: Tensor) -> Tensor:
    return F.normalize(features - features.mean(dim=1, keepdim=True), dim=1)


class Slow:
    """A-LFL on such a stream, written down as it is described: one loop over batches."""

    def __init__(self, experiment: Any, start: dict[str, Tensor], lamb: float, lamb_a: float):
        self.experiment, self.lamb, self.lamb_a = experiment, lamb, lamb_a
        self.main: Network = experiment.setting.architecture.restore((3,), start)
        self.decays = [experiment.spec.training.weight_decay]
        self.decays.append(experiment.spec.auxiliary.weight_decay)

    def images(self, task: int, *, cut: bool) -> tuple[Tensor, Tensor]:
        """The images of a part, in the order in which they came where it is cut."""
        train = self.experiment.stream.tasks[task].load().train
        moments = self.experiment.setting.normalization
        mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (moments.mean, moments.std))
        x = (train.x.dense().permute(0, 3, 1, 2).float() / 255 - mean) / std
        order = torch.randperm(len(x), generator=generator(0, task, "arrival"))
        return (x[order], train.y[order]) if cut else (x, train.y)

    def steps(self, network: Network, x: Tensor, y: Tensor, path: tuple[Any, ...], anchors: Any):
        """One pass of plain SGD."""
        order = torch.randperm(len(x), generator=generator(0, *path, "batches", 0))
        decay = self.decays[path[1] == "auxiliary"]
        sgd = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=decay)
        for begin, end in pieces(len(x), 10):
            batch = x[order[begin:end]]
            out = network(batch)
            loss = F.cross_entropy(out.logits, y[order[begin:end]])
            for weight, anchor in anchors:
                with torch.no_grad():
                    theirs = centred(anchor(batch).features)
                loss = loss + weight * F.mse_loss(centred(out.features), theirs)
            sgd.zero_grad()
            loss.backward()
            sgd.step()

    def learn(self, window: int, old_every: int, every: int = 6) -> Network:
        """All parts; lengths are in batches of ten images."""
        self.steps(self.main, *self.images(0, cut=False), (0, "main"), [])
        unit = min(window, old_every, every)
        for task in range(1, len(self.experiment.stream.tasks)):
            cut = self.experiment.stream.tasks[task].sizes[0] > 10 * unit + 1
            x, y = self.images(task, cut=cut)
            if (task - 1) % max(1, old_every // every) == 0:
                old = copy.deepcopy(self.main)
            for batch in range(0, every, unit):
                begin = batch * 10
                if begin + 1 >= len(x):
                    break
                if batch and batch % old_every == 0:
                    old = copy.deepcopy(self.main)
                if batch % window == 0:
                    auxiliary = copy.deepcopy(self.main)
                    span = slice(begin, self._end(begin + window * 10, len(x)))
                    where = self._where(task, "auxiliary", begin, cut)
                    self.steps(auxiliary, x[span], y[span], where, [])
                span = slice(begin, self._end(begin + unit * 10, len(x)))
                anchors = [(self.lamb, old), (self.lamb_a, auxiliary)]
                where = self._where(task, "main", begin, cut)
                self.steps(self.main, x[span], y[span], where, anchors)
        return self.main

    def _end(self, end: int, count: int) -> int:
        return count if count - end == 1 else end

    def _where(self, task: int, role: str, begin: int, cut: bool) -> tuple[Any, ...]:
        return (task, role, f"from {begin}") if cut else (task, role)


@pytest.mark.parametrize(
    ("window", "old_every"), [(2, 6), (2, 2), (6, 2), (3, 1), (1, 3), (2, 12), (6, 12)]
)
def test_it_is_what_a_slow_loop_does(window: int, old_every: int) -> None:
    lengths = {"data.window": window, "data.old_every": old_every}
    own = {**MIXED, **lengths, "lamb": 40.0, "lamb_a": 20.0}
    spec = ancl.spec("a-lfl", "digits/5", settings=own)
    experiment, runner = computed(spec)
    assert [task.sizes[0] for task in experiment.stream.tasks] == [60, 60, 60, 21]
    assert all(len(task.present) == 3 for task in experiment.stream.tasks)
    first = runner.obtain(experiment.stages[0].key).tensors
    start = {name.removeprefix("network/"): tensor for name, tensor in first.items()}

    slow = Slow(experiment, start, 40.0, 20.0).learn(window, old_every)
    [key] = {k for name, k in experiment.state.items() if name == "network"}
    made = {n: t for n, t in runner.obtain(key).tensors.items() if n.startswith("network/")}
    expected = slow.tensors()
    assert made.keys() == {f"network/{name}" for name in expected}
    for name, value in expected.items():
        assert torch.allclose(made[f"network/{name}"], value, atol=2e-6), name


def keys(method: str, **settings: Any) -> list[str]:
    return [stage.key for stage in build(online(method, **settings)).stages]


def test_where_nothing_is_cut_keys_are_as_before() -> None:
    memory = {"memory.total": 40, "memory.selection": "reservoir"}
    cut = {"data.window": 3, "data.old_every": 3}
    assert keys("a-lwf", **{"data.window": 6, "data.old_every": 6}) == keys("a-lwf")
    assert keys("er", **memory, **{"data.window": 2}) == keys("er", **memory)
    assert keys("dark-er-pp", **memory, **{"data.old_every": 2}) == keys("dark-er-pp", **memory)
    assert keys("lwf", **{"data.window": 2}) == keys("lwf")
    assert keys("a-lwf", lamb_a=0, **{**cut, "data.window": 3}) == keys(
        "lwf", **{**cut, "data.window": 3}
    )
    assert keys("a-lwf", **{"data.window": 2}) != keys("a-lwf")
    written = online("lwf").plain()["data"]
    assert not {"window", "old_every"} & written.keys()


@pytest.mark.parametrize("method", ["a-dark-er-pp", "a-ewc", "afec-lwf", "a-lwf"])
def test_all_variants_learn_window_by_window_and_count_it(method: str, tmp_path: Path) -> None:
    memory = {"memory.total": 40, "memory.selection": "reservoir"}
    own = memory if "dark" in method else {}
    own |= {"lamb": "auto"} if method == "a-lwf" else {}
    spec = online(method, **own, **{"data.window": 2, "data.old_every": 6})
    result = ancl.run(spec, runs=tmp_path)
    again = ancl.run(spec, runs=tmp_path)

    passes = [row for row in result.log if row["role"] == "auxiliary"]
    assert len(passes) == 3 * 4
    assert len([row for row in result.log if row["role"] == "main"]) == 1 + 3 * 4
    taken = result.costs["main 1" if method == "afec-lwf" else "auxiliary 1"]
    assert taken.backward == (12 if method == "afec-lwf" else 6)
    assert np.array_equal(result.matrices["tag"], again.matrices["tag"], equal_nan=True)
    assert len(ancl.load_run(next(tmp_path.glob("digits*"))).classes) == 10


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("a-lwf", {"data.window": 4}, "does not divide data.every=6"),
        ("lwf", {"data.old_every": 9}, "neither divides data.every=6 nor is a multiple"),
        ("a-lwf", {"data.window": 2, "data.old_every": 3}, "neither divides the other"),
        ("a-lwf", {"data.window": 2, "data.every": None}, "with no data.every"),
        ("a-si", {"data.window": 2}, "by its whole path"),
        ("ewc", {"data.old_every": 2}, "estimates importance where a part ends"),
        ("afec-lwf", {"data.old_every": 2}, "smaller than data.window"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(
    method: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        ancl.run(online(method, **settings))
