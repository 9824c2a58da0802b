import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import ScenarioError
from tests.lab import patch_part, read_pickle

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


def forged_objects() -> bytes:
    """An array of Python objects whose addresses are the file's own bytes.

    The type's flags are set to 0 first, so that NumPy takes the bytes for objects.
    """
    number = b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR"
    number += b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    array = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    state = b"(I1\n(I1\nt" + number + b"I00\nS'AAAAAAAA'\ntb"
    return b"(dS'data'\n" + array + state + b"s."


def test_an_array_of_addresses_of_the_files_choice_is_refused() -> None:
    with pytest.raises(ScenarioError, match="an array is of the type O8"):
        read_pickle(forged_objects(), "train")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"cnumpy\nndarray\n(I9\ntR.", "ndarray"),  # the class itself is called
        (b"(dS'a'\ncnumpy\nndarray\ns.", "a name"),  # or handed out
        (b"cnumpy\nndarray\n(dS'x'\nI1\nsb.", "not a tuple"),  # or changed
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"cnumpy\ndtype\n(S'u1'\ntR(I3\nS'|'\nN(S'f'\ntNI-1\nI-1\nI0\ntb.", "fields"),
        (b"cnumpy._core.numeric\n_frombuffer\n(S'ab'\ncnumpy\ndtype\n(S'u1'\ntR(I9\ntS'C'\ntR.",
         "plain shape"),
        (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.", "expected"),
        (b"\x80\x02]r\xff\xff\xff\xff.", "holds a list"),  # a place in the memory, not a size
        (b"(" * 1000 + b"I1\n" + b"t" * 1000 + b"(dI0\nI1\ns.", "."),
        (b"(I1\nt" + b"2\x86" * 200 + b"q\x00}h\x00I1\ns.", "."),  # a key of 2^200 numbers
        (b"I" + b"9" * 5000 + b"\n.", "."),
        (b"P1\n.", "PERSID"),
        (b"\x82\x01.", "EXT1"),
    ],
)  # fmt: skip
def test_forged_programs_are_refused(program: bytes, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_pickle(program, "file")


def test_a_program_of_any_length_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_part(monkeypatch, "MOST_STEPS", 1000)
    with pytest.raises(ScenarioError, match="more than 1,000 instructions"):
        read_pickle(b"N0" * 1001 + b".", "file")
