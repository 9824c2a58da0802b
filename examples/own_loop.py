"""The loss in your own training loop: A-LwF on the second of two tasks, step by step."""

import copy

import torch

import ancl
from ancl.data import Normalization, as_input, digits

torch.manual_seed(0)
source = digits()
assert isinstance(source.normalization, Normalization)
x = as_input(source.train.x.dense(), source.normalization, torch.device("cpu"))
y = source.train.y
first, second = (y < 5).nonzero().squeeze(1), (y >= 5).nonzero().squeeze(1)
tasks = (slice(0, 5), slice(5, 10))


def train(
    network: ancl.extend.Network, objective: ancl.extend.Objective, index: torch.Tensor, n: int
) -> float:
    """Thirty epochs; returns the last loss."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9)
    for _ in range(30):
        for batch in torch.split(index[torch.randperm(len(index))], 64):
            out = network(x[batch])
            step = ancl.extend.Step(
                x[batch], y[batch], out, network.weights(), tasks[:n], task_aware=True
            )
            terms = objective(step)  # {"task": …, "old": …, "auxiliary": …}
            loss = torch.stack(list(terms.values())).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        objective.end_epoch()  # a λ by rule moves here
    return loss.item()


main = ancl.extend.architecture("mlp", (1, 8, 8)).build([5])
train(main, ancl.extend.Objective(ancl.extend.CrossEntropy()), first, 1)

main.head.grow(5)
auxiliary = copy.deepcopy(main)
train(auxiliary, ancl.extend.Objective(ancl.extend.CrossEntropy(), own_classes=True), second, 2)

method = ancl.make_method("lwf")
assert method.old is not None
omega = method.old.regularizer
objective = ancl.extend.Objective(
    method.task_loss,
    (
        # Numbers, or rules: here the old network pulls with a share of the task loss's force, and
        # the auxiliary network with 0.3 of the old one's.
        ancl.extend.PenaltyTerm(
            "old", ancl.extend.Auto(1.0), omega, ancl.extend.anchor_for(omega, main, tasks[0])
        ),
        ancl.extend.PenaltyTerm(
            "auxiliary",
            ancl.extend.Balance(0.3),
            omega,
            ancl.extend.anchor_for(omega, auxiliary, tasks[1]),
        ),
    ),
)
train(main, objective, second, 2)
print(f"At the end λ is {objective.lambs['old']:.2f}, λ_a {objective.lambs['auxiliary']:.2f}")

test = as_input(source.test.x.dense(), source.normalization, torch.device("cpu"))
truth = source.test.y
logits = main(test).logits
for task in tasks:
    own = (truth >= task.start) & (truth < task.stop)
    right = logits[own][:, task].argmax(1) + task.start == truth[own]
    print(f"classes {task.start}-{task.stop - 1}: {right.float().mean():.1%}")
