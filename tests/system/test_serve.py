"""The serving example answers as the learner does, and without torch."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import torch
from PIL import Image

from ancl import Events, Learner, Memory, Training
from tests.lab import digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"
WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = sys.modules["ancl"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """The address of a server in another process, which has neither torch nor ancl."""
    command = [sys.executable, "-c", WITHOUT_TORCH, str(EXAMPLE), str(model), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert address is not None
        yield address[0]
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def test_an_image_that_is_posted_gets_the_learners_answer(tmp_path: Path) -> None:
    learner = Learner(
        "icarl",
        "mlp",
        training=Training(epochs=3, batch_size=32, lr=0.05),
        network_options={"hidden": (16,)},
        memory=Memory(per_class=4),
        events=Events(),
    )
    samples = digits().train
    chosen = samples.y < 4
    learner.learn(samples.x[chosen], samples.y[chosen])
    learner.export(tmp_path / "m.onnx")
    image = Image.fromarray(digits().test.x[5].squeeze(2).numpy())
    image.save(tmp_path / "large.png")
    larger = image.resize((16, 16), Image.Resampling.NEAREST)
    larger.save(tmp_path / "larger.png")

    with serving(tmp_path / "m.onnx") as address:
        facts = json.load(urlopen(address, timeout=30))
        for name in ("large.png", "larger.png"):
            data = (tmp_path / name).read_bytes()
            got = json.load(urlopen(address, data=data, timeout=30))["answers"]
            (expected,) = learner.top_k([str(tmp_path / name)], 4)
            assert [each["label"] for each in got] == [label for label, _ in expected]
            shares = torch.tensor([share for _, share in expected])
            found = torch.tensor([each["probability"] for each in got])
            torch.testing.assert_close(found, shares, atol=1e-5, rtol=1e-4)
        for wrong in (b"no image", io.BytesIO(b"x" * 100).getvalue()):
            with pytest.raises(HTTPError, match="400") as refused:
                urlopen(address, data=wrong, timeout=30)
            assert "not an image" in json.load(refused.value)["error"]
            refused.value.close()

    assert facts == {"labels": [0, 1, 2, 3], "input": [8, 8, 1]}
