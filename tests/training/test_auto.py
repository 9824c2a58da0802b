"""λ by a ratio of forces: forces by hand, moves, limits, and what of it is saved and judged."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import MethodError
from ancl.extend import (
    Auto,
    Balance,
    CrossEntropy,
    Network,
    Objective,
    PenaltyTerm,
    Regularizer,
    Step,
    anchor_for,
    architecture,
)
from tests.lab import KAPPA_ON_ANSWERS, KAPPA_ON_WEIGHTS, REACH, AutoLambda, AutoText, Ewc, Lwf, Pod

TASKS = (slice(0, 2), slice(2, 5))


class Mapped(nn.Module):
    """A network of two stages that gives its maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 3, 2), nn.Conv2d(3, 4, 2)

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        first = self.first(x)
        last = self.last(first.relu())
        return last.relu().mean(dim=(2, 3)), (first, last)

    def forward(self, x: Tensor) -> Tensor:
        return self.with_maps(x)[0]


def make_network(seed: int, *, maps: bool = False) -> Network:
    torch.manual_seed(seed)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh())
    return architecture(Mapped() if maps else plain, (1, 4, 4)).build([2, 3])


def images(number: int) -> Tensor:
    return torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(number))


def make_step(network: Network, number: int = 0, *, maps: bool = False) -> Step:
    x, y = images(number), torch.tensor([2, 3, 4, 4, 3, 2])
    rows = network.head.rows() if maps else None
    return Step(x, y, network(x, maps), network.weights(), TASKS, task_aware=True, rows=rows)


def found(omega: Regularizer, *, maps: bool = False, **auxiliary: Any) -> Objective:
    """λ by rule, beginning with 2; with an auxiliary term where its λ_a is given."""
    terms = []
    for seed, name in ((1, "old"), (2, "auxiliary")):
        network = make_network(seed, maps=maps)
        torch.manual_seed(seed)
        values = {n: torch.rand_like(w) for n, w in network.weights().items()}
        anchor = anchor_for(omega, network, TASKS[seed - 1], {"gradients": values})
        lamb = Auto(2.0) if name == "old" else auxiliary.get("lamb_a")
        if lamb is not None:
            terms.append(PenaltyTerm(name, lamb, omega, anchor))
    return Objective(CrossEntropy(), terms)


def length(values: Tensor) -> float:
    return math.sqrt(sum(float(value) ** 2 for value in values.detach().flatten()))


def towards(lamb: float, wanted: float) -> float:
    """λ one epoch later: a factor of 2 at most."""
    return min(max(wanted, lamb / 2), lamb * 2)


# -- forces written out by hand --------------------------------------------------------------


@torch.no_grad()
def forces_at_features(network: Network, number: int) -> tuple[float, float]:
    """Of cross-entropy within the task, and of LwF, through the head to the features."""
    out, theirs = network(images(number)), make_network(1)(images(number))
    rows = network.head.rows()
    assert rows is not None
    old, new = TASKS
    truth = torch.eye(5)[torch.tensor([2, 3, 4, 4, 3, 2])]
    task = (out.logits[:, new].softmax(1) - truth[:, new]) / 6 @ rows[new]
    soft = [(each.logits[:, old] / 2).softmax(1) for each in (out, theirs)]
    return length(task), length((soft[0] - soft[1]) / (2 * 6) @ rows[old])


def test_lamb_moves_to_the_ratio_of_forces_by_hand() -> None:
    network, objective = make_network(0), found(Lwf())
    lamb = 2.0
    for number in range(3):
        # Two steps an epoch; their forces are summed.
        both = [forces_at_features(network, 2 * number + step) for step in range(2)]
        for step in range(2):
            objective(make_step(network, 2 * number + step))
        task, old = (sum(each) for each in zip(*both, strict=True))

        assert objective.lambs["old"] == lamb  # within an epoch it stays
        assert objective.end_epoch() == ({"lamb": pytest.approx(lamb)}, "")
        lamb = towards(lamb, KAPPA_ON_ANSWERS * task / old)
        assert objective.lambs["old"] == pytest.approx(lamb, rel=1e-4)
        lamb = objective.lambs["old"]


