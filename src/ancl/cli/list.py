"""``ancl list``: methods, benchmarks, data and networks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flags import with_flags
from ancl.wording import table

if TYPE_CHECKING:
    from ancl.methods.registry import MethodInfo
    from ancl.recipe.benchmarks import BenchmarkInfo

_NOTE = (
    "Numbers: mean ± standard error in percent, over 3 seeds in the ANCL paper; those of "
    "cifar100-small were measured with ancl. Every value of a benchmark, with its source: ancl run "
    "METHOD BENCHMARK --dry-run."
)

app = typer.Typer(no_args_is_help=True, help="List methods, benchmarks, data and networks.")


@app.command("methods")
@with_flags
def methods(*, of: str | None = None, as_json: bool = False) -> None:
    """Methods and their variants, or every setting of one."""
    from ancl.methods.differences import list_differences
    from ancl.methods.registry import MethodRef, list_methods
    from ancl.recipe.listing import list_options

    if of is None:
        listed = list_methods()
        _show({"methods": listed}, methods_text(listed), as_json)
    else:
        method = MethodRef(of)
        about = {"method": method.name, "explanation": method.explanation}
        differing = [difference._asdict() for difference in list_differences(of)]
        options = {**about, "settings": list_options(of), "differences": differing}
        _show(options, options_text(options), as_json)


@app.command("benchmarks")
@with_flags
def benchmarks(*, as_json: bool = False) -> None:
    """Streams of tasks with the training that goes with them."""
    from ancl.recipe.benchmarks import list_benchmarks

    listed = list_benchmarks()
    _show({"benchmarks": listed}, benchmarks_text(listed), as_json)


@app.command("data")
@with_flags
def data(*, as_json: bool = False) -> None:
    """Sources of images for --data."""
    from ancl.data.registry import FORMS, SOURCES

    listed = [
        {"name": name, "classes": source.classes, "explanation": source.explanation}
        for name, source in SOURCES.items()
    ]
    rows = [[name, str(source.classes), source.explanation] for name, source in SOURCES.items()]
    text = f"{table(['data', 'classes', ''], rows, 'lrw')}\n\nYour own: {', '.join(FORMS)}"
    _show({"data": listed, "forms": list(FORMS)}, text, as_json)


@app.command("networks")
@with_flags
def networks(*, as_json: bool = False) -> None:
    """Networks for --network NAME, with their options."""
    from ancl.cli.text import shown_value
    from ancl.networks import NAMES
    from ancl.recipe.listing import list_networks

    listed = list_networks()
    rows = [
        [
            name,
            ", ".join(f"network.{key}={shown_value(value)}" for key, value in given.items())
            or "none",
        ]
        for name, given in listed.items()
    ]
    named = [{"name": name, "options": given} for name, given in listed.items()]
    forms = [name for name in NAMES if name not in listed]
    text = f"{table(['network', 'options'], rows, 'lw')}\n\nOthers and your own: {', '.join(forms)}"
    _show({"networks": named, "forms": forms}, text, as_json)


def _show(found: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(found) if as_json else text)


_FEW = 4
"""So many refusals are written out, although their reason is the same."""


# -- text ------------------------------------------------------------------------------------


def methods_text(found: Sequence[MethodInfo]) -> str:
    """Methods as a table, with the reasons for refused variants below it."""
    from ancl.methods.registry import summary
    from ancl.methods.regularization import PUBLISHED_WITH_ANCL, VARIANTS

    rows = [
        [
            method["name"],
            *(method["variants"][variant].get("name", "–") for variant in VARIANTS),
            method["explanation"],
        ]
        for method in found
    ]
    reasons: dict[str, list[str]] = {}
    for method in found:
        for variant in VARIANTS:
            full, variant_of_it = f"{variant}-{method['name']}", method["variants"][variant]
            if "refused" in variant_of_it:
                # One reason for many is said once, below.
                plain = variant_of_it["refused"].replace(full, "it").replace(method["name"], "NAME")
                reasons.setdefault(plain, []).append(f"{full}: {variant_of_it['refused']}")
    refused = list[str]()
    for reason, lines in reasons.items():
        without = ", ".join(line.partition(":")[0] for line in lines)
        refused += lines if len(lines) <= _FEW else [f"{without}: {reason}"]
    extensions = [
        name
        for method in found
        if (name := method["variants"]["a"].get("name"))
        and method["name"] not in PUBLISHED_WITH_ANCL
    ]
    notes = [
        *(f"{variant}-NAME: {summary(make)}" for variant, make in VARIANTS.items()),
        f"{', '.join(extensions)}: extensions, which the ANCL paper does not have.",
        *refused,
        "Your own: path/file.py:NAME or package.module:NAME. Settings: ancl list methods --options "
        "NAME.",
    ]
    head = ["method", "with ANCL", "with AFEC", ""]
    return table(head, rows, "lllw") + "\n\n" + "\n".join(notes)


def options_text(found: Mapping[str, Any]) -> str:
    """Settings as a table; the auxiliary network's, which follow training's, in a sentence."""
    from ancl.cli.text import setting_name, shown_value

    defaults = {each["key"]: each["default"] for each in found["settings"]}
    rows = [
        [
            setting_name(each["key"]),
            each["type"],
            "(needed)" if each["required"] else shown_value(each["default"]),
            each["explanation"],
        ]
        for each in found["settings"]
        if not each["key"].startswith("auxiliary.")
    ]
    other = [
        f"auxiliary.{name}={shown_value(default)}"
        for key, default in defaults.items()
        for section, _, name in [key.partition(".")]
        if section == "auxiliary" and default not in (None, defaults[f"training.{name}"])
    ]
    return "\n\n".join(
        [
            f"{found['method']}: {found['explanation']}",
            table(["setting", "type", "default", ""], rows, "lllw"),
            f"Each training.NAME has an auxiliary.NAME for the auxiliary network, which is trained "
            f"in the same way by default{''.join(f', but for {each}' for each in other)}.\n"
            f"Benchmarks set some of these: ancl run METHOD BENCHMARK --dry-run shows every value "
            f"and where it comes from.",
            differences_text(found["differences"]),
        ]
    )


def differences_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Where defaults differ from other implementations, and the settings that give theirs."""
    from ancl.cli.text import shown_value

    rows = [
        [
            ", ".join(difference["whose"]),
            f"{difference['about']}: {difference['theirs']}; here: {difference['ours']} "
            f"({difference['why']}). "
            + (
                " ".join(
                    f"--set {key}={shown_value(v)}" for key, v in difference["settings"].items()
                )
                or "No setting gives theirs."
            ),
        ]
        for difference in found
    ]
    return table(["differs from", "in what, and the setting that gives theirs"], rows, "lw")


def benchmarks_text(found: Sequence[BenchmarkInfo]) -> str:
    """The streams as a table, and a table of numbers for each metric of the paper."""
    rows = [[benchmark["name"], benchmark["explanation"]] for benchmark in found]
    numbers = [number for benchmark in found for number in benchmark["paper"]]
    metrics = dict.fromkeys(number["metric"] for number in numbers)
    parts = [table(["benchmark", ""], rows, "lw")]
    return "\n\n".join([*parts, *(_numbers(found, metric) for metric in metrics), _NOTE])


def _numbers(found: Sequence[BenchmarkInfo], metric: str) -> str:
    from ancl.metrics import METRICS

    cells = {
        (number["method"], each["name"]): f"{100 * number['mean']:.2f} ± "
        f"{100 * number['standard_error']:.2f}"
        for each in found
        for number in each["paper"]
        if number["metric"] == metric
    }
    streams = list(dict.fromkeys(stream for _, stream in cells))
    rows = [
        [method, *(cells.get((method, stream), "") for stream in streams)]
        for method in dict.fromkeys(method for method, _ in cells)
    ]
    return table([METRICS[metric].label, *streams], rows, "l" + "r" * len(streams))
