"""How large the house is and how long its ways are: modules, lines, imports, ways, vague names.

    python scripts/measure_house.py            # a table in Markdown
    python scripts/measure_house.py --json

Imports under ``TYPE_CHECKING`` are left out. The longest chain is the number of modules on the
longest way down the graph of imports, once of those that run when a module is imported, and once
with those inside functions too, which is the graph of the import linter. Modules that import each
other in a circle are one knot of that graph, which counts with all of its modules. Code is every
line that is not blank, a comment or in a docstring. A way crosses a module if a function of it
runs; it is walked once before it is followed, so that what runs at imports is not counted.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
VAGUE = ("found", "each", "own", "place", "kept")
Graph = Mapping[str, frozenset[str]]


def module_files() -> dict[str, Path]:
    """Every module of the package, by name."""
    files = {}
    for file in sorted((SOURCE / "ancl").rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


# -- lines -----------------------------------------------------------------------------------


def docstring_lines(tree: ast.AST) -> set[int]:
    """The lines that docstrings fill."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            text = first.value if isinstance(first, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                lines |= set(range(text.lineno, (text.end_lineno or 0) + 1))
    return lines


def code_lines(text: str) -> set[int]:
    """The lines with any token besides comments and line ends."""
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = ((t.start[0], t.end[0]) for t in tokens if t.type not in empty and t.string)
    return {line for first, last in spans for line in range(first, last + 1)}


# -- imports ---------------------------------------------------------------------------------


