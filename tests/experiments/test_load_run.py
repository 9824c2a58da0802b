"""A finished run as a learner: its answers are the run's, and it learns on as if never stopped."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ancl
from ancl import Events, Learner, MethodError, RunSpec, SpecError, StoreError, load_run, make_method
from tests.lab import (
    Layer,
    Places,
    Source,
    digits,
    patch_part,
    program,
    read_run,
    resolve,
    run_all,
    run_directory,
)

SHORT = {"training.epochs": 2, "network.name": "mlp", "network.hidden": [16], "threads": 1}
RESNET = {"network.name": "resnet8", "network.width": 2}


def spec(method: str, classes: int, **options: Any) -> RunSpec:
    """The first classes of digits, two in each task."""
    tasks = {"data.tasks": classes // 2, "data.order": list(range(classes))}
    given = {**SHORT, **tasks, **options}
    if given["network.name"] != "mlp":
        del given["network.hidden"]
    return resolve(method, "digits/5", [Layer("test", given)]).spec


def done(runs: Path, given: RunSpec) -> Path:
    outcome = run_all([given], Places.of(runs))
    assert not outcome.failures
    return outcome.finished[0].directory


def images(*classes: int, test: bool = False) -> tuple[Tensor, list[int]]:
    samples = digits().test if test else digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


def recorded(directory: Path) -> Any:
    """The accuracy matrices to the last digit; files of numbers are rounded."""
    return json.loads((directory / "result.json").read_text())["matrices"]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lwf", {"data.scenario": "til"}),
        ("a-ewc", {"data.scenario": "til", "training.lr": "search"}),
        ("afec-ewc", {"data.scenario": "til", "afec_start": "carried"}),
        ("icarl", {"data.scenario": "cil", "memory.per_class": 5}),
        ("bic", {"data.scenario": "cil", "memory.total": 40, "data.val_fraction": 0.2}),
        ("aanets-lucir", {"data.scenario": "cil", "memory.per_class": 5, **RESNET}),
        ("ccgn", {"data.scenario": "til", **RESNET}),
        ("ccgn", {"data.scenario": "cil", "memory.per_class": 5, **RESNET}),
        ("der", {"data.scenario": "cil", "memory.per_class": 5, "balanced_epochs": 2}),
        ("connector", {"data.scenario": "til", "weight": "importance"}),
        ("connector", {"data.scenario": "til", "stability": "projected"}),
    ],
)
def test_it_learns_on_as_a_longer_run_does(
    method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    opened = load_run(done(tmp_path, spec(method, 4, **options)), events=Events())
    longer = done(tmp_path / "longer", spec(method, 6, **options))
    assert opened.tasks == [[0, 1], [2, 3]]

    opened.learn(*images(4, 5))

    whole = load_run(longer)
    assert torch.equal(opened.scores(digits().test.x), whole.scores(digits().test.x))
    for part, key in whole._state.items():
        ours, theirs = opened._obtain(opened._state[part]).tensors, whole._obtain(key).tensors
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    matrices = recorded(longer)
    for task, classes in enumerate(((0, 1), (2, 3), (4, 5))):
        known = opened.evaluate(*images(*classes, test=True), task=task)
        assert known == matrices["taw"][2][task]
        assert opened.evaluate(*images(*classes, test=True)) == matrices["tag"][2][task]


def test_a_domain_is_learned_on_as_by_a_learner_of_the_same_images(tmp_path: Path) -> None:
    options = {**SHORT, "data.scenario": "dil", "data.domains": "rotation:0", "data.tasks": 1}
    made = resolve("a-ewc", "digits/5", [Layer("test", options)]).spec
    opened = load_run(done(tmp_path, made))
    whole = Learner(
        "a-ewc",
        "mlp",
        network_options={"hidden": (16,)},
        scenario="dil",
        training=made.training,
        auxiliary=made.auxiliary,
        lamb=made.options["lamb"],
        lamb_a=made.options["lamb_a"],
    )
    x, y = images(*range(10))
    whole.learn(x, y)
    assert torch.equal(opened.scores(digits().test.x), whole.scores(digits().test.x))

    for each in (opened, whole):
        each.learn(x.rot90(1, (1, 2)), y)

    assert opened.tasks == [list(range(10))] * 2
    assert torch.equal(opened.scores(digits().test.x), whole.scores(digits().test.x))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return done(tmp_path_factory.mktemp("runs"), spec("a-ewc", 4))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished.parent, tmp_path / "runs")
    return tmp_path / "runs" / finished.name


def test_no_data_is_read_and_what_is_opened_can_be_saved(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> Source:
        raise AssertionError("data is read")

    patch_part(monkeypatch, "load_source", refuse)
    shutil.copytree(finished, tmp_path / "moved")
    with pytest.raises(StoreError, match=r"does not hold what .*network \(\w{12}, missing\)"):
        load_run(tmp_path / "moved")
    opened = load_run(tmp_path / "moved", store=finished.parent / ".store")
    opened.save(tmp_path / "saved")

    again = Learner.load(tmp_path / "saved")
    x = digits().test.x
    assert torch.equal(again.scores(x), opened.scores(x))
    assert again._state == opened._state


def test_what_the_store_lacks_is_named_with_the_command_that_computes_it(copied: Path) -> None:
    state = read_run(copied).state
    assert state is not None
    entries = copied.parent / ".store" / "entries"
    place = {part: entries / key[:2] / key for part, key in state.keys.items()}
    shutil.rmtree(place["network"])
    (place["importance"] / "tensors.safetensors").write_bytes(b"damaged")

    with pytest.raises(StoreError) as raised:
        load_run(copied)

    text = str(raised.value)
    assert f"network ({state.keys['network'][:12]}, missing)" in text
    assert f"importance ({state.keys['importance'][:12]}, damaged)" in text
    command = (
        f"ancl run --config {copied}/spec.yaml --runs {copied.parent} --store {entries.parent}"
    )
    assert text.endswith(command)
    # The command does what it says.
    again = ancl.spec(config=copied / "spec.yaml")
    assert run_directory(copied.parent, again) == copied
    done(copied.parent, again)
    assert load_run(copied).tasks == [[0, 1], [2, 3]]


def changed(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    found = json.loads((directory / "result.json").read_text())
    change(found)
    (directory / "result.json").write_text(json.dumps(found))


def at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets a value by its dotted path."""

    def change(found: Any) -> None:
        *names, last = [int(each) if each.isdecimal() else each for each in path.split(".")]
        for name in names:
            found = found[name]
        found[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("state.keys.network", "../../etc", "state|pattern"),
        ("state.keys.network", "0" * 64, "not of this run"),
        ("state.keys", {}, "no network"),
        ("state.extra", 1, "Extra inputs"),
        ("state.input_shape", [1, 0, 8], "greater than or equal to 1"),
        ("state.input_shape", [1, 9, 9], "do not fit the network"),
        ("state.normalization.std", [0.0], "not above 0"),
        ("state.normalization.mean", [float("nan")], "NaN is not a finite number"),
        ("state.normalization.mean", [0.1, 0.2], "each channel"),
        ("state.tasks", [], "at least 1"),
        ("state.tasks.0.names", [0, 0], "a class twice"),
        ("state.tasks.0.counts", [1], "images per class"),
        ("state.tasks.1.start", 3, "do not follow"),
        ("state.tasks.1.names", [1, 2], "do not follow"),
        ("state.tasks.1.start", True, "valid integer"),
        ("state.tasks.1.sizes", [1, 1], "sizes"),
        ("images", [[1, 2, 3]], "do not fit 1 task"),
        ("state", None, "does not say what was learned"),
        ("spec.seed", "many", "valid integer"),
        ("spec.network.width", 3, "no setting 'width'"),
        ("spec.network.hidden", "wide", "network.hidden is 'wide'"),
        ("spec.network.name", "wide", "no network 'wide'"),
        ("spec.method", "lfw", "no method 'lfw'"),
        ("spec.options.lamb", -1, "lamb is -1"),
        ("spec.data.scenario", "dil", "the accuracy matrix beside it gives"),
    ],
)
def test_a_result_that_was_changed_is_refused(
    path: str, value: Any, said: str, copied: Path
) -> None:
    changed(copied, at(path, value))

    with pytest.raises((StoreError, SpecError, MethodError), match=said):
        load_run(copied)


