"""Check pages in a browser with axe, and take pictures of them in both themes and three widths.

    make docs && npm install --prefix /tmp/axe axe-core
    python scripts/look_at_pages.py site /tmp/axe/node_modules/axe-core/axe.min.js -o /tmp/pictures

``site`` is a folder of pages, or one page such as a report. Every page is checked at 1280 pixels,
light and dark; a page that is wider than its window is a problem, too. Needs Chromium and
chromedriver. Ends with 1 if there is any problem.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.system.conftest import CHROMIUM, DRIVER, opened  # noqa: E402

WIDTHS = (390, 1280, 1920)
CHECK = """
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map((each) => [each.id, each.help, each.nodes.length,
    each.nodes[0].target.join(" "), each.nodes[0].html.slice(0, 160)]);
"""


def main() -> None:
    """Look at every page, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, help="a folder of pages, or one page")
    parser.add_argument("axe", type=Path, help="axe.min.js of the package axe-core")
    parser.add_argument("-o", "--output", type=Path, help="a folder for pictures")
    parser.add_argument("--only", nargs="*", default=[], help="pictures of pages with these words")
    flags = parser.parse_args()
    if CHROMIUM is None or DRIVER is None:
        sys.exit("Chromium and chromedriver are needed")
    problems = 0
    with TemporaryDirectory() as profile, opened(Path(profile)) as browser:
        for page in pages_of(flags.pages):
            name = page.relative_to(flags.pages).as_posix() if flags.pages.is_dir() else page.name
            for problem in look(browser, page, flags.axe):
                problems += 1
                print(f"{name}: {problem}", flush=True)
            if flags.output and (not flags.only or any(word in name for word in flags.only)):
                take(browser, page, flags.output, name.replace("/", "_").removesuffix(".html"))
    print(f"{problems} problems", flush=True)
    sys.exit(problems > 0)


def pages_of(place: Path) -> list[Path]:
    """Every page of a folder, or the page itself; 404.html needs a server to find its style."""
    pages = [page for page in place.rglob("*.html") if page.name != "404.html"]
    return sorted(pages) if place.is_dir() else [place]


def look(browser: Any, page: Path, axe: Path) -> Iterator[str]:
    """What axe finds in light and dark, and widths that the page does not fit."""
    for dark in (False, True):
        browser.size(1280, dark=dark)
        show(browser, page)
        browser.run(f"{axe.read_text(encoding='utf-8')}; window.axe = axe;")
        theme = "dark" if dark else "light"
        for rule, text, count, target, html in browser.run(CHECK):
            yield f"{theme}: {rule}: {text} ({count} places, first {target}: {html})"
    for width in WIDTHS:
        browser.size(width)
        browser.open(page.resolve().as_uri())
        over = browser.value("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            yield f"{width} px: the page is {over} px wider than the window"


def show(browser: Any, page: Path) -> None:
    """Open a page in the system's theme, not in one that was remembered."""
    browser.open(page.resolve().as_uri())
    browser.run("localStorage.clear()")
    browser.reload()


def take(browser: Any, page: Path, folder: Path, name: str) -> None:
    """Pictures of what a window shows first, in every width and theme."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        for dark in (False, True):
            browser.size(width, 1100, dark=dark)
            show(browser, page)
            theme = "dark" if dark else "light"
            picture = browser.picture(whole=False)
            (folder / f"{name}_{width}_{theme}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
