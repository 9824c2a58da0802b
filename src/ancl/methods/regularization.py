"""Methods without a memory, each a function of parts; and all methods and variants by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ancl.hashing import LATER
from ancl.losses import CrossEntropy, Over
from ancl.methods.computed import COMPUTED, COMPUTED_ALIASES
from ancl.methods.fetril import fetril
from ancl.methods.growing.aanets import on_branches
from ancl.methods.growing.ccgn import ccgn
from ancl.methods.growing.connector import connector
from ancl.methods.growing.der import der
from ancl.methods.method import Method
from ancl.methods.moving import HEAD, Classifier, Transport, with_statistics
from ancl.methods.rehearsal import Lambda, Smoothing, bic, eeil, icarl, lucir, podnet, wa
from ancl.methods.replay import agem, dark_er, dark_er_pp, er, er_ace, gdumb, mir
from ancl.methods.variants import DEFAULT_LAMB_A, with_afec, with_ancl
from ancl.networks.learnable import ALL
from ancl.regularizers import Dmc, Eeil, Ewc, LessForget, Lfl, Lwf, Lwm, Mas, RWalk, Si
from ancl.training.lambda_rules import BalanceText, NewShare, OldShare, RefusedBalance
from ancl.training.objective import Auxiliary, Term

Share = Annotated[float, Ge(0), Le(1)]
Temperature = Annotated[float, Gt(0)]
Maker = Callable[..., Method]
"""Settings by keyword -> a method. Signature and docstring are what a user is shown."""


def finetune(
    *, loss_over: Over = "auto", classifier: Classifier = "head", transport: Transport = True
) -> Method:
    """Learn each task by its loss alone: the lower bound.

    Args:
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    return with_statistics(Method("finetune", CrossEntropy(loss_over)), classifier, transport)


