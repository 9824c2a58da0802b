"""``ancl learn`` that is stopped in the middle."""

import signal
import subprocess
import sys
import time

from tests.lab import patching, program

BEGIN = (
    *("--method", "icarl", "--network", "mlp", "--epochs", "4", "--memory-per-class", "4"),
    *("--set", "training.batch_size=16", "--set", "network.hidden=[16]", "--threads", "1"),
)
PROGRAM = program(f"""
import sys
{patching("CHECKPOINT_SECONDS", "0.0")}
from tests.lab import main
sys.argv = ["ancl", *sys.argv[1:]]
main()
""")


def test_ctrl_c_loses_nothing(ancl, write_digits, tmp_path) -> None:
    write_digits(tmp_path / "old", {"zero": 0, "one": 1, "two": 2})
    long = ["learn", "mine", "--data", "folder:old", *BEGIN, "--epochs", "4000"]
    command = [sys.executable, "-c", PROGRAM, *long, "--set", "training.schedule=cosine"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    checkpoints = tmp_path / ".mine.learning" / "checkpoints"
    try:
        for _ in range(600):
            if checkpoints.is_dir() and any(checkpoints.glob("*/entry.json")):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 130
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")
    assert not (tmp_path / "mine").exists()
    assert any(checkpoints.glob("*/entry.json"))
