"""All methods on one page: each a function that composes parts, and its two variants by prefix."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from ancl.checks import checked
from ancl.errors import MethodError, SpecError, did_you_mean, unknown
from ancl.losses import CrossEntropy
from ancl.method import Auxiliary, Method, Term, with_afec, with_ancl
from ancl.regularizers import Dmc, Eeil, Ewc, Lfl, Lwf, Lwm, Mas, RWalk, Si
from ancl.rehearsal import bic, eeil, icarl, lucir, podnet, wa
from ancl.rules import NewShare, OldShare

Lambda = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Temperature = Annotated[float, Gt(0)]
Maker = Callable[..., Method]
"""Settings by keyword -> a method. Signature and docstring are what a user is shown."""


def finetune() -> Method:
    """Learn each task by its loss alone: the lower bound."""
    return Method("finetune")


def joint(*, over: Literal["seen", "own"] = "seen") -> Method:
    """Learn each task with the images of all tasks so far: the upper bound.

    Args:
        over: Classes that compete: all ``seen`` (the paper), or each task's ``own`` alone.
    """
    return Method("joint", task_loss=CrossEntropy(over), data="all", trains="everything")


def ewc(
    *,
    lamb: Lambda = 10_000.0,
    alpha: Share = 0.5,
    estimator: Literal["batch", "sample"] = "batch",
    batch_norm: Literal["train", "eval"] = "train",
    augment: bool = True,
    labels: Literal["true", "predicted", "sampled"] = "true",
    over: Literal["seen", "own"] = "seen",
) -> Method:
    """Elastic Weight Consolidation: hold weights by their Fisher information.

    Args:
        lamb: λ, the pull to the old network.
        alpha: Share of earlier tasks' Fisher information when a task's own is added.
        estimator: Squares of ``batch`` gradients (the paper's scale), or of each ``sample``'s.
        batch_norm: Batch norm while estimating: by the batch (train) or running (eval).
        augment: Whether the estimate sees augmented images.
        labels: Labels of the estimate: true, predicted, or sampled from the answer.
        over: Classes of the estimate: all ``seen``, or the task's ``own``.
    """
    omega = Ewc(alpha, estimator, batch_norm, augment, labels, over)
    return Method("ewc", old=Term(omega, lamb))


def mas(
    *,
    lamb: Lambda = 50.0,
    alpha: Share = 0.5,
    estimator: Literal["batch", "sample"] = "batch",
    batch_norm: Literal["train", "eval"] = "train",
    augment: bool = True,
    norm: Literal["l2", "squared"] = "l2",
) -> Method:
    """Memory Aware Synapses: hold weights by how much the answers' length depends on them.

    Args:
        lamb: λ, the pull to the old network.
        alpha: Share of earlier tasks' importance when a task's own is added.
        estimator: Gradients of ``batch`` means (the paper's scale), or of each ``sample``.
        batch_norm: Batch norm while estimating: by the batch (train) or running (eval).
        augment: Whether the estimate sees augmented images.
        norm: The length differentiated: l2, or its square (squared).
    """
    return Method("mas", old=Term(Mas(alpha, estimator, batch_norm, augment, norm), lamb))


def si(*, lamb: Lambda = 0.1, damping: Annotated[float, Gt(0)] = 0.1, clip: bool = True) -> Method:
    """Synaptic Intelligence: hold weights by how much their path lowered the loss.

    Args:
        lamb: λ, the pull to the old network.
        damping: Keeps the importance of weights that did not move finite.
        clip: Whether negative importance counts as zero.
    """
    return Method("si", old=Term(Si(damping, clip), lamb))


def rwalk(
    *,
    lamb: Lambda = 1.0,
    alpha: Share = 0.5,
    estimator: Literal["batch", "sample"] = "batch",
    batch_norm: Literal["train", "eval"] = "train",
    augment: bool = True,
    labels: Literal["true", "predicted", "sampled"] = "predicted",
    over: Literal["seen", "own"] = "seen",
    damping: Annotated[float, Gt(0)] = 0.1,
) -> Method:
    """Riemannian Walk: hold weights by their Fisher information and by their path.

    Args:
        lamb: λ, the pull to the old network.
        alpha: Share of earlier tasks' Fisher information when a task's own is added.
        estimator: Squares of ``batch`` gradients (FACIL's scale), or of each ``sample``'s.
        batch_norm: Batch norm while estimating: by the batch (train) or running (eval).
        augment: Whether the estimate sees augmented images.
        labels: Labels of the estimate: true, predicted, or sampled from the answer.
        over: Classes of the estimate: all ``seen``, or the task's ``own``.
        damping: Keeps the score of weights that did not move finite.
    """
    omega = RWalk(alpha, estimator, batch_norm, augment, labels, over, damping)
    return Method("rwalk", old=Term(omega, lamb))


def lwf(
    *,
    lamb: Lambda = 10.0,
    temperature: Temperature = 2.0,
    scope: Literal["joint", "per_head"] = "joint",
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0,
) -> Method:
    """Learning without Forgetting: keep the old network's soft answers on new images.

    Args:
        lamb: λ, the pull to the old network.
        temperature: T, by which logits are divided on both sides.
        scope: One softmax over all old classes (joint, as published), or one a task's head.
        smoothing: ε mixed into the network's own soft answers; the released code's is 1e-5.
    """
    omega = Lwf(temperature, smoothing) if scope == "joint" else Eeil(temperature)
    if scope == "per_head" and smoothing:
        raise MethodError(
            f"smoothing is {smoothing:g} and scope is per_head, which has none. Use "
            f"smoothing=0 or scope=joint."
        )
    return Method("lwf", old=Term(omega, lamb))


def lfl(
    *,
    lamb: Lambda = 400.0,
    centre: bool = True,
    normalize: bool = True,
    reduction: Literal["mean", "sum"] = "mean",
) -> Method:
    """Less-forgetful Learning: keep the old network's features on new images.

    Args:
        lamb: λ, the pull to the old network.
        centre: Whether each image's features are centred first.
        normalize: Whether they are scaled to length 1.
        reduction: Mean over features (the published λ), or sum (λ then over their number).
    """
    return Method("lfl", old=Term(Lfl(centre, normalize, reduction), lamb))


def lwm(
    *,
    lamb: Lambda = 10.0,
    temperature: Temperature = 2.0,
    gamma: Annotated[float, Ge(0)] = 0.1,
    attention: Literal["gradient", "detached"] = "gradient",
) -> Method:
    """Learning without Memorizing: keep the old network's soft answers and where it looks.

    Args:
        lamb: λ, the pull to the old network (the published β).
        temperature: T, by which logits are divided on both sides.
        gamma: The attention's weight over that of the answers: the published γ/β.
        attention: Whether its gradient flows, or it is detached as in the released code.
    """
    return Method("lwm", old=Term(Lwm(temperature, gamma, attention), lamb))


def dmc(*, centring: Literal["sample", "batch"] = "sample") -> Method:
    """Deep Model Consolidation: a fresh network learns the logits of old and auxiliary network.

    Both start fresh in every task and there is no task loss: with λ = n_old/n and λ_a = n_new/n
    the two pulls are one squared error over all classes.

    Args:
        centring: Of teachers' logits: by sample (DMC paper), or by batch (released code).
    """
    omega = Dmc(centring)
    return Method(
        "dmc",
        old=Term(omega, OldShare()),
        auxiliary=Auxiliary(omega, NewShare()),
        task_weight=0.0,
        start="fresh",
        trains="everything",
        refused={"dil": "its old and auxiliary network would speak for the same classes"},
    )


def freeze() -> Method:
    """Learn the backbone with the first task, then heads alone."""
    return Method("freeze", trains="head")


METHODS: dict[str, Maker] = {
    "finetune": finetune,
    "joint": joint,
    "ewc": ewc,
    "mas": mas,
    "si": si,
    "rwalk": rwalk,
    "lwf": lwf,
    "lfl": lfl,
    "lwm": lwm,
    "dmc": dmc,
    "freeze": freeze,
    "icarl": icarl,
    "eeil": eeil,
    "bic": bic,
    "wa": wa,
    "lucir": lucir,
    "podnet": podnet,
}

ALIASES = {
    "finetuning": "finetune",
    "naive": "finetune",
    "sgd": "finetune",
    "freezing": "freeze",
    "path_integral": "si",
    "r_walk": "rwalk",
    "ucir": "lucir",
}


def ancl_variant(
    *,
    lamb_a: Lambda = 1.0,
    auxiliary_classes: Literal["new", "all"] = "new",
    auxiliary_data: Literal["current", "combined"] = "current",
    adaptive_auxiliary: Literal["both", "old_only"] = "both",
) -> Callable[[Method], Method]:
    """Hold it to an auxiliary network too, by the same regularizer.

    Args:
        lamb_a: λ_a, the pull to the auxiliary network.
        auxiliary_classes: It speaks for the task's new classes, or for all.
        auxiliary_data: It learns from the task's images, or from them combined with the memory's.
        adaptive_auxiliary: Whether λ_a follows the same rule as λ, if there is one, or not.
    """
    return lambda method: with_ancl(
        method,
        lamb_a,
        classes=auxiliary_classes,
        data=auxiliary_data,
        adaptive=adaptive_auxiliary,
    )


def afec_variant(
    *,
    lamb_a: Lambda = 1.0,
    afec_start: Literal["old", "carried"] = "old",
    afec_renewed: Literal["epoch", "task"] = "epoch",
) -> Callable[[Method], Method]:
    """Hold it to an auxiliary network one epoch ahead, by EWC's regularizer.

    Args:
        lamb_a: λ_a, the pull to the auxiliary network.
        afec_start: Each task's auxiliary network starts from the old one, or is carried on.
        afec_renewed: Renew it every epoch (AFEC), or once a task (then it is ANCL's).
    """
    return lambda method: with_afec(method, lamb_a, start=afec_start, renewed=afec_renewed)


VARIANTS: dict[str, Callable[..., Callable[[Method], Method]]] = {
    "a": ancl_variant,
    "afec": afec_variant,
}
PUBLISHED_WITH_ANCL = ("ewc", "mas", "lwf", "lfl", "icarl", "bic", "lucir", "podnet")
"""The methods to which the paper applies ANCL; with others it is an extension of ours."""
_SUFFIXES = {"ancl": "a", "afec": "afec"}


class MethodRef:
    """A method's name taken apart: its maker, its variant, and the settings both accept.

    Args:
        name: ``lwf``, ``a-lwf``, ``afec-lwf``, ``lwf+ancl``, or one from outside:
            ``path/file.py:NAME``, ``package.module:NAME``, with the same prefixes.
    """

    def __init__(self, name: str) -> None:
        base, self.variant = _split(name)
        self.base = ALIASES.get(base, base)
        self.maker = _outside(self.base) if ":" in self.base else _named(self.base, name)
        self.name = f"{self.variant}-{self.base}" if self.variant else self.base

    @property
    def settings(self) -> dict[str, inspect.Parameter]:
        """Every setting, with its type and default."""
        found = dict(inspect.signature(self.maker, eval_str=True).parameters)
        if self.variant:
            found |= inspect.signature(VARIANTS[self.variant], eval_str=True).parameters
        return found

    def unknown(self, key: str, others: Iterable[str] = ()) -> str:
        """The message for a setting the method does not have."""
        own = list(self.settings)
        # Every other spelling of λ is told its own name: lambda, reg_lambda, lamb-a, λ_a.
        spelt = key.lower().replace("lambda", "lamb").replace("λ", "lamb").replace("-", "_")
        near = did_you_mean(spelt, own) or did_you_mean(key, others)
        if key == "lamb_a":
            near = " It is λ_a, which only a-NAME and afec-NAME have."
        accepts = ", ".join(own) if own else "no setting of its own"
        return f"{self.name} has no setting {key!r}.{near} It accepts: {accepts}."

    def check(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings with their values checked.

        Raises:
            SpecError: Each mistake on its own line.
        """
        known, taken, mistakes = self.settings, {}, []
        for key, value in settings.items():
            if key not in known:
                mistakes.append(self.unknown(key))
                continue
            try:
                taken[key] = checked(known[key].annotation, value)
            except ValueError as error:
                mistakes.append(f"{key} is {value!r}; it {error}.")
        if mistakes:
            raise SpecError("\n".join(mistakes))
        return taken

    def make(self, settings: Mapping[str, Any]) -> Method:
        """The method with these settings, already checked; others have their defaults."""
        own = inspect.signature(self.maker).parameters
        method = self.maker(**{name: v for name, v in settings.items() if name in own})
        if not isinstance(method, Method):
            raise MethodError(
                f"{self.base} returned {type(method).__name__}. It must return an ancl.Method."
            )
        if not self.variant:
            return method
        added = {name: v for name, v in settings.items() if name not in own}
        return VARIANTS[self.variant](**added)(method)

    def explanations(self) -> dict[str, str]:
        """One line for each setting, from the docstrings."""
        found = arguments(self.maker)
        return found | (arguments(VARIANTS[self.variant]) if self.variant else {})


def make_method(name: str, **settings: Any) -> Method:
    """A method by name.

    >>> make_method("a-lwf", lamb_a=0.5).auxiliary.lamb_a
    0.5
    """
    method = MethodRef(name)
    return method.make(method.check(settings))


def summary(maker: Callable[..., Any]) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(maker) or "").split("\n")[0]


def _split(name: str) -> tuple[str, str]:
    """(base, variant) of a method's name."""
    base, plus, suffix = name.rpartition("+")
    if plus:
        if suffix not in _SUFFIXES:
            raise MethodError(unknown("variant", suffix, _SUFFIXES))
        return base, _SUFFIXES[suffix]
    if ":" in name and Path(name.rpartition(":")[0]).is_file():
        return name, ""
    for variant in sorted(VARIANTS, key=len, reverse=True):
        for separator in ("-", "_"):
            # A module's name may begin with a_ itself.
            if name.startswith(variant + separator) and (separator == "-" or ":" not in name):
                return name[len(variant) + 1 :], variant
    return name, ""


def _named(base: str, given: str) -> Maker:
    if base not in METHODS:
        possible = [*METHODS, *(f"{v}-{m}" for v in VARIANTS for m in METHODS)]
        raise MethodError(
            unknown("method", given, possible).split(" Possible:")[0]
            + f" Possible: {', '.join(METHODS)}; a-NAME is NAME with ANCL, afec-NAME with AFEC; "
            f"your own is path/file.py:NAME."
        )
    return METHODS[base]


def _outside(base: str) -> Maker:
    """A maker from a file or an installed module."""
    where, _, name = base.rpartition(":")
    module = _load_file(Path(where)) if where.endswith(".py") else _import(where)
    found = getattr(module, name, None)
    if found is None:
        functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise MethodError(f"{where}: " + unknown("function", name, functions))
    if isinstance(found, Method):
        method = found
        return lambda: method
    if not callable(found):
        raise MethodError(
            f"{base} is a {type(found).__name__}. Name a function that returns an ancl.Method."
        )
    return found  # type: ignore[no-any-return]


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise MethodError(f"There is no file {path}. Give an existing one: path/file.py:NAME.")
    # Named by its place, so that two files of the same name do not replace each other.
    name = f"ancl_outside_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        raise MethodError(f"{path} does not load: {type(error).__name__}: {error}") from error
    return module


def _import(where: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ImportError as error:
        raise MethodError(
            f"There is no module {where!r} ({error}). Install it, or give a file: "
            f"path/file.py:NAME."
        ) from error


def arguments(maker: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each argument."""
    _, _, section = (inspect.getdoc(maker) or "").partition("Args:\n")
    found: dict[str, str] = {}
    for line in section.split("\n"):
        name, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            found[name] = text
            last = name
        elif found and line.startswith("     "):
            found[last] += " " + line.strip()
    return found
