"""What the text of a Python file depends on: its imports, and what no import names.

Code that reads files or environment variables, or runs text as code, can give other results
although no source has changed. It is found by names, which the imports of the file resolve. What
stands below ``if __name__ == "__main__"`` never runs where code is loaded, and is left out.
"""

import ast
import symtable
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_BUILTINS = {
    *("eval", "exec", "compile", "__import__", "open", "input"),
    *("__builtins__", "__loader__", "__spec__"),
}
"""Of what every file can name without an import."""

_HARMLESS = {
    *("__future__", "abc", "argparse", "array", "ast", "base64", "binascii", "bisect", "calendar"),
    *("cmath", "collections", "colorsys", "concurrent", "contextlib", "contextvars", "copy"),
    *("copyreg", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "errno"),
    *("fractions", "functools", "gc", "graphlib", "hashlib", "heapq", "hmac", "html", "inspect"),
    *("itertools", "json", "keyword", "logging", "math", "multiprocessing", "numbers", "operator"),
    *(
        "pathlib",
        "pprint",
        "queue",
        "random",
        "re",
        "reprlib",
        "signal",
        "statistics",
        "string",
        "struct",
    ),
    *("tempfile", "textwrap", "threading", "time", "timeit", "traceback", "types", "typing"),
    *("unicodedata", "unittest", "uuid", "warnings", "weakref", "zlib"),
}
"""Modules of Python that read nothing by themselves; every other one is taken to."""

_PARTLY = {
    "io": {"BytesIO", "StringIO"},
    "os": {"PathLike", "fspath", "linesep", "makedirs", "mkdir", "path", "sep"},
    "os.path": {
        *("basename", "commonpath", "commonprefix", "dirname", "isabs", "join", "normpath"),
        *("sep", "split", "splitext"),
    },
    "pickle": {"HIGHEST_PROTOCOL", "PickleError", "dump", "dumps"},
    "sys": {
        *("byteorder", "exc_info", "exit", "float_info", "getsizeof", "hexversion"),
        *("implementation", "maxsize", "platform", "setrecursionlimit", "stderr", "stdout"),
        *("version", "version_info"),
    },
}
"""Modules of which these names alone read nothing."""

_READERS = {
    *("ancl.Learner.load", "ancl.files", "ancl.load_run", "ancl.networks.identity", "ancl.outside"),
    *("aiohttp", "cffi", "cloudpickle", "dill", "dotenv", "h5py", "httpx", "huggingface_hub"),
    *("joblib.load", "requests", "safetensors"),
    *(f"numpy.{name}" for name in ("load", "fromregex", "lib.format", "lib.npyio")),
    *(f"torch.{name}" for name in ("export.load", "hub", "jit.load", "load", "package")),
    *("torch.utils.cpp_extension", "torch.utils.model_zoo"),
    *("torchvision.datasets", "torchvision.io", "yaml.load", "yaml.safe_load"),
}
"""What reads files, the network or code in other packages."""

_WORDS = {
    *("CDLL", "cpp_extension", "environ", "environb", "exec_module", "exists", "from_file"),
    *("from_pretrained", "fromfile", "genfromtxt", "getenv", "glob", "import_module", "imread"),
    *("is_dir", "is_file", "iterdir", "listdir", "load_library", "load_state_dict_from_url"),
    *("loadmat", "loadtxt", "memmap", "open", "parse_args", "parse_known_args", "read_bytes"),
    *("read_csv", "read_image", "read_text", "rglob", "run_module", "run_path", "scandir"),
    *("spec_from_file_location", "urlopen", "urlretrieve"),
}
"""Attributes that read something, whatever they are of."""


class Import(NamedTuple):
    """An import statement: dots before the module, the module, and names taken from it."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What a file depends on.

    Args:
        imports: Every import statement, inside functions too.
        gaps: What it may depend on besides, and the line of each.
    """

    imports: tuple[Import, ...]
    gaps: tuple[tuple[int, str], ...]


