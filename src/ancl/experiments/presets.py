"""Presets: the paper's reading of everything, or what the authors' released code does."""

from typing import Any

from ancl.errors import SpecError, unknown

PRESETS = {
    "paper": "what the paper says, and the released code where it is silent",
    "official": "what the authors' released code does: ewc, mas, lwf, lfl and their a-versions",
}

_COVERED = ("ewc", "mas", "lwf", "lfl")

_OFFICIAL: dict[str, Any] = {
    "training.lr": "search",
    "training.patience": 10,
    "training.weight_decay": 2e-4,
    "training.clip": 10_000.0,
    "training.reset_momentum": False,
    "auxiliary.weight_decay": 5e-4,
}


def preset(name: str, method: str) -> dict[str, Any]:
    """What a preset sets over a benchmark's settings for a method; λ and λ_a stay as they are.

    Raises:
        SpecError: There is none of that name, or it does not cover the method.
    """
    if name not in PRESETS:
        raise SpecError(unknown("preset", name, PRESETS))
    if name == "paper":
        return {}
    base = method.removeprefix("a-")
    if base not in _COVERED:
        possible = ", ".join([*_COVERED, *(f"a-{each}" for each in _COVERED)])
        raise SpecError(
            f"--preset official is what the authors released, and {method} is not among it. It "
            f"covers {possible}. Use one of these, or --preset paper."
        )
    return _OFFICIAL | ({"smoothing": 1e-5} if base == "lwf" else {})
