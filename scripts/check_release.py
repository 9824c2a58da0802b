"""Build the wheel and the sdist, check what is inside, and use the wheel as a stranger would.

    python scripts/check_release.py                   # build, list the contents, check them
    python scripts/check_release.py --walk            # then run the README's commands
    python scripts/check_release.py --walk --lowest   # with the lowest versions we admit

``--walk`` installs the wheel into a new environment and runs the commands in an empty folder.
The wheel is built from the sdist, so the sdist is enough to build it. ``--tests`` also unpacks the
sdist and runs a part of its tests there. Needs ``build`` and ``hatchling`` (extra ``dev``).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("report", "onnx", "serve", "pretrained")
"""What the README's commands use."""

NOT_IN_THE_SDIST = (".ci/", ".github/", ".pre-commit-config.yaml")
"""Tracked files that only the place of development needs."""

TESTS = ("tests/test_scripts.py", "tests/test_metrics.py", "tests/test_golden.py", "tests/store")
"""A part of the tests that needs files of many kinds."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the flags ask, and stop at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--walk", action="store_true", help="run the README's commands")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions")
    parser.add_argument("--tests", action="store_true", help="run tests of the unpacked sdist")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where to build")
    flags = parser.parse_args(arguments)

    wheel, sdist = build(flags.dist)
    problems = check_wheel(wheel) + check_sdist(sdist)
    for archive, names in ((wheel, wheel_names(wheel)), (sdist, sdist_names(sdist))):
        print(f"{archive.name}: {archive.stat().st_size:,} bytes, {len(names)} files", flush=True)
        for folder, count in by_folder(names).items():
            print(f"  {count:4}  {folder}", flush=True)
    if problems:
        sys.exit("\n".join(problems))
    if flags.tests:
        run_tests(sdist)
    if flags.walk or flags.lowest:
        walk(wheel, lowest=flags.lowest)


# -- build and contents --------------------------------------------------------------------------


def build(target: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of the working tree; the wheel is made from the sdist."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(f"The build failed:\n{made.stdout}{made.stderr}")
    version = project()["version"]
    return target / f"ancl-{version}-py3-none-any.whl", target / f"ancl-{version}.tar.gz"


def project() -> dict[str, object]:
    """The table ``project`` of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def wheel_names(wheel: Path) -> list[str]:
    """Every file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def sdist_names(sdist: Path) -> list[str]:
    """Every file of an sdist, without the folder that holds them all."""
    with tarfile.open(sdist) as archive:
        names = [member.name for member in archive.getmembers() if member.isfile()]
    return sorted(name.partition("/")[2] for name in names)


def check_wheel(wheel: Path) -> list[str]:
    """What a wheel has beside the package, or lacks of it."""
    package = {name.removeprefix("src/") for name in tracked() if name.startswith("src/ancl/")}
    inside = [name for name in wheel_names(wheel) if ".dist-info/" not in name]
    return [
        *(f"{wheel.name}: {name} is not of the package" for name in inside if name not in package),
        *(f"{wheel.name}: {name} is missing" for name in sorted(package - {*inside})),
    ]


def check_sdist(sdist: Path) -> list[str]:
    """What an sdist has beside the tracked files, or lacks of them."""
    wanted = {name for name in tracked() if not name.startswith(NOT_IN_THE_SDIST)}
    inside = {*sdist_names(sdist)} - {"PKG-INFO"}
    return [
        *(f"{sdist.name}: {name} is not tracked" for name in sorted(inside - wanted)),
        *(f"{sdist.name}: {name} is missing" for name in sorted(wanted - inside)),
    ]


def tracked() -> list[str]:
    """The files under version control."""
    command = ["git", "ls-files", "-z", "--cached", "--deduplicate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def by_folder(names: Sequence[str]) -> dict[str, int]:
    """How many files there are in each folder of the first two levels.

    >>> by_folder(["ancl/cli/run.py", "ancl/cli/text.py", "LICENSE"])
    {'LICENSE': 1, 'ancl/cli': 2}
    """
    counts: dict[str, int] = {}
    for name in sorted(names):
        folder = "/".join(PurePosixPath(name).parts[:2][: max(1, name.count("/"))])
        counts[folder] = counts.get(folder, 0) + 1
    return counts


# -- use ------------------------------------------------------------------------------------------


def run_tests(sdist: Path) -> None:
    """Collect all tests of the unpacked sdist, and run a part of them there."""
    with TemporaryDirectory() as name:
        with tarfile.open(sdist) as archive:
            archive.extractall(name, filter="data")
        (root,) = Path(name).iterdir()
        environment = {**os.environ, "PYTHONPATH": str(root / "src")}
        for arguments in (["--collect-only", "tests"], list(TESTS)):
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
            made = subprocess.run(
                [*command, *arguments],
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode:
                sys.exit(f"Tests of the sdist fail:\n{made.stdout[-4000:]}{made.stderr}")
            print(f"sdist: {made.stdout.strip().splitlines()[-1]}", flush=True)


def walk(wheel: Path, *, lowest: bool) -> None:
    """Install the wheel into a new environment, and run the README's commands far from here."""
    with TemporaryDirectory() as name:
        environment, work = Path(name) / "environment", Path(name) / "work"
        work.mkdir()
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        versions = Path(name) / "versions.txt"
        pins = lowest_versions() if lowest else (ROOT / "constraints.txt").read_text().splitlines()
        versions.write_text("\n".join(pins))
        install = [environment / "bin" / "python", "-m", "pip", "install", "--quiet"]
        what = f"ancl[{','.join(EXTRAS)}] @ {wheel.resolve().as_uri()}"
        subprocess.run([*install, "--disable-pip-version-check", "-c", versions, what], check=True)
        for line in readme_commands((ROOT / "README.md").read_text(encoding="utf-8")):
            _write_folders(line, work)
            _run(line, environment / "bin", work)


