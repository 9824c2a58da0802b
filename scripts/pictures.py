"""Make the pictures of the README and the pages anew: ``python scripts/pictures.py``.

The demo is run (minutes; again, it is found in ``--runs``), its report is written, and its page is
shown in Chromium: ``demo_plane.png``, ``report_demo.png``. For ``report_study.png`` the report has
three more values of λ_a.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.system.conftest import CHROMIUM, DRIVER, opened  # noqa: E402

WIDTH = 1100
MORE = ("0.3", "3", "10")
"""Values of λ_a beside that of the demo."""


def main() -> None:
    """Run, report, look, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("demo"), help="where runs are [demo]")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "images")
    flags = parser.parse_args()
    if CHROMIUM is None or DRIVER is None:
        sys.exit("Chromium and chromedriver are needed")
    ancl("demo", "--runs", flags.runs)
    report = flags.runs / "report"
    ancl("report", "--runs", flags.runs, "--output", report)
    shutil.copy(report / "figures" / "fashion-digits-5_plane.png", flags.output / "demo_plane.png")
    photograph(report / "report.html", flags.output / "report_demo.png")
    more = flags.runs.with_name(f"{flags.runs.name}-more")
    places = ("--runs", more, "--store", flags.runs / ".store")
    for value in MORE:
        given = ("--lamb-a", value, "--seeds", "0-4", "--threads", "1")
        ancl("run", "a-lwf", "fashion-digits/5", *given, *places)
    ancl("report", flags.runs, more, "--output", report)
    photograph(report / "report.html", flags.output / "report_study.png")


def ancl(*words: object) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "-m", "ancl", *map(str, words)], check=True)


def photograph(page: Path, picture: Path) -> None:
    """The page from its top to the end of the stability-plasticity plane."""
    with TemporaryDirectory() as profile, opened(Path(profile)) as browser:
        browser.size(WIDTH)
        browser.open(page.resolve().as_uri())
        end = "document.querySelector('#plane').getBoundingClientRect().bottom + scrollY"
        picture.write_bytes(browser.picture(height=browser.value(end) + 16))


if __name__ == "__main__":
    main()
