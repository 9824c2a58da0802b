"""Run the notebook, keep its outputs in it, and write its page of the site.

    python scripts/notebook.py            # runs examples/first_comparison.ipynb
    python scripts/notebook.py --page     # writes docs/notebook.md from the outputs it holds

A notebook is JSON, and its cells are plain Python, so Jupyter is not needed: the cells run one
after the other in one namespace, as they do there.
"""

import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "first_comparison.ipynb"
PAGE = ROOT / "docs" / "notebook.md"


def run(notebook: dict[str, Any], place: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in a directory."""
    before, names = Path.cwd(), dict[str, Any]()
    count = 0
    os.chdir(place)
    sys.path.insert(0, "")
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            count += 1
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"cell {count}", "exec"), names)
            lines = printed.getvalue().splitlines(keepends=True)
            stream = {"name": "stdout", "output_type": "stream", "text": lines}
            cell["execution_count"], cell["outputs"] = count, [stream] if lines else []
    finally:
        os.chdir(before)
        sys.path.remove("")
    return notebook


def page(notebook: dict[str, Any]) -> str:
    """The notebook as Markdown: its text, its code, and what it printed."""
    parts = ["<!-- Written by scripts/notebook.py from examples/first_comparison.ipynb -->\n"]
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(f"{source}\n")
            continue
        parts.append(f"```python\n{source}\n```\n")
        for output in cell["outputs"]:
            parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Run it, or write its page alone."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    if "--page" not in sys.argv:
        with TemporaryDirectory() as place:
            notebook = run(notebook, Path(place))
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(notebook), encoding="utf-8")


if __name__ == "__main__":
    main()
