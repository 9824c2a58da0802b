"""An anchor that speaks for classes which are not in a row, as where known ones come again."""

import pytest
import torch
from torch.nn import functional as F

from ancl.extend import Output, Regularizer, architecture
from tests.lab import Dmc, Eeil, Evidence, Ewc, Icarl, Lwf, Lwm, attention_map, places, positions

SOME = torch.tensor([0, 2, 5])
OMEGAS = [Lwf(), Lwf(2.0, 0.01), Icarl(), Icarl("bce_mean"), Icarl("softmax"), Dmc(), Eeil()]


@pytest.mark.parametrize("omega", OMEGAS, ids=str)
def test_only_its_classes_count(omega: Regularizer, logit_penalty) -> None:
    ours, theirs = torch.randn(4, 6), torch.randn(4, 6)

    some = logit_penalty(omega, ours, theirs, classes=SOME)

    cut = logit_penalty(omega, ours[:, SOME], theirs[:, SOME])
    assert some.item() == pytest.approx(cut.item(), rel=1e-6)
    row, tensor = slice(1, 4), torch.arange(1, 4)
    assert logit_penalty(omega, ours, theirs, classes=row).equal(
        logit_penalty(omega, ours, theirs, classes=tensor)
    )


def test_heads_of_eeil_are_those_parts_of_a_task_that_it_knows(logit_penalty) -> None:
    ours, theirs = torch.randn(4, 6), torch.randn(4, 6)
    tasks = (slice(0, 3), slice(3, 5), slice(5, 5), slice(5, 6))

    found = logit_penalty(Eeil(2.0), ours, theirs, classes=torch.tensor([0, 2, 3, 4]), tasks=tasks)

    slow = torch.zeros(())
    for head in ([0, 2], [3, 4]):
        soft = (theirs[:, head] / 2).softmax(dim=1)
        slow = slow - (soft * (ours[:, head] / 2).log_softmax(dim=1)).sum(dim=1).mean()
    assert found.item() == pytest.approx(slow.item(), rel=1e-6)


def test_attention_is_that_of_the_top_class_among_its_own(penalty) -> None:
    logits = torch.tensor([[9.0, 0.0, 1.0, 0.0, 0.0, 2.0], [0.0, 9.0, 3.0, 0.0, 0.0, 1.0]])
    maps, rows = torch.randn(2, 4, 3, 3), torch.randn(6, 4)
    other = torch.randn(2, 4, 3, 3)
    ours, theirs = (Output(logits, torch.ones(2, 4), (each,)) for each in (maps, other))

    found = penalty(Lwm(gamma=1.0), ours, theirs, classes=torch.tensor([2, 5]), rows=(rows, rows))

    top = torch.tensor([5, 2])  # not 0 and 1, which it does not speak for
    distance = (attention_map(maps, rows[top]) - attention_map(other, rows[top])).abs().sum(1)
    soft = (logits[:, [2, 5]] / 2).softmax(dim=1)
    answers = F.cross_entropy(logits[:, [2, 5]] / 2, soft)
    assert found.item() == pytest.approx((answers + distance.mean()).item(), rel=1e-6)


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_fisher_information_of_the_present_classes(estimator) -> None:
    network = architecture("mlp", (4,), hidden=(3,)).build([4, 2])
    x, y = torch.randn(6, 4), torch.tensor([0, 2, 5, 5, 2, 0])
    weights = network.weights()
    omega = Ewc(estimator=estimator, batch_norm="eval", over="own")
    tasks = (slice(0, 4), slice(4, 6))
    evidence = Evidence(network, weights, {}, lambda _: iter([(x, y)]), tasks, present=SOME)

    found = omega.importance(evidence)["gradients"]

    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    parts = [(x, y)] if estimator == "batch" else [(x[i : i + 1], y[i : i + 1]) for i in range(6)]
    for images, labels in parts:
        logits = network.eval()(images).logits[:, [0, 2, 5]]
        own = torch.tensor([[0, 2, 5].index(int(label)) for label in labels])
        gradients = torch.autograd.grad(F.cross_entropy(logits, own), [*weights.values()])
        for name, gradient in zip(weights, gradients, strict=True):
            total[name] += gradient.square() * len(labels) / 6
    assert all(torch.allclose(found[name], total[name], atol=1e-7) for name in total)


def test_places_and_positions_are_each_others_way_back() -> None:
    y = torch.tensor([5, 0, 2, 2])

    assert places(SOME, y).tolist() == [2, 0, 1, 1]
    assert positions(SOME, places(SOME, y)).equal(y)
    assert places(slice(2, 6), torch.tensor([2, 5])).tolist() == [0, 3]
    assert positions(slice(2, 6), torch.tensor([0, 3])).tolist() == [2, 5]
