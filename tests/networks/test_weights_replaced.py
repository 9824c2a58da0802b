"""Files of weights: the bytes that are loaded are those whose hash the keys hold."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

import ancl
from ancl import AnclError, Events, SpecError, architecture

SETTINGS = {
    **{"network.name": "timm:tinynet", "training.epochs": 1, "threads": 1, "device": "cpu"},
    **{"data.per_class": 6, "data.test_per_class": 2, "data.tasks": 2},
}


def tensors(timm: Any, seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return dict(timm.TinyNet(1, 0).state_dict())


class Replacing(Events):
    """Replaces the file as soon as the first stage is done."""

    def __init__(self, file: Path, data: bytes) -> None:
        self.file, self.data = file, data

    def stage_ends(self, stage: Any, *, found: bool, seconds: float) -> None:
        self.file.write_bytes(self.data)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_replaced_during_a_run_stops_it_and_nothing_false_is_stored(
    suffix: str, timm: Any, tmp_path: Path
) -> None:
    file, other = tmp_path / f"w{suffix}", tmp_path / "b" / f"w{suffix}"
    other.parent.mkdir()
    write = save_file if suffix == ".safetensors" else torch.save
    for seed, place in enumerate((file, other)):
        write(tensors(timm, seed), place)
    given = {**SETTINGS, "network.weights": str(file)}
    [spec] = ancl.specs(["dmc"], "digits/5", settings=given, seeds=[0])

    with pytest.raises(AnclError, match=r"was replaced while it was in use: its sha256 was "):
        ancl.run(spec, runs=tmp_path / "runs", events=Replacing(file, other.read_bytes()))


def test_a_file_of_another_size_is_refused_before_it_is_read(timm: Any, tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    torch.save(tensors(timm, 0), file)
    made = architecture("timm:tinynet", (1, 8, 8), weights=str(file))
    with file.open("ab") as opened:
        opened.truncate(1 << 40)

    started = time.process_time()
    with pytest.raises(SpecError, match=r"it had [\d,]+ bytes and now has 1,099,511,627,776"):
        made.backbone()
    assert time.process_time() - started < 1


def _whole(name: str, timm: Any) -> bytes:
    """The beginning of a file that is then made 1 TB long."""
    if name.startswith("header"):
        return bytes(save(tensors(timm, 0)))
    return {"zip": b"PK\x03\x04", "pickle": b"\x80\x02"}.get(name.partition(".")[0], b"")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("empty.safetensors", "it does not begin as safetensors do"),
        ("header.safetensors", r"its header tells of [\d,]+ bytes, and it has 1,099,511,627,776"),
        ("empty.pth", r"it does not begin as a file that torch\.save wrote"),
        ("zip.pth", r"its end is not that of a file that torch\.save wrote"),
        ("pickle.pth", r"would need 2,199\.0 GB of memory"),
    ],
)
def test_a_file_that_is_far_too_large_is_refused_at_once(
    name: str, why: str, timm: Any, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(_whole(name, timm))
    with file.open("ab") as opened:
        opened.truncate(1 << 40)

    started = time.process_time()
    with pytest.raises(AnclError, match=why):
        architecture("timm:tinynet", (1, 8, 8), weights=str(file))
    assert time.process_time() - started < 1


def test_a_file_with_the_same_size_and_time_is_hashed_again(timm: Any, tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    torch.save(tensors(timm, 0), file)
    first = architecture("timm:tinynet", (1, 8, 8), weights=str(file)).pretrained
    status = file.stat()
    torch.save(tensors(timm, 1), file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size

    assert architecture("timm:tinynet", (1, 8, 8), weights=str(file)).pretrained != first
