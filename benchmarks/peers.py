"""Avalanche beside ancl, on one task that both can do; each side is a program of a user.

    python benchmarks/peers.py ENVIRONMENT      # measures, writes docs/evidence/peers.json
    python benchmarks/peers.py --table          # writes the table of docs/peers.md from it

``ENVIRONMENT`` is a virtual environment with ``avalanche-lib``, such as one made by
``python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install avalanche-lib==0.6.0``. The programs in
``benchmarks/peers`` are run as they are, each in a process of its own and in turn, with one thread.
Their lines are counted, their seconds measured; then they are killed and started again, given
wrong settings, and a folder of photos in which one file is damaged.

The stream: the embedded digits in five tasks of two classes. Both sides have the same images,
the same perceptron, optimizer, epochs and batch size, and the defaults of their methods for all
else. Each program has the rate of ``RATES`` with which it is best on a seed that is not in the
table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from ancl.data.formats.embedded import digits

PROGRAMS = Path(__file__).with_suffix("")
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "evidence" / "peers.json"
PAGE = ROOT / "docs" / "peers.md"
SIDES = ("ancl", "avalanche")
METHODS = ("lwf", "icarl")
RATES = (0.02, 0.1, 0.5)
CHOOSING = 99
"""The seed by which a rate is chosen."""

RESUME = "# to resume"
"""What marks lines of a program that are there for resuming alone."""

MISTAKES = {
    "misspelt": {"ancl": ("epochs=", "epoch="), "avalanche": ("train_epochs=", "train_epoch=")},
    "impossible": {
        "ancl": ("lamb=10,", "lamb=10, temperature=-2.0,"),
        "avalanche": ("temperature=2.0", "temperature=-2.0"),
    },
}
"""By name and side, what is replaced in the program of LwF."""

OPERATORS = """
import torch

for name in ("nms", "qnms"):
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    torch.library.define(f"torchvision::{name}", signature)
"""
"""A torchvision built for CUDA lacks these on a CPU torch; nothing here calls them."""


def main() -> None:
    """Measure both sides, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path, nargs="?", help="one with avalanche-lib")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="the JSON file")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each program")
    parser.add_argument("--table", action="store_true", help="write the table, measure nothing")
    flags = parser.parse_args()
    if flags.table:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if flags.environment is None:
        parser.error("give the environment that has avalanche-lib, or --table")
    pythons = {"ancl": Path(sys.executable), "avalanche": flags.environment / "bin" / "python"}
    with TemporaryDirectory() as name:
        bench = Bench(Path(name), pythons)
        bench.prepare()
        found = {
            "versions": {side: bench.versions(side) for side in SIDES},
            "lines": {side: count_lines(side) for side in SIDES},
            "import_cpu": {side: bench.importing(side) for side in SIDES},
            "runs": {method: bench.runs(method, flags.seeds) for method in METHODS},
            "killed": {side: bench.killed(side) for side in SIDES},
            "checkpoint": bench.checkpoint(),
            "mistakes": {n: {side: bench.mistake(n, side) for side in SIDES} for n in MISTAKES},
            "photos": {side: bench.photos(side) for side in SIDES},
        }
    flags.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


# -- programs --------------------------------------------------------------------------------------


def program(side: str, method: str, *, resume: bool = False) -> str:
    """The text of a program, with or without the lines that are there for resuming."""
    lines = (PROGRAMS / f"{side}_{method}.py").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if resume or RESUME not in line) + "\n"


def count_lines(side: str) -> dict[str, int]:
    """Lines that a user writes: neither empty, nor comments, nor the docstring."""
    count = {name: _lines(program(side, name)) for name in (*METHODS, "photos")}
    return {**count, "resume": _lines(program(side, "lwf", resume=True)) - count["lwf"]}


def with_rate(text: str, rate: float) -> str:
    """A program with another rate.

    >>> with_rate("lr=0.02, momentum=0.9", 0.5)
    'lr=0.5, momentum=0.9'
    """
    return re.sub(r"\blr=[\d.]+", f"lr={rate}", text)


def _lines(text: str) -> int:
    without_docstring = re.sub(r'\A""".*?"""\n', "", text, flags=re.DOTALL)
    kept = [line.strip() for line in without_docstring.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in kept)


@dataclass(frozen=True)
class End:
    """How a program ended.

    Args:
        code: Its exit code.
        seconds: From its start to its end.
        cpu: Seconds of all cores.
        accuracy: What it printed last; none if it failed.
        trained: How many tasks it had trained when it failed, as far as it says so.
        lines: The number of lines on standard error.
        said: The message at their end, without the traceback.
    """

    code: int
    seconds: float
    cpu: float
    accuracy: float | None
    trained: int
    lines: int
    said: str


