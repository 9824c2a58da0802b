"""λ_a by balance: forces by hand, means, limits, and what of it is saved, logged and judged."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ancl import MethodError
from ancl.extend import (
    Anchor,
    Balance,
    CrossEntropy,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Regularizer,
    Step,
    anchor_for,
    architecture,
)
from tests.lab import (
    MOST,
    BalancedLambda,
    CurvatureLambda,
    Eeil,
    Ewc,
    Icarl,
    Lambda,
    LessForget,
    Lfl,
    Lwf,
    Lwm,
    Pod,
)

TASKS = (slice(0, 2), slice(2, 5))
LAMB, RHO, STEPS = 3.0, 0.4, 4


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


def make_network(seed: int, kind: str = "plain") -> Network:
    torch.manual_seed(seed)
    # No ReLU at the end: a feature vector of zeros would have no direction.
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh())
    return architecture(Mapped() if kind == "mapped" else plain, (1, 4, 4)).build([2, 3])


def images(number: int) -> Tensor:
    return torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(number))


def make_step(network: Network, number: int = 0, *, maps: bool = False) -> Step:
    x, y = images(number), torch.tensor([2, 3, 4, 4, 3, 2])
    rows = network.head.rows() if maps else None
    return Step(x, y, network(x, maps), network.weights(), TASKS, task_aware=True, rows=rows)


def terms_of(
    omega: Regularizer, lamb_a: float | Balance, old: Network, near: Network
) -> tuple[PenaltyTerm, PenaltyTerm]:
    """Both terms, with importances drawn for an Ω on weights."""
    torch.manual_seed(5)
    importance = [
        {"gradients": {n: torch.rand_like(w) for n, w in net.weights().items()}}
        for net in (old, near)
    ]
    return (
        PenaltyTerm("old", LAMB, omega, anchor_for(omega, old, TASKS[0], importance[0])),
        PenaltyTerm("auxiliary", lamb_a, omega, anchor_for(omega, near, TASKS[1], importance[1])),
    )


def balanced(omega: Regularizer, kind: str = "plain", rho: float = RHO) -> Objective:
    pulls = terms_of(omega, Balance(rho), make_network(1, kind), make_network(2, kind))
    return Objective(CrossEntropy(), pulls)


def length(values: Tensor) -> float:
    """The Frobenius norm, element by element."""
    return math.sqrt(sum(float(value) ** 2 for value in values.flatten()))


# -- forces written out by hand --------------------------------------------------------------


def lwf_force(network: Network, out: Output, theirs: Output, classes: slice) -> float:
    """(softmax(z/T) − softmax(z*/T)) / (T B), through the head to the features."""
    z, wanted = ((o.logits[:, classes] / 2.0).softmax(1) for o in (out, theirs))
    rows = network.head.rows()
    assert rows is not None
    return length((z - wanted) / (2.0 * len(z)) @ rows[classes])


def icarl_force(network: Network, out: Output, theirs: Output, classes: slice) -> float:
    """(σ(z) − σ(z*)) / B, through the head to the features."""
    z, wanted = (o.logits[:, classes].sigmoid() for o in (out, theirs))
    rows = network.head.rows()
    assert rows is not None
    return length((z - wanted) / len(z) @ rows[classes])


def lfl_force(network: Network, out: Output, theirs: Output, classes: slice) -> float:
    """2 (f − f*) / (B D) for features as they are."""
    return length(2 * (out.features - theirs.features) / out.features.numel())


def lucir_force(network: Network, out: Output, theirs: Output, classes: slice) -> float:
    """(cos f/‖f‖ − f*/‖f*‖) / (B ‖f‖)."""
    total = 0.0
    for f, g in zip(out.features, theirs.features, strict=True):
        a, b = length(f), length(g)
        cos = float(f @ g) / (a * b)
        total += length((cos * f / a - g / b) / (len(out.features) * a)) ** 2
    return math.sqrt(total)


BY_HAND: dict[str, tuple[Regularizer, Callable[..., float]]] = {
    "lwf": (Lwf(), lwf_force),
    "icarl": (Icarl(), icarl_force),
    "lfl": (Lfl(centre=False, normalize=False), lfl_force),
    "lucir": (LessForget(), lucir_force),
}


def expected_lamb_as(objective: Objective, forces: Callable[[int], tuple[float, float]]) -> list:
    """λ ρ EMA(old) / EMA(auxiliary) after each step."""
    means, found = [0.0, 0.0], []
    for number in range(STEPS):
        means = [0.95 * m + 0.05 * n for m, n in zip(means, forces(number), strict=True)]
        found.append(LAMB * RHO * means[0] / means[1])
    return found


@pytest.mark.parametrize("name", list(BY_HAND))
def test_lamb_a_is_the_ratio_of_forces_by_hand(name) -> None:
    omega, force = BY_HAND[name]
    network, objective = make_network(0), balanced(omega)
    old, near = make_network(1), make_network(2)

    @torch.no_grad()
    def forces(number: int) -> tuple[float, float]:
        out = network(images(number))
        first = force(network, out, old(images(number)), TASKS[0])
        return first, force(network, out, near(images(number)), TASKS[1])

    found = []
    for number in range(STEPS):
        objective(make_step(network, number))
        found.append(objective.lambs["auxiliary"])

    expected = expected_lamb_as(objective, forces)
    assert found == pytest.approx(expected, rel=1e-4)
    assert len({round(value, 6) for value in found}) == STEPS  # every batch has forces of its own
    assert objective.lambs["old"] == LAMB


ON_ANSWERS: dict[str, tuple[Regularizer, str]] = {
    "lwf": (Lwf(smoothing=1e-5), "plain"),
    "eeil": (Eeil(), "plain"),
    "icarl": (Icarl(), "plain"),
    "lfl": (Lfl(), "plain"),
    "lucir": (LessForget(), "plain"),
    "lwm": (Lwm(), "mapped"),
    "podnet": (Pod(), "mapped"),
}


def copied_force(pull: PenaltyTerm, step: Step, network: Network) -> float:
    """∂Ω/∂z by autograd, z detached copies of features and maps, the head applied again."""
    z = [tensor.detach().clone().requires_grad_() for tensor in (step.out.features, *step.out.maps)]
    out = Output(network.head(z[0]), z[0], tuple(z[1:]))
    penalty = pull.regularizer.penalty(step.with_output(out), pull.anchor)
    found = torch.autograd.grad(penalty, z, allow_unused=True)
    return math.sqrt(sum(length(each) ** 2 for each in found if each is not None))


@pytest.mark.parametrize("name", list(ON_ANSWERS))
def test_lamb_a_is_the_ratio_of_forces_on_copies(name) -> None:
    omega, kind = ON_ANSWERS[name]
    network, objective = make_network(0, kind), balanced(omega, kind)

    def forces(number: int) -> tuple[float, float]:
        step = make_step(network, number, maps=kind == "mapped")
        one, other = (copied_force(pull, step, network) for pull in objective.terms)
        return one, other

    found = []
    for number in range(STEPS):
        objective(make_step(network, number, maps=kind == "mapped"))
        found.append(objective.lambs["auxiliary"])

    assert found == pytest.approx(expected_lamb_as(objective, forces), rel=1e-4)


@pytest.mark.parametrize("name", list(ON_ANSWERS))
def test_terms_and_gradients_are_those_of_the_number_it_yields(name) -> None:
    """To the bit: measuring a force leaves the loss as it is."""
    omega, kind = ON_ANSWERS[name]
    old, near = make_network(1, kind), make_network(2, kind)
    one, other = make_network(0, kind), make_network(0, kind)
    maps = kind == "mapped"
    objective = Objective(CrossEntropy(), terms_of(omega, Balance(RHO), old, near))

    terms = objective(make_step(one, maps=maps))
    number = objective.lambs["auxiliary"]
    plain = Objective(CrossEntropy(), terms_of(omega, number, old, near))
    expected = plain(make_step(other, maps=maps))
    torch.autograd.backward(list(terms.values()))
    torch.autograd.backward(list(expected.values()))

    assert number > 0
    assert {n: t.item() for n, t in terms.items()} == {n: t.item() for n, t in expected.items()}
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert (a.grad is None and b.grad is None) or torch.equal(a.grad, b.grad)


class Counted:
    """An anchor's network that counts its calls."""

    def __init__(self, network: Network) -> None:
        self.network, self.calls = network.eval(), 0

    def __call__(self, x: Tensor, maps: bool) -> Output:
        self.calls += 1
        return self.network(x, maps)


