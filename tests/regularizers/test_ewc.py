"""EWC: the penalty by hand, and whose labels and classes its Fisher information reads."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.extend import Anchor, Output, Step, architecture
from tests.lab import Evidence, Ewc

TASKS = (slice(0, 2), slice(2, 4))


def test_the_penalty_is_half_the_importance_weighted_squares() -> None:
    weight = torch.tensor([3.0, 0.0], requires_grad=True)
    out = Output(torch.zeros(1, 2), torch.zeros(1, 1))
    step = Step(torch.zeros(1), torch.zeros(1), out, {"w": weight}, (slice(0, 2),))
    importance = {"gradients": {"w": torch.tensor([2.0, 4.0])}}
    anchor = Anchor(slice(0, 2), weights={"w": torch.ones(2)}, importance=importance)

    penalty = Ewc().penalty(step, anchor)
    penalty.backward()

    # 1/2 [2 (3 − 1)² + 4 (0 − 1)²] = 6; gradient 2 (3 − 1), 4 (0 − 1)
    assert penalty.item() == 6.0
    assert weight.grad is not None
    assert weight.grad.tolist() == [4.0, -4.0]


def evidence() -> tuple[Evidence, Tensor, Tensor]:
    torch.manual_seed(0)
    network = architecture("mlp", (3,), hidden=(4,)).build([2, 2])
    x, y = torch.randn(6, 3), torch.tensor([2, 3, 2, 3, 3, 2])
    made = Evidence(network, network.weights(), {}, lambda augmented: iter([(x, y)]), TASKS)
    return made, x, y


@pytest.mark.parametrize("over", ["seen", "own"])
@pytest.mark.parametrize("labels", ["true", "predicted"])
def test_the_loss_reads_the_chosen_labels_and_classes(over, labels) -> None:
    made, x, y = evidence()
    found = Ewc(labels=labels, over=over).importance(made)["gradients"]

    logits = made.network(x).logits
    start = 2 if over == "own" else 0
    logits = logits[:, start:]
    target = logits.argmax(1) if labels == "predicted" else y - start
    gradients = torch.autograd.grad(F.cross_entropy(logits, target), list(made.weights.values()))
    for name, gradient in zip(made.weights, gradients, strict=True):
        torch.testing.assert_close(found[name], gradient**2)


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_importance_keeps_nothing_of_how_it_was_computed(estimator) -> None:
    made, _, _ = evidence()
    found = Ewc(estimator=estimator).importance(made)["gradients"]

    assert not any(tensor.requires_grad for tensor in found.values())


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_sampled_labels_come_from_the_global_generator(estimator) -> None:
    made, _, _ = evidence()
    omega, found = Ewc(labels="sampled", estimator=estimator), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(omega.importance(made)["gradients"])

    assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])
    assert any(not torch.equal(found[0][n], found[2][n]) for n in found[0])


def test_sampled_labels_give_the_fisher_information() -> None:
    """Many draws approach (1/N) Σ_i Σ_c p_c g_ic², each image drawing for itself."""
    made, x, y = evidence()
    many = [(x.repeat(500, 1), y.repeat(500))]
    drawn = Evidence(made.network, made.weights, {}, lambda augmented: iter(many), TASKS)
    torch.manual_seed(0)
    found = Ewc(labels="sampled", estimator="sample").importance(drawn)["gradients"]

    expected = {name: torch.zeros_like(w) for name, w in made.weights.items()}
    for image in x:
        logs = made.network(image.unsqueeze(0)).logits[0].log_softmax(0)
        for log in logs:
            gradients = torch.autograd.grad(log, list(made.weights.values()), retain_graph=True)
            for name, gradient in zip(expected, gradients, strict=True):
                expected[name] += log.detach().exp() * gradient**2 / len(x)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0.1, atol=1e-3)
