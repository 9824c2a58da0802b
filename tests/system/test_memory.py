"""The memory of a learner that another process teaches on."""

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from ancl import Learner, Memory, Training

TRAINING = Training(epochs=15, lr=0.1, lr_first=0.1, batch_size=16, schedule="cosine")
OPTIONS = {"network_options": {"hidden": (32,)}, "training": TRAINING}


ELSEWHERE = """
import json, sys
import torch
from ancl import Learner
torch.set_num_threads(1)
given = torch.load(sys.argv[2], weights_only=True)
learner = Learner.load(sys.argv[1])
before = learner.scores(given["x"]).tolist()
learner.learn(given["new"], ["owl"] * len(given["new"]))
after = [learner.evaluate(given[name], [name] * len(given[name])) for name in ("ant", "fox", "owl")]
print(json.dumps({"before": before, "after": after, "classes": learner.classes}))
"""


def images(lab, label: int, part: str = "train") -> Tensor:
    samples = getattr(lab.source, part)
    return samples.x[samples.y == label]


def taught(lab, method: str, **options) -> Learner:
    learner = Learner(method, "mlp", **{**OPTIONS, **options})
    for names, labels in ((("ant", "bee"), (0, 1)), (("cat", "fox"), (2, 3))):
        x = [images(lab, label) for label in labels]
        learner.learn(torch.cat(x), [n for n, part in zip(names, x, strict=True) for _ in part])
    return learner


def test_taught_on_in_another_process(lab, tmp_path: Path) -> None:
    learner = taught(lab, "a-lucir", memory=Memory(per_class=8))
    learner.save(tmp_path / "learner")
    query = images(lab, 3, "test")
    given = {"x": query, "new": images(lab, 4), "owl": images(lab, 4, "test")}
    given |= {"ant": images(lab, 0, "test"), "fox": query}
    torch.save(given, tmp_path / "images.pt")

    command = [sys.executable, "-c", ELSEWHERE, tmp_path / "learner", tmp_path / "images.pt"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)

    # Loaded it answers to the bit as before, and knows both the old classes and the new one.
    assert found["before"] == learner.scores(query).tolist()
    assert found["classes"] == ["ant", "bee", "cat", "fox", "owl"]
    assert min(found["after"]) >= 0.5
    assert found["after"][2] == 1.0