def test_an_anchor_answers_once_a_step_and_the_backbone_is_not_passed() -> None:
    anchors = [Counted(make_network(seed)) for seed in (1, 2)]
    network = make_network(0)
    passed: list[str] = []
    network.backbone.register_full_backward_hook(lambda *_: passed.append("backbone"))
    objective = Objective(
        CrossEntropy(),
        (
            PenaltyTerm("old", LAMB, Lwf(), Anchor(TASKS[0], forward=anchors[0])),
            PenaltyTerm("auxiliary", Balance(RHO), Lwf(), Anchor(TASKS[1], forward=anchors[1])),
        ),
    )

    objective(make_step(network))

    assert [each.calls for each in anchors] == [1, 1]
    assert passed == []
    assert all(parameter.grad is None for parameter in network.parameters())


# -- limits ----------------------------------------------------------------------------------


def test_without_rho_the_loss_is_that_of_the_old_network_alone() -> None:
    omega, old, near = Lwf(), make_network(1), make_network(2)
    one, other = make_network(0), make_network(0)
    pulls = terms_of(omega, Balance(0.0), old, near)

    objective = Objective(CrossEntropy(), pulls)
    torch.autograd.backward(list(objective(make_step(one)).values()))
    alone = Objective(CrossEntropy(), pulls[:1])
    torch.autograd.backward(list(alone(make_step(other)).values()))

    assert objective.lambs["auxiliary"] == 0
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


