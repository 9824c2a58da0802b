"""A second device without a GPU: tensors that claim to be elsewhere, and real numbers behind them.

Inside ``SecondDevice()`` the device ``meta`` computes: a tensor there is a ``Remote``, which holds
an ordinary tensor on the CPU, so that all numbers are those of the CPU. Every operation passes a
dispatch mode, which raises ``MixedDevicesError`` where a GPU would refuse, and notes where the host
would wait for the device: what is read, what is copied to the host, what has a shape that depends
on values, and what is copied to the device other than from pinned memory without a wait.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
"""PyTorch knows it everywhere, its autograd too, and no code of ours asks for it."""

aten = torch.ops.aten
VALUE_SHAPED = {
    *(
        aten.nonzero.default,
        aten.masked_select.default,
        aten.bincount.default,
        aten._unique2.default,
    ),
    *(aten.unique_dim.default, aten.unique_consecutive.default, aten.repeat_interleave.Tensor),
}
"""What the host must wait for, since the shape of the result depends on values."""
COPIES = {aten.copy_.default, aten._to_copy.default}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
"""They accept positions on the CPU for values on a device, by a copy that waits."""


class MixedDevicesError(RuntimeError):
    """An operation on tensors of two devices."""


class Remote(Tensor):
    """A tensor on the second device, with an ordinary tensor inside."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor, requires_grad: bool = False) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls,
            inside.size(),
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            layout=inside.layout,
            device=DEVICE,
            requires_grad=requires_grad,
        )
        made.inside = inside
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise MixedDevicesError(f"{func} outside of the second device's mode")

    @property
    def data(self) -> Tensor:
        """The same numbers without their history; others may be given."""
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, other: Tensor) -> None:
        _refuse_if(not isinstance(other, Remote), "data", [self, other])
        self.inside = other.inside
        Tensor.data.__set__(self, other)

    def data_ptr(self) -> int:
        """Where the numbers are."""
        return self.inside.data_ptr()

    def tolist(self) -> Any:
        """By way of the host, as PyTorch does it for a device."""
        return self.cpu().tolist()

    def new_tensor(self, data: Any) -> Tensor:
        """PyTorch would leave out the values of this device."""
        return torch.tensor(data, dtype=self.dtype, device=DEVICE)

    def __repr__(self) -> str:
        return f"Remote({self.inside!r})"


def _made_there(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A maker of tensors from numbers, whose values PyTorch would leave out on this device."""

    def made(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        if not _is_there(device):
            return make(data, device=device, **options)
        if isinstance(data, Tensor):
            return data.to(DEVICE, options.get("dtype"))
        return make(data, **options).to(DEVICE)

    return made


class SecondDevice(TorchDispatchMode):
    """Computes on the second device, refuses operations between devices, and notes waits.

    Attributes:
        pixels: How many bytes of images were sent.
        waits: How often the host waited, by what it did and in which function of ours.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.pixels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        flat = list(_leaves((args, kwargs)))
        remote = [value for value in flat if isinstance(value, Remote)]
        target = kwargs.get("device")
        made_there = _is_there(target)
        if remote:
            self._check(func, flat, args)
            self._note(func, args, kwargs, made_there)
        elif func is aten._to_copy.default and made_there:
            self._note_sent(args[0], kwargs.get("non_blocking", False))
        elif not made_there:
            return func(*args, **kwargs)
        if "device" in kwargs and target is not None:
            kwargs["device"] = torch.device("cpu")
        known = {id(value.inside): value for value in remote}
        plain_args, plain = _mapped((args, kwargs), _inside)
        made = func(*plain_args, **plain)
        here = target is not None and not made_there
        if here or func is aten._local_scalar_dense.default:
            return made
        if func is aten.copy_.default:
            return args[0]

        def tagged(value: Tensor) -> Tensor:
            return known[id(value)] if id(value) in known else Remote(value)

        return _mapped(made, tagged)

    def _check(self, func: Any, flat: Sequence[Any], args: Any) -> None:
        """Refuse tensors of the host beside those of the device, but for single numbers."""
        if func in COPIES:
            return
        if func in INDEXED and isinstance(args[0], Remote):
            if any(isinstance(v, Tensor) and not isinstance(v, Remote) for v in args[1]):
                self._wait("positions on the host")
            flat = [value for value in flat if all(value is not index for index in args[1])]
        host = [v for v in flat if isinstance(v, Tensor) and not isinstance(v, Remote)]
        _refuse_if(any(value.dim() for value in host), str(func), flat)

    def _note(self, func: Any, args: Any, kwargs: dict[str, Any], made_there: bool) -> None:
        if func is aten._local_scalar_dense.default or func in VALUE_SHAPED:
            self._wait(str(func))
        elif func in INDEXED and any(
            isinstance(v, Tensor) and v.dtype in (torch.bool, torch.uint8) for v in args[1]
        ):
            self._wait("positions by a mask")
        elif func is aten._to_copy.default and kwargs.get("device") is not None and not made_there:
            self._wait("copy to the host")
        elif func is aten.copy_.default and isinstance(args[0], Remote) != isinstance(
            args[1], Remote
        ):
            to_host = isinstance(args[1], Remote)
            blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
            if to_host or blocking:
                self._wait("copy to the host" if to_host else "copy to the device that waits")

    def _note_sent(self, sent: Tensor, non_blocking: bool) -> None:
        self.pixels += sent.nbytes if sent.dtype == torch.uint8 else 0
        if not non_blocking:
            self._wait("copy to the device that waits")

    def _wait(self, what: str) -> None:
        self.waits[what, _line()] += 1


def _inside(tensor: Tensor) -> Tensor:
    return tensor.inside if isinstance(tensor, Remote) else tensor


def _leaves(value: Any) -> Iterator[Any]:
    """All values in lists, tuples and the values of dictionaries."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed; PyTorch's own way for any tree takes far longer."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)([_mapped(part, change) for part in value])
    if isinstance(value, dict):
        return {name: _mapped(part, change) for name, part in value.items()}
    return value


def _is_there(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _refuse_if(mixed: bool, what: str, flat: Sequence[Any]) -> None:
    if mixed:
        shown = [
            f"{'device' if isinstance(v, Remote) else 'host'} {tuple(v.shape)}"
            for v in flat
            if isinstance(v, Tensor)
        ]
        raise MixedDevicesError(f"{what}: {', '.join(shown)} at {_line()}")


def _line() -> str:
    """The function of the package that led here, or of an example."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if "/src/ancl/" in code.co_filename or "/examples/" in code.co_filename:
            return f"{Path(code.co_filename).name} {code.co_qualname}"
        frame = frame.f_back
    return "outside"


@contextmanager
def second_device() -> Iterator[SecondDevice]:
    """Compute on ``DEVICE`` as if it were a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        # Fused steps are for devices that PyTorch lists.
        module = sys.modules[torch.optim.Optimizer.__module__]
        listed = "_get_fused_kernels_supported_devices"
        patch.setattr(module, listed, lambda: ["cpu", DEVICE.type])
        for name in ("tensor", "as_tensor"):
            patch.setattr(torch, name, _made_there(getattr(torch, name)))
        with SecondDevice() as mode:
            yield mode
