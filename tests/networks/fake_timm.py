"""A small stand-in for timm: the same calls, two models, and no way to fetch anything."""

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class TinyNet(nn.Module):
    """Convolutions of any size; more features come out than ``num_features`` says."""

    num_features = 4

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv_stem, self.bn = nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv_head = nn.Linear(4, 6)
        self.classifier = nn.Linear(6, classes) if classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.bn(self.conv_stem(x)).relu().mean(dim=(2, 3))
        return self.classifier(self.conv_head(pooled).relu())


class TinyVit(nn.Module):
    """Reads images of one size alone."""

    def __init__(self, channels: int, classes: int, size: tuple[int, int], patch: int) -> None:
        super().__init__()
        self.size = size
        self.pos_embed = nn.Parameter(torch.zeros(1, 5))
        self.patch_embed = nn.Conv2d(channels, 5, patch, patch)
        self.blocks = nn.Linear(5, 5)
        self.head = nn.Linear(5, classes) if classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        assert tuple(x.shape[2:]) == self.size, f"Input height ({x.shape[2]}) doesn't match model"
        patches = self.patch_embed(x).mean(dim=(2, 3)) + self.pos_embed
        return self.head(self.blocks(patches))


CARDS = {"tinynet": False, "tinyvit_patch4": True}


def card(name: str) -> Any:
    return SimpleNamespace(
        fixed_input_size=CARDS[name.split(".")[0]],
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.3, 0.4),
        input_size=(3, 8, 8),
        hf_hub_id="timm/tinynet.a1",
        hf_hub_filename=None,
        url="https://example.org/weights/tinynet-12345678.pth",
    )


def create_model(name: str, pretrained: bool = False, **options: Any) -> nn.Module:
    """As timm does it: what the file lacks stays random, and nobody is told."""
    channels, classes = options["in_chans"], options["num_classes"]
    made: nn.Module
    if card(name).fixed_input_size:
        size = options.get("img_size", (8, 8))
        made = TinyVit(channels, classes, size, options.get("patch_size", 4))
    else:
        made = TinyNet(channels, classes)
    if pretrained:
        overlay = options["pretrained_cfg_overlay"]  # without it timm would fetch
        known = {n: t for n, t in overlay["state_dict"].items() if n in made.state_dict()}
        made.load_state_dict(known, strict=False)
        made.pretrained_cfg = dict(overlay)  # type: ignore[assignment]
    return made


def module() -> ModuleType:
    made = ModuleType("timm")
    made.__version__ = "9.9"  # type: ignore[attr-defined]
    names = {False: list(CARDS), True: ["tinynet.a1"]}
    made.list_models = lambda pretrained=False: names[pretrained]  # type: ignore[attr-defined]
    made.get_pretrained_cfg = card  # type: ignore[attr-defined]
    made.create_model = create_model  # type: ignore[attr-defined]
    return made
