"""Batches on a side stream: begun one ahead, in order, and used only after the device has them.

There is no GPU here, so streams are replaced by ones that note what they are told.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from tests.lab import ahead, deterministic, one_device

GPU = torch.device("cuda", 0)


class Noted:
    """Streams that note what they wait for, and the one that is in use."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = "main"

    @contextmanager
    def using(self, stream: "Stream") -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before


class Stream:
    def __init__(self, name: str, noted: Noted) -> None:
        self.name, self.noted = name, noted

    def wait_stream(self, other: "Stream") -> None:
        self.noted.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    made = Noted()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main", made))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("side", made))
    monkeypatch.setattr(torch.cuda, "stream", made.using)

    def record(tensor: Tensor, stream: Stream) -> None:
        made.log.append(f"{int(tensor)} used on {stream.name}")

    monkeypatch.setattr(Tensor, "record_stream", record)
    return made


def test_each_batch_is_begun_before_the_one_before_it_is_used(noted: Noted) -> None:
    def batches() -> Iterator[tuple[Tensor, None]]:
        for number in range(2):
            noted.log.append(f"{number} begun on {noted.current}")
            yield torch.tensor(number), None

    for batch, _ in ahead(batches(), GPU):
        noted.log.append(f"step {int(batch)} on {noted.current}")

    assert noted.log == [
        "side waits for main",
        "0 begun on side",
        "main waits for side",
        "0 used on main",
        "side waits for main",
        "1 begun on side",
        "step 0 on main",
        "main waits for side",
        "1 used on main",
        "side waits for main",
        "step 1 on main",
    ]


def test_a_cpu_has_no_side_stream() -> None:
    batches = iter([(torch.zeros(1),)])
    assert ahead(batches, torch.device("cpu")) is batches


def test_a_gpu_is_deterministic_only_while_it_computes_a_stage() -> None:
    before = torch.backends.cudnn.benchmark
    with deterministic(GPU):
        assert torch.get_deterministic_debug_mode() == 1
    assert torch.get_deterministic_debug_mode() == 0
    assert torch.backends.cudnn.benchmark is before
    with deterministic(torch.device("cpu")):
        assert torch.get_deterministic_debug_mode() == 0


@pytest.mark.parametrize(
    ("count", "visible", "device", "seen"),
    [
        (1, None, "cuda", [None, None, None]),
        (2, None, "cuda", ["0", "1", "0"]),
        (2, "3,GPU-b", "cuda", ["3", "GPU-b", "3"]),
        (2, None, "cuda:1", [None, None, None]),
        (0, None, "cpu", [None, None, None]),
    ],
)
def test_processes_of_a_pool_take_gpus_in_turn(count, visible, device, seen, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    given = [one_device(device, number).get("CUDA_VISIBLE_DEVICES") for number in range(3)]
    assert given == seen
