"""The page as a browser shows it: read, pressed, saved and opened again."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lab import ParameterCount, Report, collect, make_report, page

Make = Callable[..., Path]
SIZES = (390, 768, 1280, 1920)


@pytest.fixture
def shown(browser: Any, address: str) -> Any:
    """The page of two benchmarks, at the second one, which has all methods."""
    browser.size(1280)
    browser.open(f"{address}#found&on=digits%2F5+%28per_class%3Dnone%29")
    return browser


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((n) => n.textContent)"
    )
    return found


def focus(browser: Any, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).focus()")


def test_no_problem_no_request_nothing_unnamed_and_no_width_is_too_small(
    browser: Any, address: str
) -> None:
    for width in SIZES:
        browser.size(width)
        browser.open(address)
        over = browser.value("document.documentElement.scrollWidth - innerWidth")
        tables = browser.value(
            "[...document.querySelectorAll('#overview .scroll')].map("
            "(n) => n.scrollWidth - n.clientWidth)"
        )
        assert (width, over, tables) == (width, 0, [0])

    assert browser.problems() == []
    assert browser.value("performance.getEntriesByType('resource').length") == 0
    unnamed = (
        "[...document.querySelectorAll('input, select')].filter("
        "(each) => !each.closest('label') && !each.getAttribute('aria-label')).length"
    )
    assert browser.value(unnamed) == 0
    wanted = ["found", "plane", "overview", "curves", "matrices", "explorer", "loss", "time"]
    wanted += ["grids", "formulas", "specs", "damaged"]
    assert browser.value("[...document.querySelectorAll('section')].map((n) => n.id)") == wanted


@pytest.fixture
def swept(browser: Any, make: Make, runs: Path) -> Any:
    """A plain method and four λ_a of its variant, on two benchmarks; as a telephone shows it."""
    for benchmark in ("digits/5", "fashion-digits/5"):
        make("lwf", benchmark=benchmark)
        for lamb_a in (0.3, 1.0, 3.0):
            make("a-lwf", benchmark=benchmark, lamb=12.5, lamb_a=lamb_a)
        make("a-lwf", benchmark=benchmark, lamb="auto:0.123", lamb_a="balance:0.123")
    place = runs / "page.html"
    place.write_text(page(make_report(collect([runs]))), encoding="utf-8")
    browser.size(390)
    browser.open(place.as_uri())
    return browser


def test_a_long_name_in_a_choice_does_not_widen_the_page(swept: Any) -> None:
    assert swept.value("document.documentElement.scrollWidth - innerWidth") == 0


def test_settings_of_one_method_are_told_apart_in_the_curves(swept: Any) -> None:
    looks = swept.run("""
      return [...document.querySelectorAll("#curves .legend label line")].map(
        (n) => getComputedStyle(n).stroke);
    """)
    drawn = swept.run("""
      return [...document.querySelectorAll("#curves .chart polyline:not(.thin)")].map(
        (n) => getComputedStyle(n).stroke);
    """)
    assert len({*looks}) == len(looks) == 5
    assert drawn == looks


def test_the_headline_has_the_sentences_and_every_difference(
    shown: Any, report_of_all: Report
) -> None:
    stream = "digits/5 (per_class=none)"
    said = [each.text.replace(" -", " −") for each in report_of_all.findings[stream]]
    assert texts(shown, ".findings li") == said
    rows = texts(shown, "#found .row .name")
    # A-LwF - LwF: 0.05 on both seeds; AFEC-LwF - LwF: 0.6 - 0.7, with another λ
    assert rows == [
        *("AFEC-LwF − LwF *", "−10.00"),
        *("A-LwF − LwF", "+5.00 [+0.00, +10.00]"),
    ]
    assert texts(shown, "#found .beside li") == ["AFEC-LwF − LwF: λ 3 instead of 10"]

    focus(shown, "#found svg[tabindex]")
    shown.press("ArrowDown", "ArrowDown")
    assert texts(shown, "#found .reading") == [
        "A-LwF − LwF: +5.00 [+0.00, +10.00] points; seed 0 +5.00, seed 1 +5.00"
    ]


def test_the_plane_is_read_by_keys_and_pointer(shown: Any) -> None:
    assert shown.value("document.querySelectorAll('#plane .mean').length") == 4
    focus(shown, "#plane svg[tabindex]")
    shown.press("ArrowRight", "ArrowRight")
    # A-LwF forgets least, then LwF: 0.9 - 0.7, learned (0.9 + 0.71) / 2
    (mean,) = texts(shown, "#plane .tip")
    assert mean == (
        "LwF, mean of 2 seedslearning accuracy 80.50 ± 0.50 %forgetting 20.00 ± 0.00 points"
        "AAC 70.50 ± 0.50 %"
    )
    shown.press("ArrowDown", "ArrowDown")
    (seed,) = texts(shown, "#plane .tip")
    assert seed == "LwF, seed 1learning accuracy 81.00 %forgetting 20.00 pointsAAC 71.00 %"
    shown.press("Escape")
    assert texts(shown, "#plane .tip") == [""]

    # A pointer on the ring's place reads the same.
    shown.press("ArrowRight")
    first = texts(shown, "#plane .tip")
    shown.run("""
      const ring = document.querySelector("#plane .ring").getBoundingClientRect();
      const svg = document.querySelector("#plane svg[tabindex]");
      const at = { clientX: ring.x + ring.width / 2, clientY: ring.y + ring.height / 2 };
      svg.dispatchEvent(new PointerEvent("pointerleave"));
      svg.dispatchEvent(new PointerEvent("pointermove", at));
    """)
    assert texts(shown, "#plane .tip") == first


def test_lines_of_equal_accuracy_go_through_methods_of_that_accuracy(shown: Any) -> None:
    # AFEC-LwF: forgetting 30, learned 75, AAC 60, every task at its best when new.
    far = shown.run("""
      const means = [...document.querySelectorAll("#plane .mean")].map((n) => n.getBBox())
        .map((box) => [box.x + box.width / 2, box.y + box.height / 2]);
      const lines = [...document.querySelectorAll("#plane .equal")].map(
        (n) => [n.x1, n.y1, n.x2, n.y2].map((end) => end.baseVal.value));
      return means.map(([x, y]) => Math.min(...lines.map(([a, b, c, d]) =>
        Math.abs((d - b) * x - (c - a) * y + c * b - d * a) / Math.hypot(d - b, c - a))));
    """)
    assert sorted(far)[0] < 1


@pytest.mark.parametrize("width", SIZES)
def test_lines_of_equal_accuracy_have_their_number_at_every_width(
    browser: Any, address: str, width: int
) -> None:
    browser.size(width)
    browser.open(f"{address}#plane&on=digits%2F5+%28per_class%3Dnone%29")
    boxes = browser.run("""
      return [...document.querySelectorAll("#plane text.faint")].filter(
        (n) => n.textContent.startsWith("AAC"))
        .map((n) => n.getBBox()).map((b) => [b.x, b.y, b.width, b.height]);
    """)

    assert len(boxes) >= 2
    for k, (x, y, wide, tall) in enumerate(boxes):
        assert not any(
            abs(a - x) < min(w, wide) and abs(b - y) < min(h, tall) for a, b, w, h in boxes[:k]
        )


def test_methods_go_off_the_plane(shown: Any) -> None:
    shown.run("document.querySelector('#plane .legend input').click()")

    assert shown.value("document.querySelectorAll('#plane .mean').length") == 3
    assert "off=finetune" in shown.value("location.hash")


def rows(browser: Any) -> list[str]:
    return texts(browser, "#overview tbody tr th")


def test_the_overview_has_six_columns_sorts_filters_and_shows_the_rest(shown: Any) -> None:
    heads = "#overview thead th button"
    six = ["method", "AAC, %", "minus host, points", "forgetting, points", "learning, %", "n"]
    assert texts(shown, heads) == six
    assert len(rows(shown)) == 5

    shown.run(f"document.querySelectorAll({heads!r})[1].click()")
    assert (
        shown.value("document.querySelectorAll('#overview th[aria-sort=descending]').length") == 1
    )
    assert rows(shown)[0].startswith("A-LwF")
    shown.run(f"document.querySelectorAll({heads!r})[1].click()")
    assert rows(shown)[0].startswith("Fine-tuning")
    shown.run("""
      const filter = document.querySelector("#overview input[type=search]");
      filter.value = "afec";
      filter.dispatchEvent(new Event("input"));
    """)
    assert rows(shown) == ["AFEC-LwFdigits/5 (per_class=none)"]
    # What else differs stands below the difference.
    (cell,) = texts(shown, "#overview tbody td:nth-child(3)")
    assert cell == "−10.00λ 3 instead of 10"

    shown.run("document.querySelector('#overview .check input').click()")
    assert texts(shown, heads)[:6] == six
    assert len(texts(shown, heads)) > 11
    link = shown.value("document.querySelector('#overview td.links a').pathname")
    assert Path(link).is_dir()


def test_the_first_column_stays_while_the_table_scrolls(browser: Any, address: str) -> None:
    browser.size(390)
    browser.open(f"{address}#overview&columns=1")
    found = browser.run("""
      const box = document.querySelector("#overview .scroll");
      const left = () => document.querySelector("#overview tbody th").getBoundingClientRect().left;
      const before = left();
      box.scrollLeft = 300;
      return { moved: box.scrollLeft, before, after: left() };
    """)
    assert found["moved"] == 300
    assert found["after"] == found["before"]


def test_curves_have_their_seeds_and_a_cross_hair(shown: Any) -> None:
    # two seeds each of three methods; a single seed is its own mean
    assert shown.value("document.querySelectorAll('#curves .thin').length") == 6
    focus(shown, "#curves svg[tabindex]")
    shown.press("ArrowRight", "ArrowRight")
    (tip,) = texts(shown, "#curves .tip")
    assert "Fine-tuning: 50.50 ± 0.50 (n=2)" in tip
    shown.run("document.querySelector('#curves .check input').click()")
    shown.run("document.querySelector('#curves .legend input').click()")
    assert shown.value("document.querySelectorAll('#curves .chart polyline').length") == 3
    # The method is off in the matrices too.
    assert shown.value("document.querySelectorAll('#matrices table.heat').length") == 3


def test_matrices_stand_side_by_side_and_minus_the_host(shown: Any) -> None:
    titles = ["Fine-tuning", "LwF", "AFEC-LwF", "A-LwF"]
    assert texts(shown, "#matrices caption") == titles
    focus(shown, "#matrices .scroll")
    shown.press("ArrowRight")
    assert texts(shown, "#matrices .reading") == [
        "Fine-tuning, on task 1 after task 2: 30.00 ± 0.00 % (n=2); when it was new: 90.00 ± 0.00 %"
    ]
    shown.run("""
      const mode = document.querySelector("#matrices select");
      mode.selectedIndex = 1;
      mode.dispatchEvent(new Event("change"));
    """)
    assert texts(shown, "#matrices caption") == ["AFEC-LwF − LwF", "A-LwF − LwF"]
    cells = texts(shown, "#matrices table.heat:last-of-type td")
    # A-LwF: 0.9 - 0.9; 0.8 - 0.7 and 0.71 - 0.71
    assert cells[-4:] == ["+0.0", "", "+10.0", "+0.0"]


def test_matrices_minus_the_host_are_paired_by_seed(browser: Any, make: Make, runs: Path) -> None:
    make("a-lwf", seed=0, rows=[[0.8], [0.7, 0.9]])
    make("lwf", seed=0, rows=[[0.8], [0.6, 0.9]])
    make("lwf", seed=1, rows=[[0.2], [0.2, 0.2]])  # a seed that the variant does not have
    place = runs / "page.html"
    place.write_text(page(make_report(collect([runs]))), encoding="utf-8")
    browser.size(1280)
    browser.open(f"{place.as_uri()}#matrices&matrix=minus+the+host")

    assert texts(browser, "#matrices td") == ["+0.0", "", "+10.0", "+0.0"]


def test_what_rounds_to_nothing_has_no_minus(browser: Any, address: str) -> None:
    browser.open(address)
    shown = browser.value("[percent(-0.00001), percent(-0.0001), plus(-0.00001), plus(0)]")
    assert shown == ["0.00", "−0.01", "0.00", "+0.00"]


def test_a_task_without_new_classes_has_a_row_and_no_column(
    browser: Any, make: Make, runs: Path
) -> None:
    make("icarl", rows=[[0.8], [0.6, 0.9]], sizes=[30, 10], **{"data.scenario": "cil"})
    found = make_report(collect([runs]))
    nan = float("nan")
    # Task 2 brings known classes again, task 3 new ones.
    found.groups[0].__dict__["matrices"] = [np.array([[0.8, nan], [0.9, nan], [0.6, 0.9]])]
    file = runs / "report.html"
    file.write_text(page(found), encoding="utf-8")
    browser.open(file.as_uri())

    assert texts(browser, "#matrices thead th") == ["after", "1", "3"]
    assert texts(browser, "#matrices tbody tr") == ["180.0", "290.0", "360.090.0"]
    assert browser.problems() == []


def test_equal_methods_have_a_difference_of_nothing(browser: Any, make: Make, runs: Path) -> None:
    for seed in range(2):
        make("lwf", seed=seed)
        make("a-lwf", seed=seed)
    file = runs / "report.html"
    file.write_text(page(make_report(collect([runs]))), encoding="utf-8")
    browser.open(file.as_uri())

    assert texts(browser, "#found .row .name") == ["A-LwF − LwF", "+0.00 [−5.00, +5.00]"]
    assert browser.problems() == []


def test_a_baseline_is_named_and_every_method_minus_it_is_shown(
    browser: Any, make: Make, runs: Path
) -> None:
    for seed in range(2):
        make("lwf", seed=seed, rows=[[0.8], [0.6, 0.9]])
        make("ewc", seed=seed, rows=[[0.8], [0.7, 0.9]])
        make("a-lwf", seed=seed, rows=[[0.8], [0.6, 0.7]])
    file = runs / "report.html"
    file.write_text(page(make_report(collect([runs]), "ewc")), encoding="utf-8")
    browser.size(1280)
    browser.open(f"{file.as_uri()}#matrices&matrix=minus+the+baseline")

    assert texts(browser, "#overview thead th button")[2] == "minus EWC, points"
    assert texts(browser, "#found h3")[0] == "Each method minus EWC, per seed"
    assert texts(browser, "#found .row .name")[::2] == ["LwF − EWC", "A-LwF − EWC"]
    assert texts(browser, "#matrices td") == [
        "+0.0",
        "",
        "−10.0",
        "+0.0",
        "+0.0",
        "",
        "−10.0",
        "−20.0",
    ]
    assert browser.problems() == []


def test_a_training_has_its_accuracy_and_rate_beside_its_terms(shown: Any) -> None:
    assert texts(shown, "#loss h3") == ["Validation accuracy", "Learning rate"]
    assert texts(shown, "#loss .key span") == [" task", " old, with its teacher's entropy"]
    focus(shown, "#loss .columns > div:last-child svg[tabindex]")
    shown.press("ArrowRight")
    (*_, rate) = texts(shown, "#loss .tip")
    assert rate == "epoch 1 seed 0: 0.1"


def test_the_explorer_moves_with_its_slider_and_has_measured_correlations(shown: Any) -> None:
    place = "document.querySelector('#explorer .here').getAttribute('cx')"
    before = float(shown.value(place))
    assert "distance to old0.40.5" in texts(shown, "#explorer-reading")[0]
    shown.run("""
      const slider = document.querySelector("#explorer input[type=range]");
      slider.value = 1;
      slider.dispatchEvent(new Event("input"));
    """)
    assert texts(shown, "#explorer-value") == ["10"]
    assert float(shown.value(place)) < before
    (numbers,) = texts(shown, "#explorer-reading")
    assert "distance to old0.20.5" in numbers
    assert "accuracy, task 180.00 %50.00 %" in numbers
    labels = texts(shown, "#explorer figure text")
    assert {"weight distance, old → auxiliary", "weight distance across it, → multitask"} <= {
        *labels
    }
    assert {"‖θ − θ_ref‖", "CKA, 0 to 1", "test accuracy, %"} <= {*labels}
    assert texts(shown, "#correlations tbody tr") == [
        "λ_adistance to the old network−1.001",
        "CKA to the multitask networkmean accuracy–1",
    ]
    section = texts(shown, "#explorer > p")[0]
    assert "stability" not in section  # what is measured is not asserted


def test_the_view_and_the_theme_are_kept_in_the_address(browser: Any, address: str) -> None:
    browser.size(1280)
    browser.open(address)
    browser.run("""
      const pick = (selector, index) => {
        const box = document.querySelector(selector);
        box.selectedIndex = index;
        box.dispatchEvent(new Event("change"));
      };
      pick("#stream select", 1);
      pick("#curves select", 2);
      pick("#matrices select", 1);
      document.querySelector("#overview .check input").click();
      document.querySelectorAll("#overview thead button")[3].click();
      document.querySelector("#curves .legend input").click();
      document.querySelector("#theme").click();
      document.querySelector("nav a[href='#matrices']").click();
    """)
    browser.run("await new Promise((done) => setTimeout(done, 50))")
    view = """({
      picked: [...document.querySelectorAll("select")].map((box) => box.selectedIndex),
      boxes: [...document.querySelectorAll("input[type=checkbox]")].map((box) => box.checked),
      heads: [...document.querySelectorAll("#overview th")].map((n) => n.getAttribute("aria-sort")),
      theme: document.documentElement.dataset.theme, at: VIEW.at, hash: location.hash,
    })"""
    before = browser.value(view)
    browser.reload()
    after = browser.value(view)

    assert before == after
    assert after["theme"] == "dark"
    assert after["at"] == "matrices"
    assert "descending" in after["heads"]
    assert texts(browser, "#matrices caption") == ["AFEC-LwF − LwF", "A-LwF − LwF"]
    # Without the address a browser remembers the theme; the test leaves none behind.
    browser.open(address)
    assert browser.value("document.documentElement.dataset.theme") == "dark"
    browser.run("localStorage.clear()")


def test_every_figure_is_saved_as_csv_and_png(shown: Any) -> None:
    found = shown.run("""
      const saved = [];
      URL.createObjectURL = (blob) => { saved.push(blob); return "data:,"; };
      HTMLAnchorElement.prototype.click = () => {};
      const buttons = [...document.querySelectorAll("[data-save]")];
      for (const button of buttons) {
        const count = saved.length;
        button.click();
        while (saved.length === count) await new Promise((done) => setTimeout(done, 5));
      }
      const made = [];
      for (const [index, blob] of saved.entries()) {
        const kind = buttons[index].dataset.save;
        const at = buttons[index].closest("section").id;
        if (kind === "csv") made.push({ at, kind, text: await blob.text() });
        else {
          const picture = await createImageBitmap(blob);
          const { width, height } = picture;
          const canvas = new OffscreenCanvas(width, height).getContext("2d");
          canvas.drawImage(picture, 0, 0);
          const { data } = canvas.getImageData(0, 0, width, height);
          made.push({ at, kind, width, colors: new Set(new Uint32Array(data.buffer)).size });
        }
      }
      return made;
    """)
    kinds = [(each["at"], each["kind"]) for each in found]
    for name in ("found", "plane", "curves", "matrices", "explorer", "loss", "time"):
        assert {(name, "csv"), (name, "png")} <= {*kinds}
    assert ("overview", "csv") in kinds
    pictures = [each for each in found if each["kind"] == "png"]
    assert all(each["width"] > 300 and each["colors"] > 20 for each in pictures), pictures
    tables = {each["at"]: each["text"].splitlines() for each in found if each["kind"] == "csv"}
    assert tables["plane"][0] == 'method,seed,"forgetting, points","learning accuracy, %","AAC, %"'
    assert [line.split(",")[0] for line in tables["plane"][1:]] == [
        *("Fine-tuning", "Fine-tuning", "LwF", "LwF", "AFEC-LwF", "A-LwF", "A-LwF")
    ]
    assert "'-1" not in "".join(tables["plane"])
    assert shown.problems() == []


SAVED = """
  const saved = [];
  URL.createObjectURL = (blob) => { saved.push(blob); return "data:,"; };
  HTMLAnchorElement.prototype.click = () => {};
  document.querySelector("#overview [data-save=csv]").click();
  return saved[0].text();
