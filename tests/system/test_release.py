"""The wheel and the sdist, as a release would have them."""

import runpy
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "check_release.py"))


@pytest.fixture(scope="module")
def archives(script: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("build")
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("the files of a release are told by git")
    wheel, sdist = script["build"](tmp_path_factory.mktemp("dist"))
    return wheel, sdist


def test_the_wheel_is_the_package_and_the_sdist_the_project(script, archives) -> None:
    wheel, sdist = archives

    assert script["check_wheel"](wheel) == []
    assert script["check_sdist"](sdist) == []
    inside = script["wheel_names"](wheel)
    assert {"ancl/py.typed", "ancl/cli/run.py"} <= {*inside}
    for word in ("test", "evidence", "scripts", "benchmarks/", "examples"):
        assert [name for name in inside if f"/{word}" in name or name.startswith(word)] == []
    assert wheel.stat().st_size < 2_000_000


def test_strays_and_gaps_are_named(script, archives, tmp_path: Path) -> None:
    wheel, sdist = archives
    forged = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(forged, "w") as changed:
        for name in whole.namelist():
            if name != "ancl/py.typed":
                changed.writestr(name, b"")
        changed.writestr("tests/test_golden.py", b"")
    short = tmp_path / sdist.name
    with tarfile.open(sdist) as whole, tarfile.open(short, "w:gz") as changed:
        for member in whole.getmembers():
            if not member.name.endswith("/Makefile"):
                changed.addfile(member, whole.extractfile(member))

    assert script["check_wheel"](forged) == [
        f"{wheel.name}: tests/test_golden.py is not of the package",
        f"{wheel.name}: ancl/py.typed is missing",
    ]
    assert script["check_sdist"](short) == [f"{sdist.name}: Makefile is missing"]


def test_the_commands_of_the_readme_are_those_that_are_run(script) -> None:
    commands = [*script["readme_commands"](README)]

    assert len(commands) >= 6
    assert {"learn", "predict", "run", "compare"} <= {line.split()[1] for line in commands}
    assert not any("DIR" in line.split() for line in commands)


def test_the_lowest_versions_are_those_of_the_project(script) -> None:
    pins = script["lowest_versions"]()

    assert "torch==2.13" in pins
    assert len({pin.partition("==")[0] for pin in pins}) == len(pins) == 17


def test_the_lists_of_what_is_not_in_the_sdist_are_tracked(script) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no repository")
    names = listed.stdout.split()
    assert all(any(name.startswith(each) for name in names) for each in script["NOT_IN_THE_SDIST"])
