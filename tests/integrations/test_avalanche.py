"""The plug-ins of Avalanche on a small strategy of the same callbacks, without Avalanche."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from ancl import Method, MethodError, ScenarioError
from ancl.extend import Anchor, Auxiliary, Regularizer, Step, Term
from tests.lab import AFECPlugin, ANCLPlugin, TrainingError

ORDER = ((3, 1), (0, 4), (2, 5))
"""The classes of each experience: their numbers say nothing about when they come."""


class Model(nn.Module):
    """Features and a classifier; ``dropout`` reads the global random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2))
        self.classifier = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


@dataclass
class Experience:
    classes_in_this_experience: Sequence[int]
    dataset: TensorDataset


def experience(classes: Sequence[int], count: int = 12) -> Experience:
    """Points around a place for each class."""
    randomness = torch.Generator().manual_seed(classes[0])
    y = torch.tensor([classes[n % len(classes)] for n in range(count)])
    places = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(99))
    x = places[y] + torch.randn(count, 4, generator=randomness)
    return Experience(classes, TensorDataset(x, y))


@dataclass
class Strategy:
    """One training loop with Avalanche's callbacks in Avalanche's order."""

    plugins: Sequence[Any]
    model: nn.Module = field(default_factory=Model)
    train_epochs: int = 3
    train_mb_size: int = 4
    device: str = "cpu"
    lr: float = 0.05
    experience: Any = None

    def __post_init__(self) -> None:
        momentum = 0.9
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), self.lr, momentum)
        self.steps: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []

    def call(self, event: str) -> None:
        for plugin in self.plugins:
            getattr(plugin, event, lambda _: None)(self)

    def begin(self, experience: Experience) -> None:
        self.experience = experience
        self.model.train()
        self.call("before_training_exp")

    def train(self, experience: Experience) -> None:
        self.begin(experience)
        x, y = experience.dataset.tensors
        for _ in range(self.train_epochs):
            self.call("before_training_epoch")
            for rows in torch.randperm(len(y)).split(self.train_mb_size):
                self.step(x[rows], y[rows])
        self.call("after_training_exp")

    def step(self, x: Tensor, y: Tensor) -> None:
        self.mb_x, self.mb_y = x, y
        self.optimizer.zero_grad()
        self.call("before_forward")
        self.mb_output = self.model(x)
        self.call("after_forward")
        self.loss = self.task_loss = F.cross_entropy(self.mb_output, y)
        self.call("before_backward")
        self.loss.backward()
        before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        grads = {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
        self.call("after_backward")
        self.optimizer.step()
        self.call("after_update")
        moved = {n: p.detach() - before[n] for n, p in self.model.named_parameters()}
        self.steps.append((grads, moved))


def trained(*plugins: Any, model: nn.Module | None = None, seed: int = 0) -> Strategy:
    torch.manual_seed(seed)
    strategy = Strategy(plugins, model or Model())
    for classes in ORDER:
        strategy.train(experience(classes))
    return strategy


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@dataclass(frozen=True)
class Spy(Regularizer):
    """An Ω of 0 that notes what it saw."""

    reads = "logits"
    seen: list[tuple[Step, Anchor]] = field(default_factory=list)

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        step.of(anchor)
        self.seen.append((step, anchor))
        return 0.0 * step.out.logits.sum()


def spied(**auxiliary: Any) -> tuple[Spy, Spy, Method]:
    old, new = Spy(), Spy()
    return old, new, Method("spied", old=Term(old, 1.0), auxiliary=Auxiliary(new, 1.0, **auxiliary))


# -- what does not change --------------------------------------------------------------------


@pytest.mark.parametrize("plugin", [ANCLPlugin, AFECPlugin])
@pytest.mark.parametrize("method", ["lwf", "icarl", "lfl", "ewc", "mas", "si", "rwalk"])
def test_without_weights_the_strategy_learns_to_the_bit_as_alone(plugin: Any, method: str) -> None:
    alone = trained()
    beside = trained(plugin(method, lamb=0, lamb_a=0))

    assert same(alone.model, beside.model)


@pytest.mark.parametrize("renewed", ["task", "epoch"])
def test_training_the_auxiliary_network_leaves_the_strategy_s_random_numbers_alone(
    renewed: str,
) -> None:
    old, new, method = spied(renewed=renewed)

    assert same(trained().model, trained(ANCLPlugin(method)).model)
    assert len(old.seen) == len(new.seen) == 2 * 3 * 3  # experiences, epochs, batches


def test_some_weight_does_change_what_is_learned() -> None:
    alone = trained()

    for name in ("lwf", "icarl", "lfl", "ewc", "mas", "si", "rwalk"):
        plain = trained(ANCLPlugin(name, lamb=0.5, lamb_a=0))
        ancl = trained(ANCLPlugin(name, lamb=0.5, lamb_a=0.5))
        assert not same(alone.model, plain.model), name
        assert not same(plain.model, ancl.model), name
    assert not same(alone.model, trained(AFECPlugin("finetune", lamb_a=1.0)).model)


# -- what an Ω sees --------------------------------------------------------------------------


def test_logits_are_in_order_of_arrival_on_both_sides() -> None:
    old, new, method = spied()
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin(method)])
    strategy.train(experience(ORDER[0]))
    before = copy.deepcopy(strategy.model).eval()
    strategy.train(experience(ORDER[1]))
    (step, anchor), (_, auxiliary) = old.seen[-1], new.seen[-1]

    # A task's own classes are sorted; tasks come as they came.
    assert step.tasks == (slice(0, 2), slice(2, 4))
    assert (anchor.classes, auxiliary.classes) == (slice(0, 2), slice(2, 4))
    assert torch.equal(step.out.logits, strategy.mb_output[:, [1, 3, 0, 4]])
    assert torch.equal(torch.tensor([1, 3, 0, 4])[step.y], strategy.mb_y)
    assert torch.equal(step.of(anchor).logits, before(strategy.mb_x)[:, [1, 3]])