@pytest.mark.parametrize(("same", "expected"), [("old", 0.0), ("auxiliary", 0.0)])
def test_a_network_at_an_anchor_feels_no_force(same, expected) -> None:
    """No force of the old network: λ_a = 0. None of the auxiliary one: 0 as before."""
    omega, network = Lfl(centre=False, normalize=False), make_network(0)
    seeds = {"old": (0, 2), "auxiliary": (1, 0)}[same]
    old, near = map(make_network, seeds)
    objective = Objective(CrossEntropy(), terms_of(omega, Balance(RHO), old, near))

    objective(make_step(network))
    here = objective.lambs["auxiliary"]
    objective(make_step(make_network(7)))  # elsewhere there are both

    assert here == expected
    assert objective.lambs["auxiliary"] > 0


def on_answers(rho: float, lamb: float) -> BalancedLambda:
    return BalancedLambda(Balance(rho), ("old", "auxiliary"), Lambda(lamb))


def on_weights(rho: float, lamb: float) -> CurvatureLambda:
    return CurvatureLambda(Balance(rho), ("old", "auxiliary"), Lambda(lamb))


def forces(old: float, auxiliary: float) -> dict[str, Tensor]:
    return {"old": torch.tensor(old), "auxiliary": torch.tensor(auxiliary)}


def test_a_zero_denominator_keeps_the_last_value() -> None:
    lamb_a = on_answers(0.5, 2.0)
    lamb_a.restore({"means": torch.tensor([1.0, 0.0]), "lamb_a": torch.tensor(3.0)})

    lamb_a.observe(forces(1.0, 0.0))
    assert float(lamb_a.now) == 3.0

    lamb_a.observe(forces(1.0, 4.0))
    assert float(lamb_a.now) == pytest.approx(2.0 * 0.5 * 1.0 / 0.2)
    mean, note = lamb_a.end_epoch()
    assert mean == {"lamb_a": pytest.approx((3.0 + 5.0) / 2)}
    assert note == ""


def test_lamb_a_is_capped_and_the_log_says_so() -> None:
    lamb_a = on_answers(1.0, 2.0)

    lamb_a.observe(forces(1e12, 1e-3))
    lamb_a.observe(forces(0.0, 1e12))

    first, second = 2.0 * MOST, 2.0 * 0.95 * 1e12 / 1e12
    assert float(lamb_a.now) == pytest.approx(second, rel=1e-3)
    mean, note = lamb_a.end_epoch()
    assert mean["lamb_a"] == pytest.approx((first + second) / 2)
    assert note == "λ_a held at 1e+06 λ in 1 of 2 steps"
    assert lamb_a.end_epoch() == ({}, "")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_force_that_is_not_finite_is_left_out(bad) -> None:
    lamb_a = on_answers(1.0, 1.0)
    lamb_a.observe(forces(2.0, 4.0))

    lamb_a.observe(forces(bad, 1.0))
    lamb_a.observe(forces(1.0, bad))

    assert float(lamb_a.now) == 0.5
    assert lamb_a.end_epoch()[0] == {"lamb_a": 0.5}


def test_without_lamb_there_is_no_lamb_a() -> None:
    lamb_a = on_answers(1.0, 0.0)

    lamb_a.observe(forces(2.0, 4.0))
    assert float(lamb_a.now) == 0
    settled = on_weights(1.0, 0.0)
    settled.observe(forces(2.0, 4.0))
    assert settled.now == 0


def test_what_is_only_looked_at_changes_nothing() -> None:
    objective, network = balanced(Lwf()), make_network(0)
    objective(make_step(network))
    before = objective.lambs["auxiliary"]

    with torch.no_grad():
        shown = objective(make_step(network, 1))["auxiliary"]

    assert objective.lambs["auxiliary"] == before
    pull, step = objective.terms[1], make_step(network, 1)
    assert shown.item() == pytest.approx(
        before * pull.regularizer.penalty(step, pull.anchor).item()
    )


def test_where_no_features_learn_the_force_is_that_on_logits() -> None:
    """A linear classifier on fixed features, as of a network that was trained elsewhere."""
    network, objective = make_network(0), balanced(Lwf())
    network.backbone.requires_grad_(False)
    old, near = make_network(1), make_network(2)

    objective(make_step(network))

    with torch.no_grad():
        ours, theirs = network(images(0)).logits, [n(images(0)).logits for n in (old, near)]
    found = [
        length(((ours[:, c] / 2).softmax(1) - (other[:, c] / 2).softmax(1)) / (2 * len(ours)))
        for other, c in zip(theirs, TASKS, strict=True)
    ]
    assert objective.lambs["auxiliary"] == pytest.approx(LAMB * RHO * found[0] / found[1], rel=1e-4)


