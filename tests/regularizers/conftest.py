"""What tests of Ω share: a step and an anchor made of given tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl.extend import Anchor, Output, Regularizer, Step
from tests.lab import Classes

Penalty = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def output(
    *, logits: Tensor | None = None, features: Tensor | None = None, maps: Tensor | None = None
) -> Output:
    """One forward pass of which only what is given matters; ``maps`` is one stage."""
    known = next(tensor for tensor in (logits, features, maps) if tensor is not None)
    size = len(known)
    return Output(
        torch.zeros(size, 2, dtype=known.dtype) if logits is None else logits,
        torch.ones(size, 2, dtype=known.dtype) if features is None else features,
        () if maps is None else (maps,),
    )


def _penalty(
    omega: Regularizer,
    ours: Output,
    theirs: Output,
    *,
    classes: Classes | None = None,
    tasks: tuple[slice, ...] | None = None,
    rows: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    every = slice(0, ours.logits.shape[1])
    x, y = torch.zeros(len(ours.logits), 1), torch.zeros(len(ours.logits), dtype=torch.long)
    own, anchored = rows or (None, None)
    step = Step(x, y, ours, {}, tasks or (every,), rows=own)
    known = every if classes is None else classes
    anchor = Anchor(known, forward=lambda x, maps: theirs, rows=anchored)
    return omega.penalty(step, anchor)


@pytest.fixture(scope="session")
def penalty() -> Penalty:
    """Ω of one output held to another: ``penalty(omega, ours, theirs)``."""
    return _penalty


@pytest.fixture(scope="session")
def feature_penalty() -> Penalty:
    """Ω between two tensors of features."""
    return lambda omega, ours, theirs: _penalty(
        omega, output(features=ours), output(features=theirs)
    )


@pytest.fixture(scope="session")
def logit_penalty() -> Penalty:
    """Ω between two tensors of logits, for some classes."""

    def between(omega: Regularizer, ours: Tensor, theirs: Tensor, **given: Any) -> Tensor:
        return _penalty(omega, output(logits=ours), output(logits=theirs), **given)

    return between


@pytest.fixture(scope="session")
def map_penalty() -> Penalty:
    """Ω between two maps of one stage; features agree."""
    return lambda omega, ours, theirs: _penalty(omega, output(maps=ours), output(maps=theirs))
