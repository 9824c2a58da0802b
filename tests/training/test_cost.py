"""What a training costs: images, backward passes and FLOPs, counted on the way."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ancl
from tests.lab import Cost, CostMeter

SHORT: dict[str, Any] = {"data.tasks": 2, "training.epochs": 3, "network.hidden": [8]}


def test_flops_are_those_of_every_product() -> None:
    layers = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
    meter = CostMeter()
    with meter.step(5):
        layers(torch.ones(5, 3)).sum().backward()
    with meter.step(10):  # not counted again: each image as one of the first step
        pass

    # Forward 2·(3·4 + 4·2) an image; backward the weights' gradients again, and the second
    # layer's input's: 2·(3·4 + 4·2) + 2·4·2.
    assert meter.total == Cost(15, 2, 15 * (40 + 40 + 16))


def test_a_resumed_meter_counts_on() -> None:
    whole, first, second = CostMeter(), CostMeter(), CostMeter()
    for meter, images in ((whole, 4), (first, 4), (whole, 2)):
        with meter.step(images):
            nn.Linear(2, 2)(torch.ones(images, 2)).sum().backward()
    second.restore(json.loads(json.dumps(first.state())))
    with second.step(2):
        pass

    assert second.total == whole.total


def test_counting_changes_no_bit() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 2))
    x, gradients = torch.randn(4, 1, 8, 8), []
    for counted in (False, True):
        layers.zero_grad()
        if counted:
            with CostMeter().step(4):
                layers(x).square().sum().backward()
        else:
            layers(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in layers.parameters() if p.grad is not None])

    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("method", ["lwf", "a-lwf", "afec-lwf"])
def test_results_hold_what_every_training_cost(tmp_path: Path, method: str) -> None:
    result = ancl.run(method, "digits/5", settings=SHORT, threads=1, runs=tmp_path)
    (directory,) = tmp_path.glob("digits*")
    written = json.loads((directory / "result.json").read_text())["costs"]
    rows = ancl.results(runs=tmp_path)

    images = [task[0] for task in result.images]
    for task in (0, 1):
        # AFEC's auxiliary network takes turns with the main one, inside its stage.
        epochs = [e for e in result.log if (e["stage"], e["task"]) == ("main", task)]
        assert result.costs[f"main {task}"].images == len(epochs) * images[task]
    assert ("auxiliary 1" in result.costs) == (method == "a-lwf")
    assert {name: Cost(**cost) for name, cost in written.items()} == result.costs
    for name, cost in result.costs.items():
        stage, task = name.split()
        got = {
            row["quantity"]: row["value"]
            for row in rows
            if (row["stage"], row["task"]) == (stage, int(task) + 1)
        }
        assert (got["images"], got["backward_passes"], got["flops"]) == cost
        assert got["seconds"] == result.seconds[name]
