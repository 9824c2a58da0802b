"""What takes longer: contrast and names by axe-core, and pages of 200 runs."""

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import collect, make_report, page

Make = Callable[..., Path]
AXE = "axe-core@4.14.0"
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const light = (color) => {
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const style = (node) => getComputedStyle(node);
const panel = style(document.querySelector("section")).backgroundColor;
const pairs = [
  ...[...document.querySelectorAll(".chart text")].map((n) => [n, style(n).fill, panel]),
  ...[...document.querySelectorAll("table.heat td:not(.none)")].map(
    (n) => [n, style(n).color, style(n).backgroundColor]),
];
const low = pairs.map(([node, front, back]) => {
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  return [node.textContent, front, back, (a + 0.05) / (b + 0.05)];
}).filter((each) => each[3] < 4.5);
return [low, pairs.length];
"""


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched from the npm registry."""
    place = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm, which fetches axe-core, is not installed")
    ended = subprocess.run(
        [npm, "pack", AXE, "--pack-destination", str(place)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if ended.returncode:
        pytest.skip(f"axe-core cannot be fetched: {ended.stderr.strip()[-200:]}")
    with tarfile.open(next(place.glob("*.tgz"))) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_serious_is_found_by_axe(browser: Any, address: str, axe: str, dark: bool) -> None:
    for width in (390, 1280):
        browser.size(width, dark=dark)
        browser.open(f"{address}#overview&on=digits%2F5+%28per_class%3Dnone%29&columns=1")
        browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        browser.cdp("Runtime.evaluate", expression=axe)  # not held to the page's own policy
        found = browser.run("return (await axe.run()).violations")
        serious = [
            (each["id"], [node["target"] for node in each["nodes"]][:3])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        # What axe leaves open: texts of drawings, and numbers on mixed colours.
        low, checked = browser.run(CONTRAST)
        assert low == []
        assert checked > 100


def write_seeds(make: Make) -> None:
    for seed in range(20):
        for base in ("ewc", "mas", "lwf", "lfl"):
            make(base, seed=seed, rows=LONG, epochs=20)
            make(f"a-{base}", seed=seed, rows=LONG, epochs=20)
        make("finetune", seed=seed, rows=LONG, epochs=20)
        make("joint", seed=seed, rows=LONG, epochs=20)


def write_settings(make: Make) -> None:
    for number in range(100):
        make("lwf", rows=LONG, epochs=100, lamb=float(number + 1))
        make("a-lwf", rows=LONG, epochs=100, lamb=float(number + 1))


LONG = [[0.8 - 0.01 * (i - j) for j in range(i + 1)] for i in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_seeds, write_settings])
def test_two_hundred_runs_open_within_two_seconds(
    browser: Any, make: Make, runs: Path, write: Callable[[Make], None]
) -> None:
    write(make)
    file = runs / "report.html"
    file.write_text(page(make_report(collect([runs])), runs), encoding="utf-8")
    browser.size(1280)
    spent = []
    for _ in range(3):
        browser.open(file.as_uri())
        spent.append(browser.value("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert file.stat().st_size < 6e6
    assert browser.value("document.querySelectorAll('section').length") > 8
    assert browser.problems() == []
    assert min(spent) < 2000, spent
