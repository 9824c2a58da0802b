"""Specs as they are written."""

from collections.abc import Iterator

from pydantic import BaseModel

import ancl
from ancl import RunSpec


def models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from models(each)


def test_no_model_is_written_by_code_that_ctrl_c_could_end() -> None:
    # pydantic turns a KeyboardInterrupt in a serializer into an error of its own.
    own = [each for each in models(BaseModel) if each.__module__.startswith("ancl.")]
    found = [
        each
        for each in own
        if each.__pydantic_decorators__.model_serializers
        or each.__pydantic_decorators__.field_serializers
    ]

    assert RunSpec in own
    assert found == []


def test_later_settings_at_their_defaults_are_left_out_and_others_are_not() -> None:
    given = {"data.scenario": "cil"}
    plain = ancl.spec("icarl", "digits/5", settings=given).plain()
    fair = ancl.spec("icarl", "digits/5", settings={**given, "memory.fair": True}).plain()

    assert "fair" not in plain["memory"]
    assert "returning" not in plain["data"]
    assert fair["memory"]["fair"] is True
    assert RunSpec.model_validate(plain).plain() == plain