def test_an_omega_without_any_force_leaves_lamb_a_at_zero() -> None:
    network, objective = make_network(0), balanced(Lfl())
    network.backbone.requires_grad_(False)

    assert objective(make_step(network))["auxiliary"].item() == 0
    assert objective.lambs["auxiliary"] == 0


# -- Ω on weights ----------------------------------------------------------------------------


def curvature_sum(pull: PenaltyTerm) -> float:
    values = pull.anchor.importance["gradients"].values()
    return math.fsum(float(v) for tensor in values for v in tensor.flatten())


def test_on_weights_lamb_a_is_one_number_from_the_curvatures() -> None:
    objective, network = balanced(Ewc()), make_network(0)
    sums = [curvature_sum(pull) for pull in objective.terms]
    expected = RHO * LAMB * sums[0] / sums[1]

    quadratic = objective.quadratic(network.weights())
    own_loop = balanced(Ewc())
    terms = [own_loop(make_step(network, number))["auxiliary"].item() for number in range(2)]

    assert quadratic is not None
    assert [well.weight for well in quadratic.quadratics] == [LAMB, pytest.approx(expected)]
    assert own_loop.lambs == objective.lambs
    assert terms == [pytest.approx(quadratic.values()["auxiliary"].item())] * 2
    for _ in range(2):  # in every epoch the same
        assert objective.lambdas["auxiliary"].end_epoch() == (
            {"lamb_a": pytest.approx(expected)},
            "",
        )
    assert objective.lambdas["auxiliary"].state() == {}


@pytest.mark.parametrize(
    ("old", "auxiliary", "expected", "note"),
    [
        (0.0, 2.0, 0.0, ""),
        (2.0, 0.0, 0.0, ""),
        (2.0, -1.0, 0.0, ""),
        (4.0, 2.0, 3.0, ""),
        (1.0, 1e-9, 3.0 * MOST, "λ_a held at 1e+06 λ in 1 of 1 steps"),
    ],
)
def test_limits_on_weights(old, auxiliary, expected, note) -> None:
    lamb_a = on_weights(0.5, 3.0)

    lamb_a.observe({n: v.double() for n, v in forces(old, auxiliary).items()})
    assert lamb_a.known

    assert lamb_a.now == expected
    assert lamb_a.end_epoch() == ({"lamb_a": pytest.approx(expected)}, note)


# -- what it is part of ----------------------------------------------------------------------


def test_what_moves_within_a_task_is_not_judged() -> None:
    assert balanced(Lwf()).unsteady == {"auxiliary"}
    assert balanced(Ewc()).unsteady == frozenset()


def test_a_state_goes_on_where_it_was() -> None:
    network, whole, resumed = make_network(0), balanced(Lwf()), balanced(Lwf())
    for number in range(2):
        whole(make_step(network, number))
    saved = whole.lambdas["auxiliary"].state()
    whole(make_step(network, 2))

    resumed.lambdas["auxiliary"].restore(saved)
    resumed(make_step(network, 2))

    assert saved.keys() == {"means", "lamb_a"}
    assert resumed.lambs == whole.lambs
    ours, theirs = resumed.lambdas["auxiliary"].state(), whole.lambdas["auxiliary"].state()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_balance_needs_a_term_of_its_kind_before_it() -> None:
    old, near = make_network(1), make_network(2)
    on_answers, on_weights = (terms_of(o, Balance(), old, near) for o in (Lwf(), Ewc()))

    for pulls in (on_answers[1:], on_answers[::-1], (on_weights[0], on_answers[1])):
        with pytest.raises(MethodError, match="one term may be balanced, with a term before it"):
            Objective(CrossEntropy(), pulls)
    with pytest.raises(MethodError, match="auxiliary and auxiliary: one term may be balanced"):
        Objective(CrossEntropy(), (*on_answers, on_answers[1]))


@pytest.mark.parametrize(
    ("text", "rho"), [("balance", 0.1), ("balance:0", 0.0), ("balance:1e-2", 0.01)]
)
def test_a_balance_as_text(text, rho) -> None:
    assert Balance.read(text) == Balance(rho)
    assert Balance.read(str(Balance(rho))) == Balance(rho)


@pytest.mark.parametrize("text", ["", "balanced", "balance:", "balance:-1", "balance:nan", "1"])
def test_what_is_no_balance_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"must be balance or balance:ρ with ρ ≥ 0"):
        Balance.read(text)
    with pytest.raises(MethodError, match="must be a number of 0 or more"):
        Balance(-0.1)
