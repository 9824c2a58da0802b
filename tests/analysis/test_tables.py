from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from ancl import ScenarioError, SpecError
from tests.lab import (
    AnalysisContext,
    LandscapeTables,
    check_names,
    cka_table,
    forgetting_table,
    make_tables,
    split_images,
    temperature_table,
    vector,
)

LAMB_AS = [0.5, 5.0, 50.0]


@pytest.fixture(scope="module")
def tables(ewc: Any) -> dict[str, list[dict[str, Any]]]:
    return make_tables(ewc.context)


def only(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_every_analysis_has_its_table(tables: Any, lwf: Any) -> None:
    assert set(tables) == {
        *("accuracy", "distance", "forgetting", "interpolation", "cka"),
        *("positions", "landscape", "paths"),
    }
    without = make_tables(lwf.context)
    assert set(without) == {"accuracy", "distance", "forgetting", "temperature", "cka"}


def test_distances_are_norms_over_learned_tensors(tables: Any, ewc: Any) -> None:
    ours, old = ewc.networks.ancl[5.0].tensors, ewc.networks.old.tensors
    squares = {
        name: float((tensor.double() - old[name].double()).square().sum())
        for name, tensor in ours.items()
        if "running" not in name and "num_batches" not in name
    }

    (row,) = only(tables["distance"], network="ancl", lamb_a=5.0)

    assert row["old"] == pytest.approx(sum(squares.values()) ** 0.5, rel=1e-9)
    backbone = sum(value for name, value in squares.items() if name.startswith("backbone"))
    assert row["old_backbone"] == pytest.approx(backbone**0.5, rel=1e-9)
    assert row["old_backbone"] < row["old"]
    (itself,) = only(tables["distance"], network="old")
    assert (itself["old"], itself["old_backbone"]) == (0.0, 0.0)


def test_a_stronger_pull_ends_nearer_to_the_auxiliary_network(tables: Any) -> None:
    to = [row["auxiliary"] for row in only(tables["distance"], network="ancl")]

    assert to[0] > to[1] > to[2]


def test_expected_weights_go_from_old_to_auxiliary(tables: Any) -> None:
    rows = tables["interpolation"]

    assert [row["lamb_a"] for row in rows] == LAMB_AS
    assert rows[0]["expected_auxiliary"] > rows[1]["expected_auxiliary"]
    assert rows[1]["expected_auxiliary"] > rows[2]["expected_auxiliary"]
    (ours,) = only(tables["distance"], network="ancl", lamb_a=0.5)
    assert rows[0]["measured_old"] == pytest.approx(ours["old_backbone"], rel=1e-9)


def test_forgetting_is_the_increase_of_the_first_tasks_loss(tables: Any, ewc: Any) -> None:
    context = ewc.context
    (part,) = split_images(context.tasks, "old", 60, 0)
    losses = []
    for trained in (ewc.networks.old, ewc.networks.cl):
        network = context.build_network()
        network.load(trained.tensors)
        network.eval()
        x = (
            part.samples.x.dense().permute(0, 3, 1, 2) / 255 - context.setting.normalization.mean[0]
        ) / (context.setting.normalization.std[0])
        with torch.no_grad():
            losses.append(float(F.cross_entropy(network(x).logits[:, :2], part.samples.y)))

    (row,) = only(tables["forgetting"], network="cl")

    assert row["loss_before"] == pytest.approx(losses[0], rel=1e-4)
    assert row["increase"] == pytest.approx(losses[1] - losses[0], abs=1e-5)
    assert row["bound"] == pytest.approx(0.5 * row["sharpness"] * row["distance"] ** 2)
    assert row["sharpness"] > 0


def test_sharpness_in_double_precision_is_nearly_the_same(tables: Any, ewc: Any) -> None:
    double = replace(ewc.context.options, double=True)
    context = AnalysisContext(ewc.experiment, double, ewc.plans, ewc.networks)

    sharpness = next(iter(forgetting_table(context)))["sharpness"]

    assert sharpness == pytest.approx(tables["forgetting"][0]["sharpness"], rel=1e-2)


def test_cka_is_labelled_and_its_mean_is_over_layers(tables: Any) -> None:
    rows = only(tables["cka"], network="ancl", lamb_a=5.0)
    layers = [row for row in rows if row["layer"] != "mean"]

    assert {(row["split"], row["estimator"], row["images"]) for row in rows} == {
        ("old", "biased", 32)
    }
    assert [row["layer"] for row in layers] == ["3"]
    assert only(rows, layer="mean")[0]["old"] == pytest.approx(layers[0]["old"])
    assert 0.5 < layers[0]["old"] < 1.0


def test_another_estimator_and_split_say_so_and_give_other_numbers(tables: Any, ewc: Any) -> None:
    found = {}
    for estimator in ("unbiased", "minibatch"):
        options = replace(ewc.context.options, estimator=estimator, split="train")
        context = AnalysisContext(ewc.experiment, options, ewc.plans, ewc.networks)
        found[estimator] = next(iter(cka_table(context)))

    assert found["unbiased"]["split"] == "train"
    assert found["unbiased"]["images"] == 60
    # 60 images are one minibatch, whose estimate is that of the whole.
    assert found["minibatch"]["old"] == pytest.approx(found["unbiased"]["old"], abs=1e-9)
    assert found["unbiased"]["old"] != tables["cka"][0]["old"]


def test_landscape_has_every_point_task_and_unit(tables: Any) -> None:
    rows = tables["landscape"]
    counts = Counter(row["task"] for row in rows)
    across = only(tables["distance"], network="auxiliary")[0]["old"]

    assert counts == {0: 9, 1: 9, "mean": 9}
    assert {row["split"] for row in rows} == {"test"}
    assert rows[0]["x_length"] == pytest.approx(-0.3 * across, rel=1e-9)
    for name in ("loss", "taw", "tag"):
        first, second, mean = (row[name] for row in rows[:3])
        assert mean == pytest.approx((first + second) / 2)


def test_paths_begin_and_end_with_their_networks(tables: Any) -> None:
    path = only(tables["paths"], **{"from": "old", "to": "multi", "task": "mean"})
    ends = [only(tables["positions"], network=name, task="mean")[0] for name in ("old", "multi")]

    assert [row["step"] for row in path] == pytest.approx([index / 10 for index in range(11)])
    assert path[0]["loss"] == pytest.approx(ends[0]["loss"], abs=1e-6)
    assert path[-1]["loss"] == pytest.approx(ends[1]["loss"], abs=1e-6)


def test_the_connector_is_the_middle_of_old_and_auxiliary_network(tables: Any, ewc: Any) -> None:
    found = only(tables["positions"], network="connector")
    path = only(tables["paths"], **{"from": "old", "to": "auxiliary", "step": 0.5})

    # In the second task β = 1/2.
    assert [row["task"] for row in found] == [0, 1, "mean"]
    for row, beside in zip(found, path, strict=True):
        assert (row["x"], row["y"], row["residual"]) == pytest.approx((0.5, 0.0, 0.0), abs=1e-6)
        assert row["loss"] == pytest.approx(beside["loss"], abs=1e-5)
    merged = {
        name: torch.lerp(tensor, ewc.networks.auxiliary.tensors[name], 0.5)
        for name, tensor in ewc.networks.old.tensors.items()
        if name in ewc.context.names
    }
    network = ewc.context.build_network()
    network.load({**ewc.networks.old.tensors, **merged})
    landscape = LandscapeTables(ewc.context)
    scores = landscape.evaluator.at(vector(network.tensors(), ewc.context.names))
    assert [row["loss"] for row in found[:2]] == pytest.approx([s.loss for s in scores], abs=1e-5)


def test_positions_are_signed_and_tell_what_lies_off_the_plane(tables: Any) -> None:
    auxiliary = only(tables["positions"], network="auxiliary", task="mean")[0]
    cl = only(tables["positions"], network="cl", task="mean")[0]
    away = only(tables["distance"], network="cl")[0]["old"]

    assert (auxiliary["x"], auxiliary["y"]) == pytest.approx((1.0, 0.0), abs=1e-9)
    parts_squared = cl["x_length"] ** 2 + cl["y_length"] ** 2 + cl["residual"] ** 2
    assert parts_squared**0.5 == pytest.approx(away, rel=1e-9)


def test_the_linear_form_of_distillation_is_better_for_large_temperatures(lwf: Any) -> None:
    rows = only(list(temperature_table(lwf.context)), lamb_a=5.0)
    errors = [row["error_same_classes"] for row in rows]

    assert [row["temperature"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert errors[-1] < errors[0] / 5
    assert errors[-2] / errors[-1] == pytest.approx(2.0, rel=0.15)


def test_a_table_of_ones_own_is_made_beside_the_others(lwf: Any) -> None:
    def learned(context: AnalysisContext) -> list[dict[str, Any]]:
        return [{**row, "parameters": len(context.names)} for row, _ in context.compared]

    found = make_tables(lwf.context, {"parameters": learned})["parameters"]

    assert [row["lamb_a"] for row in found] == [None, *LAMB_AS]
    assert {(row["seed"], row["parameters"]) for row in found} == {(0, len(lwf.context.names))}


def test_a_table_with_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SpecError, match="more_tables: cka, lamb is the name of a table"):
        check_names(["cka", "mine", "lamb"])


def test_a_split_without_images_is_refused(experiment: Any, lab: Any) -> None:
    with pytest.raises(ScenarioError, match="Task 1 has no val images"):
        split_images(lab.tasks(val_fraction=0.0)[:2], "val", None, 0)
