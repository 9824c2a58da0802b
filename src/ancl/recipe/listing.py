"""What can be set: every setting of a run, and the options of networks."""

import inspect
from typing import Any, TypedDict

from pydantic import TypeAdapter

from ancl.checks import type_text
from ancl.methods.registry import MethodRef, method_defaults
from ancl.networks import NETWORKS
from ancl.recipe.recipe import Field, default_network, fields_for


class SettingInfo(TypedDict):
    """One setting of a run: its key, type, default and one line about it."""

    key: str
    type: str
    required: bool
    default: Any
    explanation: str


def list_options(method: str) -> list[SettingInfo]:
    """Every setting that a run of a method accepts, the method's own first.

    Examples:
        >>> [(each["key"], each["default"]) for each in list_options("a-lwf")][:2]
        [('lamb', 10.0), ('temperature', 2.0)]
    """
    ref = MethodRef(method)
    fields = fields_for(ref, default_network(ref))
    if all(parameter.default is not parameter.empty for parameter in ref.settings.values()):
        for key, value in method_defaults(ref.make({})).items():
            fields[key] = fields[key]._replace(default=value)
    settings = {key: field for key, field in fields.items() if key in ref.settings}
    return [_setting(key, field) for key, field in (settings | fields).items()]


def _setting(key: str, field: Field) -> SettingInfo:
    required = field.default is inspect.Parameter.empty
    return {
        "key": key,
        "type": type_text(field.type),
        "required": required,
        "default": None if required else _plain(field.default),
        "explanation": field.explanation.replace("``", ""),
    }


def list_networks() -> dict[str, dict[str, Any]]:
    """Every network's options with their defaults, by the name of the network."""
    networks: dict[str, dict[str, Any]] = {name: {} for name in NETWORKS}
    for name, options in networks.items():
        for key, field in fields_for(MethodRef("finetune"), name).items():
            section, _, option = key.partition(".")
            if section == "network" and option != "name":
                options[option] = _plain(field.default)
    return networks


def _plain(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json")
