"""Runs on data of one's own, without a benchmark, and with a network of one's own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import Events, RunSpec, SpecError, Training, run
from tests.lab import Layer, build, resolve

Write = Callable[[str, Mapping[str, str]], Path]

MINE = """
import numpy as np
from torch import nn
import parts

def net(shape, *, width: int = 4):
    return nn.Sequential(nn.Flatten(), parts.layer(shape, width))

def needy(shape, *, width: int):
    return net(shape, width=width)

def data():
    generator = np.random.default_rng(0)
    y = np.arange(48) % 4
    x = generator.integers(0, 60, (48, 3, 3)) + 60 * y[:, None, None]
    return x.astype(np.uint8), y

def rooted(root):
    return data()
"""
STRANGE = """
from mine import net
exec("x = 1")
def strange(shape, *, width):
    return net(shape, width=width)
"""
PARTS = """
import math
from torch import nn
def layer(shape, width):
    return nn.Sequential(nn.Linear(math.prod(shape), width), nn.ReLU())
"""
SHORT = {"data.tasks": 2, "training.epochs": 2, "training.batch_size": 8, "threads": 1}


@pytest.fixture
def file(write: Write) -> str:
    files = {"mine.py": MINE, "parts.py": PARTS, "strange.py": STRANGE}
    return f"{write('mine', files)}/mine.py"


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    x = np.arange(40 * 9, dtype=np.uint8).reshape(40, 3, 3)
    np.savez(tmp_path / "my photos.npz", x=x, y=np.arange(40) % 4)
    return f"arrays:{tmp_path}/my photos.npz"


def spec(benchmark: str | None = None, method: str = "lwf", **values: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in values.items()}
    return resolve(method, benchmark, [Layer("test", {**SHORT, **given})]).spec


def test_data_alone_is_enough(arrays: str) -> None:
    found = spec(data__source=arrays, network__name="mlp")

    assert found.benchmark == "arrays-my-photos/2"
    assert found.data.sizes() == (2, 2)
    assert found.training == replace(Training(), epochs=2, batch_size=8, select_by="loss")
    assert len(build(found).stream.tasks) == 2


def test_a_written_spec_leads_to_itself(arrays: str) -> None:
    first = spec(data__source=arrays, network__name="mlp")

    again = spec(first.benchmark, data__source=arrays, network__name="mlp")

    assert again == first


@pytest.mark.parametrize(
    ("source", "name"),
    [("digits", "data-digits/2"), ("hard-digits", "data-hard-digits/2")],
)
def test_named_data_needs_no_benchmark_either(source: str, name: str) -> None:
    assert spec(data__source=source).benchmark == name


def test_without_benchmark_and_data_both_ways_are_told() -> None:
    with pytest.raises(SpecError) as error:
        spec()

    assert str(error.value).startswith("A BENCHMARK is missing. Write one, as in: ancl run a-lwf")
    assert "--data folder:photos@32 --tasks 5" in str(error.value)


def test_a_benchmark_that_does_not_exist_is_told_with_data_too(arrays: str) -> None:
    with pytest.raises(SpecError, match=r"no benchmark 'digist/5'\. Did you mean 'digits/5'"):
        spec("digist/5", data__source=arrays)
    with pytest.raises(SpecError, match=r"no benchmark 'digist/5'"):
        spec("digist/5")


def test_data_without_a_split_is_told_how_to_split(arrays: str) -> None:
    with pytest.raises(SpecError, match="--tasks 10 or --classes"):
        spec(data__source=arrays, data__tasks=None)


def test_network_and_data_of_a_file_are_learned(file: str) -> None:
    wanted = spec(data__source=f"{file}:data", network__name=f"{file}:net", network__width=8)

    result = run(wanted, runs=None)

    assert wanted.benchmark == "code-mine-data/2"
    assert wanted.network == {"name": f"{file}:net", "width": 8}
    assert result.matrices["taw"].shape == (2, 2)
    assert result.metrics["aac"] > 0.6  # brightness tells the classes apart


def test_keys_follow_the_code_of_the_network_and_the_images(file: str, write: Write) -> None:
    def keys(network: str = "net", data: str = "data") -> list[str]:
        names = {"data__source": f"{file}:{data}", "network__name": f"{file}:{network}"}
        return [stage.key for stage in build(spec(**names)).stages]

    before = keys()

    assert keys(data="rooted") == before  # the same images
    write("mine", {"unrelated.py": "x = 1\n"})
    assert keys() == before
    write("mine", {"parts.py": PARTS.replace("nn.ReLU()", "nn.Tanh()")})
    assert set(keys()).isdisjoint(before)


def test_code_that_cannot_be_hashed_runs_unstored_and_says_so(file: str) -> None:
    said: list[str] = []
    strange = file.replace("mine.py", "strange.py")

    class Listening(Events):
        def say(self, message: str) -> None:
            said.append(message)

    wanted = spec(data__source=f"{file}:data", network__name=f"{strange}:strange", network__width=3)
    run(wanted, runs=None, events=Listening())

    assert said[0].startswith("Results of this run are not stored: Not all that decides")
    assert "uses exec" in said[0]


def test_a_split_that_does_not_fit_is_told_before_training(file: str) -> None:
    with pytest.raises(SpecError, match="4 classes cannot be split into 3 equal tasks"):
        spec(data__source=f"{file}:data", data__tasks=3)


def test_data_known_only_after_reading_is_checked_then(file: str) -> None:
    small = {"memory__total": 3, "data__scenario": "cil", "method": "icarl"}
    wanted = spec(data__source=f"{file}:rooted", network__name="mlp", **small)

    assert (wanted.data.sizes(), wanted.benchmark) == (None, "code-mine-rooted/2")
    with pytest.raises(SpecError, match="3"):
        build(wanted)
    with pytest.raises(SpecError, match="3"):
        spec(data__source=f"{file}:data", network__name="mlp", **small)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"network.width": "wide"}, r"network.width is 'wide'; it must be a valid integer"),
        (
            {"network.wdth": 3},
            r"mine.py:net has no setting 'wdth'\. Did you mean 'width'",
        ),
        ({"network.name": "needy"}, r"mine.py:needy needs a value for network.width: --set"),
        ({"network.name": "nett"}, r"There is no function 'nett'\. Did you mean 'net'"),
    ],
)
def test_settings_of_a_network_are_checked(file: str, values: dict[str, Any], message: str) -> None:
    name = f"{file}:{values.pop('network.name', 'net')}"
    layer = Layer("test", {**SHORT, "network.name": name, "data.source": f"{file}:data", **values})

    with pytest.raises(SpecError, match=message):
        resolve("lwf", None, [layer])
