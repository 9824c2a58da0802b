"""The page that explains the stages names them as the plan does, in the same order."""

from pathlib import Path
from typing import Any

from ancl import Memory
from tests.lab import MethodRef, plan

DOCS = Path(__file__).parents[2] / "docs"


def test_stages_of_the_page_are_those_of_a_plan(lab: Any) -> None:
    setting = lab.setting(memory=Memory(per_class=2))
    stages = plan(MethodRef("a-ewc").make({}), lab.tasks(), setting)
    planned = [stage.name for stage in stages if stage.task == 1]

    text = (DOCS / "how-ancl-works.md").read_text(encoding="utf-8")
    rows = text.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]

    assert [row.split("|")[1].strip() for row in rows.splitlines()] == planned
