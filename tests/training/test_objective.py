"""The loss term by term, and anchors that hold what their Ω reads."""

import pytest
import torch

from ancl import MethodError
from ancl.extend import (
    CrossEntropy,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Step,
    anchor_for,
    anchor_from,
    architecture,
)
from tests.lab import Ewc, Lwf, only_current

TASKS = (slice(0, 2), slice(2, 5))


def make_network(seed: int) -> Network:
    torch.manual_seed(seed)
    return architecture("mlp", (4,), hidden=(3,)).build([2, 3])


def make_step(network: Network, *, task_aware: bool = True) -> Step:
    torch.manual_seed(9)
    x, y = torch.randn(6, 4), torch.tensor([2, 3, 4, 4, 3, 2])
    return Step(x, y, network(x), network.weights(), TASKS, task_aware=task_aware)


def make_objective() -> Objective:
    near = make_network(2)
    importance = {"gradients": {n: torch.rand_like(w) for n, w in near.weights().items()}}
    old = PenaltyTerm("old", 3.0, Lwf(), anchor_for(Lwf(), make_network(1), TASKS[0]))
    auxiliary = PenaltyTerm(
        "auxiliary", 0.5, Ewc(), anchor_for(Ewc(), near, TASKS[1], importance), False
    )
    return Objective(CrossEntropy(), (old, auxiliary))


def test_terms_are_named_and_weighed() -> None:
    objective, step = make_objective(), make_step(make_network(0))
    terms = objective(step)

    assert list(terms) == ["task", "old", "auxiliary"]
    assert terms["task"].item() == CrossEntropy()(step).item()
    for pull in objective.terms:
        expected = pull.lamb * pull.regularizer.penalty(step, pull.anchor)
        assert terms[pull.name].item() == expected.item()
    assert objective.lambs == {"old": 3.0, "auxiliary": 0.5}
    assert objective.unsteady == {"auxiliary"}
    assert not objective.maps


def test_the_loops_way_has_the_gradients_of_the_plain_sum() -> None:
    """Answers by autograd and weights in place equal one loss differentiated as a whole."""
    plain, loop = make_network(0), make_network(0)
    objective = make_objective()

    torch.stack(list(objective(make_step(plain)).values())).sum().backward()
    answers = objective.answers(make_step(loop))
    torch.stack(list(answers.values())).sum().backward()
    quadratic = objective.quadratic(loop.weights())
    assert quadratic is not None
    quadratic.add_gradient()

    assert list(answers) == ["task", "old"]
    for one, other in zip(plain.parameters(), loop.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    terms = objective(make_step(plain))
    assert quadratic.values()["auxiliary"].item() == pytest.approx(terms["auxiliary"].item())


def test_nothing_on_weights_makes_no_quadratic() -> None:
    assert Objective(CrossEntropy()).quadratic(make_network(0).weights()) is None


def test_an_anchor_holds_a_copy_of_what_its_regularizer_reads() -> None:
    network = make_network(0)
    answering = anchor_for(Lwf(), network, TASKS[0])
    weighing = anchor_for(Ewc(), network, TASKS[1], {"gradients": {}})
    x = torch.randn(2, 4)
    before = network(x).logits.detach()
    weights = {name: w.detach().clone() for name, w in network.weights().items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)

    assert answering.forward is not None
    assert answering.weights == {}
    assert torch.equal(answering.forward(x, False).logits, before)
    assert weighing.forward is None
    assert all(torch.equal(weighing.weights[n], weights[n]) for n in weights)


def test_the_auxiliary_network_scores_its_own_classes_alone() -> None:
    step = make_step(make_network(0), task_aware=False)
    own = Objective(CrossEntropy("seen"), own_classes=True)

    narrowed = only_current(step)
    rows = step.out.logits.detach()[:, 2:5].log_softmax(1)
    expected = -sum(float(rows[i, int(y) - 2]) for i, y in enumerate(step.y)) / len(step.y)

    assert narrowed.out.logits.shape == (6, 3)
    assert narrowed.y.tolist() == [0, 1, 2, 2, 1, 0]
    assert own(step)["task"].item() == pytest.approx(expected)


# -- anchors of anybody's network ------------------------------------------------------------


def test_an_anchor_of_a_module_is_a_frozen_copy() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
    x, weight = torch.randn(5, 3), module[0].weight.detach().clone()
    anchor = anchor_from(module, slice(0, 4))
    before = module.eval()(x).detach()
    module.train()
    with torch.no_grad():
        module[0].weight.add_(1.0)

    assert anchor.forward is not None
    answer = anchor.forward(x, False)
    assert torch.equal(answer.logits, before)
    assert not answer.logits.requires_grad
    assert answer.features.shape == (5, 0)
    assert not torch.equal(module[0].weight, weight)
    assert module.training


def test_an_anchor_of_a_function_gives_the_penalty_of_its_logits() -> None:
    theirs, ours = torch.randn(6, 4), torch.randn(6, 4)
    anchor = anchor_from(lambda x: x @ torch.eye(4), slice(1, 3))
    y, tasks = torch.zeros(6, dtype=torch.long), (slice(0, 4),)
    step = Step(theirs, y, Output(ours, ours[:, :0]), {}, tasks)

    found = Lwf(temperature=1.0).penalty(step, anchor)
    soft, own = theirs[:, 1:3].softmax(1), ours[:, 1:3].log_softmax(1)
    torch.testing.assert_close(found, -(soft * own).sum(1).mean())


def test_an_anchor_that_gives_too_little_is_told() -> None:
    few = anchor_from(lambda x: x[:, :2], slice(0, 4)).forward
    flat = anchor_from(lambda x: Output(x, x), slice(0, 4)).forward
    x = torch.randn(2, 4)

    assert few is not None
    assert flat is not None
    with pytest.raises(MethodError, match="classes 0 to 3 and gives 2 logits"):
        few(x, False)
    with pytest.raises(MethodError, match="reads feature maps, and the anchor gives none"):
        flat(x, True)
    assert torch.equal(flat(x, False).features, x)


def test_a_network_that_knows_the_present_classes_alone() -> None:
    network = make_network(0)
    x, y = torch.randn(3, 4), torch.tensor([0, 3, 4])
    present = torch.tensor([0, 3, 4])
    step = Step(x, y, network(x), network.weights(), TASKS, present=present)

    alone = only_current(step)

    assert alone.out.logits.equal(step.out.logits[:, [0, 3, 4]])
    assert (alone.y.tolist(), alone.tasks) == ([0, 1, 2], (slice(0, 3),))
