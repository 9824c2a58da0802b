"""A method with a setting for every field of ``Method``: keys are tried beyond the catalogue.

It is what a user may write: the parts are our own, their combination is not.
"""

from typing import Annotated, Literal

from annotated_types import Ge, Lt

from ancl import Memory, Method
from ancl.extend import Auxiliary, CrossEntropy, Extra, Finish, Regularizer, Term
from tests.lab import (
    Align,
    Argmax,
    BalancedTuning,
    BiasCorrection,
    ClampGradients,
    Constraint,
    Corrected,
    Ewc,
    GradientNoise,
    Infer,
    Lfl,
    Lwf,
    MarginRanking,
    NearestMean,
    NonNegativeRows,
    Si,
)

Omega = Literal["none", "lwf", "lfl", "ewc", "si"]

OMEGAS: dict[str, Regularizer] = {"lwf": Lwf(), "lfl": Lfl(), "ewc": Ewc(), "si": Si()}
FINISHES: dict[str, tuple[Finish, ...]] = {
    "none": (),
    "align": (Align(),),
    "tuning": (BalancedTuning(1),),
    "tuning of the head": (BalancedTuning(1, trains="head", keeps="old", factor=0.5),),
    "bias": (BiasCorrection(1),),
    "augmented bias": (BiasCorrection(1, augment=True),),
}
INFERS: dict[str, Infer] = {
    "argmax": Argmax(),
    "nearest_mean": NearestMean(),
    "corrected": Corrected(),
    "corrected student": Corrected(True),
}
CONSTRAINTS: dict[str, Constraint | None] = {
    "none": None,
    "clamp": ClampGradients(0.1),
    "noise": GradientNoise(),
    "nonnegative": NonNegativeRows(),
}


def any_method(
    *,
    loss: Literal["auto", "seen", "own_task"] = "auto",
    old: Omega = "lwf",
    lamb: Annotated[float, Ge(0)] = 1.0,
    auxiliary: Omega = "none",
    lamb_a: Annotated[float, Ge(0)] = 1.0,
    renewed: Literal["task", "epoch"] = "task",
    auxiliary_start: Literal["old", "carried"] = "old",
    auxiliary_classes: Literal["new", "all"] = "new",
    auxiliary_data: Literal["current", "combined"] = "current",
    task_weight: Annotated[float, Ge(0)] = 1.0,
    margin: bool = False,
    start: Literal["old", "fresh"] = "old",
    data: Literal["current", "all"] = "current",
    trains: Literal["auto", "everything", "new rows", "head"] = "auto",
    head: Literal["linear", "unbiased", "cosine", "proxies"] = "linear",
    imprint: bool = False,
    enlarge: bool = False,
    hold_out: Annotated[float, Ge(0), Lt(1)] = 0.0,
    finish: Literal[
        "none", "align", "tuning", "tuning of the head", "bias", "augmented bias"
    ] = "none",
    infer: Literal["argmax", "nearest_mean", "corrected", "corrected student"] = "argmax",
    constrain: Literal["none", "clamp", "noise", "nonnegative"] = "none",
) -> Method:
    """Any combination of parts."""
    second = None
    if auxiliary != "none":
        second = Auxiliary(
            OMEGAS[auxiliary],
            lamb_a,
            renewed if auxiliary == "ewc" else "task",  # others are not estimated within a training
            auxiliary_start,
            auxiliary_classes,
            auxiliary_data,
        )
    return Method(
        "any",
        CrossEntropy(loss),
        Term(OMEGAS[old], lamb) if old != "none" else None,
        second,
        task_weight,
        (Extra("margin", MarginRanking(0.5, 2, "mean"), 1.0, True),) if margin else (),
        start,
        data,
        trains,
        head,
        {"proxies": 2} if head == "proxies" else {},
        imprint,
        memory=Memory(total=20),
        enlarge=enlarge,
        hold_out=hold_out,
        finish=FINISHES[finish],
        infer=INFERS[infer],
        constrain=CONSTRAINTS[constrain],
    )