def imports_that_run(tree: ast.AST, in_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a file, without those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports_that_run(ast.Module(node.orelse, []), in_functions)
        elif in_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports_that_run(node, in_functions)


def imported(node: ast.Import | ast.ImportFrom, modules: Mapping[str, Path]) -> set[str]:
    """The modules of the package that an import names: the submodule where a name is one."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules}
    if node.level or node.module not in modules:
        return set()
    submodules = {f"{node.module}.{alias.name}" for alias in node.names}
    named = {name for name in submodules if name in modules}
    return named | ({node.module} if len(named) < len(submodules) else set())


def import_graph(
    trees: Mapping[str, ast.Module], modules: Mapping[str, Path], *, in_functions: bool
) -> Graph:
    """Which modules each module imports."""
    graph = {}
    for name, tree in trees.items():
        nodes = imports_that_run(tree, in_functions)
        graph[name] = frozenset({m for n in nodes for m in imported(n, modules)} - {name})
    return graph


def knots(graph: Graph) -> list[frozenset[str]]:
    """The modules in groups of those that reach each other; a module alone is its own group."""

    @cache
    def reached(name: str) -> frozenset[str]:
        seen, waiting = set[str](), [name]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return frozenset(seen)

    groups = {
        frozenset({name} | {o for o in reached(name) if name in reached(o)}) for name in graph
    }
    return sorted(groups, key=sorted)


def longest_chain(graph: Graph) -> list[str]:
    """The modules on the longest way of imports."""
    groups = knots(graph)
    of = {name: group for group in groups for name in group}

    @cache
    def below(group: frozenset[str]) -> tuple[str, ...]:
        following = {of[other] for name in group for other in graph[name]} - {group}
        rest = max((below(each) for each in following), key=len, default=())
        return (*sorted(group), *rest)

    return list(max(map(below, groups), key=len))


def package_of(module: str) -> str:
    """The part of the package that a module belongs to: ``ancl.data.samples`` to ``data``."""
    return module.split(".")[1] if "." in module else module


def mutual_packages(graph: Graph) -> list[str]:
    """Pairs of packages that import each other; the package itself, as a front, is left out."""
    pairs = {
        (package_of(name), package_of(other))
        for name, others in graph.items()
        for other in others
        if "ancl" not in (name, other)
    }
    return sorted(f"{a} - {b}" for a, b in pairs if a < b and (b, a) in pairs)


# -- vague names -----------------------------------------------------------------------------


def assigned_names(tree: ast.AST) -> Iterator[str]:
    """Every name that is assigned, as a loop variable and with ``with`` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


# -- ways: modules in which a function runs --------------------------------------------------


def modules_crossed(work: Callable[[], object]) -> set[str]:
    """The modules of which a function runs; the body of a module that is imported is none."""
    ours = {str(file): name for name, file in module_files().items()}
    crossed: set[str] = set()

    def follow(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        # Bodies of modules and classes run at imports; they are no functions.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename in ours:
            crossed.add(ours[code.co_filename])

    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return crossed


def command(*words: str) -> Callable[[], object]:
    """A call of the command, with nothing printed."""

    def call() -> None:
        import ancl.cli

        sys.argv = ["ancl", *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                ancl.cli.start()
            except SystemExit as end:
                if end.code:
                    raise RuntimeError(f"ancl {' '.join(words)} ended with {end.code}") from end

    return call


def learn_twice() -> None:
    """A learner of two tasks."""
    import torch

    import ancl

    training = ancl.Training(epochs=1)
    learner = ancl.Learner("a-lwf", "mlp", scenario="til", training=training, verbose=False)
    for task in range(2):
        x = torch.randint(256, (20, 8, 8), dtype=torch.uint8)
        learner.learn(x, [2 * task, 2 * task + 1] * 10)


def write_arrays() -> None:
    """Images for a learner on disk."""
    import numpy as np

    x = np.random.default_rng(0).integers(256, size=(20, 8, 8), dtype=np.uint8)
    np.savez("small.npz", x=x, y=np.arange(20) % 2)


def ways() -> dict[str, int]:
    """The number of modules that each of three ways crosses, each in a tiny job of its own."""
    tiny = ("--network", "mlp", "--epochs", "1", "--quiet")
    run = ("run", "a-lwf", "digits/5", "--set", "data.per_class=4", *tiny)
    learn = ("learn", "learner", "--method", "a-lwf", "--data", "arrays:small.npz", *tiny)
    works = {"ancl run": command(*run), "Learner.learn": learn_twice, "ancl learn": command(*learn)}
    counts = {}
    for _ in range(2):
        with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
            write_arrays()
            counts = {way: len(modules_crossed(work)) for way, work in works.items()}
    return counts


# -- all of it -------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Every number, by what it is of."""
    files = module_files()
    texts = {name: file.read_text() for name, file in files.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    documented = {name: docstring_lines(tree) for name, tree in trees.items()}
    graph = import_graph(trees, files, in_functions=True)
    at_imports = import_graph(trees, files, in_functions=False)
    names = [name for tree in trees.values() for name in assigned_names(tree)]
    vague: defaultdict[str, int] = defaultdict(int)
    for name in names:
        vague[name] += name in VAGUE
    circles = [group for group in knots(graph) if len(group) > 1]
    return {
        "modules": len(files),
        "lines": sum(text.count("\n") for text in texts.values()),
        "lines of code": sum(len(code_lines(t) - documented[n]) for n, t in texts.items()),
        "lines of docstrings": sum(map(len, documented.values())),
        "longest chain of imports": len(longest_chain(at_imports)),
        "the same with imports inside functions": len(longest_chain(graph)),
        "circles of modules, through imports inside functions": len(circles),
        "modules in circles": sum(map(len, circles)),
        "packages that import each other": len(mutual_packages(graph)),
        "which": "; ".join(mutual_packages(graph)) or "none",
        **{f"modules crossed by `{way}`": count for way, count in ways().items()},
        "assignments": len(names),
        **{f"assignments to `{name}`": vague[name] for name in VAGUE},
    }


def commit() -> str:
    """The commit that is measured."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "unknown"


def main() -> None:
    """Print all numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    as_json = parser.parse_args().json
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(SOURCE))
    numbers = measure()
    if as_json:
        print(json.dumps({"commit": commit(), **numbers}))
        return
    print(f"| | {commit()} |\n|---|---:|")
    for name, value in numbers.items():
        print(f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |")


if __name__ == "__main__":
    main()
