"""The plug-ins on Avalanche's own strategies and benchmarks, where Avalanche is installed."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.lab import AFECPlugin, ANCLPlugin
from tests.lab import digits as digits_source

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Avalanche's own
    pytest.mark.skipif(
        importlib.util.find_spec("avalanche") is None,
        reason="avalanche is not installed: pip install avalanche-lib",
    ),
]


@pytest.fixture(scope="module")
def avalanche() -> Any:
    """What the tests use of Avalanche."""
    _import_torchvision()
    benchmarks, models, plugins, supervised = (
        importlib.import_module(f"avalanche.{name}")
        for name in ("benchmarks", "models", "training.plugins", "training.supervised")
    )
    return SimpleNamespace(
        nc_benchmark=benchmarks.nc_benchmark,
        IncrementalClassifier=models.IncrementalClassifier,
        SimpleMLP=models.SimpleMLP,
        Replay=plugins.ReplayPlugin,
        LwF=plugins.LwFPlugin,
        Evaluation=plugins.EvaluationPlugin,
        Naive=supervised.Naive,
    )


def _import_torchvision() -> None:
    """Import it, where its compiled part does not fit this torch without that part."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision")
        _KEPT.append(library)


_KEPT: list[Any] = []
"""A library's operators are gone with it."""


class Growing(nn.Module):
    """Features, and a classifier that Avalanche lets grow."""

    def __init__(self, avalanche: Any) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 100), nn.ReLU())
        self.classifier = avalanche.IncrementalClassifier(100)

    def forward(self, x: torch.Tensor) -> Any:
        return self.classifier(self.features(x))


def digits(part: Any) -> TensorDataset:
    images = TensorDataset(part.x.dense().float().div(255).flatten(1), part.y.long())
    images.targets = part.y.tolist()  # Avalanche reads it
    return images


def learn(
    avalanche: Any,
    plugins: Sequence[Any],
    *,
    seed: int = 0,
    epochs: int = 4,
    lr: float = 0.05,
    grows: bool = True,
) -> tuple[nn.Module, float, float]:
    """Naive and plug-ins on 5 experiences of 2 digits; the model and its two accuracies."""
    source = digits_source()
    benchmark = avalanche.nc_benchmark(
        digits(source.train), digits(source.test), 5, task_labels=False, seed=seed, shuffle=True
    )
    torch.manual_seed(seed)
    model = Growing(avalanche) if grows else avalanche.SimpleMLP(10, 64, 100, drop_rate=0.2)
    strategy = avalanche.Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr, momentum=0.9),
        train_mb_size=32,
        train_epochs=epochs,
        plugins=list(plugins),
        evaluator=avalanche.Evaluation(),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience)
    return model, *accuracies(model.eval(), benchmark.test_stream)


@torch.no_grad()
def accuracies(model: nn.Module, stream: Any) -> tuple[float, float]:
    """Mean over experiences, in %: among an experience's own classes, and among all."""
    own, among_all = [], []
    for experience in stream:
        x = torch.stack([row[0] for row in experience.dataset])
        y = torch.tensor([int(row[1]) for row in experience.dataset])
        classes = torch.tensor(sorted(experience.classes_in_this_experience))
        logits = model(x)
        own.append((classes[logits[:, classes].argmax(1)] == y).float().mean())
        among_all.append((logits.argmax(1) == y).float().mean())
    return 100 * float(torch.stack(own).mean()), 100 * float(torch.stack(among_all).mean())


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("plugin", [ANCLPlugin, AFECPlugin])
def test_without_weights_it_is_naive_to_the_bit(avalanche: Any, plugin: Any, grows: bool) -> None:
    naive, *_ = learn(avalanche, [], grows=grows)

    for name in ("lwf", "lfl", "rwalk"):
        beside, *_ = learn(avalanche, [plugin(name, lamb=0, lamb_a=0)], grows=grows)
        assert same(naive, beside), name