def alone(*, loss_over: Over = "auto") -> Method:
    """Learn every task with a new network, as if it were the only one.

    What a method learns more of a task than this one is its forward transfer.

    Args:
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    fresh = "every task begins with a new network, and there is no old one to hold it to"
    return Method(
        "alone", CrossEntropy(loss_over), start="fresh", no_variants={"a": fresh, "afec": fresh}
    )


def joint(*, loss_over: Over = "auto") -> Method:
    """Learn each task with the images of all tasks so far: the upper bound.

    Args:
        loss_over: Classes that compete in the task loss: all ``seen`` (auto, the paper), or each
            task's own (own_task).
    """
    return Method("joint", CrossEntropy(loss_over), data="all", trains="everything")


def ewc(
    *,
    lamb: Lambda = 10_000.0,
    alpha: Share = 0.5,
    estimator: Literal["batch", "sample"] = "batch",
    batch_norm: Literal["train", "eval"] = "train",
    augment: bool = True,
    labels: Literal["true", "predicted", "sampled"] = "true",
    over: Literal["seen", "own"] = "seen",
    drop_last: bool = False,
    loss_over: Over = "auto",
    classifier: Classifier = "head",
    transport: Transport = True,
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
        drop_last: Whether the estimate leaves out a last batch that is not full.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    omega = Ewc(alpha, estimator, batch_norm, augment, drop_last, labels, over)
    method = Method("ewc", CrossEntropy(loss_over), Term(omega, lamb))
    return with_statistics(method, classifier, transport)


def mas(
    *,
    lamb: Lambda = 50.0,
    alpha: Share = 0.5,
    estimator: Literal["batch", "sample"] = "batch",
    batch_norm: Literal["train", "eval"] = "train",
    augment: bool = True,
    norm: Literal["l2", "squared"] = "l2",
    drop_last: bool = False,
    loss_over: Over = "auto",
    classifier: Classifier = "head",
    transport: Transport = True,
) -> Method:
    """Memory Aware Synapses: hold weights by how much the answers' length depends on them.

    Args:
        lamb: λ, the pull to the old network.
        alpha: Share of earlier tasks' importance when a task's own is added.
        estimator: Gradients of ``batch`` means (the paper's scale), or of each ``sample``.
        batch_norm: Batch norm while estimating: by the batch (train) or running (eval).
        augment: Whether the estimate sees augmented images.
        norm: The length differentiated: l2, or its square (squared).
        drop_last: Whether the estimate leaves out a last batch that is not full.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    omega = Mas(alpha, estimator, batch_norm, augment, drop_last, norm)
    method = Method("mas", CrossEntropy(loss_over), Term(omega, lamb))
    return with_statistics(method, classifier, transport)


def si(
    *,
    lamb: Lambda = 0.1,
    damping: Annotated[float, Gt(0)] = 0.1,
    clip: bool = True,
    loss_over: Over = "auto",
) -> Method:
    """Synaptic Intelligence: hold weights by how much their path lowered the loss.

    Args:
        lamb: λ, the pull to the old network.
        damping: Keeps the importance of weights that did not move finite.
        clip: Whether negative importance counts as zero.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    return Method("si", CrossEntropy(loss_over), Term(Si(damping, clip), lamb))


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
    drop_last: bool = False,
    loss_over: Over = "auto",
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
        drop_last: Whether the estimate leaves out a last batch that is not full.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    omega = RWalk(alpha, estimator, batch_norm, augment, drop_last, labels, over, damping)
    return Method("rwalk", CrossEntropy(loss_over), Term(omega, lamb))


def lwf(
    *,
    lamb: Lambda = 10.0,
    temperature: Temperature = 2.0,
    scope: Literal["joint", "per_head"] = "joint",
    smoothing: Smoothing = 1e-5,
    loss_over: Over = "auto",
    classifier: Classifier = "head",
    transport: Transport = True,
) -> Method:
    """Learning without Forgetting: keep the old network's soft answers on new images.

    Args:
        lamb: λ, the pull to the old network.
        temperature: T, by which logits are divided on both sides.
        scope: One softmax over all old classes (joint, as published), or one per head.
        smoothing: ε mixed into the network's own soft answers, as in the released code.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    kind = Lwf if scope == "joint" else Eeil
    method = Method("lwf", CrossEntropy(loss_over), Term(kind(temperature, smoothing), lamb))
    return with_statistics(method, classifier, transport)


def lfl(
    *,
    lamb: Lambda = 400.0,
    centre: bool = True,
    normalize: bool = True,
    reduction: Literal["mean", "sum"] = "mean",
    loss_over: Over = "auto",
    distance: Annotated[Literal["squared", "cosine"], LATER] = "squared",
    classifier: Classifier = "head",
    transport: Transport = True,
) -> Method:
    """Less-forgetful Learning: keep the old network's features on new images.

    Args:
        lamb: λ, the pull to the old network.
        centre: Whether each image's features are centred first.
        normalize: Whether they are scaled to length 1.
        reduction: Mean over features (the published λ), or sum (divide λ by their number).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        distance: ``squared``, of features as above; or ``cosine``, 1 − cos of their directions.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    squared = distance == "squared"
    omega = Lfl(centre, normalize, reduction) if squared else LessForget()
    method = Method("lfl", CrossEntropy(loss_over), Term(omega, lamb))
    return with_statistics(method, classifier, transport)


def lwm(
    *,
    lamb: Lambda = 10.0,
    temperature: Temperature = 2.0,
    gamma: Annotated[float, Ge(0)] = 0.1,
    attention: Literal["gradient", "detached"] = "gradient",
    smoothing: Smoothing = 0.0,
    loss_over: Over = "auto",
) -> Method:
    """Learning without Memorizing: keep the old network's soft answers and where it looks.

    Args:
        lamb: λ, the pull to the old network (the published β).
        temperature: T, by which logits are divided on both sides.
        gamma: The attention's weight over that of the answers: the published γ/β.
        attention: Whether its gradient flows, or it is detached as in the released code.
        smoothing: ε mixed into the network's own soft answers; the released code's is 1e-5.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    omega = Lwm(temperature, gamma, attention, smoothing)
    return Method("lwm", CrossEntropy(loss_over), Term(omega, lamb))


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
        refused={
            "dil": "its old and auxiliary network would speak for the same classes",
            "cir": "its old and auxiliary network would both speak for classes that come again",
        },
    )


def freeze(
    *,
    loss_over: Over = "auto",
    classifier: Classifier = "head",
    head: Annotated[Literal["linear", "cosine"], LATER] = "linear",
) -> Method:
    """Learn the backbone with the first task, then heads alone.

    Args:
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        head: What the first task is learned by: linear, or cosine: η cos(w, f) with a learned η.
    """
    method = Method("freeze", CrossEntropy(loss_over), trains="head", head=head)
    if classifier == HEAD:
        return method
    return with_statistics(replace(method, main="first"), classifier)


