"""Equal keys, equal results: pairs of specs in which settings of several parts meet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Settings = Mapping[str, Any]
OWN = f"{Path(__file__).with_name('any_method.py')}:any_method"
SEARCHED = {"training.lr_search": True, "auxiliary.lr_search": True}
RESNET = {"network.name": "resnet8", "network.width": 2}
TWO_TASKS = {"data.classes": (7, 3), "data.per_class": 12}
TOTAL = {"memory.total": 20}


class Directed(NamedTuple):
    """Two specs of one method: what they have in common, and what each has alone."""

    method: str
    scenario: str
    common: Settings
    one: Settings
    other: Settings


def flips(method: str, scenario: str, common: Settings, key: str, *values: Any) -> Directed:
    return Directed(method, scenario, common, {key: values[0]}, {key: values[1]})


DIRECTED = {
    # 77 and 80 images are 11 for each of 7 classes; then 7 or 8 for each of 10.
    **{
        f"{name}, quota of balanced tuning": flips(name, "cil", TWO_TASKS, "memory.total", 77, 80)
        for name in ("eeil", "lucir", "podnet", "a-eeil", "a-lucir", "afec-eeil")
    },
    "eeil, quota, held to the old network": flips(
        "eeil", "cil", TWO_TASKS | {"balanced_keeps": "old"}, "memory.total", 77, 80
    ),
    "eeil, quota, in the third task": flips("eeil", "til", {}, "memory.total", 28, 31),
    "eeil, quota, no tuning": flips(
        "eeil", "cil", TWO_TASKS | {"balanced_epochs": 0}, "memory.total", 77, 80
    ),
    "der, quota of the last classifier": flips("der", "cil", TWO_TASKS, "memory.total", 77, 80),
    "connector, quota of a search": flips(
        "connector", "cil", TWO_TASKS | {"ratio": "search"}, "memory.total", 77, 80
    ),
    "connector, quota of estimated statistics": flips(
        "connector", "cil", TWO_TASKS | RESNET | {"batch_norm": "estimate"}, "memory.total", 77, 80
    ),
    "connector, augmented covariance": flips(
        "connector", "til", RESNET | {"stability": "projected"}, "data.augment", "none", "flip"
    ),
    "icarl, quota": flips("icarl", "cil", TWO_TASKS, "memory.total", 77, 80),
    "bic, quota": flips("bic", "cil", TWO_TASKS, "memory.total", 77, 80),
    "wa, quota": flips("wa", "cil", TWO_TASKS, "memory.total", 77, 80),
    "finetune, total or per class": Directed(
        "finetune", "cil", TWO_TASKS, {"memory.total": 35}, {"memory.per_class": 5}
    ),
    "eeil, total or per class": Directed(
        "eeil", "cil", TWO_TASKS, {"memory.total": 35}, {"memory.per_class": 5}
    ),
    **{
        f"{name}, correct_student": flips(name, scenario, TOTAL, "correct_student", False, True)
        for name, scenario in (
            ("bic", "cil"),
            ("bic", "til"),
            ("a-bic", "cil"),
            ("afec-bic", "til"),
        )
    },
    "a-bic, correct_student, all classes": flips(
        "a-bic", "cil", TOTAL | {"auxiliary_classes": "all"}, "correct_student", False, True
    ),
    "bic, hold_out, same count": flips("bic", "cil", TOTAL, "hold_out", 0.1, 0.11),
    "bic, hold_out, other count": flips("bic", "cil", TOTAL, "hold_out", 0.1, 0.3),
    "bic, hold_out, other count later": flips(
        "bic", "cil", TWO_TASKS | {"memory.total": 77}, "hold_out", 0.27, 0.29
    ),
    "bic, bias_augment": flips("bic", "cil", TOTAL, "bias_augment", False, True),
    "bic, bias_augment, augmented": flips(
        "bic", "cil", TOTAL | {"data.augment": "crop"}, "bias_augment", False, True
    ),
    **{
        f"{name}, memory.selection": flips(
            name, "cil", TOTAL, "memory.selection", "herding", "random"
        )
        for name in ("finetune", "icarl", "eeil", "bic", "lucir", "a-lwf")
    },
    "icarl, mirrored": flips("icarl", "cil", TOTAL, "mirrored", True, False),
    "icarl, mirrored, by logits": flips(
        "icarl", "cil", TOTAL | {"classify": "logits"}, "mirrored", True, False
    ),
    **{
        f"{name}, {scenario}, loss_over{', memory' * kept}": flips(
            name, scenario, TOTAL if kept else {"memory.total": None}, "loss_over", *values
        )
        for name in ("finetune", "a-lwf")
        for scenario in ("til", "cil")
        for kept in (False, True)
        for values in [("auto", "seen" if not kept else "own_task")]
    },
    **{
        f"{name}, select_by, {by}": flips(
            name, "cil", TOTAL | {"training.epochs": 4}, "training.select_by", "loss", by
        )
        for name in ("lucir", "a-lwf", "afec-lwf")
        for by in ("task_loss", "accuracy")
    },
    "afec-lwf, afec_over": flips("afec-lwf", "til", {}, "afec_over", "own", "seen"),
    "afec-ewc, afec_over": flips("afec-ewc", "til", {}, "afec_over", "auto", "own"),
    "ewc, drop_last": flips("ewc", "til", {}, "drop_last", False, True),
    "eeil, enlarge": flips("eeil", "cil", TOTAL, "enlarge", True, False),
    "eeil, augment, enlarged": flips(
        "eeil", "cil", TOTAL | {"enlarge": True}, "data.augment", "none", "flip"
    ),
    "lucir, imprint": flips("lucir", "cil", TOTAL, "imprint", True, False),
    "lucir, imprint, domains": flips("lucir", "dil", {"memory.total": 41}, "imprint", True, False),
    "ewc, augment of the estimate": flips(
        "ewc", "til", {"data.augment": "flip"}, "augment", True, False
    ),
    # The auxiliary network is trained by its own batches and validated by the main one's.
    **{
        f"{name}, training.batch_size": flips(name, "til", {}, "training.batch_size", 16, 13)
        for name in ("finetune", "joint", "a-lwf", "a-ewc", "afec-ewc", "dmc")
    },
    **{
        f"{name}, auxiliary.batch_size": flips(name, "til", {}, "auxiliary.batch_size", 16, 13)
        for name in ("a-lwf", "a-ewc", "afec-ewc", "dmc")
    },
    "dmc, training.batch_size, batch norm": flips(
        "dmc", "cil", RESNET, "training.batch_size", 16, 13
    ),
    "afec-ewc, afec_start": flips("afec-ewc", "til", {}, "afec_start", "old", "carried"),
    "afec-ewc, afec_start, renewed by task": flips(
        "afec-ewc", "til", {"afec_renewed": "task"}, "afec_start", "old", "carried"
    ),
    "afec-lwf, afec_renewed": flips("afec-lwf", "cil", TOTAL, "afec_renewed", "epoch", "task"),
    "afec-lwf, afec_renewed, carried": flips(
        "afec-lwf", "cil", TOTAL | {"afec_start": "carried"}, "afec_renewed", "epoch", "task"
    ),
    **{
        f"{name}, auxiliary_trains": flips(name, "til", RESNET, "auxiliary_trains", "all", "last")
        for name in ("a-lwf", "a-ewc", "afec-lwf")
    },
    **{
        f"{name}, {key}": flips(name, "cil", TOTAL, key, *values)
        for name in ("a-lwf", "a-ewc", "a-icarl", "a-lucir", "a-bic")
        for key, values in (
            ("auxiliary_classes", ("new", "all")),
            ("auxiliary_data", ("current", "combined")),
        )
    },
    "a-lwf, auxiliary_data, no memory": flips(
        "a-lwf", "til", {}, "auxiliary_data", "current", "combined"
    ),
    **{
        f"{name}, balance or {other}": flips(name, "cil", TOTAL, "lamb_a", "balance:0.3", other)
        for name in ("a-lwf", "a-ewc")
        for other in ("balance:0.31", 0.3)
    },
    "a-lucir, adaptive_auxiliary, balance": flips(
        "a-lucir", "cil", TOTAL | {"lamb_a": "balance"}, "adaptive_auxiliary", "both", "old_only"
    ),
    "a-lucir, adaptive_auxiliary": flips(
        "a-lucir", "cil", TOTAL, "adaptive_auxiliary", "both", "old_only"
    ),
    # A trial is no training of the auxiliary network, and must not depend on what that one is.
    **{
        f"{name}, {scenario}, auxiliary_data, searched": flips(
            name, scenario, TOTAL | SEARCHED, "auxiliary_data", "current", "combined"
        )
        for name, scenario in (("a-lwf", "cil"), ("a-eeil", "cil"), ("a-eeil", "til"))
    },
    "a-eeil, no λ_a, searched": flips(
        "a-eeil", "cil", TOTAL | SEARCHED | {"auxiliary_data": "combined"}, "lamb_a", 0.0, 1.0
    ),
    "a-lwf, searched": flips("a-lwf", "til", {}, "training.lr_search", False, True),
    "a-lwf, lr, searched": flips("a-lwf", "til", SEARCHED, "training.lr", 0.05, 0.04),
    "a-lwf, auxiliary.lr_search": flips(
        "a-lwf", "til", SEARCHED, "auxiliary.lr_search", True, False
    ),
    "afec-ewc, auxiliary.lr_search": flips(
        "afec-ewc", "til", SEARCHED, "auxiliary.lr_search", True, False
    ),
    "dmc, batch size, searched": flips("dmc", "til", SEARCHED, "training.batch_size", 16, 13),
    # What a user may put together.
    "fresh, imprint": flips(
        OWN, "cil", TOTAL | {"start": "fresh", "head": "cosine"}, "imprint", False, True
    ),
    "fresh, imprint, images": flips(
        OWN,
        "cil",
        TOTAL | {"start": "fresh", "head": "cosine", "imprint": True},
        "data.per_class",
        12,
        11,
    ),
    "auxiliary_data combined, trains": flips(
        OWN,
        "til",
        TOTAL | {"auxiliary": "lwf", "auxiliary_data": "combined"},
        "trains",
        "auto",
        "new rows",
    ),
    "auxiliary_data combined, data": flips(
        OWN, "til", {"auxiliary": "lwf", "auxiliary_data": "combined"}, "data", "current", "all"
    ),
    "quota, held out, bias": flips(
        OWN,
        "cil",
        TWO_TASKS | {"finish": "bias", "hold_out": 0.5, "infer": "corrected"},
        "memory.total",
        77,
        80,
    ),
    "correction of the answers": flips(
        OWN,
        "cil",
        TOTAL | {"finish": "bias", "hold_out": 0.5},
        "infer",
        "corrected",
        "corrected student",
    ),
    "augmented bias, enlarged, fresh": flips(
        OWN,
        "cil",
        TOTAL | {"finish": "augmented bias", "hold_out": 0.5, "enlarge": True, "start": "fresh"},
        "data.augment",
        "none",
        "crop",
    ),
}


@pytest.mark.parametrize("pair", DIRECTED.values(), ids=DIRECTED.keys())
def test_equal_keys_mean_equal_results_where_settings_meet(pair: Directed, runs: Any) -> None:
    common = {**runs.small(pair.method, pair.scenario), **pair.common}
    if common["network.name"] != "mlp":
        common.pop("network.hidden", None)

    runs.check(pair.method, common, pair.one, pair.other)
