"""What only a process of its own shows: signals, exit codes, pipes and the time of --help."""

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

from tests.lab import program

ANCL = (sys.executable, "-c", program("from tests.lab import main; main()"))
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
    code = program("import sys; from tests.lab import app; sys.exit('torch' in sys.modules)")

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_python_m_ancl_is_the_command() -> None:
    command = [sys.executable, "-m", "ancl"]
    found = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    wrong = subprocess.run(
        [*command, "run", "lwff", "digits/5"], capture_output=True, text=True, check=False
    )

    assert re.fullmatch(r"ancl \d+\.\d+\.\d+\n", found.stdout)
    assert wrong.returncode == 2
    assert "Did you mean 'lwf'?" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "completed"), [("ancl rep", ["report"]), ("ancl run --batch", ["--batch-size"])]
)
def test_a_shell_completes_commands_and_flags_without_torch(
    words: str, completed: list[str]
) -> None:
    code = program(
        "import sys; sys.argv = ['ancl']; sys.modules['torch'] = None\n"
        "from tests.lab import main; main()"
    )
    asked = {"_ANCL_COMPLETE": "complete_bash", "COMP_WORDS": words}
    asked["COMP_CWORD"] = str(len(words.split()) - 1)
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )

    assert found.stdout.split() == completed


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


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of a shell, in which $ANCL is the command."""
    start = program(f'"{sys.executable}" -c "from tests.lab import start; start()"')
    return subprocess.run(
        ["bash", "-c", command.replace("$ANCL", start)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("$ANCL list methods > /dev/full", 2, "The output cannot be written: No space left"),
        ("$ANCL list methods --json > /dev/full", 2, "The output cannot be written: No space"),
        ("$ANCL list methods >&-", 0, ""),
        ("$ANCL run lwf nothing 2>&-", 2, ""),
        ("$ANCL list methods | head -1; exit ${PIPESTATUS[0]}", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 $ANCL list methods --options lwf", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 $ANCL run λ digits/5", 2, "There is no method"),
    ],
)
def test_output_that_goes_nowhere_is_no_traceback(command: str, code: int, said: str) -> None:
    ended = shell(command)

    assert ended.returncode == code
    assert ended.stderr.startswith(said)
    assert "Traceback" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.8, 1.5])
def test_ctrl_c_while_libraries_load_is_no_traceback(seconds: float, tmp_path: Path) -> None:
    code = program(
        "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); from tests.lab import start; "
        "print('go', flush=True); start()"
    )
    command = [sys.executable, "-c", code, *RUN, "--runs", str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        ended = process.wait(30)

    assert ended in (-signal.SIGINT, 130)
    assert "Traceback" not in said
