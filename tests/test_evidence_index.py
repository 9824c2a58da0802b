"""What the overview of the evidence says is what its pages say."""

import re
from pathlib import Path

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\((\S+)\) \|$", (EVIDENCE / "index.md").read_text(), re.M
)
NUMBER = re.compile(r"[+−-]?\d+\.\d+(?: ± \d+\.\d+)?")


def test_every_number_is_on_the_page_that_is_named() -> None:
    checked = 0
    for question, answer, page in ROWS:
        text = (EVIDENCE / page).read_text(encoding="utf-8")
        for number in NUMBER.findall(answer):
            assert number in text, f"{question}: {number} is not in {page}"
            checked += 1
    assert checked >= 8


def test_every_page_of_evidence_is_named() -> None:
    index = (EVIDENCE / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in EVIDENCE.glob("*.md")} - {"index.md", "small-cifar.md"}

    assert {page for page in pages if f"]({page})" not in index} == set()


def test_a_number_is_found_with_its_sign_and_error() -> None:
    assert NUMBER.findall("-0.04 ± 0.29 points; −0.15 to +0.31") == [
        "-0.04 ± 0.29",
        "−0.15",
        "+0.31",
    ]