"""


def test_the_overview_is_saved_in_the_units_of_its_headings_and_with_errors(
    browser: Any, make: Make, runs: Path
) -> None:
    for seed in range(2):
        counts = (ParameterCount(stored=1_500_000, trained=500_000),) * 2
        make("lwf", seed=seed, rows=[[0.8], [0.6, 0.9 + 0.02 * seed]], parameters=counts)
    place = runs / "page.html"
    place.write_text(page(make_report(collect([runs]))), encoding="utf-8")
    browser.size(1280)
    browser.open(f"{place.as_uri()}#overview&columns=1")

    head, row = (next(csv.reader([line])) for line in browser.run(SAVED).splitlines())
    found = dict(zip(head, row, strict=True))

    assert float(found["AAC, %"]) == pytest.approx(75.5)
    assert float(found["AAC, %, standard error"]) == pytest.approx(0.5)
    assert float(found["parameters, million"]) == 1.5
    assert float(found["time, seconds"]) == pytest.approx(6.5)
    assert found["runs"].split() == sorted(each.name for each in runs.glob("digits-5_*"))


def test_a_text_like_a_formula_is_no_formula_in_a_spreadsheet(shown: Any) -> None:
    made = shown.value("""csv([["=1+1", "@x", -1.5, "a,b", 'say "x"', null]])""")
    assert made == '\'=1+1,\'@x,-1.5,"a,b","say ""x""",\n'


def test_parameters_have_a_legend_that_switches_methods_off(
    browser: Any, make: Make, runs: Path
) -> None:
    for method, last in (("lwf", 100), ("der", 200)):
        counts = (ParameterCount(stored=100, trained=100), ParameterCount(stored=last, trained=100))
        make(method, parameters=counts)
    place = runs / "page.html"
    place.write_text(page(make_report(collect([runs]))), encoding="utf-8")
    browser.size(1280)
    browser.open(place.as_uri())
    lines = "document.querySelectorAll('#parameters figure polyline').length"
    both = browser.value(lines)

    browser.run("document.querySelector('#parameters .legend input').click()")

    assert texts(browser, "#parameters .legend label") == ["LwF", "DER"]
    assert (both, browser.value(lines)) == (2, 1)


def test_an_axis_through_0_has_its_mark(shown: Any) -> None:
    marks = shown.value("JSON.stringify(ticks(-0.19, 0.01, 4))")

    assert marks.endswith(",0]")
    assert shown.value("ticks(-0.19, 0.3, 6).includes(0)") is True
