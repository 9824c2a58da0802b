"""Linear CKA: how alike two networks' representations are, up to rotation and scale."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from ancl.data import Batches
from ancl.errors import SpecError
from ancl.networks import Network

Estimator = Literal["biased", "unbiased", "minibatch"]
ESTIMATORS: tuple[Estimator, ...] = ("biased", "unbiased", "minibatch")
SMALLEST = 4
"""The unbiased estimator divides by n − 3."""

Grams = list[Tensor]
"""K = XXᵀ of centred X, a block for every minibatch; one block where all images are one batch."""


def layer_names(network: Network) -> list[str]:
    """The layers whose outputs are compared, before batch norm and ReLU.

    Raises:
        SpecError: There is no such layer.
    """
    layers = network.last_layers()
    if not layers:
        raise SpecError(
            f"{type(network.backbone).__name__} has no convolution or linear layer to compare by "
            f"CKA. Use a network that has one, or give it a method last_layers() -> list of names."
        )
    return layers


@contextmanager
def recording(network: Network, names: Sequence[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the layers' outputs of every forward pass; the hooks are removed afterwards."""
    seen: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> torch.utils.hooks.RemovableHandle:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            # A copy: what follows may overwrite it in place.
            seen[name].append(output.detach().flatten(1).to("cpu", copy=True))

        return network.backbone.get_submodule(name).register_forward_hook(hook)

    handles = [keep(name) for name in names]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def layer_grams(network: Network, batches: Batches, *, whole: bool = True) -> dict[str, Grams]:
    """Every layer's Gram matrix in double precision, in eval mode.

    Args:
        network: The network, with its batch norms.
        batches: The images, in the same order for every network.
        whole: Whether there is one matrix over all images, or one for each batch.
    """
    network.eval()
    grams: dict[str, Grams] = {name: [] for name in layer_names(network)}
    with recording(network, list(grams)) as seen:
        for batch in batches.in_order():
            network(batch.x)
            if not whole:
                for name, outputs in seen.items():
                    grams[name].append(gram(outputs.pop()))
    if whole:
        for name, outputs in seen.items():
            grams[name].append(gram(torch.cat(outputs)))
            outputs.clear()
    return grams


def gram(features: Tensor) -> Tensor:
    """XXᵀ of X centred by column, which is HKH of K = XXᵀ."""
    x = features.double()
    x = x - x.mean(dim=0)
    return x @ x.T


def cka(first: Grams, second: Grams, *, unbiased: bool = False) -> float:
    """HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)), each summed over minibatches.  Equation: [cka].

    Args:
        first: The Gram matrices of one network's layer.
        second: Those of another network, for the same images in the same minibatches.
        unbiased: HSIC₁, whose mean over minibatches is that of all images; otherwise the biased
            HSIC, which grows with the number of features over images and needs one batch.
    """
    hsic = _unbiased if unbiased else _biased
    assert unbiased or len(first) == 1, "the biased estimator of minibatches means something else"

    def total(a: Grams, b: Grams) -> float:
        return sum(hsic(k, m) for k, m in zip(a, b, strict=True)) / len(a)

    return total(first, second) / sqrt(total(first, first) * total(second, second))


def _biased(k: Tensor, m: Tensor) -> float:
    """Σ HKH ⊙ HLH; the factor 1/(n − 1)² cancels."""
    return float((k * m).sum())


def _unbiased(k: Tensor, m: Tensor) -> float:
    """HSIC₁ = [tr K̃L̃ + 1ᵀK̃1 1ᵀL̃1 / ((n−1)(n−2)) − 2/(n−2) 1ᵀK̃L̃1] / (n(n−3)), no diagonals.

    It does not change with centring, so centred Gram matrices may be given.
    """
    n = len(k)
    if n < SMALLEST:
        raise SpecError(
            f"The unbiased CKA needs at least {SMALLEST} images per batch, but one has {n}. Give "
            f"more images, or use --cka biased."
        )
    k, m = (gram - gram.diagonal().diag() for gram in (k, m))
    rows, columns = k.sum(dim=0), m.sum(dim=0)
    trace = (k * m).sum()
    corrected = trace + rows.sum() * columns.sum() / ((n - 1) * (n - 2))
    return float((corrected - 2 / (n - 2) * (rows @ columns)) / (n * (n - 3)))
