"""``ancl list``: what there is to choose from."""

import json
from typing import Annotated, Any

import typer

from ancl.cli import options
from ancl.cli.text import table

app = typer.Typer(no_args_is_help=True, help="What there is: methods, benchmarks, data, networks.")

Options = Annotated[
    str | None, typer.Option("--options", metavar="METHOD", help="Every setting of a method.")
]


@app.command("methods")
def methods(*, of: Options = None, as_json: options.Json = False) -> None:
    """Methods and their variants, or every setting of one."""
    from ancl.cli.catalogue import list_methods, list_options, methods_text, options_text

    if of is None:
        found: Any = list_methods()
        _show({"methods": found}, methods_text(found), as_json)
    else:
        found = list_options(of)
        _show(found, options_text(found), as_json)


@app.command("benchmarks")
def benchmarks(*, as_json: options.Json = False) -> None:
    """Streams of tasks with the training that goes with them."""
    from ancl.cli.numbers import benchmarks_text, list_benchmarks

    found = list_benchmarks()
    _show({"benchmarks": found}, benchmarks_text(found), as_json)


@app.command("data")
def data(*, as_json: options.Json = False) -> None:
    """Sources of images for --data."""
    from ancl.data.registry import FORMS, SOURCES

    found = [
        {"name": name, "classes": each.classes, "explanation": each.explanation}
        for name, each in SOURCES.items()
    ]
    rows = [[name, str(each.classes), each.explanation] for name, each in SOURCES.items()]
    text = f"{table(['data', 'classes', ''], rows, 'lrw')}\n\nYour own: {', '.join(FORMS)}"
    _show({"data": found, "forms": list(FORMS)}, text, as_json)


@app.command("networks")
def networks(*, as_json: options.Json = False) -> None:
    """Networks for --set network.name=NAME."""
    from ancl.cli.catalogue import list_networks
    from ancl.cli.preview import shown_value

    found = list_networks()
    rows = [
        [name, ", ".join(f"network.{key}={shown_value(value)}" for key, value in given.items())]
        for name, given in found.items()
    ]
    named = [{"name": name, "options": given} for name, given in found.items()]
    _show({"networks": named}, table(["network", "options"], rows, "lw"), as_json)


def _show(found: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(found) if as_json else text)
