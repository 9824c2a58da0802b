"""What only a process of its own shows: signals, exit codes, pipes and the time of --help."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ANCL = (sys.executable, "-c", "from ancl.cli.main import main; main()")
RUN = ("run", "joint", "hard-digits/5", "--threads", "1", "--epochs", "12")


def results(runs: Path) -> dict[str, Any]:
    found = json.loads(next(runs.glob("hard-*/result.json")).read_text())
    found.pop("seconds")
    return dict(found)


def stop(runs: Path, sent: signal.Signals) -> tuple[int, str]:
    """Start a run, stop it in its second training, and give what it said then."""
    command = [*ANCL, *RUN, "--runs", str(runs)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "task 1/5 main:" in line:
                time.sleep(0.3)
                process.send_signal(sent)
                break
        said = process.stderr.read()
        return process.wait(60), said


def test_ctrl_c_exits_with_130_and_the_same_command_goes_on_to_the_same_result(
    tmp_path: Path,
) -> None:
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"

    code, said = stop(stopped, signal.SIGINT)
    unfinished = not list(stopped.glob("*/result.json"))
    again, _ = (
        subprocess.run(
            [*ANCL, *RUN, "--runs", str(runs)], capture_output=True, text=True, check=True
        )
        for runs in (stopped, whole)
    )

    assert code == 130
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")
    assert "Traceback" not in said
    assert unfinished
    assert " 0 stored" not in again.stderr
    assert "task 1/5 main:" not in again.stderr
    assert results(stopped) == results(whole)


def test_sigterm_stops_as_ctrl_c_does(tmp_path: Path) -> None:
    code, said = stop(tmp_path, signal.SIGTERM)

    assert code == 143
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from ancl.cli.main import app; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version() -> None:
    found = subprocess.run([*ANCL, "--version"], capture_output=True, text=True, check=True)

    assert re.fullmatch(r"ancl \d+\.\d+\.\d+\n", found.stdout)


def test_a_closed_pipe_and_a_narrow_locale_are_no_traceback() -> None:
    command = [*ANCL, "list", "methods", "--options", "ewc"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={"PYTHONIOENCODING": "ascii"}, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert said == ""
    assert process.returncode == 0
