"""What is checked of a method before a task is planned."""

from collections.abc import Iterable

from ancl.errors import MethodError
from ancl.hashing import UnstorableError, describe, is_ours
from ancl.methods.method import Method
from ancl.regularizers import WeightRegularizer
from ancl.stages.steps import (
    AuxiliaryImportance,
    Evaluate,
    Features,
    Grow,
    MakeBase,
    Rate,
    RateTrial,
    TrainAuxiliary,
    TrainMain,
    UpdateImportance,
    UpdateMemory,
)

RESERVED = frozenset(
    each.name
    for each in (
        *(AuxiliaryImportance, Evaluate, Features, Grow, MakeBase, Rate, RateTrial),
        *(TrainAuxiliary, TrainMain, UpdateImportance, UpdateMemory),
    )
)
"""The names of built-in stages, which no stage of a method may have."""


def why_unstored(parts: Iterable[object]) -> str:
    """Why nothing of a run is stored, where a part cannot be described; empty otherwise."""
    for part in parts:
        try:
            describe(part)
        except UnstorableError as error:
            return str(error)
    return ""


def check_method(method: Method, learns: bool) -> None:
    """Refuse a method whose parts do not fit together, or a backbone of which nothing learns."""
    names = [part.name for part in method.finish]
    for name in names:
        if name in RESERVED or names.count(name) > 1:
            kind = "a built-in stage" if name in RESERVED else "another of its stages"
            raise MethodError(
                f"{method.name} has a finishing stage named {name!r}, which is the name "
                f"of {kind}. Give the Finish another name; taken are: "
                f"{', '.join(sorted(RESERVED))}."
            )
    recorded = [record.name for record in method.records]
    if len(set(recorded)) < len(recorded):
        raise MethodError(
            f"{method.name} records {', '.join(recorded)}: two of one name. Give each another name."
        )
    on_weights = any(isinstance(omega, WeightRegularizer) for omega in method.omegas)
    if on_weights and (method.trains == "head" or not learns):
        raise MethodError(
            f"{method.name} holds weights of the backbone, and none of them learns. Let "
            f"some learn (requires_grad), or use a method without a term on weights."
        )
    if method.trainer and method.auxiliary and method.auxiliary.renewed == "epoch":
        raise MethodError(
            f"{method.name} brings its own training, which cannot take turns with AFEC's "
            f"auxiliary network. Use it without AFEC, or with ANCL."
        )


def keeps_features(method: Method) -> bool:
    """Whether a method reads images through the backbone alone.

    Parts from outside may look at images themselves, except for an Ω, which says what it reads.
    """
    others = [method.task_loss, *(extra.part for extra in method.extras), *method.finish]
    others += [method.infer, method.constrain, method.trainer]
    return (
        not method.enlarge
        and all(omega.reads != "maps" for omega in method.omegas)
        and all(part is None or is_ours(part.__module__) for part in others)
    )
