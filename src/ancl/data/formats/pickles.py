"""Pickles of arrays, read without Python's unpickler: no name in them is ever looked up.

A pickle is a program. The reader below knows only the instructions that make numbers, text,
containers and plain numeric arrays. A name in the file becomes a token that does nothing. An array
is made from bytes whose number fits its shape. Everything else is refused.
"""

import math
import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.errors import ScenarioError, printable

MOST_STEPS = 3_000_000
"""The published files need up to 400,000 instructions."""
_MOST_AXES = 8
_DTYPES = frozenset(f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)) - {"f1"} | {"b1"}
_KNOWN = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "array" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "buffer" for core in ("core", "_core")},
}


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """The file holds something else than plain arrays."""


@dataclass(frozen=True)
class _Name:
    """A name that the file asks for; it does nothing."""

    role: str


@dataclass(frozen=True)
class _Dtype:
    """A plain numeric type, such as ``<u1``."""

    code: str


class _Empty:
    """An array that has no content yet."""


_TOKENS = (_Name, _Dtype, _Empty)


def read_pickle(data: bytes, where: str) -> dict[str, Any]:
    """The mapping a pickle of arrays holds, with its keys as text.

    Args:
        data: The file.
        where: What messages call it.

    Raises:
        ScenarioError: It holds anything but arrays, numbers, text and containers, or is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes, which are refused or are text
            content = _Machine().run(data)
    # A damaged file fails in many ways: all of them in Python code, none of them in memory.
    except (_Refused, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise ScenarioError(
            f"{where} is not a pickle of arrays: {printable(str(error))}. It was not read any "
            "further. Get the file from its publisher again: ancl data fetch."
        ) from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{where} holds a {type(content).__name__}, not the mapping expected.")
    return {_text(key): value for key, value in content.items()}


class _Machine:
    """The stack and the memory of a pickle, for the instructions that are harmless."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """Carry out the instructions; the value they end with."""
        for step, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if step > MOST_STEPS:
                raise _Refused(f"it has more than {MOST_STEPS:,} instructions")
            name = opcode.name
            if name in _VALUES:
                self.stack.append(_VALUES[name](argument))
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name == "STOP":
                break
            elif name not in ("PROTO", "FRAME"):
                method = getattr(self, f"do_{name.lower()}", None)
                if method is None:
                    raise _Refused(f"it has the instruction {name}")
                method(argument)
        [result] = self.stack
        _check_whole(result)
        return result

    # -- memory and marks --

    def do_mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def marked(self) -> list[Any]:
        start = self.marks.pop()
        if start > len(self.stack):
            raise _Refused("a mark lies above the stack")
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def do_memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def do_put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def do_get(self, place: int) -> None:
        self.stack.append(self.memo[place])

    do_binput = do_long_binput = do_put
    do_binget = do_long_binget = do_get

    def do_pop(self, _: Any) -> None:
        self.stack.pop()

    # -- containers --

    def do_empty_list(self, _: Any) -> None:
        self.stack.append([])

    def do_empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def do_empty_tuple(self, _: Any) -> None:
        self.stack.append(())

    def do_list(self, _: Any) -> None:
        self.stack.append(self.marked())

    def do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.marked()))

    def do_dict(self, _: Any) -> None:
        items = self.marked()
        self.stack.append({})
        self.set_items(items)

    def do_tuple1(self, _: Any) -> None:
        self.tuple_of(1)

    def do_tuple2(self, _: Any) -> None:
        self.tuple_of(2)

    def do_tuple3(self, _: Any) -> None:
        self.tuple_of(3)

    def tuple_of(self, count: int) -> None:
        items = tuple(self.stack.pop() for _ in range(count))
        self.stack.append(items[::-1])

    def do_append(self, _: Any) -> None:
        self.extend([self.stack.pop()])

    def do_appends(self, _: Any) -> None:
        self.extend(self.marked())

    def extend(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _Refused("it appends to something that is not a list")
        self.stack[-1].extend(items)

    def do_setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def do_setitems(self, _: Any) -> None:
        self.set_items(self.marked())

    def set_items(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict:
            raise _Refused("it sets an item of something that is not a mapping")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Text alone: the hash of nested tuples may take any time.
            if type(key) not in (str, bytes):
                raise _Refused(f"a key is a {type(key).__name__}")
            self.stack[-1][key] = value

    # -- arrays --

    def do_global(self, argument: str) -> None:
        self.named(*argument.split(" ", 1))

    def do_stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.named(module, name)

    def named(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise _Refused("it asks for a name that is not text")
        if (module, name) not in _KNOWN:
            raise _Refused(f"it asks for {module}.{name}")
        self.stack.append(_Name(_KNOWN[module, name]))

    def do_reduce(self, _: Any) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        if type(name) is not _Name or type(arguments) is not tuple:
            raise _Refused("it calls something that is not a function")
        self.stack.append(_MAKERS[name.role](*arguments))

    def do_build(self, _: Any) -> None:
        state, target = self.stack.pop(), self.stack.pop()
        if type(state) is not tuple:
            raise _Refused("the content of an array is not a tuple")
        built: Any
        if type(target) is _Dtype:
            built = _with_order(target, *state)
        elif type(target) is _Empty:
            built = _filled(*state)
        else:
            raise _Refused(f"it changes a {type(target).__name__}")
        for slot, value in self.memo.items():
            if value is target:
                self.memo[slot] = built
        self.stack.append(built)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def _as_bytes(text: str | bytes) -> bytes:
    # Text of Python 2 arrives as bytes: image rows are such text.
    return text if isinstance(text, bytes) else text.encode("latin1")


def _same(value: Any) -> Any:
    return value


_VALUES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _as_bytes),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _same),
    "BYTEARRAY8": bytes,
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _same),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _same),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), _same),
}


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or _text(encoding) != "latin1":
        raise _Refused("it encodes something else than text")
    return text.encode("latin1")


def _dtype(code: Any, align: Any = 0, copy: Any = 0) -> _Dtype:
    text = _text(code)
    if text.lstrip("<>|=") not in _DTYPES:
        raise _Refused(f"an array is of the type {text}")
    return _Dtype(text)


def _with_order(dtype: _Dtype, version: Any = 3, order: Any = "|", *rest: Any) -> _Dtype:
    """The type with its byte order; the rest describes fields, which plain types lack."""
    if _text(order) not in ("<", ">", "|", "=") or any(
        field not in (None, -1, 0) for field in rest
    ):
        raise _Refused("an array is of a type with fields")
    return _Dtype(_text(order).replace("|", "=") + dtype.code.lstrip("<>|="))


def _empty(kind: Any, shape: Any, code: Any) -> _Empty:
    if kind != _Name("ndarray"):
        raise _Refused("it makes an array of another class")
    return _Empty()


def _filled(version: Any, shape: Any, dtype: Any, fortran: Any, data: Any) -> NDArray[Any]:
    return _from_bytes(data, dtype, shape, "F" if fortran is True else "C")


def _from_bytes(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if type(dtype) is not _Dtype or type(data) is not bytes or type(shape) is not tuple:
        raise _Refused("an array is not made of bytes, a type and a shape")
    if len(shape) > _MOST_AXES or not all(type(n) is int and 0 <= n <= len(data) for n in shape):
        raise _Refused("an array has no plain shape")
    kind = np.dtype(dtype.code)
    if math.prod(shape) * kind.itemsize != len(data) or _text(order) not in ("C", "F"):
        raise _Refused(f"{len(data)} bytes do not fit an array of shape {shape}")
    return np.frombuffer(data, dtype=kind).reshape(shape, order="F" if order == "F" else "C")


_MAKERS: dict[str, Any] = {
    "dtype": _dtype,
    "encode": _encode,
    "array": _empty,
    "buffer": _from_bytes,
}


def _text(code: Any) -> str:
    if not isinstance(code, str | bytes):
        raise _Refused(f"a {type(code).__name__} stands where text should be")
    return code.decode("latin1") if isinstance(code, bytes) else code


def _check_whole(found: Any) -> None:
    """Refuse a value in which a token is left; each container is visited once."""
    left, seen = [found], set[int]()
    while left:
        value = left.pop()
        if isinstance(value, _TOKENS):
            raise _Refused("it holds an array without content, or a name")
        if isinstance(value, list | tuple | dict) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value.values() if isinstance(value, dict) else value)
