import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ancl.cli.live import TimeLeft
from ancl.cli.options import Places
from ancl.cli.progress import Display, Lines, Progress, epoch_line
from ancl.cli.request import Request
from ancl.cli.session import run_all
from ancl.stages.stage import Stage
from ancl.training.loop import Epoch

EPOCH = Epoch("main", 6, 0.1, {"task": 0.5, "old": 0.25}, {}, 0.979, True, "", 2.0)


def learn(tmp_path: Path, progress: Progress, method: str = "a-lwf", **flags: str) -> None:
    given = {"--epochs": "2", "--tasks": "2", **{f"--{k}": v for k, v in flags.items()}}
    [resolved] = Request(method, "digits/5", given).resolve()
    run_all([resolved.spec], Places.of(tmp_path / "runs", None), progress)


def test_lines_tell_every_training_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn(tmp_path, Lines())
    first = capsys.readouterr().err
    learn(tmp_path, Lines())
    second = capsys.readouterr().err.splitlines()

    titles = ["task 1/2 main", "task 2/2 auxiliary", "task 2/2 main"]
    pattern = r"(task \d/2 \w+): 2 epochs, val \d+\.\d %, \d+\.\d s"
    assert re.findall(pattern, first) == titles
    assert second[0] == "a-lwf on digits/5, seed 0 (7 of 7 stages stored)"
    assert second[1:] == [f"{title}: found in the store" for title in titles]


def test_lines_tell_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Lines()
    stage = Stage("main", 0, "k", {}, {})

    progress.epoch_ends(stage, Epoch("main", 3, 0.1, {}, {}, None, False, "rate 0.03", 1.0))
    progress.epoch_ends(stage, Epoch("auxiliary", 3, 0.1, {}, {}, None, False, "done", 1.0))

    assert capsys.readouterr().err.splitlines() == [
        "task 1/0 main, epoch 4: rate 0.03",
        "task 1/0 main, auxiliary epoch 4: done",
    ]


def test_a_live_line_shows_terms_and_time_left(tmp_path: Path) -> None:
    file = io.StringIO()
    shown: list[str] = []

    class Kept(Display):
        def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
            super().epoch_ends(stage, epoch)
            self._bars.refresh()
            shown.append(str(self._bars.tasks[0].fields["now"]))

    learn(tmp_path, Kept(Console(file=file, force_terminal=True, width=200)))

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert len(shown) == 6
    assert re.match(r"epoch 1/2 · task \S+ · val \S+ % · at most \d+\.\d s left", shown[0])
    assert re.search(r"λ·old \S+ \+ λ_a·auxiliary \S+", shown[-1])
    assert shown[-1].endswith("at most 0.0 s left")
    assert "task 2/2 auxiliary: 2 epochs, val" in text


def test_an_epoch_in_one_line() -> None:
    line = epoch_line(EPOCH, 30, 12.0)

    assert line == "epoch 7/30 · task 0.5 + λ·old 0.25 · val 97.9 % · at most 12.0 s left"


def test_time_left_is_the_mean_epoch_times_the_epochs_that_may_come() -> None:
    left = TimeLeft({"0": 10, "1": 10})

    assert left.seconds is None
    left.epoch("0", 2.0, 3)
    assert left.seconds == 2.0 * (3 + 10)
    left.ends("0")
    assert left.seconds == 2.0 * 10


def test_an_epoch_of_the_network_ahead_costs_time_and_is_none_of_the_stages_own() -> None:
    left = TimeLeft({"0": 10}, workers=2)

    left.epoch("0", 2.0, None)
    assert left.seconds is None
    left.epoch("0", 3.0, 9)
    assert left.seconds == (2.0 + 3.0) * 9 / 2


def test_quiet_says_only_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    learn(tmp_path, Progress(), "lwf", scenario="cil")

    assert capsys.readouterr().err.startswith("Warning: lwf keeps no images of earlier tasks.")
