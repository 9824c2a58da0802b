"""A vision transformer whose base is frozen, with low-rank adapters that learn (LoRA).

Every linear layer becomes W x + (α/r) B A x. A has orthonormal rows and never learns, so that the
function is linear in B: a distance between two B is one between weights, and EWC on B means what
it says. Stored stages hold B and the head; W and A are the base, stored once for all of them.

    ancl run a-lfl digits/5 --network examples/lora.py:lora
    ancl run a-ewc digits/5 --network examples/lora.py:lora --set network.rank=2

With timm installed, ``network.vit=timm:NAME`` and ``network.weights=FILE`` adapt one of its models.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.extend import architecture


class Adapted(nn.Module):
    """A frozen linear layer with its adapter: W x + (α/r) B A x."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, alpha / rank
        rows = torch.linalg.qr(torch.randn(layer.in_features, rank).double()).Q.T
        self.a = nn.Parameter(rows.float().contiguous(), requires_grad=False)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Both paths."""
        return self.layer(x) + self.scale * F.linear(F.linear(x, self.a), self.b)


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
    vit: str = "",
    weights: str | None = None,
    rank: int = 4,
    alpha: float = 4.0,
    width: int = 64,
    depth: int = 2,
) -> nn.Module:
    """A transformer, frozen, with an adapter in every linear layer.

    Args:
        shape: The shape of one image, channels first.
        vit: A model of timm, as in ``timm:vit_tiny_patch16_224``; if left out a small one with
            random weights that every run shares.
        weights: The file of its weights.
        rank: r.
        alpha: α.
        width: Of the small one's tokens.
        depth: The number of the small one's blocks.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # one base for all runs
        if vit:
            model = architecture(vit, shape, weights=weights).backbone()
        else:
            model = SmallVit(shape, width, depth)
        model.requires_grad_(False)
        for path, layer in list(model.named_modules()):
            if isinstance(layer, nn.Linear):
                parent, _, name = path.rpartition(".")
                setattr(model.get_submodule(parent), name, Adapted(layer, rank, alpha))
    return model
