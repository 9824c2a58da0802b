"""What a training costs: images, backward passes, and floating-point operations."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Cost(NamedTuple):
    """What a training took.

    Args:
        images: Images that gradients were computed on, each as often as it came, replayed ones
            included.
        backward: Backward passes: one for each batch.
        flops: Floating-point operations of all these steps: forward and backward, and what the
            old and the auxiliary network answered. A multiplication and an addition are two.
            Validation is not in it.
    """

    images: float
    backward: float
    flops: float

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


class CostMeter:
    """Counts what a training costs, step by step.

    FLOPs are those of torch's own table of operations (``torch.utils.flop_counter``). Counting them
    at every step would cost more than small steps take, so the first step is counted, and each
    image of the others counts as one of the first.
    """

    def __init__(self) -> None:
        self._images = self._backward = 0
        self._flops: float | None = None

    @contextmanager
    def step(self, images: int) -> Iterator[None]:
        """One step on a number of images, inside a ``with`` block."""
        if self._flops is None:
            with _Counter() as counter:
                yield
            self._flops = counter.flops / images
        else:
            yield
        self._images, self._backward = self._images + images, self._backward + 1

    @property
    def total(self) -> Cost:
        """What all steps so far cost."""
        return Cost(self._images, self._backward, (self._flops or 0.0) * self._images)

    def state(self) -> dict[str, Any]:
        """What a resumed training counts on from."""
        return {"images": self._images, "backward": self._backward, "flops": self._flops}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Count on from there."""
        self._images, self._backward = state["images"], state["backward"]
        self._flops = state["flops"]


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations of everything inside; it computes as without it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count:
            self.flops += count(*args, **(kwargs or {}), out_val=result)
        return result
