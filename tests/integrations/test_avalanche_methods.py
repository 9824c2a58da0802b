"""Which methods can be plug-ins of Avalanche, and what is said of the others."""

from pathlib import Path
from typing import Any

import pytest

from ancl import AnclError, SpecError, make_method
from ancl.extend import with_ancl
from tests.lab import AFECPlugin, ANCLPlugin

REPLAY = f"{Path(__file__).parents[2] / 'examples/dark_replay.py'}:dark_replay"


@pytest.mark.parametrize(
    ("plugin", "method", "settings", "message"),
    [
        (ANCLPlugin, "podnet", {}, "reads feature maps of every stage"),
        (ANCLPlugin, "lwm", {}, "reads feature maps of every stage"),
        (ANCLPlugin, "lucir", {}, r"more terms \(margin\); it has a classifier .* \(cosine\)"),
        (ANCLPlugin, "bic", {}, "stages after training"),
        (ANCLPlugin, "wa", {}, "it weighs the task loss"),
        (ANCLPlugin, "eeil", {}, "changes gradients or weights at every step"),
        (ANCLPlugin, "dmc", {}, "already has an auxiliary network"),
        (ANCLPlugin, "finetune", {}, "has no regularizer"),
        (ANCLPlugin, "icarl", {"distill": "bce_mean"}, "a task loss of its own"),
        (ANCLPlugin, "lwf", {"auxiliary_data": "combined"}, "needs the strategy's memory"),
        (ANCLPlugin, "afec-lwf", {}, "is for AFECPlugin. Use that, or give lwf"),
        (ANCLPlugin, "lwff", {}, "Did you mean 'lwf'"),
        (ANCLPlugin, "lwf", {"lambda": 1}, "Did you mean 'lamb'"),
        (ANCLPlugin, REPLAY, {"beta": 0}, "learns from replay batches"),
        (AFECPlugin, "joint", {}, "learns from all images so far"),
        (AFECPlugin, "freeze", {}, "trains no backbone"),
        (AFECPlugin, "lwf", {"afec_start": "carried"}, "carried from task to task"),
        (AFECPlugin, "a-lwf", {}, "is for ANCLPlugin"),
        (ANCLPlugin, "lwf", {"epochs": 0}, "epochs is 0"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    plugin: Any, method: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnclError, match=message):
        plugin(method, **settings)


def test_a_method_has_its_variant_whichever_way_it_is_given() -> None:
    named = [ANCLPlugin(name, lamb_a=2.0).method for name in ("lwf", "a-lwf", "lwf+ancl")]
    plain = make_method("lwf")

    assert [method.name for method in named] == ["a-lwf"] * 3
    assert ANCLPlugin(plain, lamb_a=2.0).method == with_ancl(plain, 2.0) == named[0]
    assert AFECPlugin(plain).method.name == "afec-lwf"
    with pytest.raises(SpecError, match="settings already, and lamb_a came too"):
        ANCLPlugin(with_ancl(plain, 2.0), lamb_a=1.0)
