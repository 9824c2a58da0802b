"""Methods that keep exemplars, each a function that composes parts."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.inference import Argmax, Corrected, Infer, NearestMean
from ancl.losses import CrossEntropy, MarginRanking, Nca, OneHot, Over
from ancl.memory import Memory
from ancl.methods.finishing import Align, BalancedTuning, BiasCorrection
from ancl.methods.method import Finish, Method
from ancl.regularizers import Eeil, Icarl, LessForget, Lwf, Pod
from ancl.step_hooks import ClampGradients, GradientNoise, NonNegativeRows
from ancl.training.lambda_rules import (
    AdaptiveAllNew,
    AdaptiveOldNew,
    Factor,
    NewShare,
    OldShare,
    Weight,
)
from ancl.training.objective import Extra, Term

Lambda = Annotated[float, Ge(0)]
Smoothing = Annotated[float, Ge(0), Lt(1)]
Positive = Annotated[float, Gt(0)]
Epochs = Annotated[int, Ge(0)]
Classify = Literal["logits", "nearest_mean"]

EXEMPLARS = Memory(per_class=20)
"""What these methods keep unless a run says otherwise, as in the ANCL paper."""

_NO_NEW_CLASSES = "it weighs new classes against old ones, and there all classes are the same"


def icarl(
    *,
    lamb: Lambda = 1.0,
    distill: Literal["bce_sum", "softmax", "bce_mean"] = "bce_sum",
    temperature: Positive = 2.0,
    classify: Classify = "nearest_mean",
    mirrored: bool = True,
    loss_over: Over = "auto",
) -> Method:
    """iCaRL: keep the old network's answers class by class; the nearest exemplar mean decides.

    Args:
        lamb: λ, the pull to the old network.
        distill: Sigmoids summed over classes (bce_sum, the scale of the published λ), ``softmax``
            as the ANCL paper writes it, or iCaRL's own loss (bce_mean, times n_old/n, and sigmoids
            for new classes too).
        temperature: T of ``softmax``.
        classify: By the nearest mean of exemplars, or by logits.
        mirrored: Whether exemplars' mirror images take part in the means.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    own = distill == "bce_mean"
    if own and loss_over != "auto":
        raise MethodError(
            f"loss_over is {loss_over} and distill is bce_mean, whose sigmoids do not compete. "
            f"Use loss_over=auto, or distill=bce_sum or softmax."
        )
    return Method(
        "icarl",
        task_loss=OneHot() if own else CrossEntropy(loss_over),
        old=Term(Icarl(distill, temperature), _ruled(OldShare, lamb, own)),
        memory=EXEMPLARS,
        infer=_infer(classify, mirrored),
    )


