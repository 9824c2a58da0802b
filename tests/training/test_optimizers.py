"""Optimizers by name, epochs and rates by task: what they are given, and how they resume."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ancl
from ancl import Events, Learner, SpecError, Training
from tests.lab import Epoch, Layer, Stage, make_optimizer, optimizer_problems, program, resolve

SHORT: dict[str, Any] = {"data.tasks": 2, "training.epochs": 4, "network.hidden": [8]}
SHORT |= {"training.schedule": "constant", "data.per_class": 20}

OWN = program(
    "import torch\n\n"
    "class Signs(torch.optim.Optimizer):\n"
    "    def __init__(self, params, lr, decay=0.5):\n"
    "        super().__init__(params, {'lr': lr, 'decay': decay, 'count': 0})\n"
    "    @torch.no_grad()\n"
    "    def step(self):\n"
    "        for group in self.param_groups:\n"
    "            group['count'] += 1\n"
    "            for p in group['params']:\n"
    "                state = self.state[p]\n"
    "                state['seen'] = state.get('seen', 0) + 1\n"
    "                mean = state.setdefault('mean', torch.zeros_like(p))\n"
    "                mean.mul_(group['decay']).add_(p.grad, alpha=1 / state['seen'])\n"
    "                p.sub_(mean.sign() * group['lr'] / group['count'])\n\n"
    "class Hidden(Signs):\n"
    "    def step(self):\n"
    "        self.more = getattr(self, 'more', 0) + 1\n"
    "        super().step()\n"
    "        for group in self.param_groups:\n"
    "            for p in group['params']:\n"
    "                p.data.add_(self.more)\n"
)


def test_what_an_optimizer_is_given() -> None:
    weights = {"w": torch.nn.Parameter(torch.ones(2))}
    made = make_optimizer(
        weights, Training(optimizer="adam", lr=0.25, optimizer_options={"betas": (0.5, 0.75)})
    )
    plain = make_optimizer(weights, Training())

    assert type(made) is torch.optim.Adam
    group = made.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.25, (0.5, 0.75), 2e-4)
    assert (type(plain), plain.param_groups[0]["momentum"]) == (torch.optim.SGD, 0.9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adamm"}, "There is no optimizer 'adamm'. Did you mean 'adam'?"),
        ({"optimizer": "lbfgs"}, "There is no optimizer 'lbfgs'"),
        ({"optimizer": "adam", "optimizer_options": {"beta": 1}}, "cannot be used: TypeError"),
        ({"optimizer": "muon"}, "optimizer=muon cannot be used: ValueError"),
        ({"optimizer": "gone.py:Signs"}, "gone.py"),
        ({"optimizer": "own.py:Hidden"}, "does not go on from a saved state as it was"),
        ({"epochs": [3, 0]}, "epochs_by_task is [3, 0]"),
        ({"lr": [0.1], "lr_search": True}, "lr_by_task gives every task's rate"),
    ],
)
def test_mistakes_are_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)

    with pytest.raises(SpecError) as caught:
        ancl.spec("lwf", "digits/5", training=settings)

    assert said in str(caught.value)


class Stop(Events):
    """Ends the work after some epochs, as Ctrl-C does."""

    def __init__(self, epochs: int) -> None:
        self._left = epochs

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["adam", "rmsprop", "asgd", "adafactor", "own.py:Signs"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    spec = ancl.spec("lwf", "digits/5", settings={**SHORT, "training.optimizer": name}, threads=1)
    whole = ancl.run(spec, runs="whole")
    with pytest.raises(KeyboardInterrupt):
        ancl.run(spec, runs="stopped", events=Stop(7))
    resumed = ancl.run(spec, runs="stopped")

    assert len(list(Path("stopped/.store/checkpoints").glob("*"))) == 0
    ours, theirs = (result.network(1).tensors() for result in (whole, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert whole.costs == resumed.costs


def test_own_code_is_in_the_key_and_not_in_a_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    settings = {**SHORT, "training.optimizer": "own.py:Signs"}
    first = ancl.run("finetune", "digits/5", settings=settings, threads=1, runs="runs")
    Path("own.py").write_text(OWN.replace("mean.sign()", "mean"))
    second = ancl.run("finetune", "digits/5", settings=settings, threads=1, runs="runs")

    assert set(first.keys) & set(second.keys) == {first.keys[0]}  # the head that grows alone
    assert first.outside["training.optimizer"] != second.outside["training.optimizer"]
    with pytest.raises(SpecError, match=r"a learner takes optimizers of torch\.optim alone"):
        Learner("finetune", network="mlp", training={"optimizer": "own.py:Signs"})


def test_a_name_is_spelt_as_its_class_or_small() -> None:
    both = [ancl.spec("lwf", "digits/5", training={"optimizer": n}) for n in ("Adam", "adam")]

    assert both[0] == both[1]


def test_epochs_and_rates_may_be_a_list_by_task() -> None:
    listed = ancl.spec("a-lwf", "digits/5", training={"epochs": [5, 3], "lr": [0.5, 0.25, 0.125]})
    plain = ancl.spec("a-lwf", "digits/5", training={"epochs": 3, "epochs_first": 5})

    at = [(listed.training.at(task).epochs, listed.training.at(task).lr) for task in range(4)]
    assert at == [(5, 0.5), (3, 0.25), (3, 0.125), (3, 0.125)]
    assert listed.auxiliary.at(2).epochs == 3
    assert [plain.training.at(task).epochs for task in (0, 1)] == [5, 3]
    assert "epochs_by_task" not in plain.plain()["training"]
    assert optimizer_problems(listed.training) == []


def test_a_number_takes_a_list_back_and_a_mistake_names_its_flag() -> None:
    lower = Layer("file", {"training.epochs": [5, 3]})
    over = Layer("command line", {"training.epochs": 2}, labels={"training.epochs": "--epochs"})
    wrong = over._replace(values={"training.epochs": [3, "x"]})

    assert resolve("lwf", "digits/5", [lower, over]).spec.training.epochs_by_task is None
    with pytest.raises(SpecError, match=r"^--epochs: training\.epochs_by_task is \[3, 'x'\]"):
        resolve("lwf", "digits/5", [wrong])