def test_on_weights_the_forces_are_those_on_the_weights() -> None:
    network, objective = make_network(0), found(Ewc())
    step = make_step(network)
    pull = objective.terms[0]
    task = CrossEntropy()(step)
    slopes = torch.autograd.grad(task, list(network.weights().values()), retain_graph=True)
    pulls = [
        pull.anchor.importance["gradients"][name] * (weight - pull.anchor.weights[name])
        for name, weight in network.weights().items()
    ]
    sizes = [math.sqrt(sum(length(t) ** 2 for t in ts)) for ts in (slopes, pulls)]

    objective(step)
    quadratic = objective.quadratic(network.weights())
    objective.end_epoch()

    expected = towards(2.0, KAPPA_ON_WEIGHTS * sizes[0] / sizes[1])
    assert objective.lambs["old"] == pytest.approx(expected, rel=1e-4)
    assert quadratic is not None
    assert quadratic.force("old").item() == pytest.approx(sizes[1], rel=1e-5)
    after = objective.quadratic(network.weights())
    assert after is not None
    assert [well.weight for well in after.quadratics] == [objective.lambs["old"]]


def test_maps_are_pulled_without_the_backbone() -> None:
    """The task loss is measured at the features, an Ω on maps at features and maps."""
    network, objective = make_network(0, maps=True), found(Pod(), maps=True)
    step = make_step(network, maps=True)
    [task] = torch.autograd.grad(CrossEntropy()(step), [step.out.features], retain_graph=True)

    objective(step)
    lamb = objective.lambdas["old"]
    assert lamb._sums is not None
    measured = lamb._sums[0].item()

    assert measured == pytest.approx(length(task), rel=1e-5)


# -- moves and limits ------------------------------------------------------------------------


def forces(task: float, old: float) -> dict[str, Tensor]:
    return {"task": torch.tensor(task), "old": torch.tensor(old)}


@pytest.mark.parametrize(
    ("task", "old", "expected"),
    [
        (5.0, 1.0, 2.0),  # κ · 5 / 1 with κ = 0.4
        (6.0, 1.0, 2.4),
        (100.0, 1.0, 4.0),  # no more than twice
        (1.0, 100.0, 1.0),  # no less than half
        (0.0, 1.0, 2.0),
        (1.0, 0.0, 2.0),
        (math.nan, 1.0, 2.0),
        (math.inf, 1.0, 2.0),
    ],
)
def test_a_move(task, old, expected) -> None:
    lamb = AutoLambda(Auto(2.0), "old", on_weights=False)
    lamb.observe(forces(task, old))

    assert lamb.end_epoch() == ({"lamb": 2.0}, "")
    assert lamb.now == pytest.approx(expected)
    assert lamb.end_epoch() == ({"lamb": lamb.now}, "")  # nothing measured, nothing moved


def test_lamb_stays_within_its_reach() -> None:
    lamb = AutoLambda(Auto(2.0, kappa=1.0), "old", on_weights=True)
    notes = []
    for _ in range(10):
        lamb.observe(forces(1e9, 1.0))
        notes.append(lamb.end_epoch()[1])

    assert lamb.now == 2.0 * REACH
    assert notes[:6] == [""] * 6  # 2⁶ = 64
    assert notes[6:] == ["λ has reached its limit of 200", "", "", ""]  # said once


def test_a_task_goes_on_with_the_last_one() -> None:
    assert AutoLambda(Auto(2.0, last=5.0), "old", on_weights=False).now == 5.0
    assert AutoLambda(Auto(2.0, last=5000.0), "old", on_weights=False).now == 2.0 * REACH


def test_what_is_only_looked_at_moves_nothing() -> None:
    objective = found(Lwf())
    with torch.no_grad():
        objective(make_step(make_network(0)))

    objective.end_epoch()
    assert objective.lambs["old"] == 2.0


# -- what it is part of ----------------------------------------------------------------------


def test_both_rules_together_on_answers() -> None:
    """λ_a is balanced with the λ that there is; it follows at the next step."""
    network, both = make_network(0), found(Lwf(), lamb_a=Balance(0.5))
    both(make_step(network))
    before = both.lambs
    both.end_epoch()
    moved = both.lambs["old"] / before["old"]
    assert both.lambs["auxiliary"] == before["auxiliary"]
    both(make_step(network))

    assert moved != 1.0
    assert both.lambs["auxiliary"] == pytest.approx(moved * before["auxiliary"], rel=1e-5)


def test_both_rules_together_on_weights() -> None:
    network, both = make_network(0), found(Ewc(), lamb_a=Balance(0.5))
    both(make_step(network))
    before = both.lambs
    lambs, _ = both.end_epoch()
    quadratic = both.quadratic(network.weights())

    assert lambs == {"lamb": 2.0, "lamb_a": pytest.approx(before["auxiliary"])}
    assert quadratic is not None
    ratio = both.lambs["old"] / before["old"]
    assert ratio != 1.0
    assert both.lambs["auxiliary"] == pytest.approx(ratio * before["auxiliary"])
    weights = [well.weight for well in quadratic.quadratics]
    assert weights == [both.lambs["old"], both.lambs["auxiliary"]]


