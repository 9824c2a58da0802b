"""Methods that replay batches of a memory beside the task's, each a function of parts."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt

from ancl.losses import CrossEntropy, OpenCrossEntropy, Over, PooledCrossEntropy
from ancl.memory import Memory, StoredLogits
from ancl.methods.finishing import TrainOnMemory
from ancl.methods.method import Method
from ancl.methods.rehearsal import Lambda, Positive
from ancl.regularizers import LogitDistance
from ancl.step_hooks import ProjectGradient
from ancl.training.objective import Reference, Replayed, Term
from ancl.training.retrieval import Interference

ReplayHead = Literal["growing", "fixed"]
REPLAY = Memory(per_class=20, selection="random", batch=32)
"""What these methods keep and replay unless a run says otherwise."""


def er(
    *,
    mean: Literal["pooled", "separate"] = "pooled",
    head: ReplayHead = "growing",
    loss_over: Over = "auto",
) -> Method:
    """Experience replay: learn a batch of the memory with every batch of the task.

    Args:
        mean: One mean over the images of both batches, or the sum of two means (separate).
        head: It grows with the classes, or has all classes of the run from the start (fixed).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    pooled = mean == "pooled"
    return Method(
        "er",
        PooledCrossEntropy(loss_over) if pooled else CrossEntropy(loss_over),
        extras=() if pooled else (Replayed("replay", CrossEntropy(loss_over)),),
        memory=REPLAY,
        all_classes=head == "fixed",
    )


def er_ace(*, opened: Literal["task", "batch"] = "task", head: ReplayHead = "growing") -> Method:
    """ER-ACE: replay over all classes, while new images compete with their own classes alone.

    Args:
        opened: Classes that compete for a new image: those of the task and of its batch, or of the
            batch alone (the paper), which then has no loss where it has one class.
        head: It grows with the classes, or has all classes of the run from the start (fixed).
    """
    return Method(
        "er-ace",
        OpenCrossEntropy(opened),
        extras=(Replayed("replay", CrossEntropy("seen")),),
        memory=REPLAY,
        all_classes=head == "fixed",
    )


def dark_er(
    *, lamb: Lambda = 0.3, head: ReplayHead = "growing", loss_over: Over = "auto"
) -> Method:
    """Dark experience replay: replay images held to stored logits. ``der`` is a network that grows.

    Args:
        lamb: λ, the pull to the stored logits; α of the paper.
        head: It grows with the classes, or has all classes of the run from the start (fixed).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    return _dark("dark-er", lamb, 0.0, head, loss_over)


def dark_er_pp(
    *,
    lamb: Lambda = 0.1,
    beta: Annotated[float, Ge(0)] = 0.5,
    head: ReplayHead = "growing",
    loss_over: Over = "auto",
) -> Method:
    """Dark experience replay (DER++): images held to stored logits, and learned by their labels.

    Args:
        lamb: λ, the pull to the stored logits; α of the paper.
        beta: β, the weight of the replay batch's own task loss.
        head: It grows with the classes, or has all classes of the run from the start (fixed).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    return _dark("dark-er-pp", lamb, beta, head, loss_over)


def _dark(name: str, lamb: float, beta: float, head: ReplayHead, loss_over: Over) -> Method:
    return Method(
        name,
        CrossEntropy(loss_over),
        Term(LogitDistance(), lamb, stored=True),
        extras=(Replayed("replay", CrossEntropy(loss_over), beta),) if beta else (),
        memory=REPLAY,
        records=(StoredLogits(),),
        all_classes=head == "fixed",
    )


def agem(*, head: ReplayHead = "growing", loss_over: Over = "auto") -> Method:
    """A-GEM: no step that would raise the loss of a batch of the memory.

    Momentum and weight decay act after the projection: use training.momentum=0.

    Args:
        head: It grows with the classes, or has all classes of the run from the start (fixed).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    return Method(
        "agem",
        CrossEntropy(loss_over),
        extras=(Reference("reference", CrossEntropy(loss_over)),),
        memory=Memory(per_class=20, selection="random", batch=256),
        constrain=ProjectGradient(),
        no_variants={"a": "it holds gradients to a half-space, and has no distance to a network"},
        all_classes=head == "fixed",
    )


def mir(
    *,
    candidates: Annotated[int, Ge(1)] = 50,
    head: ReplayHead = "growing",
    loss_over: Over = "auto",
) -> Method:
    """MIR: replay those images of the memory whose loss the next step would raise most.

    Args:
        candidates: Images that are drawn and compared; memory.batch of them are replayed.
        head: It grows with the classes, or has all classes of the run from the start (fixed).
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    return Method(
        "mir",
        CrossEntropy(loss_over),
        extras=(Replayed("replay", CrossEntropy(loss_over)),),
        memory=Memory(per_class=20, selection="random", batch=10),
        retrieve=Interference(candidates),
        all_classes=head == "fixed",
    )


def gdumb(
    *,
    passes: Annotated[int, Ge(1)] = 256,
    lr: Positive = 0.05,
    lr_min: Positive = 0.0005,
    batch_size: Annotated[int, Ge(1)] = 16,
    weight_decay: Annotated[float, Ge(0)] = 1e-6,
    clip: Annotated[float, Gt(0)] = 10.0,
    loss_over: Over = "auto",
) -> Method:
    """GDumb: a new network after every task, trained on the memory and on nothing else.

    It does not read training.*: what follows is its own.

    Args:
        passes: Passes over the memory, after every task.
        lr: The largest learning rate; it falls in cycles of 2, 4, 8 … passes.
        lr_min: The rate that a cycle falls to.
        batch_size: Images per step.
        weight_decay: Added by the optimizer.
        clip: Largest norm of the gradient.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    no_network = "it begins anew with every task, and there is no old network to hold to"
    return Method(
        "gdumb",
        CrossEntropy(loss_over),
        start="fresh",
        main="none",
        memory=Memory(per_class=20, selection="random"),
        finish=(TrainOnMemory(passes, lr, lr_min, batch_size, weight_decay, clip),),
        no_variants={"a": no_network, "afec": no_network},
    )
