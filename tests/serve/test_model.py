"""What is served: files that an export wrote, and no others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import SpecError, StoreError
from tests.lab import Limits, find_export, open_model, serve
from tests.serve.conftest import picture, write_model


def test_a_file_is_read_with_all_that_it_says(model: Path) -> None:
    found = open_model(model, 1)
    assert (found.labels, found.shape, found.temperature) == (
        ["red", "green", "blue"],
        (8, 8, 3),
        50,
    )
    assert found.read(picture("red"), 1000).shape == (8, 8, 3)
    scores = found.scores([np.full((8, 8, 3), value, np.uint8) for value in (0, 7)])
    assert scores.tolist() == [[0, 0, 0], [7, 7, 7]]


def test_a_file_from_before_the_rule_was_written_has_the_rule_of_then(tmp_path: Path) -> None:
    found = open_model(write_model(tmp_path / "old.onnx", resize=None), 1)
    assert (found.rule.resize, found.rule.filter) == ("stretch", "bilinear")


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": None},
        {"labels": ["a", "b"]},
        {"labels": []},
        {"labels": [{"a": 1}, 2, 3]},
        {"temperature": 0},
        {"temperature": "hot"},
        {"input": [8, 8]},
        {"input": [8, 9, 3]},
        {"input": [8, 8, -3]},
        {"resize": {"resize": "squash"}},
        {"resize": {"how": "fit"}},
        {"tasks": "all"},
    ],
    ids=str,
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    file = write_model(tmp_path / "odd.onnx", **wrong)
    with pytest.raises((StoreError, SpecError)):
        open_model(file, 1)


@pytest.mark.parametrize("content", [b"", b"not a model", bytes(1000)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(StoreError, match="not a file that ancl export wrote"):
        open_model(tmp_path / "m.onnx", 1)


def test_weights_in_another_file_are_not_read(tmp_path: Path) -> None:
    """A file from elsewhere cannot have us read others that it names."""
    import onnx

    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.full(1, 3.0, np.float32).tobytes())
    inside = tmp_path / "inside"
    inside.mkdir()
    file = write_model(inside / "m.onnx")
    proto = onnx.load(file)
    weight = next(each for each in proto.graph.initializer if each.name == "scale")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "../secret.bin"), ("offset", "0"), ("length", "4")):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(StoreError):
        open_model(file, 1)


def test_the_file_of_a_learner_is_found_here_or_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "away" / "birds").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    learner = Path("../away/birds")
    with pytest.raises(StoreError, match=r"no birds\.onnx.*ancl export \.\./away/birds"):
        find_export(learner)

    beside = write_model(tmp_path / "away" / "birds.onnx")
    assert find_export(learner).resolve() == beside
    here = write_model(tmp_path / "here" / "birds.onnx")
    assert find_export(learner).resolve() == here
    assert find_export(Path("birds")).resolve() == here
    assert find_export(beside) == beside


def test_other_machines_need_a_token_in_python_too(model: Path) -> None:
    with pytest.raises(SpecError, match="lets other machines ask"):
        serve(model, host="0.0.0.0", port=0, limits=Limits())
