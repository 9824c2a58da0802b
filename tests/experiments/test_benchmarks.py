"""The paper's benchmarks: their values, where they come from, and its numbers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ancl import SpecError
from tests.lab import (
    BENCHMARKS,
    METHODS,
    Layer,
    benchmark,
    class_order,
    expected,
    grids,
    measured_options,
    paper_rows,
    patch_part,
    preset,
    reported,
    resolve,
)
from tests.lab import make_run_request as make_request

TASK_INCREMENTAL = {
    "cifar100/10": 10,
    "cifar100/20": 5,
    "tinyimagenet/10": 20,
    "tinyimagenet/20": 10,
}
CLASS_INCREMENTAL = {
    "cifar100/6": (50, *(10,) * 5),
    "cifar100/11": (50, *(5,) * 10),
    "tinyimagenet/11": (100, *(10,) * 10),
    "tinyimagenet/21": (100, *(5,) * 20),
}


@pytest.mark.parametrize("name", TASK_INCREMENTAL)
def test_task_incremental_streams_are_cut_as_in_the_paper(name: str) -> None:
    spec = resolve("lwf", name).spec

    assert spec.data.scenario == "til"
    assert set(spec.data.sizes()) == {TASK_INCREMENTAL[name]}
    assert not spec.memory.size
    assert spec.data.augment == ("facil" if "cifar" in name else "flip")


@pytest.mark.parametrize("name", CLASS_INCREMENTAL)
def test_class_incremental_streams_are_cut_as_in_the_paper(name: str) -> None:
    spec = resolve("icarl", name).spec

    assert spec.data.scenario == "cil"
    assert spec.data.sizes() == CLASS_INCREMENTAL[name]
    assert (spec.memory.per_class, spec.memory.selection) == (20, "herding")


@pytest.mark.parametrize("name", [*TASK_INCREMENTAL, *CLASS_INCREMENTAL])
def test_training_is_the_papers(name: str) -> None:
    training = resolve("finetune", name).spec.training

    assert (training.epochs, training.batch_size, training.momentum) == (200, 128, 0.9)
    assert (training.schedule, training.patience, training.factor) == ("patience", 5, 3.0)
    assert (training.lr_min, training.weight_decay) == (1e-4, 2e-4)
    assert (training.lr_first, training.lr) == (0.1, 0.05)


@pytest.mark.parametrize(
    ("method", "stream", "lamb", "lamb_a"),
    [
        ("a-ewc", "cifar100/20", 80_000, 100),
        ("a-mas", "tinyimagenet/20", 10, 0.05),
        ("a-lwf", "tinyimagenet/10", 10, 5),
        ("a-lfl", "cifar100/10", 400, 100),
        ("a-icarl", "cifar100/11", 5, 0.5),
        ("a-podnet", "tinyimagenet/21", 400, 1),
        ("afec-ewc", "cifar100/10", 10_000, 1),
    ],
)
def test_lambdas_are_those_the_paper_chose(method, stream, lamb, lamb_a) -> None:
    options = resolve(method, stream).spec.options

    assert (options["lamb"], options["lamb_a"]) == (lamb, lamb_a)


def test_every_value_says_where_it_comes_from() -> None:
    found = resolve("afec-lwf", "cifar100/10").sources

    assert found["lamb"] == "benchmark cifar100/10 (paper, appendix, grid search)"
    assert "AFEC's authors" in found["lamb_a"]
    assert "(ours: the paper" in found["training.lr"]
    assert "(released code" in resolve("a-lwf", "cifar100/10").sources["auxiliary.weight_decay"]
    for name in (*TASK_INCREMENTAL, *CLASS_INCREMENTAL):
        recipe = benchmark(name)
        for method in (*METHODS, *(f"a-{each}" for each in METHODS)):
            assert recipe.sources(method).keys() == recipe.values(method).keys()


def test_a_chosen_value_is_in_its_grid_and_never_at_its_edge() -> None:
    found = [
        grid for name in (*TASK_INCREMENTAL, *CLASS_INCREMENTAL) for grid in grids(name).values()
    ]

    assert len(found) == 64
    assert all(grid.values[0] < grid.chosen < grid.values[-1] for grid in found)
    assert BENCHMARKS["cifar100/10"].grids["ewc"].values == (5000, 10000, 20000, 40000, 80000)


def test_the_papers_numbers_are_all_there() -> None:
    # 160 rows, of which tables 4 and 5 repeat CL and ANCL of four methods each.
    numbers = [
        n
        for name in (*TASK_INCREMENTAL, *CLASS_INCREMENTAL)
        for each in reported(name).values()
        for n in each
    ]

    assert len(numbers) == 160 - 16
    assert [(n.metric, n.mean, n.error, n.table) for n in expected("cifar100/6", "bic")] == [
        ("aiac", 56.74, 1.33, 3),
        ("final_accuracy", 50.13, 0.77, 6),
    ]
    assert expected("cifar100/10", "finetune")[0].mean == 38.9
    assert expected("cifar100/10", "rwalk") == ()
    assert reported("digits/5") == {}


@pytest.mark.parametrize("method", ["ewc", "a-ewc", "mas", "a-mas", "lwf", "a-lwf", "lfl", "a-lfl"])
def test_the_official_preset_is_the_released_codes_training(method: str) -> None:
    layer = Layer("--preset official", preset("official", method))
    spec = resolve(method, "cifar100/10", [layer]).spec

    for training in (spec.training, spec.auxiliary):
        assert (training.patience, training.clip, training.lr_search) == (10, 10_000.0, True)
        assert not training.reset_momentum
    assert (spec.training.weight_decay, spec.auxiliary.weight_decay) == (2e-4, 5e-4)
    assert spec.options.get("smoothing") == (1e-5 if "lwf" in method else None)
    estimates = method.removeprefix("a-") in ("ewc", "mas")
    assert spec.options.get("drop_last") == (True if estimates else None)


@pytest.mark.parametrize("name", [*TASK_INCREMENTAL, *CLASS_INCREMENTAL])
def test_ancl_alone_has_the_released_codes_decay_for_its_auxiliary_network(name: str) -> None:
    host = "lwf" if name in TASK_INCREMENTAL else "icarl"
    variants = (f"a-{host}", f"afec-{host}", "dmc", "a-si")
    decays = [resolve(each, name).spec.auxiliary.weight_decay for each in variants]

    assert decays == [5e-4, 2e-4, 2e-4, 5e-4]


@pytest.mark.parametrize("method", ["lwf", "a-lwf", "afec-lwf"])
def test_lwf_has_the_released_codes_smoothing_by_default(method: str) -> None:
    assert resolve(method, "cifar100/10").spec.options["smoothing"] == 1e-5
    assert resolve(method, "digits/5").spec.options["smoothing"] == 1e-5


@pytest.mark.parametrize("method", ["finetune", "afec-ewc", "lwm", "a-icarl"])
def test_the_official_preset_is_refused_for_what_was_not_released(method: str) -> None:
    with pytest.raises(SpecError, match=f"{method} is not among it. It covers ewc, mas, lwf, lfl"):
        preset("official", method)


def test_presets_by_name() -> None:
    assert preset("paper", "podnet") == {}
    with pytest.raises(SpecError, match=r"no preset 'offical'. Did you mean 'official'"):
        preset("offical", "lwf")


def test_the_documents_table_is_the_shipped_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    written = {(row[0].strip(), cell.strip()) for row in rows for cell in row[1:] if "±" in cell}

    shipped = {
        (method, f"{number.mean:.2f} ± {number.error:.2f}")
        for name in (*TASK_INCREMENTAL, *CLASS_INCREMENTAL)
        for method, numbers in reported(name).items()
        for number in numbers
    }
    assert shipped == {(method, cell) for method, cell in written if cell[0].isdigit()}


def test_the_small_protocols_are_cuts_of_cifar100() -> None:
    til, cil = (resolve("lwf", f"cifar100-small/{tasks}").spec for tasks in (5, 4))

    for each in (til, cil):
        assert each.data.order == class_order("icarl", 100)[:50]
        assert (each.data.source, each.data.per_class) == ("cifar100-16", 100)
        assert 500 * each.data.val_fraction == 50
        assert (each.threads, each.data.test_per_class) == (1, None)
        assert (each.training.epochs_first, each.training.epochs) == (30, 15)
        assert (each.training.schedule, each.training.warmup) == ("cosine", 0.1)
        assert each.auxiliary == replace(each.training, select_by=None)
    assert (til.data.sizes(), til.network["name"]) == ((10,) * 5, "resnet14")
    assert (cil.data.sizes(), cil.network["name"]) == ((20, 10, 10, 10), "resnet8")
    assert (cil.data.scenario, cil.memory.per_class, til.memory.size) == ("cil", 20, 0)
    for method in ("ewc", "a-mas", "afec-ewc"):
        assert resolve(method, "cifar100-small/5").spec.training.penalty_step == "proximal"


def test_an_executor_leaves_a_benchmarks_threads() -> None:
    fixed = make_request("lwf", "cifar100-small/5", {}).with_threads(2).resolve()[0].spec
    free = make_request("lwf", "digits/5", {}).with_threads(2).resolve()[0].spec

    assert (fixed.threads, free.threads) == (1, 2)


def test_expected_numbers_are_those_of_the_committed_study() -> None:
    root = Path(__file__).parents[2]
    shipped = (root / "src/ancl/recipe/measured_tables.csv").read_text(encoding="utf-8")

    assert shipped == (root / "docs/evidence/small/expected.csv").read_text(encoding="utf-8")
    assert len(shipped.splitlines()) > 24  # eight methods in three variants, and the header


def test_measured_numbers_have_their_own_lambdas(monkeypatch: pytest.MonkeyPatch) -> None:
    head = ("benchmark", "method", "lamb", "lamb_a", "metric", "mean", "stderr", "n")
    row = ("cifar100-small/5", "a-lwf", "10", "3", "aac", "57.0", "0.4", "5")
    alone = ("cifar100-small/5", "freeze", "", "", "aac", "40.0", "", "1")

    def with_one(name: str) -> Iterator[dict[str, str]]:
        yield from paper_rows(name)
        if name == "measured_tables.csv":
            yield dict(zip(head, row, strict=True))
            yield dict(zip(head, alone, strict=True))

    patch_part(monkeypatch, "paper_rows", with_one)
    found = reported.__wrapped__("cifar100-small/5")
    number = found["a-lwf"][-1]

    assert "freeze" not in found  # one seed has no spread

    assert (number.metric, number.mean, number.error, number.n) == ("aac", 57.0, 0.4, 5)
    assert (number.table, number.kind) == (0, "expected")
    assert measured_options("cifar100-small/5")["a-lwf"] == {"lamb": 10.0, "lamb_a": 3.0}
