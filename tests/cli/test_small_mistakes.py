"""What was ignored or ended in a traceback: each is one message, before anything is trained."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ancl import (
    AnclError,
    Events,
    Learner,
    Memory,
    Method,
    SpecError,
    Training,
    architecture,
    list_methods,
    make_method,
    spec,
    specs,
)
from tests.lab import MOST_AT_ONCE, digits, is_count

ESCAPE, BREAK = "\x1b[31mred", "two\nlines\r\tof\u2028it"
BAD = ("\x1b", "\r", "\u2028")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(count: int) -> None:
        raise AssertionError(f"{count} threads were asked for")

    monkeypatch.setattr(torch, "set_num_threads", taken)


@pytest.mark.parametrize("command", ["learn L --data folder:x", "run lwf digits/5"])
@pytest.mark.parametrize("count", ["99999", "1025", "0", "9" * 5000])
def test_more_threads_than_a_machine_has_are_refused(
    command: str, count: str, ancl: Any, no_threads: None
) -> None:
    ended = ancl(*command.split(), "--threads", count)

    assert ended.code == 2
    assert "--threads: " in ended.err
    assert len(ended.err) < 500


def test_more_workers_than_a_machine_bears_are_refused(ancl: Any) -> None:
    ended = ancl("run", "lwf", "digits/5", "--workers", "99999")

    assert (ended.code, "Write 1 to 1024." in ended.err) == (2, True)
    assert [is_count(str(MOST_AT_ONCE + more)) for more in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("method", "given", "sign"),
    [
        ("lwf", ("--lamb", "auto", "--lamb-grid", "1,2"), "λ:"),
        ("lwf", ("--lamb", "3"), "λ:"),
        ("a-lwf", ("--lamb-a", "balance", "--lamb-grid", "1,2", "--lamb-a-grid", "1"), "λ_a:"),
        ("a-lwf", ("--set", "lamb_a=2", "--set", "lamb=auto"), "λ and λ_a:"),
    ],
)
def test_a_value_or_rule_beside_a_grid_is_refused(
    method: str, given: tuple[str, ...], sign: str, ancl: Any
) -> None:
    ended = ancl("search", method, "digits/5", "--network", "mlp", *given, "--dry-run")

    assert ended.code == 2
    assert ended.err.startswith(f"{sign} a value or rule is given")


@pytest.mark.parametrize("command", ["prune", "list", "verify"])
def test_every_command_on_a_store_that_is_not_there_says_so(command: str, ancl: Any) -> None:
    Path("runs").mkdir()

    ended = ancl("store", command, "--store", "nope")

    assert (ended.code, "There is no store at nope" in ended.err) == (2, True)
    assert not Path("nope").exists()


def test_settings_of_an_auxiliary_network_are_for_methods_that_train_one(ancl: Any) -> None:
    ended = ancl("run", "lwf", "digits/5", "--set", "auxiliary.epochs=3", "--dry-run")

    assert ended.code == 2
    assert ended.err.startswith(
        "--set: auxiliary.epochs is of an auxiliary network, and lwf trains none."
    )
    # A file may be of any run: a run's own spec.yaml names these settings, too.
    made = spec("lwf", "digits/5", threads=1)
    lines = [f"  {key}: {value}" for key, value in made.plain()["auxiliary"].items()]
    text = "method: lwf\nbenchmark: digits/5\nauxiliary:\n" + "\n".join(lines).replace(
        "None", "null"
    )
    Path("spec.yaml").write_text(text.replace("False", "false").replace("True", "true"))
    assert spec(config="spec.yaml", threads=1) == made
    # Beside a method that has one, all are given the same.
    both = specs(["lwf", "a-lwf"], "digits/5", settings={"auxiliary.epochs": 3}, threads=1)
    assert [each.auxiliary.epochs for each in both] == [3, 3]
    with pytest.raises(SpecError, match="ewc trains none"):
        specs(["lwf", "ewc"], "digits/5", settings={"auxiliary.epochs": 3}, threads=1)


def test_every_method_that_plans_an_auxiliary_network_takes_its_settings() -> None:
    names = [each["name"] for each in list_methods()]
    names += [
        v["name"] for each in list_methods() for v in each["variants"].values() if "name" in v
    ]
    refused = []
    for name in names:
        method: Method = make_method(name)
        given: dict[str, Any] = {"auxiliary.epochs": 3, "memory.per_class": 5}
        try:
            spec(name, "digits/5", settings=given, threads=1)
        except SpecError as error:
            if "trains none" in str(error):
                refused.append(name)
        assert (method.auxiliary is None) == (name in refused), name
    assert {"finetune", "lwf", "icarl"} <= {*refused} < {*names}


def test_a_file_that_ends_as_another_format_is_refused(ancl: Any, small: Learner) -> None:
    small.save("L")

    ended = ancl("export", "L", "-o", "x.onnx", "--format", "pt2")

    assert ended.code == 2
    assert "x.onnx ends with .onnx, and the format given is pt2" in ended.err
    assert not Path("x.onnx").exists()


def test_an_option_that_a_model_of_timm_does_not_have_is_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import ModuleType, SimpleNamespace

    def create_model(name: str, pretrained: bool, **options: Any) -> None:
        raise TypeError("ResNet.__init__() got an unexpected keyword argument 'patch_size'")

    timm = ModuleType("timm")
    timm.__dict__.update(
        __version__="9.9",
        list_models=lambda pretrained=False: ["resnet"],
        get_pretrained_cfg=lambda name: SimpleNamespace(fixed_input_size=False),
        create_model=create_model,
    )
    monkeypatch.setitem(sys.modules, "timm", timm)

    with pytest.raises(SpecError, match=r"timm cannot make timm:resnet with .*patch_size=4"):
        architecture("timm:resnet", (3, 8, 8), patch_size=4)


# -- labels and names ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Learner:
    made = Learner(
        "icarl",
        "mlp",
        training=Training(epochs=1, batch_size=16, lr=0.05),
        network_options={"hidden": (8,)},
        memory=Memory(per_class=2),
        val_fraction=0.25,
        events=Events(),
    )
    samples = digits().train
    chosen = torch.cat([samples.of_class(0)[:8], samples.of_class(1)[:8]])
    made.learn(samples.x[chosen], [ESCAPE] * 8 + [BREAK] * 8)
    return made


def test_labels_and_names_of_strangers_stay_in_their_line(
    ancl: Any, small: Learner, write_digits: Callable[..., str]
) -> None:
    small.save("L")
    write_digits(Path("m"), {"a": 0}, each=3)
    for count, file in enumerate(sorted(Path("m/a").iterdir())):
        file.rename(file.with_name(f"{count}{BREAK}{ESCAPE}.png"))
    x = np.stack([np.zeros((8, 8, 1), np.uint8)] * 4)
    np.savez("a.npz", x=x, y=np.array([ESCAPE, BREAK] * 2))
    said = {
        "table": ancl("predict", "L", "m", "--top-k", "2").out,
        "csv": ancl("predict", "L", "m", "--top-k", "2", "--csv").out,
        "evaluate": ancl("evaluate", "L", "--data", "arrays:a.npz").out,
        "report": str(small.report()),
        "confusion": str(small.confusion()),
    }
    learned = ancl("learn", "L", "--data", "arrays:a.npz", "--threads", "1", "--quiet")
    said["learn"] = learned.out + learned.err

    lines = {"table": 2 + 6, "csv": 1 + 6, "report": 1 + 2 + 1, "confusion": 1 + 2 + 1}
    for name, text in said.items():
        assert not any(sign in text for sign in BAD), name
        assert "\\x1b[31mred" in text, name
        assert len(text.rstrip("\n").split("\n")) == lines.get(name, text.count("\n")), name


# -- calls from Python -----------------------------------------------------------------------

DENSE = torch.zeros(2, 8, 8, 1)
CALLS: dict[str, Callable[[Learner], object]] = {
    "predict none": lambda one: one.predict(torch.zeros(0, 8, 8, 1, dtype=torch.uint8)),
    "predict no floats": lambda one: one.predict(np.zeros((0, 8, 8))),
    "evaluate none": lambda one: one.evaluate(np.zeros((0, 8, 8, 1), np.uint8), []),
    "report none": lambda one: one.report(np.zeros((0, 8, 8, 1), np.uint8), []),
    "learn none": lambda one: one.learn(np.zeros((0, 8, 8, 1), np.uint8), []),
    "sparse": lambda one: one.predict(DENSE.to_sparse()),
    "meta": lambda one: one.predict(DENSE.to("meta")),
    "list of meta": lambda one: one.predict([DENSE[0].to("meta")]),
    "several lengths": lambda one: one.predict([[1.0, 2.0], [3.0]]),
    "meta labels": lambda one: one.evaluate(DENSE, torch.zeros(2).to("meta")),
    "one odd label": lambda one: one.evaluate(DENSE[:1], 3.5),
    "a long label": lambda one: one.evaluate(DENSE[:1], 10**5000),
    "long labels": lambda one: one.learn(DENSE, [10**5000, 1]),
    "k text": lambda one: one.top_k(DENSE, "3"),  # type: ignore[arg-type]
    "k share": lambda one: one.top_k(DENSE, 2.5),  # type: ignore[arg-type]
    "k none": lambda one: one.top_k(DENSE, None),  # type: ignore[arg-type]
    "task text": lambda one: one.predict(DENSE, "0"),  # type: ignore[call-overload]
    "task share": lambda one: one.scores(DENSE, 0.0),  # type: ignore[arg-type]
    "reject text": lambda one: one.predict(DENSE, reject="x"),  # type: ignore[call-overload]
    "reject nan": lambda one: one.predict(DENSE, reject=float("nan")),
    "rate text": lambda one: one.reject_threshold("0.1"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_one_message(name: str, small: Learner) -> None:
    with pytest.raises(AnclError) as error:
        CALLS[name](small)

    assert len(str(error.value)) < 500


def test_numbers_of_numpy_are_numbers(small: Learner) -> None:
    (answers, _) = small.top_k(DENSE, np.int64(1), np.int64(0))  # type: ignore[arg-type]
    assert len(answers) == 1
    assert small.predict(DENSE, reject=np.float32(0.0)) == small.predict(DENSE)
