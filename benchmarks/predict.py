"""Predictions through the command beside a plain torch loop on the same files.

    python benchmarks/predict.py LEARNER FOLDER [--pairs 3]

The loop is what one writes by hand: open with Pillow, stack 64 images, normalise, run the same
network (of a learner that answers by its logits), take the best class. Both are processes, in
turn, with one thread of torch each.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

LOOP = """
import sys
from pathlib import Path
import numpy as np, torch
from PIL import Image
import ancl
learner = ancl.open_learner(sys.argv[1], device="cpu")
network, (_, h, w) = learner._built()[0].eval(), learner.input_shape
moments = learner._setting.normalization
mean, std = (torch.tensor(m).view(-1, 1, 1) for m in (moments.mean, moments.std))
files = sorted(p for p in Path(sys.argv[2]).rglob("*") if p.is_file())
answers = []
with torch.inference_mode():
    for start in range(0, len(files), 64):
        images = [Image.open(f).convert("RGB").resize((w, h), 2) for f in files[start:start + 64]]
        batch = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
        batch = (batch.permute(0, 3, 1, 2).float() / 255 - mean) / std
        answers += network(batch).logits.argmax(1).tolist()
for file, answer in zip(files, answers):
    print(file, learner.classes[answer])
"""


def measured(command: list[str], out: Path) -> tuple[float, float, float, int]:
    """Seconds, seconds of processor, the peak of anonymous memory in GB, and lines of output."""
    began, peak = time.monotonic(), 0
    with out.open("w") as file:
        process = subprocess.Popen(command, stdout=file)
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
                found = re.search(r"RssAnon:\s+(\d+)", status)
                peak = max(peak, int(found[1]) if found else 0)
                times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                busy = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
            except (OSError, IndexError):
                pass
            time.sleep(0.02)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return time.monotonic() - began, busy, peak / 1e6, len(out.read_text().splitlines())


def main() -> None:
    """Measure both in turn and print the ratio of their rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("learner")
    parser.add_argument("folder")
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    count = sum(1 for file in Path(given.folder).rglob("*") if file.is_file())
    ours = [str(Path(sys.executable).parent / "ancl"), "predict", given.learner, given.folder]
    loop = [sys.executable, "-c", LOOP, given.learner, given.folder]
    ratios, out = [], Path("predictions.txt")
    for _ in range(given.pairs):
        rows = {}
        for name, command in (("ancl predict", [*ours, "--csv"]), ("torch loop", loop)):
            seconds, busy, peak, _ = measured(command, out)
            rows[name] = count / seconds
            print(
                f"{name:12}  {count / seconds:6.1f} images/s  {count / busy:6.1f} images per "
                f"second of processor  {peak:.2f} GB anonymous",
                flush=True,
            )
        ratios.append(rows["ancl predict"] / rows["torch loop"])
    print(f"ratio of rates: {', '.join(f'{r:.2f}' for r in ratios)}; median {median(ratios):.2f}")
    out.unlink()


if __name__ == "__main__":
    main()
