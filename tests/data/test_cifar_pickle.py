import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl.data.formats.cifar import read_pickle
from ancl.errors import ScenarioError

ROWS = np.arange(12, dtype=np.uint8).reshape(3, 4)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_containers_are_read_in_every_protocol(protocol: int) -> None:
    data = pickle.dumps({b"data": ROWS, "labels": [1, 2, 3], b"names": [b"a"]}, protocol=protocol)
    for written in (data, data.replace(b"numpy._core", b"numpy.core")):
        if protocol < 4 or written == data:  # later protocols store the length of the name
            found = read_pickle(written, "here")
            assert found["data"].dtype == np.uint8
            assert found["data"].tolist() == ROWS.tolist()
            assert (found["labels"], found["names"]) == ([1, 2, 3], [b"a"])


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(
    tmp_path: Path, protocol: int
) -> None:
    file = tmp_path / "ran"
    data = pickle.dumps({"data": ROWS, "x": Command(file)}, protocol=protocol)
    with pytest.raises(ScenarioError, match=r"train is not a pickle of arrays: it asks for posix"):
        read_pickle(data, "train")
    assert not file.exists()
    pickle.loads(data)  # what would have happened
    assert file.exists()


@pytest.mark.parametrize("name", ["builtins\neval", "numpy\nload", "ancl.errors\nAnclError"])
def test_no_other_name_is_found_whatever_it_does(name: str) -> None:
    with pytest.raises(ScenarioError, match="asks for " + name.replace("\n", ".")):
        read_pickle(f"c{name}\n.".encode(), "file")


def test_damaged_and_other_files_are_refused() -> None:
    whole = pickle.dumps({"data": ROWS})
    for broken in (b"", whole[:-20], b"not a pickle"):
        with pytest.raises(ScenarioError, match="file is not a pickle of arrays"):
            read_pickle(broken, "file")
    with pytest.raises(ScenarioError, match="file holds a list"):
        read_pickle(pickle.dumps([1]), "file")
