"""Methods that merge networks or let them grow, each a function that composes parts."""

from dataclasses import replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from ancl.errors import MethodError
from ancl.losses import CrossEntropy, Over
from ancl.methods.connecting import BatchNorms, Connect, Ratio, Refit
from ancl.methods.expanding import FreshClassifier, SideLoss, UsedWeights
from ancl.methods.finishing import Align
from ancl.methods.method import Finish, Method
from ancl.methods.null_space import STABLE, Covariance, Project
from ancl.methods.rehearsal import EXEMPLARS
from ancl.methods.variants import RELEASED_AUXILIARY_DECAY
from ancl.networks.extractors import Extractors
from ancl.regularizers import Ewc, Lfl
from ancl.training.objective import Auxiliary, Extra, Term

Share = Annotated[float, Ge(0), Le(1)]
Epochs = Annotated[int, Ge(0)]

_NO_OMEGA = (
    "it has no regularizer to hold to an auxiliary network, and its new extractor already is the "
    "part for plasticity"
)
_ALL_NEW = (
    "every weight of it that learns is new, and carries no old task that it would be weighed "
    "against"
)
_OWN_PLASTIC = "it already has its network for the new task, which it merges with the stable one"


def connector(
    *,
    ratio: Share | Ratio = "task",
    stability: Literal["old", "projected"] = "old",
    weight: Literal["scalar", "importance"] = "scalar",
    batch_norm: BatchNorms = "average",
    refit: Epochs = 0,
    threshold: Annotated[float, Ge(1)] = 10.0,
    energy: Annotated[float, Gt(0), Lt(1)] | None = None,
    loss_over: Over = "auto",
) -> Method:
    """Linear connector: the average of old and auxiliary network, without any λ or third training.

    Args:
        ratio: β, the auxiliary network's part: 1/t in task t (task, the original), n_new/n
            (classes), a number, or the best of 0, 0.1, …, 1 on validation images and exemplars
            (search, which needs a memory).
        stability: What is averaged: the ``old`` network with the auxiliary one; or, as the
            original, one trained by steps in the null space of earlier inputs with one that keeps
            the old network's features (projected).
        weight: One β (scalar); or for every weight λ_aF_aux/(λF_old + λ_aF_aux) by the Fisher
            information, with λ_a/λ = β/(1 − β).
        batch_norm: Running statistics: their average (the original), those of mixed inputs
            (pooled), or an estimate from the task's images and the memory's. Without a memory the
            estimate fits the new task alone.
        refit: Epochs of training new classes' rows on the merged features.
        threshold: For stability=projected: eigenvalues up to this times the smallest count as none.
        energy: In place of threshold: directions with at most this share of all eigenvalues count
            as none.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    refused = {}
    if ratio == "classes":
        refused["dil"] = "ratio=classes counts new classes, and there are none"
        refused["cir"] = "ratio=classes counts new classes alone, and known ones are learned too"
    if refit:
        refused["dil"] = "refit trains the rows of new classes, and there are none"
    alone = "without images of earlier tasks a search sees the new task alone and takes β = 1"
    after = (Refit(refit),) if refit else ()
    common = Method(
        "connector",
        CrossEntropy(loss_over),
        auxiliary_decay=RELEASED_AUXILIARY_DECAY,
        refused=refused,
        needs_memory=dict.fromkeys(("til", "cil", "dil", "cir"), alone)
        if ratio == "search"
        else {},
    )
    if stability == "old":
        omega = Ewc() if weight == "importance" else None
        return replace(
            common,
            old=Term(omega, 1.0) if omega else None,
            auxiliary=Auxiliary(omega, 1.0),
            main="auxiliary",
            finish=(Connect(ratio, "start", weight, batch_norm), *after),
        )
    if weight == "importance":
        raise MethodError(
            "weight is importance and stability is projected, but Fisher information is that of "
            "the old and the auxiliary network. Use stability=old, or weight=scalar."
        )
    connect = Connect(ratio, STABLE, weight, batch_norm)
    return replace(
        common,
        old=Term(Lfl(centre=False, normalize=False), 1.0),
        finish=(Project(threshold, energy), connect, *after, Covariance()),
        no_variants={"a": _OWN_PLASTIC, "afec": _OWN_PLASTIC},
    )


def der(
    *,
    side: Annotated[float, Ge(0)] = 1.0,
    reuse: bool = False,
    classifier: Literal["balanced", "align", "none"] = "balanced",
    balanced_epochs: Annotated[int, Ge(1)] = 30,
    balanced_lr: Annotated[float, Gt(0)] = 0.1,
    temperature: Annotated[float, Gt(0)] = 5.0,
    bias: bool = False,
    sparsity: Annotated[float, Ge(0)] = 0.0,
    mask_scale: Annotated[float, Gt(1)] = 100.0,
    loss_over: Over = "auto",
) -> Method:
    """DER: a new feature extractor for every task beside the frozen old ones, one classifier.

    Args:
        side: Weight of the side head's loss, which tells the task's classes from each other and
            from all old ones by the new features alone; 0 leaves it out.
        reuse: Whether a task begins with the classifier's old part (the paper), or with a fresh
            classifier (the released code).
        classifier: At the end of a task it is initialised again and trained on equally many images
            of every class (balanced), its new rows are scaled to the old ones' (align, PyCIL), or
            it stays (none).
        balanced_epochs: Epochs of the balanced training.
        balanced_lr: Its learning rate, divided by 10 after half of them.
        temperature: δ, by which its logits are divided; 1 in the original for ImageNet.
        bias: Whether classifier and side head have biases.
        sparsity: λ_s, the weight of the share of weights in use; above 0, channels inside residual
            blocks have masks from the second task on, and those that end at 0 are cut off.
        mask_scale: s_max, the scale of masks at the end of every epoch.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    extras = [Extra("side", SideLoss(), side, True)] if side else []
    if sparsity:
        extras.append(Extra("sparsity", UsedWeights(), sparsity, True))
    finish: dict[str, tuple[Finish, ...]] = {
        "balanced": (FreshClassifier(balanced_epochs, balanced_lr, temperature),),
        "align": (Align(),),
        "none": (),
    }
    needs = {"cil": "its classifier learns old classes from exemplars alone"}
    if classifier == "balanced" or not reuse:
        needs["til"] = (
            "a fresh classifier needs images of all classes; reuse=true with classifier=none "
            "does without"
        )
    return Method(
        "der",
        CrossEntropy(loss_over),
        extras=tuple(extras),
        head="linear" if bias else "unbiased",
        memory=EXEMPLARS,
        finish=finish[classifier],
        refused={
            "dil": "it adds an extractor for new classes, and there are none",
            "cir": "extractors of earlier tasks rest, so that new images cannot change what they "
            "make of known classes",
        },
        growth=Extractors(reuse, bias, mask_scale if sparsity else None),
        needs_memory=needs,
        no_variants={"a": _NO_OMEGA, "afec": _ALL_NEW},
    )
