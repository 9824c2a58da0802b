"""What a learner says before and while it learns."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Events, Learner, Memory, Training
from ancl.extend import architecture, without_head
from tests.lab import classifier_layer, digits

SHORT = Training(epochs=2, batch_size=32, lr=0.05, schedule="cosine")


def part(*classes: int) -> tuple[Tensor, list[int]]:
    samples = digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


class Said(Events):
    """Keeps messages and epochs."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.epochs = 0

    def say(self, message: str) -> None:
        self.said.append(message)

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1


def test_classes_to_be_told_apart_without_a_memory_are_warned_of_before_training() -> None:
    made = Learner("a-lwf", "mlp", training=SHORT)
    with pytest.warns(UserWarning, match=r"often nearly all.*memory=ancl\.Memory\(") as said:
        made.learn(*part(0, 1))
    assert len(said) == 1
    assert said[0].filename == __file__


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lwf", {"scenario": "til"}),
        ("lwf", {"memory": Memory(per_class=2)}),
        ("joint", {}),
        ("lwf", {"scenario": "dil"}),
    ],
)
def test_others_are_not_warned(method: str, options: dict[str, Any]) -> None:
    said = Said()
    Learner(method, "mlp", training=SHORT, events=said, **options).learn(*part(0, 1))
    assert said.said == []
    assert said.epochs == 2


class Whole(nn.Module):
    """A classifier: features, then a linear layer."""

    def __init__(self, outputs: int, name: str = "fc", last: nn.Module | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
        self.name, self.last = name, last or nn.Identity()
        setattr(self, name, nn.Linear(16, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(getattr(self, self.name)(self.body(x)))


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (Whole(10), ("fc", 10)),
        (Whole(1000, "final"), ("final", 1000)),
        (Whole(1000, "embed", nn.Flatten()), ("embed", 1000)),
        (Whole(40, "embed"), None),
        (Whole(1000, "final", nn.ReLU()), None),
        (without_head(Whole(1000)), None),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 500)), ("1", 500)),
    ],
)
def test_a_classifier_that_is_still_on_is_noticed(
    module: nn.Module, found: tuple[str, int] | None
) -> None:
    assert classifier_layer(architecture(module, (1, 8, 8))) == found


def test_its_removal_is_named_before_training() -> None:
    made = Learner("lwf", Whole(1000), scenario="til", training=SHORT)
    with pytest.warns(
        UserWarning, match=r"1000 outputs .*ancl.extend.without_head\(module, 'fc'\)"
    ):
        made.learn(*part(0, 1))
    assert classifier_layer(architecture("mlp", (1, 8, 8), hidden=(512,))) is None


def test_progress_is_silent_unless_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    for verbose in (None, False):
        Learner("lwf", "mlp", scenario="til", training=SHORT, verbose=verbose).learn(*part(0, 1))
        assert capfd.readouterr() == ("", "")
    Learner("lwf", "mlp", scenario="til", training=SHORT, verbose=True).learn(*part(0, 1))
    out, err = capfd.readouterr()
    assert out == ""
    assert "task 1 main: 2 epochs, val" in err


def test_a_bar_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    made = Learner("lwf", "mlp", scenario="til", training=SHORT)
    for classes in ((0, 1), (2, 3)):
        made.learn(*part(*classes))
    err = capfd.readouterr().err
    assert "━" in err
    assert "task 2 main: 2 epochs" in err