@dataclass(frozen=True)
class Bench:
    """Where programs run.

    Args:
        folder: An empty folder.
        pythons: The interpreter of each side.
    """

    folder: Path
    pythons: Mapping[str, Path]

    def prepare(self) -> None:
        """Write the stream, the photos, and what a torchvision for CUDA lacks."""
        np.savez(self.folder / "stream.npz", **stream())
        write_photos(self.folder / "photos", stream())
        (self.folder / "site").mkdir()
        (self.folder / "site" / "sitecustomize.py").write_text(OPERATORS)

    def start(self, side: str, text: str, seed: int) -> subprocess.Popen[str]:
        """Start a program of this text."""
        file = self.folder / f"{side}_program.py"
        file.write_text(text, encoding="utf-8")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment["PYTHONPATH"] = "site" if side == "avalanche" else ""
        return subprocess.Popen(
            [self.pythons[side], file.name, str(seed)],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, side: str, text: str, seed: int = 0) -> End:
        """Run a program to its end."""
        before, start = os.times(), time.perf_counter()
        process = self.start(side, text, seed)
        out, err = process.communicate()
        seconds, after = time.perf_counter() - start, os.times()
        cpu = after.children_user + after.children_system
        cpu -= before.children_user + before.children_system
        accuracy = re.search(r"^accuracy ([\d.]+)$", out, re.MULTILINE)
        errors = err.strip().splitlines()
        return End(
            process.returncode,
            round(seconds, 2),
            round(cpu, 2),
            round(float(accuracy[1]), 4) if accuracy else None,
            len(re.findall(r"of 5 tasks", out)),
            len(errors),
            _message(errors) if process.returncode else "",
        )

    def versions(self, side: str) -> dict[str, str]:
        """The library's version, and that of torch."""
        library = {"ancl": "ancl", "avalanche": "avalanche-lib"}[side]
        code = (
            "from importlib.metadata import version as v; import sys; print(*map(v, sys.argv[1:]))"
        )
        command = [self.pythons[side], "-c", code, library, "torch"]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(zip((library, "torch"), made.stdout.split(), strict=True))

    def clean(self) -> None:
        """Forget all runs and checkpoints."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        for file in self.folder.glob("checkpoint*"):
            file.unlink()

    # -- what is measured --------------------------------------------------------------------------

    def rate(self, side: str, method: str) -> tuple[float, str]:
        """The rate with which a program is best on a seed of its own, and the program with it."""
        accuracies = {}
        for rate in RATES:
            self.clean()
            end = self.run(side, with_rate(program(side, method), rate), CHOOSING)
            accuracies[rate] = end.accuracy or 0.0
        best = max(RATES, key=lambda rate: accuracies[rate])
        return best, with_rate(program(side, method), best)

    def runs(self, method: str, seeds: int) -> dict[str, Any]:
        """Rate, accuracy and seconds of a method, both sides in turn."""
        chosen = {side: self.rate(side, method) for side in SIDES}
        ends: dict[str, list[End]] = {side: [] for side in SIDES}
        for seed in range(seeds):
            for side in SIDES if seed % 2 else SIDES[::-1]:
                self.clean()
                ends[side].append(self.run(side, chosen[side][1], seed))
        return {
            side: {
                "rate": chosen[side][0],
                "accuracy": [end.accuracy for end in ends[side]],
                "seconds": [end.seconds for end in ends[side]],
                "cpu": [end.cpu for end in ends[side]],
            }
            for side in SIDES
        }

    def importing(self, side: str) -> float:
        """CPU seconds that the import alone takes: the median of three."""
        text = {"ancl": "import ancl; ancl.run\n", "avalanche": _imports(program(side, "lwf"))}
        return median(self.run(side, text[side]).cpu for _ in range(3))

    def killed(self, side: str) -> dict[str, Any]:
        """Killed halfway, then started again: how much is done anew, and is the result the same."""
        self.clean()
        whole = self.run(side, program(side, "icarl"))
        half = (self.importing(side) + whole.cpu) / 2
        self.clean()
        process = self.start(side, program(side, "icarl"), 0)
        while process.poll() is None and _cpu(process.pid) < half:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it was killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        again = self.run(side, program(side, "icarl"))
        return {
            "cpu_whole": whole.cpu,
            "cpu_until_killed": round(half, 2),
            "cpu_again": again.cpu,
            "the_same_accuracy": whole.accuracy == again.accuracy,
        }

    def checkpoint(self) -> dict[str, Any]:
        """What Avalanche's own checkpoint does, with the lines for it."""
        self.clean()
        first = self.run("avalanche", program("avalanche", "lwf", resume=True))
        return {"code": first.code, "trained": first.trained, "said": first.said}

    def mistake(self, name: str, side: str) -> dict[str, Any]:
        """What happens with a wrong setting."""
        self.clean()
        right, wrong = MISTAKES[name][side]
        text = program(side, "lwf")
        assert right in text
        return _told(self.run(side, text.replace(right, wrong)))

    def photos(self, side: str) -> dict[str, Any]:
        """A folder of photos, then the same with one damaged file."""
        self.clean()
        whole = self.run(side, program(side, "photos"))
        damaged = self.folder / "photos" / "9" / "damaged.png"
        damaged.write_bytes(next((self.folder / "photos" / "9").iterdir()).read_bytes()[:60])
        try:
            self.clean()
            return {
                "accuracy": whole.accuracy,
                "damaged": _told(self.run(side, program(side, "photos"))),
            }
        finally:
            damaged.unlink()


