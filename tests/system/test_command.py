"""The command with other processes: workers, a terminal, and runs that are killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Store, run, spec
from tests.lab import StageResult, patching, program


@pytest.mark.parametrize("words", [("list",), ("verify",), ("prune", "--all")], ids=" ".join)
def test_the_store_is_looked_at_without_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    # Its import takes longer than the look itself.
    Store(tmp_path / ".store").save("0" * 64, StageResult({"weights": torch.zeros(9)}, {}))
    command = ["ancl", "store", *words, "--runs", str(tmp_path)]
    code = program(f"""
import sys
sys.argv = {command!r}
from tests.lab import start
try:
    start()
finally:
    print("torch" in sys.modules)
""")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "1 entry" in ended.stdout
    assert ended.stdout.endswith("False\n")
    assert ended.stderr == ""  # no bar where it is no terminal


def test_verify_shows_how_far_it_is_on_a_terminal(tmp_path: Path) -> None:
    Store(tmp_path / ".store").save("0" * 64, StageResult({"weights": torch.zeros(9)}, {}))
    words = ["store", "verify", "--runs", str(tmp_path)]
    reader, writer = os.openpty()
    command = [sys.executable, "-c", program("from tests.lab import start; start()"), *words]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=writer, env=environment
    ) as process:
        assert process.stdout is not None
        out = process.stdout.read().decode()
    os.close(writer)
    shown = os.read(reader, 100_000).decode()
    os.close(reader)

    assert process.returncode == 0
    assert out == f"{tmp_path / '.store'}: 1 entry, 0 damaged.\n"
    assert "entries" in shown
    assert "100%" in shown


SHORT = ("--epochs", "1", "--tasks", "2", "--threads", "1")
ANCL = (sys.executable, "-c", program("from tests.lab import main; main()"))


def results(runs: Path) -> dict[str, Any]:
    found = {}
    for file in runs.glob("*/result.json"):
        found[file.parent.name] = json.loads(file.read_text())["matrices"]
    return found


def test_a_pool_says_its_threads(ancl: Any) -> None:
    ancl("compare", "lwf", "--on", "digits/5", *SHORT, "--quiet")
    ended = ancl("compare", "lwf", "--on", "digits/5", *SHORT, "--workers", "400")

    assert "400 workers, each with 1 thread, on" in ended.err
    assert "More threads than cores are slow" in ended.err


@pytest.mark.slow
def test_a_killed_driver_is_gone_on_with(tmp_path: Path) -> None:
    asked = [*ANCL, "compare", "joint", "a-lwf", "--on", "hard-digits/5", "--epochs", "20"]
    killed = [*asked, "--workers", "2", "--runs", str(tmp_path / "killed")]
    with subprocess.Popen(killed, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.match(r"\[([8-9]|\d\d)/", line):
                os.kill(process.pid, signal.SIGKILL)
                break
        process.wait()
    unfinished = not list((tmp_path / "killed").glob("*/result.json"))
    time.sleep(1)

    again = subprocess.run(killed, capture_output=True, text=True, check=True)
    whole = [*asked, "--threads", "1", "--runs", str(tmp_path / "whole")]
    subprocess.run(whole, capture_output=True, check=True)

    assert unfinished
    assert " 0 stored" not in again.stderr
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_pool_leaves_no_worker_behind(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    command = [*ANCL, "compare", "joint", "--on", "hard-digits/5", "--workers", "2"]
    with subprocess.Popen(
        [*command, "--seeds", "0-1", "--runs", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("["):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(sent)
        said = process.stderr.read()
        assert process.wait(60) == code

    assert len(children) == 2
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")
    assert "Traceback" not in said


def test_seeds_go_through_a_pool_and_a_failure_is_told(ancl: Any) -> None:
    Path("mine.py").write_text(
        program(
            "import dataclasses\n"
            "from ancl.extend import Method, Term\n"
            "from tests.lab import Lwf\n\n"
            "@dataclasses.dataclass(frozen=True)\n"
            "class Broken(Lwf):\n"
            "    def penalty(self, step, anchor):\n"
            "        raise ZeroDivisionError('as written')\n\n"
            "def broken() -> Method:\n"
            "    return Method('broken', old=Term(Broken(2.0), 1.0))\n"
        )
    )
    short = ("digits/5", "--epochs", "1", "--tasks", "2", "--threads", "1", "--seeds", "0-1")
    alone = ancl("run", "lwf", *short, "--json", "--quiet", "--runs", "alone").json
    pooled = ancl("run", "lwf", *short, "--workers", "2", "--json").json
    failed = ancl("run", "mine.py:broken", *short, "--json", "--quiet")
    text = ancl("run", "mine.py:broken", *short, "--quiet")

    assert pooled["metrics"] == alone["metrics"]
    assert [run["matrices"] for run in pooled["runs"]] == [r["matrices"] for r in alone["runs"]]
    assert (failed.code, text.code) == (1, 1)
    assert (failed.json["runs"], failed.json["paper"]) == ([], None)
    assert len(failed.json["failures"]) == 2
    assert text.out.startswith("Failed, while the others finished:")
    assert text.out.count("ZeroDivisionError: as written") == 2


PROGRAM = f"""
import os, signal
from ancl import Events, run, spec
{patching("CHECKPOINT_SECONDS", "0.0")}

class Killed(Events):
    def epoch_ends(self, stage, epoch):
        if (stage.name, stage.task, epoch.epoch) == ("main", 1, 1):
            os.kill(os.getpid(), signal.SIGKILL)

run(spec(config="again.yaml"), events=Killed())
"""
CONFIG = """
method: a-bic
benchmark: digits/5
bias_epochs: 2
threads: 1
data: {scenario: cir, tasks: null, classes: "4,3,0,3", per_class: 20}
network: {hidden: [16]}
training: {epochs: 3}
"""


def test_killed_and_resumed_a_run_has_the_same_bits(ancl) -> None:
    """Killed in the main training of a task with known and new classes."""
    Path("again.yaml").write_text(CONFIG)
    command = [sys.executable, "-c", PROGRAM]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not list(Path("runs").glob("digits-5*/result.json"))

    resumed, straight = run(spec(config="again.yaml")), run(spec(config="again.yaml"), runs="whole")

    assert resumed.keys == straight.keys
    stores = [Store(Path(runs) / ".store", print) for runs in ("runs", "whole")]
    for key in straight.keys:
        one, other = (store.load(key) for store in stores)
        assert all(tensor.equal(other.tensors[name]) for name, tensor in one.tensors.items()), key
    assert resumed.metrics == straight.metrics
    assert resumed.log[-1]["epoch"] == straight.log[-1]["epoch"]
