"""How pretrained weights are trained where nobody says it: gently, or they lose what they know."""

from typing import Any

from ancl.networks.learnable import HEAD

RATE = 0.01
"""Of the head."""
FACTOR = 0.1
"""Of the backbone, where its weights themselves learn; see docs/evidence/moving.md."""
SOURCE = "pretrained weights"
"""Where these settings come from, for a reader."""
_SMALL = ("affine", "adapter")
"""What learns few weights beside those that were trained before: these have the whole rate."""


def gentle_settings(trains: str) -> dict[str, Any]:
    """The settings by dotted key, for what of a pretrained network learns; none for the head.

    Args:
        trains: ``network.trains``.
    """
    if trains == HEAD:
        return {}
    factor = 1.0 if trains in _SMALL else FACTOR
    training = {"lr": RATE, "lr_first": None, "backbone_factor": factor}
    return {
        **{f"training.{name}": value for name, value in training.items()},
        "network.norms": "fixed",
        "data.augment": "flip",
    }
