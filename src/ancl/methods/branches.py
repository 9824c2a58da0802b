"""AANets: any method with a memory, on a stable and a plastic branch.  Equation: [aanets]."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from annotated_types import Ge, Le

from ancl.errors import MethodError
from ancl.methods.method import Method
from ancl.networks.branches import Kind, TwoBranches
from ancl.training.outer import Outer

Share = Annotated[float, Ge(0), Le(1)]
_ONE_SET_OF_CLASSES = (
    "its second branch is made when the first new classes come, and there all classes come with "
    "the first task"
)
_BALANCED = "it learns from the memory's images how to join its branches"


def aanets(
    method: Method,
    *,
    stable: Kind = "scaled",
    plastic: Kind = "free",
    alpha: Share = 0.5,
    alpha_lr: Annotated[float, Ge(0)] = 1e-2,
) -> Method:
    """Two branches from the second task on, joined by weights that balanced images decide.

    Differs: the released code's rate of 1e-8 moves α only where its gradients are never cleared;
    here they are cleared at every step, and the rate is one that moves it.

    Args:
        method: The host; its loss, memory, head and inference stay as they are.
        stable: The stable branch learns one factor for each kernel and its batch norms (scaled),
            nothing (frozen), or all its weights (free).
        plastic: The same for the plastic branch.
        alpha: The stable branch's share in every level at first; the plastic one has the rest.
        alpha_lr: The rate at which balanced images move these shares after every epoch; 0 leaves
            them as they are.
    """
    if method.memory is None:
        raise MethodError(
            f"aanets-{method.name}: AANets learns from exemplars how to join its branches, and "
            f"{method.name} keeps none. Use a method that does, such as aanets-icarl or "
            f"aanets-lucir."
        )
    outer = Outer(("backbone.alpha",), alpha_lr, bounds=(0.0, 1.0))
    return replace(
        method,
        name=f"aanets-{method.name}",
        growth=TwoBranches(stable, plastic, alpha),
        outer=outer if alpha_lr else None,
        refused={"dil": _ONE_SET_OF_CLASSES, **method.refused},
        needs_memory=dict.fromkeys(("til", "cil", "cir"), _BALANCED),
    )


def on_branches(host: Callable[..., Method]) -> Callable[..., Method]:
    """What makes a host's method on two branches, of the settings of both."""
    own = {
        name: each
        for name, each in inspect.signature(aanets, eval_str=True).parameters.items()
        if name != "method"
    }
    hosts = inspect.signature(host, eval_str=True)

    def make(**settings: object) -> Method:
        taken = {name: value for name, value in settings.items() if name in own}
        rest = {name: value for name, value in settings.items() if name not in own}
        return aanets(host(**rest), **taken)  # type: ignore[arg-type]

    name, _, text = (inspect.getdoc(host) or "").partition(":")
    _, _, arguments = text.partition("Args:\n")
    _, _, added = (inspect.getdoc(aanets) or "").partition("as they are.\n")
    make.__doc__ = (
        f"AANets on {name}: a stable and a plastic branch, joined by weights that are learned.\n\n"
        f"Args:\n{arguments.rstrip()}\n{added}"
    )
    parameters = [*hosts.parameters.values(), *own.values()]
    make.__signature__ = hosts.replace(parameters=parameters)  # type: ignore[attr-defined]
    return make