def test_a_state_without_what_the_method_reads_is_refused(copied: Path) -> None:
    changed(copied, lambda found: found["state"]["keys"].pop("importance"))

    with pytest.raises(StoreError, match="the state of a-ewc lacks: importance"):
        load_run(copied)


@pytest.mark.parametrize("path", ["spec.network.name", "spec.method"])
def test_code_that_a_run_names_is_never_executed(path: str, copied: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'sprung')!r}).touch()\n")
    changed(copied, at(path, f"{trap}:net"))

    with pytest.raises(SpecError, match=r"only where you name it yourself\. Give it again"):
        load_run(copied)
    assert not (tmp_path / "sprung").exists()


OUTSIDE = program("""
import math
from torch import nn
from ancl import Method
from ancl.extend import Term
from tests.lab import Lwf

def net(shape, *, width: int = 8):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU())

def mine(*, lamb: float = 1.0) -> Method:
    return Method("mine", old=Term(Lwf(2.0), lamb))
""")


def test_parts_from_outside_are_given_again_and_compared(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    folder = write("outside", {"parts.py": OUTSIDE})
    method, network = f"{folder}/parts.py:mine", f"{folder}/parts.py:net"
    options = {"network.name": network, "training.epochs": 1, "threads": 1, "lamb": 2.0}
    made = resolve(method, "digits/5", [Layer("test", options)]).spec
    directory = done(tmp_path / "runs", made)

    with pytest.raises(SpecError, match=r"ancl\.load_run\(path, method="):
        load_run(directory, network=network)
    with pytest.raises(SpecError, match=r"ancl\.load_run\(path, network="):
        load_run(directory, method=method)
    with pytest.raises(MethodError, match="is not the one that"):
        load_run(directory, method=make_method("lwf"), network=network)
    with pytest.raises(SpecError, match="its name or its code differs"):
        load_run(directory, method=method, network="mlp")
    opened = load_run(directory, method=method, network=network)
    last = opened.evaluate(*images(8, 9, test=True), task=4)
    assert last == recorded(directory)["taw"][4][4]
    assert load_run(directory, method=opened.method, network=network).tasks == opened.tasks

    moved = write("elsewhere", {"other.py": OUTSIDE})
    given = {"method": f"{moved}/other.py:mine", "network": f"{moved}/other.py:net"}
    assert load_run(directory, **given).tasks == opened.tasks
    write("elsewhere", {"other.py": OUTSIDE.replace("nn.ReLU()", "nn.Tanh()")})
    with pytest.raises(SpecError, match="its name or its code differs"):
        load_run(directory, **given)


def test_every_public_name_is_there_and_explained() -> None:
    for package in (ancl, ancl.extend):
        for name in set(package.__all__) - {"Params", "TaskLoss"}:  # aliases of types
            assert (getattr(package, name).__doc__ or "").strip(), name
    assert ancl.load_run is load_run
    wanted = """
        Learner Method make_method list_methods Training Memory spec specs run compare search study
        analyze report load_run list_benchmarks Store RunSpec errors Events data extend
    """
    authors = """
        Term Auxiliary Extra Finish Regularizer WeightRegularizer with_ancl with_afec Network
        Objective Step Anchor Output MainTrainer TaskWork Infer InferenceInputs StageResult
    """
    assert set(wanted.split()) <= set(ancl.__all__)
    assert set(authors.split()) <= set(ancl.extend.__all__)
    with pytest.raises(AttributeError, match=r"in ancl\.extend: ancl\.extend\.Term"):
        _ = ancl.Term
    assert not hasattr(ancl, "Terms")
