"""A learner that another process teaches on."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ancl import Learner, Method, Training
from tests.lab import digits, program

TRAINING = Training(epochs=4, batch_size=32, lr=0.02, lr_first=0.05)
NAMES = np.array(["zero", "one", "two", "three", "four", "five"])


def part(*classes: int, test: bool = False) -> tuple[Tensor, Any]:
    samples = digits().test if test else digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], NAMES[samples.y[chosen].numpy()]


def learner(method: str | Method = "a-ewc", **settings: Any) -> Learner:
    given: dict[str, Any] = {"lamb": 100.0, "lamb_a": 10.0} if method == "a-ewc" else {}
    return Learner(method, "mlp", **{"scenario": "til", "training": TRAINING, **given, **settings})


SCRIPT = program("""
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
import ancl
from tests.lab import digits
torch.set_num_threads(1)
source, names = digits(), ["zero", "one", "two", "three", "four", "five"]
chosen = (source.train.y == 4) | (source.train.y == 5)
learner = ancl.Learner.load(sys.argv[1])
learner.learn(source.train.x[chosen], [names[i] for i in source.train.y[chosen]])
save_file({"scores": learner.scores(source.test.x).contiguous()}, sys.argv[2])
""")


@pytest.mark.parametrize("method", ["a-ewc", "afec-si", "lwf"])
def test_taught_on_in_another_process_equals_one_that_never_stopped(
    method: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    whole = learner(method)
    whole.learn(*part(0, 1))
    whole.learn(*part(2, 3))
    whole.save(tmp_path / "saved")
    whole.learn(*part(4, 5))

    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "saved"), str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)

    scores = load_file(tmp_path / "out")["scores"]
    assert torch.equal(scores, whole.scores(digits().test.x))
