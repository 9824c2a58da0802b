"""Methods that merge networks or let them grow, each a function that composes parts."""

from dataclasses import replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from ancl.errors import MethodError
from ancl.methods.connecting import BatchNorms, Connect, Ratio, Refit
from ancl.methods.method import Auxiliary, Method, Term
from ancl.methods.null_space import STABLE, Covariance, Project
from ancl.methods.variants import RELEASED_AUXILIARY_DECAY
from ancl.regularizers import Ewc, Lfl

Share = Annotated[float, Ge(0), Le(1)]
Epochs = Annotated[int, Ge(0)]

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
) -> Method:
    """Linear connector: the average of old and auxiliary network, without any λ or third training.

    Args:
        ratio: β, the auxiliary network's part: 1/(t + 1) in task t (task, the original), n_new/n
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
        threshold: Of stability=projected: eigenvalues up to this times the smallest count as none.
        energy: In its place: directions with at most this share of all eigenvalues count as none.
    """
    refused = {}
    if ratio == "classes":
        refused["dil"] = "ratio=classes counts new classes, and there are none"
    if refit:
        refused["dil"] = "refit trains the rows of new classes, and there are none"
    alone = "without images of earlier tasks a search sees the new task alone and takes β = 1"
    after = (Refit(refit),) if refit else ()
    common = Method(
        "connector",
        auxiliary_decay=RELEASED_AUXILIARY_DECAY,
        refused=refused,
        needs_memory=dict.fromkeys(("til", "cil", "dil"), alone) if ratio == "search" else {},
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
