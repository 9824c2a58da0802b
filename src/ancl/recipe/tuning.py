"""How pretrained weights are trained where nobody says it: gently, or they lose what they know."""

from typing import Any

from ancl.networks.learnable import BODY, HEAD

RATE = 0.01
"""Of the head."""
FACTOR, SMALL_FACTOR, TRANSFORMER_FACTOR = 0.1, 0.3, 0.01
"""Of the backbone, where its weights themselves learn, where few do, and of transformers.

Of EfficientNet-Lite0 a rate of 0.003 for all weights was safe and 0.01 was not; of a ViT-S/14
without its patch embedding 0.0001 was, and 0.001 was not quite; see docs/evidence/moving.md. A step
of affine weights or of adapters is a projection of that of all weights, so that it is safe where
that is.
"""
SOURCE = "pretrained weights"
"""Where these settings come from, for a reader."""
_SMALL = ("affine", "adapter")
"""What learns few weights beside those that were trained before."""


def gentle_settings(trains: str, *, embeds_patches: bool) -> dict[str, Any]:
    """The settings by dotted key, for what of a pretrained network learns; none for the head.

    A patch embedding stands still: it takes most of the gradient, and at no rate that was
    measured did a transformer keep its features while it learned.

    Args:
        trains: ``network.trains``.
        embeds_patches: Whether the network begins with a patch embedding.
    """
    if trains == HEAD:
        return {}
    factor = TRANSFORMER_FACTOR if embeds_patches else FACTOR
    factor = SMALL_FACTOR if trains in _SMALL else factor
    training = {"lr": RATE, "lr_first": None, "backbone_factor": factor}
    return {
        **({"network.trains": BODY} if embeds_patches else {}),
        **{f"training.{name}": value for name, value in training.items()},
        "network.norms": "fixed",
        "data.augment": "flip",
    }