METHODS: dict[str, Maker] = {
    "finetune": finetune,
    "joint": joint,
    "alone": alone,
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
    "der": der,
    "connector": connector,
    "ccgn": ccgn,
    **COMPUTED,
    "er": er,
    "er-ace": er_ace,
    "dark-er": dark_er,
    "dark-er-pp": dark_er_pp,
    "agem": agem,
    "mir": mir,
    "gdumb": gdumb,
    "fetril": fetril,
}
for _host in (icarl, eeil, bic, wa, lucir, podnet):
    METHODS[f"aanets-{_host.__name__}"] = on_branches(_host)

ALIASES = {
    "finetuning": "finetune",
    "naive": "finetune",
    "sgd": "finetune",
    "freezing": "freeze",
    "path_integral": "si",
    "r_walk": "rwalk",
    "ucir": "lucir",
    **COMPUTED_ALIASES,
    "er_ace": "er-ace",
    "dark_er": "dark-er",
    "dark-er++": "dark-er-pp",
    "dark_er_pp": "dark-er-pp",
    "der++": "dark-er-pp",
    "derpp": "dark-er-pp",
    "der-pp": "dark-er-pp",
    "a-gem": "agem",
    "a_gem": "agem",
}


AuxiliaryPart = Annotated[str, LATER]
"""What learns of an auxiliary network; the network says which parts it has."""


def ancl_variant(
    *,
    lamb_a: Lambda | BalanceText = DEFAULT_LAMB_A,
    auxiliary_classes: Literal["new", "all"] = "new",
    auxiliary_data: Literal["current", "combined"] = "current",
    adaptive_auxiliary: Literal["both", "old_only"] = "both",
    auxiliary_start: Annotated[Literal["old", "zero"], LATER] = "old",
    auxiliary_trains: AuxiliaryPart = ALL,
) -> Callable[[Method], Method]:
    """Hold it to an auxiliary network too, by the same regularizer.

    Args:
        lamb_a: λ_a, the pull to the auxiliary network: a number; or balance:ρ, by which it pulls
            with a share ρ of the old network's force, whatever the scale of Ω is.
        auxiliary_classes: Its Ω is over the task's new classes, or over all.
        auxiliary_data: It learns from the task's images, or from them combined with the memory's.
        adaptive_auxiliary: Whether λ_a follows the same rule as λ, if there is one, or not.
        auxiliary_start: It starts from the old network, or (zero) from it with its adapters at
            zero: from the pretrained network.
        auxiliary_trains: What learns of its backbone: all that learns of the main network's; or a
            part of it: last (its last stage), affine, or names of modules. That costs less; the
            rest stays the old network's.
    """
    return lambda method: with_ancl(
        method,
        lamb_a,
        classes=auxiliary_classes,
        data=auxiliary_data,
        adaptive=adaptive_auxiliary,
        start=auxiliary_start,
        trains=auxiliary_trains,
    )


def afec_variant(
    *,
    lamb_a: Lambda | RefusedBalance = 1.0,
    afec_start: Literal["old", "carried"] = "old",
    afec_renewed: Literal["epoch", "task"] = "epoch",
    afec_over: Literal["auto", "own", "seen"] = "auto",
    auxiliary_trains: AuxiliaryPart = ALL,
) -> Callable[[Method], Method]:
    """Hold it to an auxiliary network one epoch ahead, by EWC's regularizer.

    Args:
        lamb_a: λ_a, the pull to the auxiliary network.
        afec_start: It starts each task from the old network, or from its own last weights
            (carried).
        afec_renewed: Renew it every epoch (AFEC), or once per task (then it is ANCL's).
        afec_over: Classes of its Fisher information: the task's own, or all ``seen``; auto is own,
            and with ewc what ewc has.
        auxiliary_trains: What learns of its backbone: all that learns of the main network's; or a
            part of it: last (its last stage), affine, or names of modules. That costs less; the
            rest stays the old network's.
    """
    return lambda method: with_afec(
        method,
        lamb_a,
        start=afec_start,
        renewed=afec_renewed,
        over=afec_over,
        trains=auxiliary_trains,
    )


VARIANTS: dict[str, Callable[..., Callable[[Method], Method]]] = {
    "a": ancl_variant,
    "afec": afec_variant,
}
PUBLISHED_WITH_ANCL = ("ewc", "mas", "lwf", "lfl", "icarl", "bic", "lucir", "podnet")
"""The methods to which the paper applies ANCL; with others it is an extension of ours."""
