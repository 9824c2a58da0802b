"""From layers of values to checked runs."""

from pathlib import Path

import pytest

from ancl import SpecError, list_options, spec, specs
from tests.lab import (
    Layer,
    MethodRef,
    Places,
    Request,
    list_networks,
    preview,
    quick_settings,
    resolve_methods,
)
from tests.lab import make_run_request as make_request


def test_values_become_a_spec() -> None:
    made = spec("a-lwf", "digits/5", seed=3, settings={"training.epochs": 2}, lamb=5, threads=1)

    assert (made.method, made.benchmark, made.seed, made.threads) == ("a-lwf", "digits/5", 3, 1)
    assert (made.options["lamb"], made.options["lamb_a"]) == (5.0, "balance:0.1")
    assert made.training.epochs == made.auxiliary.epochs == 2
    assert spec("a-lwf", "digits/5").seed == 0


def test_a_config_is_below_the_values_and_may_name_the_run(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("method: ewc\nbenchmark: digits/5\nseed: 4\noptions: {lamb: 7, alpha: 0.25}\n")

    made = spec(config=file, lamb=8)

    assert (made.method, made.seed) == ("ewc", 4)
    assert (made.options["lamb"], made.options["alpha"]) == (8.0, 0.25)
    assert spec(config=str(file), seed=1).seed == 1


def test_every_mistake_has_its_line_and_the_label_of_its_source(tmp_path: Path) -> None:
    request = Request(
        "lwf",
        "digits/5",
        (Layer("settings", {"training.epoch": 3, "lamb": "x"}, labels={"lamb": "--lamb"}),),
        config=tmp_path / "no.yaml",
        seeds=(-1,),
        preset="papers",
        mistakes=("--set: 'foo' is not a setting.",),
    )

    with pytest.raises(SpecError) as caught:
        request.resolve()

    starts = [line.split(" ")[0] for line in str(caught.value).split("\n")]
    assert starts == ["--config:", "There", "--set:", "settings:", "--lamb:", "seeds:"]


def test_what_patience_judges_by_is_the_methods_unless_it_is_given() -> None:
    def judged(method: str, **values: str) -> tuple[str | None, str | None]:
        made = spec(method, "digits/5", settings={f"training.{k}": v for k, v in values.items()})
        return made.training.select_by, made.auxiliary.select_by

    assert judged("lwf")[0] == judged("bic")[0] == "loss"
    assert judged("lucir")[0] == judged("a-lucir")[0] == judged("eeil")[0] == "task_loss"
    assert judged("a-lucir", select_by="loss") == ("loss", "loss")
    assert judged("a-lwf", select_by="accuracy") == ("accuracy", "accuracy")
    with pytest.raises(SpecError, match="training: select_by is task_loss, but dmc has no task"):
        judged("dmc", select_by="task_loss")


def test_the_auxiliary_network_follows_the_main_ones_decay_but_with_ancl() -> None:
    def decay(method: str, **settings: float) -> float:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        return spec(method, "digits/5", settings=given).auxiliary.weight_decay

    assert (decay("a-lwf"), decay("afec-lwf"), decay("dmc")) == (5e-4, 2e-4, 2e-4)
    assert decay("a-lwf", training__weight_decay=0.1) == 5e-4
    assert decay("dmc", training__weight_decay=0.1) == 0.1
    assert decay("afec-lwf", training__weight_decay=0.1) == 0.1
    assert decay("a-lwf", auxiliary__weight_decay=0.3) == 0.3
    assert decay("dmc", training__weight_decay=0.1, auxiliary__weight_decay=0.3) == 0.3


def test_a_later_layer_replaces_an_earlier_one_and_its_rivals() -> None:
    below = make_request("lwf", "digits/5", {"data.classes": "4,2x3", "lamb": 1.0})
    above = below.with_values("search", {"lamb": 3.0, "data.tasks": 2})
    [first], [second] = below.resolve(), above.resolve()

    assert (first.spec.data.tasks, first.spec.data.classes) == (None, "4,2x3")
    assert first.sources["data.tasks"] == "settings"
    assert (second.spec.data.tasks, second.spec.data.classes) == (2, None)
    assert (second.spec.options["lamb"], second.sources["lamb"]) == (3.0, "search")
    assert below.given("lamb")
    assert not below.given("data.tasks")


def test_rivals_in_one_layer_are_a_mistake() -> None:
    with pytest.raises(SpecError, match="The split needs either"):
        spec("lwf", "digits/5", settings={"data.tasks": 2, "data.classes": "5x2"})


def test_a_setting_goes_to_the_methods_that_have_it() -> None:
    found = specs(["finetune", "lwf", "a-lwf"], "digits/5", seeds=[0, 2], lamb=3.0, lamb_a=0.5)

    assert [(each.method, each.seed) for each in found] == [
        (method, seed) for method in ("finetune", "lwf", "a-lwf") for seed in (0, 2)
    ]
    assert [each.options.get("lamb") for each in found[::2]] == [None, 3.0, 3.0]
    assert [each.options.get("lamb_a") for each in found[::2]] == [None, None, 0.5]


def test_mistakes_of_several_methods_are_told_once() -> None:
    request = make_request(None, "digits/5", {"training.epochs": 0, "temper": 2})

    with pytest.raises(SpecError) as caught:
        resolve_methods(request, ["lwf", "a-lwf", "lwff"])

    lines = str(caught.value).split("\n")
    assert sum("training.epochs is 0" in line for line in lines) == 1
    assert sum("has no setting 'temper'" in line for line in lines) == 2
    assert sum("There is no method 'lwff'" in line for line in lines) == 1


def test_a_quick_look_leaves_off_what_is_off() -> None:
    ref = MethodRef("lucir")
    off = [n for n, p in ref.settings.items() if n.endswith("epochs") and p.default == 0]

    assert off
    assert not set(off) & set(quick_settings(ref))
    assert spec("lwf", "digits/5", quick=True).training.epochs == 1


def test_a_preview_shows_tasks_stages_and_the_source_of_every_value(tmp_path: Path) -> None:
    [resolved] = make_request(
        "lwf", "digits/5", {"data.tasks": 2, "training.lr": "search"}
    ).resolve()

    shown = preview(resolved, Places.of(tmp_path / "runs"))

    assert [task["classes"] for task in shown["tasks"]] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert {stage["stored"] for stage in shown["stages"]} == {False}
    assert shown["settings"]["training.lr"] == {"value": "search", "source": "settings"}
    assert shown["settings"]["network.name"] == {"value": "mlp", "source": "benchmark digits/5"}
    assert not (tmp_path / "runs").exists()


def test_options_come_from_a_methods_own_signature() -> None:
    found = {each["key"]: each for each in list_options("a-lwf")}

    assert next(iter(found)) == "lamb"
    kind = found["lamb_a"]["type"], found["lamb_a"]["default"]
    assert kind == ("number ≥ 0 or balance:ρ", "balance:0.1")
    afec = {each["key"]: each["type"] for each in list_options("afec-lwf")}
    assert afec["lamb_a"] == "number ≥ 0"
    assert found["data.scenario"]["type"] == "til | cil | dil | cir"
    assert found["data.val_fraction"]["type"] == "number ≥ 0 and < 1"
    assert list_networks()["mlp"] == {"hidden": [256, 256]}


def test_a_quick_look_at_cifar100_is_a_cut_of_the_small_protocols() -> None:
    quick, small = spec("a-lwf", "cifar100/10", quick=True), spec("a-lwf", "cifar100-small/5")

    assert (quick.data.source, quick.network["name"]) == ("cifar100-16", "resnet8")
    assert (quick.data.per_class, quick.data.test_per_class) == (40, 20)
    assert (quick.training.epochs_first, quick.training.epochs) == (8, 4)
    assert quick.auxiliary.epochs == 4
    for name in ("schedule", "warmup", "lr", "lr_first", "optimizer", "momentum"):
        assert getattr(quick.training, name) == getattr(small.training, name)
    assert spec("bic", "cifar100/6", quick=True).options["bias_epochs"] == 1
    named = {"data.source": "cifar100", "data.tasks": 10}
    assert spec("lwf", quick=True, settings=named).data.source == "cifar100"
    assert spec("lwf", quick=True, settings=named).network["name"] == "resnet8"
    assert spec("lwf", "tinyimagenet/10", quick=True).data.per_class == 20


def test_options_of_a_network_that_is_not_known_are_not_judged_by_another() -> None:
    settings = {"network.name": "resnt", "network.patch_size": 4}

    with pytest.raises(SpecError) as caught:
        spec("lwf", "digits/5", settings=settings)

    assert str(caught.value).startswith("There is no network 'resnt'.")
    assert "patch_size" not in str(caught.value)
