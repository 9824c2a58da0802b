"""The incremental classifier: own labels, saving, loading elsewhere and learning on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ancl import AnclError, Events, Learner, Method, ScenarioError, SpecError, StoreError, Training
from tests.lab import digits
from tests.saved_learners import read_saved, write_saved

TRAINING = Training(epochs=4, batch_size=32, lr=0.02, lr_first=0.05)
NAMES = np.array(["zero", "one", "two", "three", "four", "five"])


def part(*classes: int, test: bool = False) -> tuple[Tensor, Any]:
    samples = digits().test if test else digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], NAMES[samples.y[chosen].numpy()]


def learner(method: str | Method = "a-ewc", **settings: Any) -> Learner:
    given: dict[str, Any] = {"lamb": 100.0, "lamb_a": 10.0} if method == "a-ewc" else {}
    return Learner(method, "mlp", **{"scenario": "til", "training": TRAINING, **given, **settings})


@pytest.fixture(scope="module")
def taught() -> Learner:
    made = learner()
    made.learn(*part(0, 1))
    made.learn(*part(2, 3))
    return made


def test_it_answers_with_the_users_own_labels(taught: Learner) -> None:
    assert taught.tasks == [["one", "zero"], ["three", "two"]]
    assert taught.evaluate(*part(0, 1, test=True), task=0) > 0.95
    assert taught.evaluate(*part(2, 3, test=True), task=1) > 0.9
    assert set(taught.predict(part(0, 1, test=True)[0], task=0)) == {"zero", "one"}
    own = taught.scores(part(2, test=True)[0], task=1)
    assert own[:, :2].isinf().all()
    assert own[:, 2:].isfinite().all()


def test_a_dataset_gives_the_same_as_its_arrays() -> None:
    x, _ = part(0, 1)
    y = torch.tensor([int(name == "one") for name in part(0, 1)[1]])
    images = x.permute(0, 3, 1, 2).float() / 255
    first, second = (learner("finetune", normalization="none") for _ in range(2))
    first.learn(images, y)
    second.learn(TensorDataset(images, y))

    assert torch.equal(first.scores(images), second.scores(images))


class Flat(nn.Module):
    """A network of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_network_of_ones_own_is_given_again_at_loading(tmp_path: Path) -> None:
    made = Learner("lwf", Flat(), scenario="til", training=TRAINING)
    made.learn(*part(0, 1))
    made.save(tmp_path / "own")

    with pytest.raises(SpecError, match=r"Give it again: Learner.load\(path, network="):
        Learner.load(tmp_path / "own")
    again = Learner.load(tmp_path / "own", network=Flat())
    assert torch.equal(again.scores(digits().test.x), made.scores(digits().test.x))


class Stop(Events):
    """Stops at the second training."""

    def __init__(self) -> None:
        self.epochs = 0

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1
        if self.epochs == 6:
            raise KeyboardInterrupt


