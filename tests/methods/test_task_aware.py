"""Methods that are compositions of existing parts: their settings, and two of them as a whole."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl import MethodError, make_method
from tests.lab import (
    COMPUTED,
    METHODS,
    Dmc,
    Eeil,
    Lfl,
    Lwf,
    Lwm,
    MethodRef,
    OneHot,
    RWalk,
    as_input,
    strip_prefix,
    weight_at,
)


def test_settings_become_the_parts() -> None:
    rwalk = make_method("rwalk", labels="true", damping=0.5, estimator="sample")
    lfl = make_method("lfl", centre=False, normalize=False, reduction="sum")
    lwm = make_method("lwm", gamma=0.5, attention="detached", temperature=3.0, smoothing=0.01)

    assert rwalk.old.regularizer == RWalk(labels="true", damping=0.5, estimator="sample")
    assert lfl.old.regularizer == Lfl(centre=False, normalize=False, reduction="sum")
    assert lwm.old.regularizer == Lwm(3.0, 0.5, "detached", 0.01)
    assert make_method("lwf").old.regularizer == Lwf(2.0, 1e-5)
    assert make_method("lwf", smoothing=0).old.regularizer == Lwf(2.0)
    assert make_method("lwf", scope="per_head", temperature=4).old.regularizer == Eeil(4.0, 1e-5)
    assert make_method("bic").old.regularizer == Lwf(2.0)
    assert make_method("bic", smoothing=1e-5).old.regularizer == Lwf(2.0, 1e-5)
    assert make_method("rwalk").old.regularizer.labels == "predicted"


@pytest.mark.parametrize(("name", "lamb"), [("rwalk", 1.0), ("lfl", 400.0), ("lwm", 10.0)])
def test_the_published_lambda_is_the_default(name: str, lamb: float) -> None:
    assert make_method(name).old.lamb == lamb


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("dmc", "ccgn", *COMPUTED)])
def test_the_classes_that_compete_are_an_option_of_every_task_loss(name: str) -> None:
    for over in ("auto", "seen", "own_task"):
        assert make_method(name, loss_over=over).task_loss.over == over
    assert make_method(name).task_loss.over == "auto"


def test_sigmoids_do_not_compete() -> None:
    assert make_method("icarl", distill="bce_mean").task_loss == OneHot()
    with pytest.raises(MethodError, match="loss_over is seen and distill is bce_mean"):
        make_method("icarl", distill="bce_mean", loss_over="seen")


@pytest.mark.parametrize(
    ("given", "name"),
    [("path_integral", "si"), ("r_walk", "rwalk"), ("freezing", "freeze"), ("naive", "finetune")],
)
def test_other_projects_names_are_understood(given: str, name: str) -> None:
    assert MethodRef(given).name == name


def test_dmc_weighs_its_teachers_by_their_classes() -> None:
    dmc = make_method("dmc", centring="batch")

    assert dmc.old.regularizer == dmc.auxiliary.regularizer == Dmc("batch")
    assert (weight_at(dmc.old.lamb, 30, 10), weight_at(dmc.auxiliary.lamb_a, 30, 10)) == (
        0.75,
        0.25,
    )
    assert dmc.task_weight == 0.0


def logits(lab: Any, tensors: dict[str, Tensor], blocks: int, x: Tensor) -> Tensor:
    network = lab.setting().architecture.build([2] * blocks)
    network.load(strip_prefix("network", tensors))
    with torch.no_grad():
        return network.eval()(x).logits


@pytest.mark.parametrize("centring", ["sample", "batch"])
def test_dmc_is_one_squared_error_over_all_classes(centring: str, lab: Any) -> None:
    training = replace(lab.setting().training, epochs=1, schedule="constant")
    tasks = lab.tasks()

    learned = lab.learn(make_method("dmc", centring=centring), lab.setting(training=training))

    entry, val = learned.entry("main", 2), tasks[2].load().val
    x = as_input(val.x.dense(), lab.source.normalization, torch.device("cpu"))
    student = logits(lab, entry.tensors, 3, x)
    old = logits(lab, learned.entry("main", 1).tensors, 2, x)
    new = logits(lab, learned.entry("auxiliary", 2).tensors, 3, x)[:, 4:]
    axis = 1 if centring == "sample" else 0
    wanted = torch.cat([old - old.mean(axis, keepdim=True), new - new.mean(axis, keepdim=True)], 1)
    terms = entry.meta["log"][-1]["val"]
    assert set(terms) == {"old", "auxiliary"}
    assert sum(terms.values()) == pytest.approx(F.mse_loss(student, wanted).item(), rel=1e-5)


def test_both_networks_of_dmc_start_from_one_fresh_network(lab: Any) -> None:
    learned = lab.learn(make_method("dmc"))

    start = learned.stage("grow", 2)
    assert start.inputs == {}
    for name in ("auxiliary", "main"):
        assert learned.stage(name, 2).inputs["start"] == start.key
    old = learned.stage("main", 2).inputs["old"]
    assert old == learned.stage("main", 1).key
    # Old rows are fresh too, so the student learns them; the new teacher leaves them alone.
    fresh = learned.entry("grow", 2).tensors
    rows = [name for name in fresh if name.startswith("network/head") and name.endswith("0")]
    assert rows
    for row in rows:
        assert not torch.equal(learned.entry("main", 2).tensors[row], fresh[row])
        assert torch.equal(learned.entry("auxiliary", 2).tensors[row], fresh[row])


def test_freeze_leaves_backbone_and_statistics_to_the_bit(lab: Any) -> None:
    learned = lab.learn(make_method("freeze"), lab.setting(lab.conv()))

    first, last = learned.network(0), learned.network(2)
    backbone = [name for name in first if name.startswith("network/backbone")]
    assert any("running_mean" in name for name in backbone)
    assert all(torch.equal(first[name], last[name]) for name in backbone)
    grown = learned.network(2, "grow")
    moved = [name for name in grown if not torch.equal(grown[name], last[name])]
    assert moved
    assert all(name.startswith("network/head") for name in moved)
