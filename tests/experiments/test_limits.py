"""Limits that a result carries: test images that were trained on, and a network at chance."""

from pathlib import Path
from typing import Any

import numpy as np

from ancl.data import from_arrays
from ancl.experiments.read_results import read_run
from ancl.experiments.results import run_directory
from ancl.experiments.run import run
from ancl.experiments.settings import spec
from ancl.reporting import report
from ancl.stages.events import Events

SETTINGS: dict[str, Any] = {
    "training.epochs": 1,
    "data.per_class": 20,
    "network.name": "mlp",
    "data.tasks": 2,
}
LEAK = "1 of 4 test images are training images too, pixel by pixel"


def images(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 255, (count, 4, 4), dtype=np.uint8)


def test_test_images_that_are_training_images_are_counted() -> None:
    train, test = images(8, 0), images(4, 1)
    labels, test_labels = np.arange(8) % 2, np.arange(4) % 2
    assert from_arrays(train, labels, test, test_labels).notes == ()
    test[3] = train[0]  # of another class, which matters as little as its place

    [note] = from_arrays(train, labels, test, test_labels).notes

    assert note.startswith(LEAK)


class Heard(Events):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, message: str) -> None:
        self.said.append(message)


def test_a_leak_is_said_at_the_start_and_in_the_report(tmp_path: Path) -> None:
    train, test = images(40, 0), images(4, 1)
    test[3] = train[0]
    arrays = {"x_train": train, "y_train": np.arange(40) % 4, "x_test": test}
    np.savez(tmp_path / "a.npz", y_test=np.arange(4), **arrays)
    heard = Heard()
    values = {**SETTINGS, "data.source": f"arrays:{tmp_path / 'a.npz'}", "data.per_class": None}

    result = run(spec("finetune", settings=values, threads=1), runs=tmp_path / "r", events=heard)
    found = report(runs=tmp_path / "r")

    assert any(message.startswith(LEAK) for message in heard.said)
    assert result.notes[0].startswith(LEAK)
    assert LEAK in found.page.read_text()
    assert LEAK in (tmp_path / "r" / "report" / "tables" / "overview.md").read_text()


def test_a_network_at_chance_on_its_newest_task_says_so(tmp_path: Path) -> None:
    # At such a rate nothing moves after the first task: the newest one is not learned.
    stuck, free = (
        run(spec("finetune", "digits/5", settings=values, threads=1), runs=tmp_path)
        for values in ({**SETTINGS, "training.lr": 1e-12}, {**SETTINGS, "training.epochs": 5})
    )

    [note] = stuck.notes
    assert note.startswith("Seed 0: the newest task was not learned.")
    assert free.notes == ()
    assert read_run(run_directory(tmp_path, stuck.spec)).notes == stuck.notes
    assert note in report(runs=tmp_path).page.read_text()
