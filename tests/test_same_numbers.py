"""The comparison of two commits reports what differs, and nothing else."""

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("same_numbers", "same_numbers_jobs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import same_numbers

    return same_numbers


def store(root: Path, *, weight: float = 1.0, key: str = "k", loss: float = 0.5) -> Path:
    """A job's directory with one stored stage."""
    entry = root / "store" / "entries" / key
    entry.mkdir(parents=True)
    save_file({"w": torch.tensor([weight]), "b": torch.zeros(2)}, entry / "tensors.safetensors")
    meta = {"stage": "main", "task": 1, "log": [{"loss": loss, "seconds": id(root)}], "seconds": 1}
    (entry / "entry.json").write_text(json.dumps({"key": key, "meta": meta}))
    return root


def items(script, root: Path) -> dict:
    found: dict = {}
    for where, what, value in script.directory_hashes(root):
        found.setdefault(where, {}).setdefault(what, []).append(value)
    return found


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({}, []),
        ({"weight": 1.0000001}, ["job | task 1 main | tensor w"]),
        ({"key": "other"}, ["job | task 1 main | key"]),
        ({"loss": 0.5000000001}, ["job | task 1 main | log"]),
    ],
)
def test_a_changed_tensor_key_or_number_is_a_line(script, tmp_path, changed, reported) -> None:
    one = items(script, store(tmp_path / "one"))
    other = items(script, store(tmp_path / "other", **changed))

    assert list(script.job_differences("job", one, other)) == reported
    assert one["task 1 main"].keys() == {"key", "tensor w", "tensor b", "stage", "task", "log"}


def test_records_differ_by_job_stage_commands_and_machine(script) -> None:
    job = {"items": {"task 0 main": {"key": ["a"]}}, "commands": "c", "refusals": []}
    one = {"machine": {"torch": "1"}, "jobs": {"lwf til": job, "ewc til": copy.deepcopy(job)}}
    other = copy.deepcopy(one)
    assert list(script.differences(one, other)) == []

    other["machine"]["torch"] = "2"
    other["jobs"]["lwf til"]["items"]["task 1 main"] = {"key": ["b"]}
    other["jobs"]["ewc til"]["commands"] = "d"
    other["jobs"]["mas til"] = job

    assert [line.split(" | ")[:2] for line in script.differences(one, other)] == [
        ["machine", "torch"],
        ["lwf til", "task 1 main"],
        ["ewc til", "the whole job"],
        ["mas til", "the whole job"],
    ]


def test_a_pool_that_differs_from_one_process_is_a_line(script) -> None:
    jobs = [job for job in script.all_jobs() if job.same_as]
    assert jobs
    alone = {"items": {"task 0 main": {"key": ["a"]}}}
    other = {"items": {"task 0 main": {"key": ["b"]}}}
    found = {"commit": "x", "jobs": {jobs[0].same_as: alone, jobs[0].name: other}}

    assert len(list(script.differences_within(found, jobs))) == 1


def test_every_method_of_the_catalogue_is_a_job(script) -> None:
    from tests.lab import METHODS

    names = {job.name for job in script.all_jobs()}
    for method in METHODS:
        for name in (method, f"a-{method}", f"afec-{method}"):
            assert {f"{name} {scenario}" for scenario in ("til", "cil", "dil", "cir")} <= names
