"""One HTML file that needs nothing else: style, script and data inside, no request at view time."""

import json
from importlib.resources import files
from typing import Any

from ancl.report.content import Report, content

_SCRIPTS = ("base.js", "chart.js", "tables.js", "curves.js", "landscape.js", "sections.js")
_ESCAPED = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def page(report: Report) -> str:
    """The whole page; the same results give the same bytes."""
    parts = {
        "STYLE": _text("style.css"),
        "DATA": embedded(content(report)),
        "SCRIPT": "\n".join(_text(name) for name in _SCRIPTS),
    }
    html = _text("page.html")
    for name, text in parts.items():
        html = html.replace(f"<!--{name}-->", text)
    return html


def embedded(found: dict[str, Any]) -> str:
    r"""JSON that no browser takes for markup, whatever a name contains.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _ESCAPED.items():
        text = text.replace(letter, code)
    return text


def _text(name: str) -> str:
    return (files("ancl.report") / "page" / name).read_text(encoding="utf-8")