def test_the_auxiliary_network_learns_the_new_classes_from_the_old_network() -> None:
    _, new, method = spied()
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin(method, epochs=30)])
    for classes in ORDER[:2]:
        strategy.train(experience(classes))
    answer = new.seen[-1][1].forward
    x, y = strategy.experience.dataset.tensors

    assert answer is not None
    own = answer(x, False).logits[:, 2:]
    assert (torch.tensor([0, 4])[own.argmax(dim=1)] == y).float().mean() == 1.0
    assert len({id(anchor) for _, anchor in new.seen}) == 1


def test_afec_renews_the_auxiliary_network_every_epoch() -> None:
    _, new, method = spied(renewed="epoch")
    trained(AFECPlugin(method))

    anchors = {id(anchor): anchor for _, anchor in new.seen}
    x = torch.ones(1, 4)
    answers = [a.forward(x, False).logits for a in anchors.values() if a.forward]
    assert len(anchors) == 2 * 3
    assert all(not torch.equal(a, b) for a, b in pairwise(answers))


def test_afec_s_auxiliary_network_takes_the_strategy_s_rate() -> None:
    _, new, method = spied(renewed="epoch")
    torch.manual_seed(0)
    strategy = Strategy([AFECPlugin(method)])
    strategy.train(experience(ORDER[0]))
    old = copy.deepcopy(strategy.model).eval()
    strategy.begin(experience(ORDER[1]))
    strategy.optimizer.param_groups[0]["lr"] = 0.0
    strategy.call("before_training_epoch")
    x, y = strategy.experience.dataset.tensors
    strategy.step(x, y)
    (step, anchor) = new.seen[-1]

    assert torch.equal(step.of(anchor).logits, old(x)[:, [1, 3, 0, 4]])


def test_lwf_adds_the_cross_entropy_of_soft_answers_to_the_loss() -> None:
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin("lwf", lamb=3.0, lamb_a=0, temperature=2.0)])
    strategy.train(experience(ORDER[0]))
    old = copy.deepcopy(strategy.model).eval()
    strategy.train(experience(ORDER[1]))
    ours, theirs = strategy.mb_output[:, [3, 1]] / 2, old(strategy.mb_x)[:, [3, 1]] / 2

    by_hand = -(theirs.softmax(1) * ours.softmax(1).log()).sum() / len(ours)
    assert by_hand > 0.1
    torch.testing.assert_close(strategy.loss - strategy.task_loss, 3.0 * by_hand)


