"""ANCL and AFEC: any method held to an auxiliary network too."""

from dataclasses import replace
from typing import Literal

from ancl.errors import MethodError
from ancl.methods.method import Method
from ancl.networks.learnable import ALL
from ancl.regularizers import Ewc, WeightRegularizer
from ancl.training.lambda_rules import Auto, Balance, Rule, Weight, default_kappa
from ancl.training.objective import Auxiliary

DEFAULT_LAMB_A: float | str = str(Balance())
"""λ_a of ANCL where nobody gives one: a number, or the text of a rule."""
RELEASED_AUXILIARY_DECAY = 5e-4
"""Fixed in the ANCL authors' released code, whatever the main network's is."""


def with_ancl(
    method: Method,
    lamb_a: Weight | Balance | str = DEFAULT_LAMB_A,
    *,
    classes: Literal["new", "all"] = "new",
    data: Literal["current", "combined"] = "current",
    adaptive: Literal["both", "old_only"] = "both",
    start: Literal["old", "zero"] = "old",
    trains: str = ALL,
) -> Method:
    """The method with its own Ω held to an auxiliary network too.  Equation: [ancl].

    Where λ follows a rule, λ_a follows the same unless ``adaptive`` is ``old_only``: their ratio
    then stays what it is. A ``Balance``, or its text such as ``balance:0.3``, finds λ_a itself.
    For all else see ``Auxiliary``.
    """
    _check_variant("a", method)
    if method.old is None:
        afec = "" if method.trains == "head" else f"afec-{method.name}, or "
        raise MethodError(
            f"{method.name!r} has no regularizer, so ANCL has none to apply to the auxiliary "
            f"network. Use {afec}a method that has one, such as ewc or lwf."
        )
    if isinstance(lamb_a, str):
        lamb_a = _read_balance(lamb_a)
    rule = method.old.lamb
    if adaptive == "both" and isinstance(rule, Rule) and isinstance(lamb_a, float | int) and lamb_a:
        lamb_a = rule.scaled(lamb_a)
    auxiliary = Auxiliary(
        method.old.regularizer, lamb_a, start=start, classes=classes, data=data, trains=trains
    )
    return replace(
        method,
        name=f"a-{method.name}",
        auxiliary=auxiliary,
        auxiliary_decay=RELEASED_AUXILIARY_DECAY,
    )


def with_afec(
    method: Method,
    lamb_a: Weight | Balance | str = 1.0,
    *,
    start: Literal["old", "carried"] = "old",
    renewed: Literal["task", "epoch"] = "epoch",
    over: Literal["auto", "own", "seen"] = "auto",
    trains: str = ALL,
) -> Method:
    """The method with EWC's Ω held to an auxiliary network one epoch ahead.  Equation: [afec].

    Its Fisher information is that of the task's ``own`` classes, to which the λ_a of AFEC's
    authors belongs, or of all ``seen``. With ``auto`` it is ``own``, but EWC as a host keeps its
    own settings: the ANCL paper's AFEC on EWC is A-EWC renewed every epoch, so both of its terms
    are on one scale.
    """
    _check_variant("afec", method)
    if method.trains == "head":
        raise MethodError(
            f"{method.name} trains no backbone after the first task, so AFEC has no weights to "
            f"hold. Use a method that trains one, such as afec-finetune."
        )
    if isinstance(lamb_a, str | Balance):
        ancl = f", or use a-{method.name}" if method.old else ""
        raise MethodError(
            f"λ_a cannot be {lamb_a} with AFEC. A balance compares the pulls of one Ω to two "
            f"networks that stay as they are; AFEC pulls by EWC's Ω, whatever the method's own is, "
            f"to a network that changes every epoch. Give a number, such as lamb_a=1{ancl}."
        )
    host = method.old.regularizer if method.old else None
    omega = host if type(host) is Ewc else Ewc(over="own")
    if over != "auto":
        omega = replace(omega, over=over)
    auxiliary = Auxiliary(omega, lamb_a, renewed=renewed, start=start, trains=trains)
    return replace(method, name=f"afec-{method.name}", auxiliary=auxiliary)


def _check_variant(variant: str, method: Method) -> None:
    """Refuse a method to which a variant adds nothing that has a meaning."""
    if method.auxiliary is not None:
        raise MethodError(f"{method.name} already has an auxiliary network. Use it as it is.")
    if variant in method.no_variants:
        raise MethodError(
            f"{variant}-{method.name} has no meaning: {method.no_variants[variant]}. Use "
            f"{method.name} as it is."
        )


def with_auto(method: Method, kappa: float | None = None) -> Method:
    """The method with a λ that is found while it learns: the rule ``Auto``.

    It begins with the λ that the method has; one that follows the numbers of classes begins with
    its number.

    Args:
        method: Any method with an old network's term; also one with an auxiliary network.
        kappa: κ, the old network's force over that of the task loss; see ``Auto``.
    """
    if method.old is None or not method.task_weight:
        raise MethodError(
            f"{method.name} has no λ to be found: that needs a term of the old network beside a "
            f"task loss. Use a method that has both, such as ewc or lwf."
        )
    if method.auxiliary and method.auxiliary.renewed == "epoch":
        raise MethodError(
            f"λ cannot be auto with {method.name}: its loss is made anew every epoch, and λ_a has "
            f"another Ω than λ. Give a number, such as lamb=1, or use a method without AFEC."
        )
    lamb = method.old.lamb
    start = lamb.unchanged() if isinstance(lamb, Rule) else lamb
    if isinstance(start, Auto):
        raise MethodError(f"The λ of {method.name} is auto already. Use it as it is.")
    # Keys hold the number itself: another default is another result.
    on_weights = isinstance(method.old.regularizer, WeightRegularizer)
    rule = Auto(start, default_kappa(on_weights=on_weights) if kappa is None else kappa)
    return replace(method, old=replace(method.old, lamb=rule))


def drop_zero_terms(method: Method) -> Method:
    """The method without terms whose λ is the number 0: nothing is trained or kept for them.

    So is a balance with ρ = 0, or with an old network that does not pull.
    """
    old = None if method.old and method.old.lamb == 0 else method.old
    auxiliary = method.auxiliary
    if auxiliary and isinstance(auxiliary.lamb_a, Balance):
        auxiliary = auxiliary if old and auxiliary.lamb_a.rho else None
    elif auxiliary and auxiliary.lamb_a == 0:
        auxiliary = None
    return replace(method, old=old, auxiliary=auxiliary)


def _read_balance(text: str) -> Balance:
    try:
        return Balance.read(text)
    except ValueError as error:
        raise MethodError(f"λ_a is {text!r}; it {error}, or a number.") from error