def test_an_interrupted_task_leaves_the_learner_as_it_was(tmp_path: Path) -> None:
    made = learner(events=Stop(), store=tmp_path)
    made.learn(*part(0, 1))
    before = made.scores(digits().test.x)
    with pytest.raises(KeyboardInterrupt):
        made.learn(*part(2, 3))

    assert made.tasks == [["one", "zero"]]
    assert torch.equal(made.scores(digits().test.x), before)
    made.learn(*part(2, 3))
    whole = learner()
    whole.learn(*part(0, 1))
    whole.learn(*part(2, 3))
    assert torch.equal(made.scores(digits().test.x), whole.scores(digits().test.x))


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        (lambda made: made.learn(*part(0, 4)), ScenarioError, "only the new class 'four'"),
        (lambda made: made.learn(*part(4)), ScenarioError, "only the new class 'four'"),
        (lambda made: made.learn(part(4, 5)[0]), ScenarioError, "came without labels"),
        (lambda made: made.learn(part(4, 5)[0], ["a"]), ScenarioError, "1 labels"),
        (lambda made: made.evaluate(*part(5)), ScenarioError, "'five' were never learned"),
        (lambda made: made.predict(part(0)[0], task=2), ScenarioError, "no task 2"),
        (
            lambda made: made.predict(np.zeros((2, 9, 9, 1), np.uint8)),
            ScenarioError,
            r"shape \(1, 9, 9\)",
        ),
        (lambda made: Learner.load("nowhere"), StoreError, "nowhere is not a saved learner"),
        (lambda made: Learner("lwf", temprature=2), SpecError, "Did you mean 'temperature'"),
        (lambda made: Learner("lwf", lamb=-1), SpecError, "lamb is -1; it must be"),
        (lambda made: Learner("lwf").predict(part(0)[0]), ScenarioError, "Call learn"),
    ],
)
def test_what_cannot_be_is_said(
    taught: Learner, wrong: Callable[[Learner], object], kind: type[AnclError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        wrong(taught)
    assert taught.tasks == [["one", "zero"], ["three", "two"]]


def test_a_network_from_a_file_is_learned_saved_and_checked(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    text = (
        "import math\nfrom torch import nn\n"
        "def net(shape, *, width: int = 4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width))\n"
    )
    text += "other = net\n"
    folder = write("mine", {"net.py": text})
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    learner = Learner(
        "finetune",
        f"{folder}/net.py:net",
        network_options={"width": 5},
        training=TRAINING,
        scenario="til",
    )
    learner.learn(x, [n % 2 for n in range(40)])
    learner.save(tmp_path / "saved")

    # What a directory names is not executed: whoever opens it names the code.
    with pytest.raises(SpecError, match=r"Give it again: Learner\.load\(path, network='.*:net'"):
        Learner.load(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved", network=f"{folder}/net.py:net")

    assert loaded.predict(x) == learner.predict(x)
    with pytest.raises(SpecError, match="its name or its code differs"):
        Learner.load(tmp_path / "saved", network=f"{folder}/net.py:other")
    write("mine", {"net.py": text + "# changed\n"})
    with pytest.raises(SpecError, match="its name or its code differs"):
        Learner.load(tmp_path / "saved", network=f"{folder}/net.py:net")


@pytest.mark.parametrize("method", ["lwf", "a-ewc"])
def test_a_lamb_that_is_found_goes_on_from_task_to_task(method: str, tmp_path: Path) -> None:
    # With this λ plain steps on EWC's penalty would diverge on such a small network.
    training = replace(TRAINING, penalty_step="proximal")
    whole = learner(method, lamb="auto", store=tmp_path / "store", training=training)
    first, second = (whole.learn(*part(*classes))["epochs"] for classes in ((0, 1), (2, 3)))
    whole.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    third, again = (each.learn(*part(4, 5))["epochs"] for each in (whole, loaded))

    def lambs(epochs: Any) -> list[float]:
        return [e["lambs"]["lamb"] for e in epochs if "lamb" in e.get("lambs", {})]

    assert lambs(first) == []
    default = {"lwf": 10.0, "a-ewc": 10_000.0}[method]
    assert lambs(second)[0] == default
    # What the second task ended with is one move away from its last epoch.
    assert lambs(third)[0] != default
    assert 0.49 < lambs(third)[0] / lambs(second)[-1] < 2.01
    assert lambs(again) == lambs(third)
    images = part(0, 2, 4, test=True)[0]
    assert torch.equal(whole.scores(images), loaded.scores(images))


@pytest.mark.parametrize("method", ["a-lwf", "a-ewc"])
def test_a_balance_is_saved_and_learned_on_with(method: str, tmp_path: Path) -> None:
    whole = learner(method, lamb=5.0, lamb_a="balance", store=tmp_path / "store")
    for classes in ((0, 1), (2, 3)):
        told = whole.learn(*part(*classes))
    whole.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    for each in (whole, loaded):
        each.learn(*part(4, 5))

    assert all(epoch["lambs"]["lamb_a"] > 0 for epoch in told["epochs"])
    assert read_saved(tmp_path / "saved").meta["recipe"]["options"]["lamb_a"] == "balance:0.1"
    assert loaded.method == whole.method
    images = part(0, 2, 4, test=True)[0]
    assert torch.equal(whole.scores(images), loaded.scores(images))


def test_a_searched_rate_is_saved_for_the_tasks_to_come(tmp_path: Path) -> None:
    whole = learner("finetune", training=replace(TRAINING, epochs=1, lr_search=True))
    whole.learn(*part(0, 1))
    whole.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")

    for each in (whole, loaded):
        each.learn(*part(2, 3))
    assert torch.equal(loaded.scores(digits().test.x), whole.scores(digits().test.x))


@pytest.mark.parametrize("part_name", ["tasks", "keys", "method"])
def test_a_state_that_was_changed_is_refused(part_name: str, tmp_path: Path) -> None:
    made = learner("finetune")
    made.learn(*part(0, 1))
    made.save(tmp_path / "saved")
    entry = read_saved(tmp_path / "saved")
    entry.meta["state"][part_name] = {"tasks": [], "keys": {"network": "../.."}, "method": 1}[
        part_name
    ]
    write_saved(tmp_path / "saved", entry)

    with pytest.raises(StoreError, match=rf"cannot be opened \(ValidationError.*\n{part_name}"):
        Learner.load(tmp_path / "saved")