def lowest_versions() -> list[str]:
    """The lowest version of every dependency that pyproject.toml admits, extras included."""
    table = project()
    wanted = [*table["dependencies"]]  # type: ignore[misc]
    for extra in EXTRAS:
        wanted += table["optional-dependencies"][extra]  # type: ignore[index]
    bounds: dict[str, tuple[int, ...]] = {}
    for each in wanted:
        name, version = re.match(r"([\w.-]+)[>=]=([\d.]+)$", each).groups()  # type: ignore[union-attr]
        bound = tuple(int(part) for part in version.split("."))
        bounds[name] = max(bound, bounds.get(name, bound))
    return [f"{name}=={'.'.join(map(str, bound))}" for name, bound in bounds.items()]


def readme_commands(text: str) -> Iterator[str]:
    r"""Every call of the command in the README's blocks; not those that need the reader's data.

    >>> [*readme_commands("```\nancl demo    # a\nancl run lwf x --data-root DIR\n```")]
    ['ancl demo']
    """
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*", "", line)
            if command.startswith("ancl ") and not re.search(r"\bDIR\b", command):
                yield command


def _write_folders(line: str, work: Path) -> None:
    """The folders of photos that a command names: more classes in new ones, both in tests."""
    names = re.findall(r"folder:([\w/-]+)", line)
    if line.startswith("ancl predict"):
        names += [line.split()[3]]
    for name in names:
        if (work / name).exists():
            continue
        old, new = ("red", "green", "blue"), ("yellow", "grey")
        classes = new if name.startswith("new") else old if name == "photos" else (*old, *new)
        for label in classes:
            _write_photos(work / name / label, label, seed=name)


def _write_photos(folder: Path, label: str, seed: str) -> None:
    """Twelve noisy photos of one colour."""
    import numpy as np
    from PIL import Image, ImageColor

    folder.mkdir(parents=True)
    noise = np.random.default_rng([*f"{seed} {label}".encode()])
    for number in range(12):
        shift = noise.normal(0, 40, (48, 64, 3))
        pixels = np.clip(np.array(ImageColor.getrgb(label)) * 0.6 + 50 + shift, 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.jpg")


def _run(line: str, programs: Path, work: Path) -> None:
    """Run one command with the new environment's programs; show its time, or what went wrong."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    start = time.perf_counter()
    command = [programs / "ancl", *shlex.split(line)[1:]]
    made = subprocess.run(
        command, cwd=work, env=outside, capture_output=True, text=True, check=False
    )
    print(f"{time.perf_counter() - start:6.1f} s  {line}", flush=True)
    if made.returncode:
        sys.exit(f"It ended with {made.returncode}:\n{made.stdout[-2000:]}{made.stderr[-4000:]}")


if __name__ == "__main__":
    main()
