"""The page as a browser shows it: a script added by the test drives it and writes what it saw."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ancl.reporting import collect, make_report, page

Make = Callable[..., Path]
CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)

WATCH = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => problems.push(`rejected: ${event.reason}`));
addEventListener("securitypolicyviolation", (event) => problems.push(`no ${event.blockedURI}`));
for (const name of ["error", "warn"]) console[name] = (...words) => problems.push(words.join(" "));
</script>"""

DRIVE = """<script>
const $ = (selector) => document.querySelector(selector);
const rows = () => [...document.querySelectorAll("#overview tbody tr")].map(
  (row) => row.cells[1].textContent);
const key = (node, name) => node.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
const saw = { sections: [...document.querySelectorAll("section")].map((each) => each.id) };
const heading = [...document.querySelectorAll("#overview th button")].find(
  (button) => button.textContent.startsWith("AAC"));
saw.first = rows();
heading.click();
saw.down = rows();
saw.sorted = heading.parentElement.getAttribute("aria-sort");
heading.click();
saw.up = rows();
const filter = $("#overview input");
filter.value = "a-lwf";
filter.dispatchEvent(new Event("input"));
saw.filtered = rows();
key($("#curves svg[tabindex]"), "ArrowRight");
saw.tip = $("#curves .tip").textContent;
$("#curves .legend input").click();
saw.lines = document.querySelectorAll("#curves .chart polyline").length;
key($("#matrices .scroll"), "ArrowRight");
saw.cell = $("#matrices .reading").textContent;
const slider = $("#explorer input[type=range]");
saw.here = [$("#explorer .here").getAttribute("cx")];
saw.reading = [$("#explorer-reading").textContent];
slider.value = 1;
slider.dispatchEvent(new Event("input"));
saw.here.push($("#explorer .here").getAttribute("cx"));
saw.reading.push($("#explorer-reading").textContent);
saw.value = $("#explorer-value").textContent;
const theme = () => document.documentElement.dataset.theme;
saw.themes = [theme()];
$("#theme").click();
saw.themes.push(theme());
saw.unnamed = [...document.querySelectorAll("input, select")].filter(
  (each) => !each.closest("label") && !each.getAttribute("aria-label")).length;
saw.title = $("#specs details pre").textContent;
saw.wide = document.documentElement.scrollWidth - innerWidth;
saw.requests = performance.getEntriesByType("resource").length;
saw.problems = problems;
document.body.replaceChildren(Object.assign(document.createElement("pre"), {
  id: "saw", textContent: JSON.stringify(saw) }));
</script>"""


def test_the_page_is_one_file_with_its_data_escaped(make: Make, runs: Path) -> None:
    place = make()
    (place / "environment.json").write_text('{"platform": "</script><b>&\\u2028"}')

    text = page(make_report(collect([runs])))

    assert "</script><b>" not in text
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)\s*=\s*.(?!data:)", text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    (group,) = json.loads(data[1])["groups"]
    assert "</script><b>&\\u2028" in group["environment"]
    assert group["metrics"]["aac"] == [0.75, None, 1]
    assert group["cells"] == [[[0.8, None, 1], None], [[0.6, None, 1], [0.9, None, 1]]]


def test_the_same_results_give_the_same_bytes(make: Make, make_analysis: Make, runs: Path) -> None:
    make()
    make_analysis()

    first, second = (page(make_report(collect([runs]))) for _ in range(2))

    assert first == second


@pytest.fixture
def saw(make: Make, make_analysis: Make, make_search: Make, runs: Path) -> dict[str, Any]:
    """What the driving script saw."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    for method, value in {"finetune": 0.3, "lwf": 0.6, "a-lwf": 0.7}.items():
        for seed in range(2):
            make(method, seed=seed, rows=[[0.9], [value, value + 0.02 * seed]])
    make_analysis()
    make_search()
    broken = make("joint")
    (broken / "result.json").write_text("{")
    text = page(make_report(collect([runs])))
    file = runs / "driven.html"
    driven = text.replace("<style>", f"{WATCH}<style>").replace("</body>", f"{DRIVE}</body>")
    file.write_text(driven, encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000")
    command = [CHROMIUM, *options, f"--user-data-dir={runs / 'profile'}", "--dump-dom"]
    ended = subprocess.run(
        [*command, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="saw">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert found is not None, ended.stdout[-2000:]
    content: dict[str, Any] = json.loads(html.unescape(found[1]))
    return content


def test_the_page_works_in_a_browser(saw: dict[str, Any]) -> None:
    assert saw["problems"] == []
    assert saw["requests"] == 0
    assert saw["wide"] <= 0
    assert saw["unnamed"] == 0
    wanted = ["overview", "curves", "matrices", "explorer", "loss", "time", "grids"]
    assert saw["sections"] == [*wanted, "formulas", "specs", "damaged"]
    # sorting and filtering
    assert saw["first"] == ["Fine-tuning", "LwF", "A-LwF"]
    assert saw["down"] == ["A-LwF", "LwF", "Fine-tuning"]
    assert saw["sorted"] == "descending"
    assert saw["up"] == ["Fine-tuning", "LwF", "A-LwF"]
    assert saw["filtered"] == ["A-LwF"]
    # values under the cross-hair, a method switched off, a cell of the matrix
    assert "Fine-tuning: 90.00 ± 0.00 (n=2)" in saw["tip"]
    assert saw["lines"] == 2
    # rows[1] is (0.3, 0.3) and (0.3, 0.32): the last row's first task is 30 on both seeds
    assert "On task 1 after task 2: 30.00 ± 0.00 % (n=2); when it was new: 90.00" in saw["cell"]
    # the slider moves the point and the numbers
    assert saw["value"] == "10"
    assert float(saw["here"][0]) > float(saw["here"][1])
    assert "distance to old0.40.5" in saw["reading"][0]
    assert "distance to old0.20.5" in saw["reading"][1]
    assert "accuracy, task 180.00 %50.00 %" in saw["reading"][1]
    assert sorted(saw["themes"]) == ["dark", "light"]
    assert "method: finetune" in saw["title"]