def test_features_are_what_enters_the_classifier() -> None:
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin("lfl", lamb=2.0, lamb_a=0)])
    strategy.model.features[2].p = 0.0
    strategy.train(experience(ORDER[0]))
    old = copy.deepcopy(strategy.model).eval()
    strategy.begin(experience(ORDER[1]))
    with torch.no_grad():
        strategy.model.features[0].weight.add_(0.1)
    x, y = strategy.experience.dataset.tensors
    ours, theirs = strategy.model.features(x), old.features(x)
    strategy.step(x, y)

    def prepared(f: Tensor) -> Tensor:
        return F.normalize(f - f.mean(1, keepdim=True), dim=1)

    by_hand = (prepared(ours) - prepared(theirs)).square().mean()
    torch.testing.assert_close(strategy.loss - strategy.task_loss, 2.0 * by_hand)
    assert not strategy.model.classifier._forward_pre_hooks


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_ewc_adds_the_gradient_of_its_well_without_the_classifier(estimator: str) -> None:
    torch.manual_seed(0)
    plugin = ANCLPlugin("ewc", lamb=7.0, lamb_a=0, estimator=estimator)
    strategy = Strategy([plugin], train_mb_size=12)  # one batch is all images
    strategy.model.features[2].p = 0.0
    strategy.train(experience(ORDER[0]))
    x, y = strategy.experience.dataset.tensors
    weight = strategy.model.features[0].weight
    position = (y == 3).long()
    logits = strategy.model(x)[:, [1, 3]]
    losses = F.cross_entropy(logits, position, reduction="none")
    parts = [losses.mean()] if estimator == "batch" else list(losses)
    grads = [torch.autograd.grad(part, weight, retain_graph=True)[0] for part in parts]
    fisher = torch.stack([g.square() for g in grads]).mean(0) / 2  # alpha: from zero

    strategy.begin(experience(ORDER[1]))
    strategy.optimizer.zero_grad()
    with torch.no_grad():
        weight.add_(0.5)
    strategy.call("after_backward")

    assert fisher.max() > 0
    torch.testing.assert_close(weight.grad, 7.0 * fisher * 0.5)
    assert strategy.model.classifier.weight.grad is None


def test_si_follows_the_path_of_the_strategy_s_steps() -> None:
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin("si", lamb=2.0, lamb_a=0, damping=0.1)])
    weight = strategy.model.features[0].weight
    start, name = weight.detach().clone(), "features.0.weight"
    strategy.train(experience(ORDER[0]))
    path = sum(-grads[name] * moved[name] for grads, moved in strategy.steps)
    omega = (path / ((weight.detach() - start).square() + 0.1)).clamp(min=0)

    strategy.begin(experience(ORDER[1]))
    strategy.optimizer.zero_grad()
    with torch.no_grad():
        weight.add_(0.5)
    strategy.call("after_backward")

    torch.testing.assert_close(weight.grad, 2.0 * 2 * omega * 0.5)


def curvature(plugin: ANCLPlugin) -> float:
    """The sum of the Hessian of the terms on weights, from two gradients."""
    torch.manual_seed(0)
    strategy = Strategy([plugin])
    strategy.train(experience(ORDER[0]))
    strategy.begin(experience(ORDER[1]))
    sums = []
    for _ in range(2):
        strategy.optimizer.zero_grad()
        strategy.call("after_backward")
        weights = list(strategy.model.features.parameters())
        sums.append(sum(float(weight.grad.sum()) for weight in weights))
        with torch.no_grad():
            for weight in weights:
                weight.add_(1.0)
    return sums[1] - sums[0]


def test_a_balance_finds_the_weight_of_the_auxiliary_network() -> None:
    alone = curvature(ANCLPlugin("ewc", lamb=2.0, lamb_a=0))
    both = curvature(ANCLPlugin("ewc", lamb=2.0, lamb_a="balance:0.5"))

    assert alone > 0
    assert both == pytest.approx(1.5 * alone, rel=1e-3)  # λ_a ΣC_a = ρ λ ΣC