def test_without_an_auxiliary_network_it_is_avalanche_s_own_lwf(avalanche: Any) -> None:
    naive, *_ = learn(avalanche, [])
    theirs, *_ = learn(avalanche, [avalanche.LwF(alpha=1.0, temperature=2.0)])
    ours, *_ = learn(avalanche, [ANCLPlugin("lwf", lamb=1.0, lamb_a=0, temperature=2.0)])

    assert not same(naive, ours)
    # Theirs is a divergence, ours a cross-entropy: the same gradient, other roundings.
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ANCLPlugin("icarl", lamb=1.0, lamb_a=1.0),
        lambda: ANCLPlugin("lfl", lamb=10.0, lamb_a=10.0),
        lambda: ANCLPlugin("ewc", lamb=1.0, lamb_a=1.0),
        lambda: ANCLPlugin("ewc", lamb=1.0, lamb_a=1.0, estimator="sample"),
        lambda: ANCLPlugin("mas", lamb=1.0, lamb_a=1.0),
        lambda: ANCLPlugin("si", lamb=0.1, lamb_a=0.1),
        lambda: ANCLPlugin("rwalk", lamb=0.1, lamb_a=0.1),
        lambda: AFECPlugin("finetune", lamb_a=10.0),
        lambda: AFECPlugin("lwf", lamb=1.0, lamb_a=10.0),
    ],
)
def test_every_omega_works_beside_replay(avalanche: Any, make: Callable[[], Any]) -> None:
    """Beside Avalanche's replay: it runs, moves the weights, and all classes stay known."""
    replay, *_ = learn(avalanche, [avalanche.Replay(mem_size=100)])
    model, own, among_all = learn(avalanche, [avalanche.Replay(mem_size=100), make()])

    assert not same(replay, model)
    assert own > 90
    assert among_all > 60


def test_the_example_of_the_page_runs(avalanche: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "avalanche.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    source = digits_source()
    parts = [digits(part) for part in (source.train, source.test)]
    for images in parts:
        small = images.tensors[0].reshape(-1, 8, 8)
        images.tensors = (nn.functional.pad(small, (10, 10, 10, 10)), images.tensors[1])
    benchmark = avalanche.nc_benchmark(*parts, 5, task_labels=False, seed=0, shuffle=True)
    given = {"benchmark": benchmark}
    torch.manual_seed(0)
    exec(code, given)

    own, among_all = accuracies(cast(nn.Module, given["model"]).eval(), benchmark.test_stream)
    assert own > 90
    assert among_all > 50


def test_numbers_beside_avalanche_s_lwf(avalanche: Any) -> None:
    """The numbers of docs/avalanche.md; run with -s to see them."""
    plugins: dict[str, Callable[[], list[Any]]] = {
        "Naive": list,
        "Avalanche's LwF": lambda: [avalanche.LwF(alpha=1.0, temperature=2.0)],
        "ANCLPlugin lwf, λ_a = 0": lambda: [ANCLPlugin("lwf", lamb=1.0, lamb_a=0)],
        "ANCLPlugin lwf": lambda: [ANCLPlugin("lwf", lamb=1.0, lamb_a=1.0)],
        "Replay": lambda: [avalanche.Replay(mem_size=100)],
        "Replay, ANCLPlugin lwf": lambda: [
            avalanche.Replay(mem_size=100),
            ANCLPlugin("lwf", lamb=1.0, lamb_a=1.0),
        ],
    }
    means = {}
    for name, make in plugins.items():
        found = torch.tensor(
            [learn(avalanche, make(), seed=s, epochs=15, lr=0.01)[1:] for s in range(3)]
        )
        means[name] = found.mean(0)
        shown = [" ".join(f"{value:.1f}" for value in column) for column in found.T.tolist()]
        print(f"\n{name}: own classes {shown[0]}; all classes {shown[1]}", end="")

    own = {name: float(mean[0]) for name, mean in means.items()}
    assert abs(own["ANCLPlugin lwf, λ_a = 0"] - own["Avalanche's LwF"]) < 1
    assert own["ANCLPlugin lwf"] > own["Naive"]
    assert float(means["Replay, ANCLPlugin lwf"][1]) > float(means["ANCLPlugin lwf"][1]) + 30