@pytest.mark.parametrize("lamb_a", [Balance(0.5), 3.0])
def test_on_weights_both_networks_pull_together(lamb_a) -> None:
    network, both = make_network(0), found(Ewc(), lamb_a=lamb_a)
    step = make_step(network)
    slopes = torch.autograd.grad(
        CrossEntropy()(step), list(network.weights().values()), retain_graph=True
    )
    both(step)
    quadratic, first = both.quadratic(network.weights()), both.lambs
    share = first["auxiliary"] / first["old"]
    pulls = [
        sum(
            factor
            * pull.anchor.importance["gradients"][name]
            * (weight - pull.anchor.weights[name])
            for factor, pull in zip((1.0, share), both.terms, strict=True)
        )
        for name, weight in network.weights().items()
    ]
    task, old = (math.sqrt(sum(length(t) ** 2 for t in ts)) for ts in (slopes, pulls))
    both.end_epoch()

    assert quadratic is not None
    assert quadratic.force("old").item() == pytest.approx(old, rel=1e-5)
    expected = towards(2.0, KAPPA_ON_WEIGHTS * task / old)
    assert both.lambs["old"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("omega", "auxiliary"), [(Lwf(), 0.0), (Ewc(), 6.0)])
def test_weights_are_selected_with_the_first_lamb(omega, auxiliary) -> None:
    objective = found(omega, lamb_a=Balance(0.5))
    values = {"task": 1.0, "old": 4.0, "auxiliary": 6.0}
    assert objective.selection_loss(values) == 1.0 + 4.0 + auxiliary

    objective.lambdas["old"].now = 8.0  # four times the first: so much too large are the terms
    values = {"task": 1.0, "old": 16.0, "auxiliary": 24.0}

    assert objective.selection_loss(values) == 1.0 + 4.0 + auxiliary


@pytest.mark.parametrize("omega", [Lwf(), Ewc()])
def test_a_state_goes_on_where_it_was(omega) -> None:
    network = make_network(0)
    whole, resumed = (found(omega, lamb_a=Balance(0.5)) for _ in range(2))
    for number in range(2):
        whole(make_step(network, number))
    whole.end_epoch()
    saved = whole.state()
    whole(make_step(network, 2))
    whole.end_epoch()

    resumed.restore(saved)
    resumed(make_step(network, 2))
    resumed.end_epoch()

    assert "auto/lamb" in saved
    for each in (whole, resumed):
        each(make_step(network, 3))
    assert resumed.lambs == whole.lambs


def test_one_term_may_have_it_beside_a_task_loss() -> None:
    objective = found(Lwf())
    with pytest.raises(MethodError, match="old and old: one term may have the λ Auto"):
        Objective(CrossEntropy(), (*objective.terms, *objective.terms))
    with pytest.raises(MethodError, match="beside a task loss, by whose force it is found"):
        Objective(CrossEntropy(), objective.terms, task_weight=0.0)


@pytest.mark.parametrize(("start", "kappa"), [(0.0, None), (math.nan, 1.0), (1.0, 0.0)])
def test_numbers_that_are_not_possible(start, kappa) -> None:
    with pytest.raises(MethodError, match="must be a number above 0"):
        Auto(start, kappa)


@pytest.mark.parametrize("text", ["auto", "auto:0.25"])
def test_a_rule_as_text(text) -> None:
    assert str(AutoText.read(text)) == text


@pytest.mark.parametrize("text", ["auto:", "auto:0", "auto:-1", "auto:nan", "automatic", "3"])
def test_what_is_no_rule(text) -> None:
    with pytest.raises(ValueError, match=r"must be auto or auto:κ with κ > 0"):
        AutoText.read(text)


def test_a_rule_on_answers_stands_beside_a_term_on_weights() -> None:
    """Gradients of weights tell it nothing: it sees the forces on features, once a step."""
    network, on_answers, on_weights = make_network(0), found(Lwf()), found(Ewc(), lamb_a=3.0)
    both = Objective(CrossEntropy(), (on_answers.terms[0], on_weights.terms[1]))
    quadratic = both.quadratic(network.weights())
    assert quadratic is not None

    for objective in (on_answers, both):
        step = make_step(network)
        torch.autograd.backward(list(objective.answers(step).values()))
        objective.observe_gradients(step.weights, quadratic)
        objective.end_epoch()

    assert both.lambs == {"old": on_answers.lambs["old"], "auxiliary": 3.0}
    assert both.lambs["old"] != 2.0
