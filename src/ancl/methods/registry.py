"""Methods by name: ``lwf``, ``a-lwf``, ``lwf+ancl``, or one from a file or module outside."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from ancl.catalogue import Catalogue
from ancl.checks import checked
from ancl.errors import MethodError, SpecError, did_you_mean, unknown
from ancl.hashing import later_defaults
from ancl.methods.method import Method
from ancl.methods.regularization import ALIASES, METHODS, VARIANTS, Maker
from ancl.methods.variants import with_auto
from ancl.outside import Loaded
from ancl.training.lambda_rules import AutoText, LambText

_SUFFIXES = {"ancl": "a", "afec": "afec"}
_CATALOGUE = Catalogue(
    "method", METHODS, "a function that returns an ancl.Method", MethodError, also=(Method,)
)


class MethodRef:
    """A method's name taken apart: its maker, its variant, and the settings both accept.

    Args:
        name: ``lwf``, ``a-lwf``, ``afec-lwf``, ``lwf+ancl``, or one from outside:
            ``path/file.py:NAME``, ``package.module:NAME``, with the same prefixes.
    """

    def __init__(self, name: str) -> None:
        base, self.variant = _split(name)
        self.base = ALIASES.get(base, base)
        method = _found(self.base, name)
        self.code = method if isinstance(method, Loaded) else None
        self.maker = _maker(method.value) if isinstance(method, Loaded) else method
        self.name = f"{self.variant}-{self.base}" if self.variant else self.base

    @property
    def settings(self) -> dict[str, inspect.Parameter]:
        """Every setting, with its type and default."""
        parameters = dict(inspect.signature(self.maker, eval_str=True).parameters)
        if self.variant:
            parameters |= inspect.signature(VARIANTS[self.variant], eval_str=True).parameters
        if "lamb" in parameters:  # a rule takes the place of any method's number
            lamb = parameters["lamb"]
            parameters["lamb"] = lamb.replace(annotation=lamb.annotation | LambText)
        return parameters

    def unknown(self, key: str, others: Iterable[str] = ()) -> str:
        """The message for a setting the method does not have."""
        names = list(self.settings)
        # Every other spelling of λ leads to its own name: lambda, reg_lambda, lamb-a, λ_a.
        spelt = key.lower().replace("lambda", "lamb").replace("λ", "lamb").replace("-", "_")
        # A setting of a section without its name: lr is training.lr before auxiliary.lr.
        whole = {other.rpartition(".")[2]: other for other in reversed(list(others))}
        near = f" Did you mean {whole[key]!r}?" if key in whole else did_you_mean(spelt, names)
        near = near or did_you_mean(key, others)
        if key == "lamb_a":
            near = " It is λ_a, which only a-NAME and afec-NAME have."
        accepts = ", ".join(names) if names else "no setting of its own"
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
        own, lamb = inspect.signature(self.maker).parameters, settings.get("lamb")
        auto = AutoText.read(lamb) if isinstance(lamb, str) and lamb[:4] == "auto" else None
        if auto:
            settings = {name: v for name, v in settings.items() if name != "lamb"}
        method = self.maker(**{name: v for name, v in settings.items() if name in own})
        if not isinstance(method, Method):
            raise MethodError(
                f"{self.base} returned {type(method).__name__}. It must return an ancl.Method."
            )
        if self.variant:
            added = {name: v for name, v in settings.items() if name not in own}
            method = VARIANTS[self.variant](**added)(method)
        return with_auto(method, auto.kappa) if auto else method

    @property
    def explanation(self) -> str:
        """One line about the method, and one about its variant."""
        makers = [self.maker, *([VARIANTS[self.variant]] if self.variant else [])]
        return " ".join(map(summary, makers))

    def explanations(self) -> dict[str, str]:
        """One line for each setting, from the docstrings."""
        texts = arguments(self.maker)
        return texts | (arguments(VARIANTS[self.variant]) if self.variant else {})


def make_method(name: str, **settings: Any) -> Method:
    """A method by name.

    Examples:
        >>> make_method("a-lwf", lamb_a=0.5).auxiliary.lamb_a
        0.5
    """
    method = MethodRef(name)
    return method.make(method.check(settings))


def summary(maker: Callable[..., Any]) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(maker) or "").split("\n")[0]


class MethodInfo(TypedDict):
    """A method: its name, one line about it, and for each variant its name or why there is none."""

    name: str
    explanation: str
    variants: dict[str, dict[str, str]]


def list_methods() -> list[MethodInfo]:
    """Every method with its variants: ``a`` is ANCL, ``afec`` is AFEC.

    Examples:
        >>> [each["variants"]["a"] for each in list_methods() if each["name"] == "lwf"]
        [{'name': 'a-lwf'}]
    """
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


def _split(name: str) -> tuple[str, str]:
    """(base, variant) of a method's name; names of other projects come first: a-gem, der++."""
    for variant in ("", *VARIANTS):
        base = name.removeprefix(f"{variant}-" if variant else "")
        if base in ALIASES and (base != name) == bool(variant):
            return base, variant
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


def _found(base: str, given: str) -> Maker | Loaded:
    """What makes the method; from outside that may be a method itself."""
    if base in METHODS or _CATALOGUE.names_code(base):
        return _CATALOGUE.find(base)
    raise _CATALOGUE.missing(
        given,
        [*METHODS, *(f"{v}-{m}" for v in VARIANTS for m in METHODS)],
        f"{', '.join(METHODS)}; a-NAME is NAME with ANCL, afec-NAME with AFEC; your own is "
        f"path/file.py:NAME.",
    )


def _maker(found: Maker | Method) -> Maker:
    return (lambda: found) if isinstance(found, Method) else found


def arguments(maker: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each argument."""
    _, _, section = (inspect.getdoc(maker) or "").partition("Args:\n")
    texts: dict[str, str] = {}
    for line in section.split("\n"):
        name, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            texts[name] = text
            last = name
        elif texts and line.startswith("     "):
            texts[last] += " " + line.strip()
    return texts


def method_defaults(method: Method) -> dict[str, Any]:
    """The settings a method decides, by dotted key; all others have defaults of their own.

    A network has ``last_relu`` only where it ends with a ReLU or not, and ``frozen`` only where it
    may be pretrained. What is not listed of the
    auxiliary network's training is as the main network's.
    """
    defaults: dict[str, Any] = {} if method.last_relu else {"network.last_relu": False}
    if method.memory:
        defaults |= {f"memory.{name}": v for name, v in dataclasses.asdict(method.memory).items()}
    if method.trains_nothing:
        defaults["network.frozen"] = True
    defaults["training.select_by"] = method.select_by
    if method.clip is not None:
        defaults["training.clip"] = method.clip
    if method.auxiliary_decay is not None:
        defaults["auxiliary.weight_decay"] = method.auxiliary_decay
    return defaults


@cache
def later_options() -> Mapping[str, Any]:
    """The settings of our methods that came after results were stored, with their defaults.

    By name alone: a spec that is read back must not load the code of a method from outside.
    """
    makers = (*METHODS.values(), *VARIANTS.values())
    return {n: v for maker in makers for n, v in later_defaults(maker).items()}


def section_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of one section, without its name."""
    start = f"{name}."
    return {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}
