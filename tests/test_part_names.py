"""Keys hold the names of our parts without their modules, so no two parts may share one."""

import dataclasses
import importlib
import pkgutil

import ancl


def test_no_two_parts_of_the_package_have_one_name() -> None:
    places: dict[str, set[str]] = {}
    for found in pkgutil.walk_packages(ancl.__path__, "ancl."):
        module = importlib.import_module(found.name)
        for part in vars(module).values():
            own = getattr(part, "__module__", None) == found.name
            if own and dataclasses.is_dataclass(part) and isinstance(part, type):
                places.setdefault(part.__qualname__, set()).add(found.name)

    assert len(places) > 50
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}