@pytest.mark.parametrize("settings", [{"lamb": 0}, {"lamb": 1.0, "lamb_a": "balance:0"}])
def test_a_balance_with_nothing_is_nothing(settings: dict[str, Any]) -> None:
    plugin = ANCLPlugin("lwf", **{"lamb_a": "balance", **settings})
    plain = ANCLPlugin("lwf", **{**settings, "lamb_a": 0})

    assert same(trained(plugin).model, trained(plain).model)


def test_a_balance_of_answers_is_measured_at_the_features() -> None:
    with pytest.raises(MethodError, match="no part 'fc'"):
        Strategy([ANCLPlugin("lwf", lamb_a="balance", head="fc")]).begin(experience((0, 1)))
    plain, balanced = (trained(ANCLPlugin("lwf", lamb_a=a)).model for a in (0, "balance"))

    assert not same(plain, balanced)


# -- experiences and models ------------------------------------------------------------------


class Growing(Model):
    """A model whose classifier has a row for every class up to the largest seen."""

    def grow(self, classes: Sequence[int]) -> None:
        old = self.classifier
        rows = max(max(classes) + 1, old.out_features)
        self.classifier = nn.Linear(8, rows)
        with torch.no_grad():
            self.classifier.weight[: old.out_features] = old.weight
            self.classifier.bias[: old.out_features] = old.bias


@pytest.mark.parametrize("name", ["lwf", "lfl", "ewc", "rwalk"])
def test_the_classifier_may_grow(name: str) -> None:
    torch.manual_seed(0)
    model = Growing()
    model.classifier = nn.Linear(8, 2)
    strategy = Strategy([ANCLPlugin(name, lamb=0.1, lamb_a=0.1)], model)
    for classes in ((1, 0), (5, 2), (3, 4)):
        model.grow(classes)
        strategy.optimizer = torch.optim.SGD(model.parameters(), 0.01)
        strategy.train(experience(classes))

    assert model.classifier.out_features == 6
    assert model.classifier.weight.isfinite().all()


def test_a_new_domain_of_the_same_classes_is_held_to_all_of_them() -> None:
    old, new, method = spied()
    torch.manual_seed(0)
    strategy = Strategy([ANCLPlugin(method)])
    for _ in range(2):
        strategy.train(experience((4, 2)))
    (step, anchor), (_, auxiliary) = old.seen[-1], new.seen[-1]

    assert step.tasks == (slice(0, 2), slice(0, 2))
    assert anchor.classes == auxiliary.classes == slice(0, 2)


def test_an_experience_that_mixes_old_and_new_classes_is_refused() -> None:
    strategy = Strategy([ANCLPlugin("lwf")])
    strategy.train(experience((0, 1)))

    with pytest.raises(ScenarioError, match=r"classes \[1, 2\], and \[1\] came before"):
        strategy.train(experience((1, 2)))


def test_weights_that_are_not_finite_are_no_anchor() -> None:
    strategy = Strategy([ANCLPlugin("lwf")], lr=1e30)

    with pytest.raises(TrainingError, match="not finite in experience 1"):
        strategy.train(experience((0, 1)))


class MultiTaskModule(nn.Module):
    """Named as Avalanche's."""


def test_a_model_it_cannot_read_is_refused_before_training() -> None:
    heads = Model()
    heads.classifier = MultiTaskModule()

    with pytest.raises(MethodError, match="one classifier for each task label"):
        Strategy([ANCLPlugin("lwf")], heads).begin(experience((0, 1)))
    with pytest.raises(MethodError, match=r"no part 'fc'.* features\.2, classifier"):
        Strategy([ANCLPlugin("ewc", head="fc")]).begin(experience((0, 1)))
    # With a number as λ_a it reads logits alone; a balance measures forces at the features.
    Strategy([ANCLPlugin("lwf", lamb_a=1.0, head="fc")]).begin(experience((0, 1)))
