"""A vision transformer whose base is frozen, with low-rank adapters that learn (LoRA).

Every linear layer becomes W x + B A x. A has orthonormal rows and never learns, so that the
function is linear in B: a distance between two B is one between weights, and EWC on B means what
it says. Stored stages hold B and the head; W and A are the base, stored once for all of them.

    ancl run a-lfl digits/5 --network examples/lora.py:lora
    ancl run a-ewc digits/5 --network examples/lora.py:lora --set network.rank=2

Models of timm and torchvision, and efficientnet_lite0, have such adapters by
``network.trains=adapter``; ``adapt`` gives them to any module of your own, as here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.extend import adapt


class Block(nn.Module):
    """Attention and two layers, each added to what it reads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """From tokens (B, N, D) to tokens."""
        split = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class SmallVit(nn.Module):
    """A vision transformer for small images; features are the mean of its tokens."""

    def __init__(self, shape: Sequence[int], width: int, depth: int, patch: int = 2) -> None:
        super().__init__()
        tokens = (shape[1] // patch) * (shape[2] // patch)
        self.patches = nn.Conv2d(shape[0], width, patch, stride=patch)
        self.position = nn.Parameter(0.1 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """From images to features (B, D)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return self.norm(self.blocks(tokens)).mean(dim=1)


def lora(
    shape: Sequence[int],
    *,
    rank: int = 4,
    width: int = 64,
    depth: int = 2,
) -> nn.Module:
    """A transformer, frozen, with an adapter in every linear layer.

    Args:
        shape: The shape of one image, channels first.
        rank: r.
        width: Of its tokens.
        depth: The number of its blocks.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # one base for all runs
        model = SmallVit(shape, width, depth)
    return adapt(model, rank)
