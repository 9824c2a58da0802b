"""The script that measures the house counts what it says."""

import ast
import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "measure_house.py"))


def test_chains_leave_out_type_checking_and_count_circles_whole() -> None:
    texts = {
        "ancl": "",
        "ancl.a": "from ancl.b import x\nif TYPE_CHECKING:\n    from ancl.c import C",
        "ancl.b": "def late():\n    from ancl import c",
        "ancl.c": "import ancl.d",
        "ancl.d": "from ancl.c import y",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    files = dict.fromkeys(texts, Path())
    at_imports = SCRIPT["import_graph"](trees, files, in_functions=False)
    whole = SCRIPT["import_graph"](trees, files, in_functions=True)

    assert SCRIPT["longest_chain"](at_imports) in (["ancl.a", "ancl.b"], ["ancl.c", "ancl.d"])
    assert SCRIPT["longest_chain"](whole) == ["ancl.a", "ancl.b", "ancl.c", "ancl.d"]
    assert SCRIPT["mutual_packages"](whole) == ["c - d"]


def test_lines_are_code_docstring_or_neither() -> None:
    text = '"""Doc\n\nmore."""\n\nx = 1  # why\n# alone\nfound = [\n    x,\n]\n'

    assert SCRIPT["docstring_lines"](ast.parse(text)) == {1, 2, 3}
    assert SCRIPT["code_lines"](text) - {1, 2, 3} == {5, 7, 8, 9}
    assert list(SCRIPT["assigned_names"](ast.parse(text))) == ["x", "found"]


def test_a_way_crosses_the_modules_whose_functions_run() -> None:
    from ancl.hashing import digest

    assert SCRIPT["modules_crossed"](lambda: digest([1])) == {"ancl.hashing"}