@lru_cache(maxsize=1024)
def scan(data: bytes) -> Seen:
    """What the text of a file depends on."""
    try:
        loaded = _without_main(data)
        nodes = [*ast.walk(ast.parse(loaded))]
        table = symtable.symtable(loaded.decode("utf-8", "replace"), "file", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Seen((), ((1, "is not Python that can be read"),))
    imports: list[Import] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [Import(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            imports.append(Import(node.level, module, tuple(alias.name for alias in node.names)))
    names = _bound(nodes)
    uses = [*_builtins(table, nodes), *_imported(nodes), *_named(nodes, names)]
    first: dict[str, int] = {}
    for line, use in sorted(uses):
        first.setdefault(use, line)
    gaps = ((line, f"uses {use}") for use, line in first.items())
    return Seen(tuple(dict.fromkeys(imports)), tuple(gaps))


def _without_main(data: bytes) -> bytes:
    """The same lines, with those emptied that run only where the file is the program."""
    lines = data.split(b"\n")
    for node in ast.parse(data).body:
        first = node.body[0] if isinstance(node, ast.If) and _is_main(node.test) else None
        if first is None or first.lineno == node.lineno:
            continue
        assert isinstance(node, ast.If)
        last = node.body[-1].end_lineno or first.lineno
        indent = lines[first.lineno - 1][: first.col_offset]
        lines[first.lineno - 1 : last] = [indent + b"pass", *[b""] * (last - first.lineno)]
    return b"\n".join(lines)


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _bound(nodes: list[ast.AST]) -> dict[str, str]:
    """What each imported name stands for, in full: ``np`` for ``numpy``."""
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            bound |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return bound


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """What an import statement takes in that reads something."""
    for node in nodes:
        wholes: list[str] = []
        if isinstance(node, ast.Import):
            wholes = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
        for whole in wholes:
            star = whole.removesuffix(".*")
            use = (whole if _watched(star) else "") if star != whole else _reads(whole)
            if use := use or (whole if whole.rpartition(".")[2] in _WORDS else ""):
                yield node.lineno, use  # type: ignore[attr-defined]


def _named(nodes: list[ast.AST], names: dict[str, str]) -> Iterator[tuple[int, str]]:
    """What expressions name: attributes, modules that are passed on, and names as text."""
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            whole = _whole(node, names)
            word = node.attr in _WORDS and isinstance(node.ctx, ast.Load)
            if use := _reads(whole) or (f".{node.attr}" if word else ""):
                yield node.lineno, use
        elif isinstance(node, ast.Call) and (use := _fetched(node, names, owners)):
            yield node.lineno, use
        elif isinstance(node, ast.Name) and id(node) not in owners:
            if isinstance(node.ctx, ast.Load) and names.get(node.id) in _PARTLY:
                yield node.lineno, f"{node.id} as a value"
        elif isinstance(node, ast.Constant) and node.value in ("__builtins__", "__import__"):
            yield node.lineno, f"{node.value}"


def _fetched(node: ast.Call, names: dict[str, str], owners: set[int]) -> str:
    """What ``getattr(module, "name")`` reads; such a module is then not passed on."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
        return ""
    owner, attribute = node.args[:2]
    if not (isinstance(attribute, ast.Constant) and isinstance(attribute.value, str)):
        return f"getattr({ast.unparse(owner)}, …)" if _watched(_whole(owner, names)) else ""
    if isinstance(owner, ast.Name):
        owners.add(id(owner))
    whole = f"{_whole(owner, names)}.{attribute.value}"
    return _reads(whole) or (f".{attribute.value}" if attribute.value in _WORDS else "")


def _whole(node: ast.expr, names: dict[str, str]) -> str:
    """The full name of an expression whose first name is imported; else nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _whole(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""


def _reads(whole: str) -> str:
    """The part of a full name that stands for something that is read; else nothing."""
    parts = whole.split(".")
    starts = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    for start, then in zip(starts, parts[1:], strict=False):
        if start in _PARTLY and then not in _PARTLY[start] and then not in ("*", ""):
            return f"{start}.{then}"
    top = parts[0]
    if top in sys.stdlib_module_names and top not in _HARMLESS and top not in _PARTLY:
        return top
    return next((start for start in starts if start in _READERS), "")


def _watched(module: str) -> bool:
    """Whether a module has names that read something."""
    return bool(module) and (
        module in _PARTLY or any(reader.startswith(f"{module}.") for reader in _READERS)
    )


def _builtins(table: symtable.SymbolTable, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Names of Python itself where nothing of the file has that name: ``input`` may be a tensor."""
    module = {entry.get_name() for entry in table.get_symbols() if not entry.is_global()}
    module |= {entry.get_name() for entry in table.get_symbols() if entry.is_assigned()}
    waiting = [table]
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if name not in _BUILTINS or name in module or not symbol.is_global():
                continue
            lines = [
                node.lineno
                for node in nodes
                if isinstance(node, ast.Name) and node.id == name
                if node.lineno >= scope.get_lineno()
            ]
            if lines:
                yield min(lines), name
