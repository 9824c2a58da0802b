"""What λ_a by balance adds to a step of main training, over a λ_a that is a number.

    python benchmarks/balance.py [--network resnet32] [--batch 128] [--pairs 30]

"step" is the ratio of whole steps, taken in turn. "measured" is what the forces add to computing
the terms of one batch, in processor time, over that of a step: the least of many, which a busy
machine disturbs less.
"""

import argparse
import copy
import time
from collections.abc import Callable

import torch
from timing import interleaved, ratio

from ancl.data import Batches, Normalization, Samples
from ancl.losses import CrossEntropy, View
from ancl.networks import architecture
from ancl.regularizers import Icarl, LessForget, Lfl, Lwf, Lwm, Pod, Regularizer
from ancl.training.config import Training
from ancl.training.lambda_rules import Balance
from ancl.training.loop import Fit
from ancl.training.objective import Objective, PenaltyTerm, anchor_for
from ancl.types import Anchor, Output

OMEGAS = {
    "lwf": Lwf(2.0, 1e-5),
    "lfl": Lfl(),
    "icarl": Icarl(),
    "lucir": LessForget(),
    "lwm": Lwm(),
    "podnet": Pod(),
}
TASKS = (slice(0, 10), slice(10, 20))
NORMALIZATION = Normalization((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023))


def make_fits(omega: Regularizer, network: str, batch: int) -> dict[str, Fit]:
    """The same training with a number and with a balance."""
    torch.manual_seed(0)
    start = architecture(network, (3, 32, 32)).build([10, 10])
    x = torch.randint(0, 256, (batch, 32, 32, 3), dtype=torch.uint8)
    samples = Samples(x, torch.randint(10, 20, (batch,)))
    anchors = [copy.deepcopy(start) for _ in range(2)]
    with torch.no_grad():
        for parameter in (p for anchor in anchors for p in anchor.parameters()):
            parameter.add_(0.01 * torch.randn_like(parameter))

    def fit(lamb_a: float | Balance) -> Fit:
        lambs = (1.0, lamb_a)
        pulls = [
            PenaltyTerm(name, lamb, omega, anchor_for(omega, net, classes))
            for name, lamb, net, classes in zip(
                ("old", "auxiliary"), lambs, anchors, TASKS, strict=True
            )
        ]
        return Fit(
            copy.deepcopy(start),
            Objective(CrossEntropy(), pulls),
            Batches(samples, batch, NORMALIZATION),
            None,
            View(TASKS, task_aware=True),
            Training(epochs=10**6, lr=1e-4, schedule="constant"),
            (0, 1, "main"),
        )

    return {"number": fit(0.5), "balance": fit(Balance())}


def least(run: Callable[[], object], times: int) -> float:
    """The least processor time, in milliseconds."""
    found = []
    for _ in range(times):
        began = time.process_time()
        run()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def terms(fit: Fit) -> float:
    """Milliseconds of computing the terms, with the anchors' answers known."""
    batch = next(iter(fit.train.in_order()))
    answers: dict[Anchor, Output] = {}
    fit.network.train()
    found = []
    for _ in range(12):
        step = fit._step(batch, answers)
        found.append(least(lambda step=step: fit.objective.answers(step), 1))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet32")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--omegas", default=",".join(OMEGAS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.omegas.split(","):
        fits = make_fits(OMEGAS[name], given.network, given.batch)
        whole = least(fits["number"]._train_epoch, 3)
        added = terms(fits["balance"]) - terms(fits["number"])
        taken = interleaved({n: fit._train_epoch for n, fit in fits.items()}, given.pairs)
        compared = ratio(taken["balance"], taken["number"]) if given.pairs else "not taken"
        print(
            f"{name:7} step {compared}; measured: {added:.2f} ms more of {whole:.0f} ms, "
            f"{100 * added / whole:+.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