def eeil(
    *,
    lamb: Lambda = 1.0,
    temperature: Positive = 2.0,
    enlarge: bool = True,
    noise: Annotated[float, Ge(0)] = 0.3,
    noise_decay: Annotated[float, Ge(0)] = 0.55,
    balanced_epochs: Epochs = 30,
    balanced_lr: Positive = 0.01,
    balanced_factor: Positive | None = None,
    balanced_milestones: tuple[int, ...] = (10, 20),
    balanced_keeps: Literal["before", "old", "nothing"] = "before",
    loss_over: Over = "auto",
) -> Method:
    """EEIL: keep the old network's soft answers head by head, then tune on balanced images.

    Args:
        lamb: λ, the pull to the old network.
        temperature: T, by which logits are divided on both sides.
        enlarge: Whether tasks after the first are learned from 12 fixed versions of every image
            (the original) in place of data.augment (FACIL).
        noise: Deviation of the noise on summed gradients in the first epoch; 0 for none.
        noise_decay: How fast the noise falls with the epochs.
        balanced_epochs: Epochs of tuning on equally many images of every class; 0 leaves it out.
        balanced_lr: Its learning rate.
        balanced_factor: Its learning rate as a share of the task's, in place of balanced_lr
            (FACIL).
        balanced_milestones: Epochs after which the rate is divided by 10.
        balanced_keeps: What it is held to: all heads of the network ``before`` it (the original),
            the ``old`` network's heads, or ``nothing``.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    tuning = BalancedTuning(
        balanced_epochs,
        balanced_lr,
        balanced_milestones,
        keeps=balanced_keeps,
        factor=balanced_factor,
    )
    return Method(
        "eeil",
        CrossEntropy(loss_over),
        Term(Eeil(temperature), lamb),
        memory=EXEMPLARS,
        select_by="task_loss",
        enlarge=enlarge,
        finish=(tuning,) if balanced_epochs else (),
        constrain=GradientNoise(noise, noise_decay) if noise else None,
    )


def bic(
    *,
    lamb: Lambda | Literal["convex"] = 10.0,
    temperature: Positive = 2.0,
    hold_out: Annotated[float, Gt(0), Lt(1)] = 0.1,
    bias_epochs: Annotated[int, Ge(1)] = 200,
    bias_lr: Positive = 0.1,
    bias_milestones: tuple[int, ...] = (60, 120, 160, 180),
    bias_decay: Annotated[float, Ge(0)] = 0.1,
    bias_augment: bool = False,
    correct_student: bool = False,
    smoothing: Smoothing = 0.0,
    loss_over: Over = "auto",
) -> Method:
    """BiC: keep the old network's soft answers, then correct new classes' bias on held-out images.

    Args:
        lamb: λ, the pull to the old network (the ANCL paper's form), or ``convex``: n_old/n, with
            n_new/n for the task loss (the original).
        temperature: T, by which logits are divided on both sides.
        hold_out: Share of the memory that nothing but the correction learns from.
        bias_epochs: Epochs of the correction.
        bias_lr: Its learning rate.
        bias_milestones: Epochs after which the rate is divided by 10.
        bias_decay: Weight of β²/2 in its loss.
        bias_augment: Whether its images are changed by data.augment (FACIL) or left as they are.
        correct_student: Whether the network learns with all earlier corrections in place (FACIL),
            or only its old network answers with the last one (the original).
        smoothing: ε mixed into the network's own soft answers; FACIL's is 1e-5.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    pull, task_weight = _weights(lamb)
    correction = BiasCorrection(bias_epochs, bias_lr, bias_milestones, bias_decay, bias_augment)
    return Method(
        "bic",
        CrossEntropy(loss_over),
        Term(Lwf(temperature, smoothing), pull),
        task_weight=task_weight,
        memory=EXEMPLARS,
        hold_out=hold_out,
        finish=(correction,),
        infer=Corrected(correct_student),
        refused={"dil": _NO_NEW_CLASSES},
    )


def wa(
    *,
    lamb: Lambda | Literal["convex"] = "convex",
    temperature: Positive = 2.0,
    nonnegative: bool = True,
    bias: bool = False,
    loss_over: Over = "auto",
) -> Method:
    """WA: keep the old network's soft answers, then scale new classes' rows to the old ones'.

    Args:
        lamb: λ, the pull to the old network, or ``convex``: n_old/n, with n_new/n for the task
            loss (the original).
        temperature: T, by which logits are divided on both sides.
        nonnegative: Whether the head's weights are held at 0 or above after every step.
        bias: Whether the head has biases, which are not scaled; the original has none.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    pull, task_weight = _weights(lamb)
    return Method(
        "wa",
        CrossEntropy(loss_over),
        Term(Lwf(temperature), pull),
        task_weight=task_weight,
        head="linear" if bias else "unbiased",
        memory=EXEMPLARS,
        finish=(Align(),),
        constrain=NonNegativeRows() if nonnegative else None,
        refused={"dil": _NO_NEW_CLASSES},
    )


def lucir(
    *,
    lamb: Lambda = 5.0,
    adaptive: bool = True,
    margin_weight: Annotated[float, Ge(0)] = 1.0,
    margin: float = 0.5,
    margin_negatives: Annotated[int, Ge(1)] = 2,
    margin_reduction: Literal["mean", "sum"] = "mean",
    imprint: bool = True,
    balanced_epochs: Epochs = 0,
    balanced_lr: Positive = 0.01,
    balanced_milestones: tuple[int, ...] = (10,),
    classify: Classify = "logits",
    loss_over: Over = "auto",
    train_old_rows: Annotated[bool, LATER] = False,
) -> Method:
    """LUCIR: a cosine classifier that keeps the direction of features, and a margin between tasks.

    Args:
        lamb: λ, the pull to the old network.
        adaptive: Whether λ is multiplied by √(n_old/n_new).
        margin_weight: Weight of the margin between old and new classes; 0 leaves it out.
        margin: The margin itself, between cosines.
        margin_negatives: New classes it looks at, the nearest ones.
        margin_reduction: Mean over them (the original), or sum (as the ANCL paper writes it).
        imprint: Whether new rows begin as mean features of their classes.
        balanced_epochs: Epochs of tuning the head on equally many images of every class; 20 in the
            original for ImageNet.
        balanced_lr: Its learning rate.
        balanced_milestones: Epochs after which the rate is divided by 10.
        classify: By logits, or by the nearest mean of exemplars.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        train_old_rows: Whether rows of old classes learn too, which the original leaves alone.
            Classes that come again need it.
    """
    ranking = MarginRanking(margin, margin_negatives, margin_reduction)
    return Method(
        "lucir",
        CrossEntropy(loss_over),
        Term(LessForget(), _ruled(AdaptiveOldNew, lamb, adaptive)),
        extras=(Extra("margin", ranking, margin_weight, True),) if margin_weight else (),
        trains="everything" if train_old_rows else "new rows",
        head="cosine",
        imprint=imprint,
        last_relu=False,
        memory=EXEMPLARS,
        select_by="task_loss",
        finish=_head_tuning(balanced_epochs, balanced_lr, balanced_milestones),
        infer=_infer(classify),
    )


def podnet(
    *,
    lamb: Lambda = 10.0,
    adaptive: bool = True,
    spatial: Annotated[float, Ge(0)] = 1.0,
    flat: Annotated[float, Ge(0)] = 1.0,
    flat_form: Literal["cosine", "l2"] = "cosine",
    pod_norm: Literal["l2sq", "l2"] = "l2sq",
    pod_square: bool = True,
    pod_normalize: Literal["joint", "none"] = "joint",
    proxies: Annotated[int, Ge(1)] = 10,
    similarity: Literal["official", "cosine"] = "official",
    nca: Literal["official", "paper"] = "official",
    nca_margin: float = 0.6,
    gradient_limit: Positive = 5.0,
    imprint: bool = True,
    balanced_epochs: Epochs = 20,
    balanced_lr: Positive = 0.05,
    classify: Classify = "logits",
    loss_over: Over = "auto",
    train_old_rows: Annotated[bool, LATER] = False,
) -> Method:
    """PODNet: keep every stage's pooled maps; each class has several proxies.

    Args:
        lamb: λ, the pull to the old network; 1 with spatial=3 is the original.
        adaptive: Whether λ is multiplied by √(n/n_new).
        spatial: λ_c, the weight of pooled maps within the pull.
        flat: λ_f, that of features.
        flat_form: Of features: 1 − cos (cosine, the original), or the squared distance (l2).
        pod_norm: Squared distance of pooled maps, or the distance (l2, the released code), whose
            pulls to two networks do not interpolate.
        pod_square: Whether activations are squared before they are pooled.
        pod_normalize: Pooled rows and columns of joint length 1, or as they are (none).
        proxies: Proxies per class.
        similarity: To a proxy: 2 cos − 2 (official), or the ``cosine`` itself.
        nca: The loss as in the released code (official), or as the paper writes it.
        nca_margin: δ, which the official form cancels.
        gradient_limit: Every element of the gradient is held within ± this.
        imprint: Whether new proxies begin as centres of their classes' features.
        balanced_epochs: Epochs of tuning the proxies on equally many images of every class; 0
            leaves it out.
        balanced_lr: Its learning rate.
        classify: By logits, or by the nearest mean of exemplars.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        train_old_rows: Whether proxies of old classes learn too, which the original leaves alone.
            Classes that come again need it.
    """
    omega = Pod(pod_norm, pod_square, pod_normalize, spatial, flat, flat_form)
    return Method(
        "podnet",
        task_loss=Nca(nca, nca_margin, loss_over),
        old=Term(omega, _ruled(AdaptiveAllNew, lamb, adaptive)),
        trains="everything" if train_old_rows else "new rows",
        head="proxies",
        head_options={"proxies": proxies, "similarity": similarity},
        imprint=imprint,
        last_relu=False,
        memory=EXEMPLARS,
        finish=_head_tuning(balanced_epochs, balanced_lr),
        infer=_infer(classify),
        constrain=ClampGradients(gradient_limit),
    )


def _ruled(rule: type[Factor], lamb: float, wanted: bool) -> Weight:
    """λ by a rule; the number 0 stays a number, so that the term is known to be nothing."""
    return rule(lamb) if wanted and lamb else lamb


def _weights(lamb: float | Literal["convex"]) -> tuple[Weight, Weight]:
    """λ and the task loss's own weight."""
    return (OldShare(), NewShare()) if lamb == "convex" else (lamb, 1.0)


def _infer(classify: Classify, mirrored: bool = True) -> Infer:
    return NearestMean(mirrored) if classify == "nearest_mean" else Argmax()


def _head_tuning(epochs: int, lr: float, milestones: tuple[int, ...] = ()) -> tuple[Finish, ...]:
    return (BalancedTuning(epochs, lr, milestones, trains="head"),) if epochs else ()
