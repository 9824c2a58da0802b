"""The methods, their variants and their settings, described from their own code."""

import inspect
import types
from collections.abc import Mapping, Sequence
from collections.abc import Sequence as SequenceType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import TypeAdapter

from ancl.cli.preview import setting_name, shown_value
from ancl.cli.text import table
from ancl.errors import MethodError
from ancl.experiments.spec import DEFAULT_NETWORK, Field, fields_for, method_defaults
from ancl.methods.registry import MethodRef, summary
from ancl.methods.regularization import METHODS, PUBLISHED_WITH_ANCL, VARIANTS
from ancl.networks import NETWORKS

_PLAIN = {int: "integer", float: "number", str: "text", bool: "true | false", type(None): "null"}
_BOUNDS: Mapping[type, tuple[str, str]] = {
    Ge: ("≥", "ge"),
    Gt: (">", "gt"),
    Le: ("≤", "le"),
    Lt: ("<", "lt"),
}


def list_methods() -> list[dict[str, Any]]:
    """Every method, and for each variant its name or why there is none."""
    return [
        {
            "name": name,
            "explanation": summary(maker),
            "variants": {variant: _variant(variant, name) for variant in VARIANTS},
        }
        for name, maker in METHODS.items()
    ]


def _variant(variant: str, base: str) -> dict[str, str]:
    try:
        MethodRef(f"{variant}-{base}").make({})
    except MethodError as error:
        return {"refused": str(error)}
    return {"name": f"{variant}-{base}"}


def methods_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Methods as a table, with the reasons of what is refused below it."""
    rows = [
        [
            method["name"],
            *(method["variants"][variant].get("name", "–") for variant in VARIANTS),
            method["explanation"],
        ]
        for method in found
    ]
    refused = [
        f"{variant}-{method['name']}: {method['variants'][variant]['refused']}"
        for method in found
        for variant in VARIANTS
        if "refused" in method["variants"][variant]
    ]
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


def list_networks() -> dict[str, dict[str, Any]]:
    """Every network's options with their defaults."""
    found: dict[str, dict[str, Any]] = {name: {} for name in NETWORKS}
    for name, given in found.items():
        for key, field in fields_for(MethodRef("finetune"), name).items():
            section, _, option = key.partition(".")
            if section == "network" and option != "name":
                given[option] = _plain(field.default)
    return found


def _plain(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json")


def list_options(name: str) -> dict[str, Any]:
    """Every setting a run of a method accepts, its own first."""
    method = MethodRef(name)
    fields = fields_for(method, DEFAULT_NETWORK)
    if all(parameter.default is not parameter.empty for parameter in method.settings.values()):
        for key, value in method_defaults(method.make({})).items():
            fields[key] = fields[key]._replace(default=value)
    own = {key: field for key, field in fields.items() if key in method.settings}
    makers = [method.maker, *([VARIANTS[method.variant]] if method.variant else [])]
    return {
        "method": method.name,
        "explanation": " ".join(map(summary, makers)),
        "settings": [_setting(key, field) for key, field in (own | fields).items()],
    }


def _setting(key: str, field: Field) -> dict[str, Any]:
    required = field.default is inspect.Parameter.empty
    return {
        "key": key,
        "type": type_text(field.type),
        "required": required,
        "default": None if required else _plain(field.default),
        "explanation": field.explanation.replace("``", ""),
    }


def options_text(found: Mapping[str, Any]) -> str:
    """Settings as a table; the auxiliary network's, which follow training's, in a sentence."""
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
    notes = (
        f"{found['method']}: {found['explanation']}\n\n"
        f"{table(['setting', 'type', 'default', ''], rows, 'lllw')}\n\n"
        f"Each training.NAME has an auxiliary.NAME for the auxiliary network, which is trained "
        f"alike unless told otherwise.\nBenchmarks set some of these: ancl run METHOD BENCHMARK "
        f"--dry-run shows every value and where it comes from."
    )
    return notes


def type_text(kind: Any) -> str:
    """A type as a user writes values of it.

    >>> type_text(Annotated[int, Ge(1)] | None), type_text(Literal["til", "cil"])
    ('integer ≥ 1 or null', 'til | cil')
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is Annotated:
        return f"{type_text(arguments[0])} {' and '.join(map(_bound, arguments[1:]))}"
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_text, arguments))
    if origin in (tuple, list, SequenceType):
        return f"list of {type_text(arguments[0])}s"
    return "value"


def _bound(bound: Any) -> str:
    sign, name = _BOUNDS[type(bound)]
    return f"{sign} {getattr(bound, name):g}"