def _cpu(pid: int) -> float:
    """Seconds of the processor that a process has used so far, where the system says it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _message(lines: Sequence[str]) -> str:
    start = max((n for n, line in enumerate(lines) if re.match(r"[\w.]*Error", line)), default=0)
    return "\n".join(lines[start:])


def _told(end: End) -> dict[str, Any]:
    return {
        "code": end.code,
        "accuracy": end.accuracy,
        "trained": end.trained,
        "lines_of_message": end.lines if end.code else 0,
        "said": end.said,
    }


def _imports(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith(("import", "from")))


# -- the table -----------------------------------------------------------------------------------


def with_table(page: str) -> str:
    """The page with the table of what was measured."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return re.sub(
        r"(?<=<!-- table: peers -->\n).*?(?=<!-- end -->)",
        lambda _: table(found),
        page,
        flags=re.DOTALL,
    )


def table(found: Mapping[str, Any]) -> str:
    """What was measured, as Markdown."""
    versions = found["versions"]
    heads = [f"ancl {versions['ancl']['ancl']}"]
    heads += [f"Avalanche {versions['avalanche']['avalanche-lib']}"]
    rows: list[list[str]] = [["", *heads], ["---"] * 3]
    for name, what in (("lwf", "LwF"), ("icarl", "iCaRL"), ("photos", "LwF on a folder of photos")):
        counts = [str(found["lines"][side][name]) for side in SIDES]
        rows.append([f"lines of the program, {what}", *counts])
    for method, what in (("lwf", "LwF, task known"), ("icarl", "iCaRL, all classes compete")):
        ends = [found["runs"][method][side] for side in SIDES]
        rows.append([f"accuracy, {what}", *(_accuracy(end) for end in ends)])
    starts = [found["import_cpu"][side] for side in SIDES]
    rows.append(["seconds of the processor: import", *(f"{each:.1f}" for each in starts)])
    for method, what in (("lwf", "LwF"), ("icarl", "iCaRL")):
        ends = [found["runs"][method][side] for side in SIDES]
        learned = [
            [cpu - start for cpu in end["cpu"]] for end, start in zip(ends, starts, strict=True)
        ]
        ratio = median(b / a for a, b in zip(*learned, strict=True))
        cells = [
            f"{median(learned[0]):.1f}",
            f"{median(learned[1]):.1f} ({ratio:.2f} times ancl's)",
        ]
        rows.append([f"the same: {what} without the import", *cells])
    killed = [found["killed"][side] for side in SIDES]
    rows.append(["iCaRL killed (`kill -9`) halfway, and started again", *map(_killed, killed)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _accuracy(end: Mapping[str, Any]) -> str:
    values = [100 * value for value in end["accuracy"]]
    error = stdev(values) / len(values) ** 0.5
    return f"{mean(values):.1f} ± {error:.1f} % (n = {len(values)}, rate {end['rate']:g})"


def _killed(found: Mapping[str, Any]) -> str:
    same = "the same accuracy" if found["the_same_accuracy"] else "another accuracy"
    return f"{found['cpu_again']:.1f} s in place of {found['cpu_whole']:.1f} s, {same}"


# -- images ---------------------------------------------------------------------------------------


def stream() -> dict[str, Any]:
    """The embedded digits as ``x_train``, ``y_train``, ``x_test`` and ``y_test``."""
    source = digits()
    parts = {"train": source.train, "test": source.test}
    images = {f"x_{name}": part.x[:].numpy() for name, part in parts.items()}
    return {**images, **{f"y_{name}": part.y.numpy() for name, part in parts.items()}}


def write_photos(folder: Path, arrays: Mapping[str, Any], each: int = 40) -> None:
    """The digits as files of several sizes, some grey and some in colour."""
    for label in range(10):
        (folder / str(label)).mkdir(parents=True)
        places = np.flatnonzero(arrays["y_train"] == label)[:each]
        for number, place in enumerate(places):
            pixels = Image.fromarray(arrays["x_train"][place].squeeze())
            side = 20 + number % 7
            photo = pixels.resize((side, side + 4)).convert("RGB" if number % 2 else "L")
            photo.save(folder / str(label) / f"{number}.png")


if __name__ == "__main__":
    main()
