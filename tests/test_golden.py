"""Recorded results: a change that should not move numbers must not move them.

``pytest tests/test_golden.py --record-golden`` writes them anew.
"""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Training, make_method
from ancl.extend import architecture
from tests.lab import NUMERICS, Setting, digits, make_stream

METHODS: dict[str, dict[str, Any]] = {
    "finetune": {},
    "a-lwf": {"lamb": 2.0, "lamb_a": 1.0},
    "afec-ewc": {"lamb": 100.0, "lamb_a": 10.0},
}
NETWORKS: dict[str, dict[str, Any]] = {"mlp": {"hidden": (32,)}, "resnet8": {"width": 4}}


def environment() -> dict[str, Any]:
    """Where bits may be compared: the same numerics on the same kind of processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "numerics": NUMERICS,
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": models[0] if models else platform.processor(),
    }


def fingerprint(tensors: dict[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].contiguous().numpy().tobytes())
    return total.hexdigest()


def learned(lab: Any, method: str, network: str) -> dict[str, Any]:
    """Matrices and the hash of the final weights, on six digits in three tasks."""
    stream = make_stream(digits(), order=tuple(range(6)), tasks=3, per_class=40)
    net = architecture(network, stream.source.train.input_shape, **NETWORKS[network])
    training = Training(epochs=4, batch_size=16, patience=2)
    setting = Setting(net, training, training, stream.source.normalization)
    found = lab.learn(make_method(method, **METHODS[method]), setting, stream.tasks)
    rows = [found.entry("evaluate", task).meta for task in range(3)]
    return {
        "taw": [row["taw"] for row in rows],
        "tag": [row["tag"] for row in rows],
        "sha256": fingerprint(found.final),
    }


@pytest.mark.parametrize("network", list(NETWORKS))
@pytest.mark.parametrize("method", list(METHODS))
def test_results_are_those_recorded(method, network, lab, golden_directory, request) -> None:
    file = golden_directory / f"{method}_{network}.json"
    found = learned(lab, method, network)
    if request.config.getoption("--record-golden"):
        golden_directory.mkdir(exist_ok=True)
        recorded = {"environment": environment(), **found}
        file.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")

    recorded = json.loads(file.read_text(encoding="utf-8"))

    if recorded["environment"] == environment():
        message = "bits moved: raise NUMERICS and record again if intended"
        assert found["sha256"] == recorded["sha256"], message
        assert (found["taw"], found["tag"]) == (recorded["taw"], recorded["tag"]), message
    for kind in ("taw", "tag"):
        for row, expected in zip(found[kind], recorded[kind], strict=True):
            assert row == pytest.approx(expected, abs=0.05)
