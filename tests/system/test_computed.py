"""Computed classifiers in several processes: the bits of one, and nothing computed twice."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ancl
from ancl import Events, Learner

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'ancl[ray]'")
TINY: dict[str, Any] = {
    "network": {"name": "mlp", "hidden": [24]},
    "data": {"scenario": "cil", "per_class": 20, "test_per_class": 10},
    "threads": 1,
}


def learned(directory: Path) -> Any:
    return ancl.load_run(next(directory.glob("digits*")), events=Events())


@pytest.mark.parametrize("executor", ["pool", pytest.param("ray", marks=needs_ray)])
def test_two_workers_have_the_bits_of_one_process(executor: str, tmp_path: Path) -> None:
    specs = [ancl.spec(name, "digits/5", **TINY) for name in ("auto", "ranpac")]
    alone = ancl.run(specs, runs=tmp_path / "alone")
    shared = ancl.run(specs, runs=tmp_path / "shared", executor=executor, workers=2)

    assert [result.choices for result in shared] == [result.choices for result in alone]
    for one, two in zip(alone, shared, strict=True):
        assert np.array_equal(one.matrices["tag"], two.matrices["tag"], equal_nan=True)
    images = ancl.data.digits().test.x
    scores = [learned(tmp_path / name).scores(images) for name in ("alone", "shared")]
    assert torch.equal(*scores)


class Stop(Events):
    """Stops when the second task's classifier is computed; tells what was found."""

    def __init__(self, stops: bool) -> None:
        self.stops, self.found = stops, dict[str, bool]()

    def stage_begins(self, stage: Any) -> None:
        if self.stops and (stage.name, stage.task) == ("classifier", 1):
            raise KeyboardInterrupt

    def stage_ends(self, stage: Any, *, found: bool, seconds: float) -> None:
        self.found[f"{stage.name} {stage.task}"] = found


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ancl.run("auto", "digits/5", runs=tmp_path / "runs", events=Stop(True), **TINY)
    events = Stop(False)
    again = ancl.run("auto", "digits/5", runs=tmp_path / "runs", events=events, **TINY)

    whole = ancl.run("auto", "digits/5", runs=None, **TINY)
    assert again.choices == whole.choices
    assert np.array_equal(again.matrices["tag"], whole.matrices["tag"], equal_nan=True)
    assert not events.found["classifier 1"]
    assert events.found.get("statistics 1", True)


def photos(at: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, level in (("dark", 40), ("light", 200)):
        (at / name).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(level - 40, level + 40, (24, 30, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(at / name / f"{number}.png")
    return at


@pytest.mark.slow
def test_a_killed_command_is_repeated_and_ends_in_the_same_bits(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    words = ["-m", "ancl", "learn", "birds", "--data", "folder:photos", "--set", "data.size=96"]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*birds*")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert "The learner knows 2 classes" in done.stdout
    files = sorted((tmp_path / "photos").rglob("*.png"))
    alone = Learner(size=96, events=Events())
    alone.learn(files, [file.parent.name for file in files])
    saved = Learner.load(tmp_path / "birds")
    assert [entry[1:] for entry in saved.ledger] == [entry[1:] for entry in alone.ledger]
    assert {entry.ids[0] for entry in saved.ledger} == {
        str(file.relative_to(tmp_path / "photos")) for file in files
    }
    assert torch.equal(saved.scores(files), alone.scores(files))
    assert saved.choice == alone.choice
