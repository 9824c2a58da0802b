"""MAS: no label is read, and all answers so far count."""

import torch

from ancl.extend import architecture
from tests.lab import Evidence, Mas


def test_importance_is_the_mean_absolute_gradient_of_the_length_of_all_logits() -> None:
    torch.manual_seed(0)
    network = architecture("mlp", (3,), hidden=(4,)).build([2, 2])
    x = torch.randn(4, 3)
    batches = [(x[:3], torch.tensor([9, 9, 9])), (x[3:], torch.tensor([9]))]
    tasks = (slice(0, 2), slice(2, 4))
    evidence = Evidence(network, network.weights(), {}, lambda augmented: iter(batches), tasks)

    found = Mas().importance(evidence)["gradients"]

    expected = {name: torch.zeros_like(w) for name, w in network.weights().items()}
    for part, _ in batches:
        length = sum(
            sum(z**2 for z in network(image.unsqueeze(0)).logits[0]) ** 0.5 for image in part
        ) / len(part)
        gradients = torch.autograd.grad(length, list(network.weights().values()))
        for name, gradient in zip(expected, gradients, strict=True):
            expected[name] += len(part) * gradient.abs() / 4
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
