"""Where a default differs from a public implementation: whose, why, and the setting for theirs.

``ancl list methods --options NAME`` and ``docs/methods.md`` show this table.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ancl.methods.registry import MethodRef

SOURCES = {
    "ANCL paper": "Kim et al., CVPR 2023, its formulas and text",
    "ANCL code": "kim-sanghwan/ANCL, what its authors released: ewc, mas, lwf, lfl, lwm, dmc",
    "FACIL": "mmasana/FACIL, which the ANCL code is built on",
    "PyCIL": "LAMDA-CL/PyCIL",
    "AFEC code": "lywang3081/AFEC, by its authors",
    "ChannelGatedCL": "the one public implementation of CCGN, not by its authors",
    "the original": "the paper or the code of the method's own authors",
}
"""The implementations that are compared with."""


class Difference(NamedTuple):
    """One default that differs from another implementation.

    Args:
        methods: To which it applies: ``ewc`` means its variants too, ``a-*`` every method with
            ANCL, ``afec-*`` every one with AFEC, ``*`` all.
        about: What is done in two ways.
        ours: What is done here by default.
        whose: Who does it in another way, of ``SOURCES``.
        theirs: What they do.
        why: The reason for the default.
        settings: What gives theirs, by key; nothing where no setting does.
    """

    methods: tuple[str, ...]
    about: str
    ours: str
    whose: tuple[str, ...]
    theirs: str
    why: str
    settings: Mapping[str, Any]

    @property
    def setting(self) -> str:
        """The settings as ``--set`` reads them."""
        return " ".join(f"{key}={_text(value)}" for key, value in self.settings.items())


def list_differences(method: str) -> tuple[Difference, ...]:
    """The differences of one method, its own first.

    Examples:
        >>> [each.setting for each in list_differences("wa") if "PyCIL" in each.whose]
        ['nonnegative=false', 'bias=true']
    """
    ref = MethodRef(method)
    host = ref.base.removeprefix("aanets-")  # on two branches a host is what it is
    own, general = {ref.base, ref.name, host}, {"*", f"{ref.variant}-*"}
    found = [each for each in DIFFERENCES if own & {*each.methods}]
    return (*found, *(each for each in DIFFERENCES if general & {*each.methods}))


def differences_table() -> str:
    """All differences as a table in Markdown."""
    lines = [
        "| method | what | here | elsewhere | why | setting that gives theirs |",
        "|---|---|---|---|---|---|",
    ]
    for each in DIFFERENCES:
        setting = f"`{each.setting}`" if each.settings else "none"
        methods = ", ".join("all" if name == "*" else f"`{name}`" for name in each.methods)
        theirs = f"{' and '.join(each.whose)}: {each.theirs}"
        cells = (methods, each.about, each.ours, theirs, each.why, setting)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _row(
    methods: str,
    about: str,
    ours: str,
    whose: str,
    theirs: str,
    why: str,
    settings: Mapping[str, Any] | None = None,
) -> Difference:
    named = tuple(whose.split(", "))
    return Difference(tuple(methods.split()), about, ours, named, theirs, why, settings or {})


_IMPORTANCE = "ewc mas rwalk"
_MEMORY = "icarl eeil bic wa lucir podnet"
_BRANCHES = " ".join(f"aanets-{host}" for host in _MEMORY.split())
_PUBLISHED = "the published λ belong to it"
_CODE = "the ANCL code; the paper is silent"


def _recipe(
    epochs: int, lr: float, decay: float, milestones: tuple[int, ...] = (), gamma: float = 0.1
) -> dict[str, Any]:
    schedule: dict[str, Any] = {"training.schedule": "cosine"}
    if milestones:
        schedule = {"training.schedule": "multistep", "training.milestones": milestones}
        schedule["training.gamma"] = gamma
    return {
        "training.epochs": epochs,
        "training.lr": lr,
        "training.lr_first": lr,
        "training.weight_decay": decay,
        **schedule,
        "data.val_fraction": 0,
    }


def _trained(method: str, text: str, settings: Mapping[str, Any]) -> Difference:
    why = "one protocol for all methods, the ANCL paper's"
    return _row(method, "training", "patience on validation", "the original", text, why, settings)


# A row is read as one:
# fmt: off
DIFFERENCES: tuple[Difference, ...] = (
    # -- weights
    _row("ewc", "Fisher information", "squares of batch gradients", "the original",
         "squares of each sample's gradient", _PUBLISHED, {"estimator": "sample"}),
    _row("ewc", "labels of the estimate", "the true ones", "FACIL", "the predicted ones",
         "as in the ANCL code", {"labels": "predicted"}),
    _row("afec-ewc", "classes of both Fisher estimates", "all seen", "AFEC code",
         "the task's own", "the ANCL paper's AFEC on EWC is A-EWC, renewed every epoch",
         {"over": "own"}),
    _row("mas", "length of the answers", "‖z‖", "the original", "‖z‖²", _PUBLISHED,
         {"norm": "squared"}),
    _row(_IMPORTANCE, "a last batch that is not full", "counts in the estimate",
         "ANCL code, FACIL", "is left out", "a task of less than one batch has an estimate too",
         {"drop_last": True}),
    _row(_IMPORTANCE, "running statistics of batch norm", "come back after the estimate",
         "ANCL code, FACIL", "stay where the estimate moved them",
         "an estimate should not change the network"),
    _row("si", "negative importance", "counts as zero", "FACIL", "counts",
         "it pushes weights away from the old ones without bound", {"clip": False}),
    _row("si rwalk", "steps that patience takes back", "leave the path", "FACIL",
         "stay in the path", "they did not lead to the weights"),
    _row("rwalk", "path", "of the task loss", "FACIL", "of cross-entropy over all classes seen",
         "the path is that of the loss which is trained"),
    _row("rwalk", "path and Fisher information", "over the whole task, and at its end",
         "the original", "both in windows of steps", "as in FACIL"),
    # -- answers and features
    _row("lwf", "ε in the network's own answers", "1e-5", "PyCIL", "0", _CODE,
         {"smoothing": 0.0}),
    _row("lwf", "softmax of the distillation", "one over all old classes", "the original",
         "one for each old task", "as in the ANCL code", {"scope": "per_head"}),
    _row("lfl", "distance of features", "averaged over features", "ANCL paper",
         "summed over features (divide λ by their number)", _PUBLISHED, {"reduction": "sum"}),
    _row("lfl", "features", "centred and of length 1", "the original", "as they are",
         "as in the ANCL paper", {"centre": False, "normalize": False}),
    _row("lwm", "gradient of the attention", "flows", "ANCL code, FACIL", "is cut off by a bug",
         "without it, the method is LwF", {"attention": "detached"}),
    _row("lwm", "attention maps", "of the old network's top class for each image",
         "ANCL code, FACIL", "mixed over the classes of the batch",
         "a bug: maps have no meaning"),
    _row("lwm", "ε in the network's own answers", "0", "ANCL code, FACIL", "1e-5",
         "the formula is exact without it", {"smoothing": 1e-5}),
    _row("dmc", "teachers' logits", "centred over each sample's classes", "ANCL code, FACIL",
         "centred over the batch", "as in the original", {"centring": "batch"}),
    _row("dmc", "images", "of the current task", "FACIL, the original",
         "of another source", "as in the ANCL paper"),
    _row("dmc", "first weights of every task", "the network's own first draw",
         "ANCL code, FACIL", "PyTorch's default draw", "one way to draw weights"),
    # -- with a memory
    _row("icarl", "distillation", "sigmoids, summed over classes", "ANCL paper, PyCIL",
         "softmax", "as in FACIL, to which the published λ seem to belong",
         {"distill": "softmax"}),
    _row("icarl", "loss", "cross-entropy and distillation", "the original",
         "one mean of sigmoids over all classes", "as in FACIL", {"distill": "bce_mean"}),
    _row("icarl", "means of exemplars", "with mirror images", "FACIL", "without them",
         "as in the original", {"mirrored": False}),
    _row("eeil", "training images", "twelve fixed versions of each", "FACIL",
         "the run's augmentation", "as in the original", {"enlarge": False}),
    _row("eeil", "fixed versions", "whole grey levels, crops from all places", "the original",
         "fractions of grey levels, no crop from the last place", "images are stored as uint8"),
    _row("eeil", "noise on gradients", "0.3 / (1 + epoch)^0.55", "FACIL", "none",
         "as in the original", {"noise": 0.0}),
    _row("eeil", "distillation", "cross-entropy in every old head", "FACIL",
         "binary cross-entropy, without the last old head", "as in the original"),
    _row("eeil", "balanced tuning",
         "30 epochs from a rate of 0.01, held to the network before it", "FACIL",
         "40 epochs from 0.01 of the task's rate, held to the old network (and patience, which "
         "has no setting)", "as in the original",
         {"balanced_epochs": 40, "balanced_factor": 0.01, "balanced_milestones": (),
         "balanced_keeps": "old"}),
    _row("eeil", "balanced images", "equally many of every class", "FACIL",
         "as many new ones as old ones", "as in the original"),
    _row("bic", "weights of both losses", "1 and λ = 10", "the original", "n_new/n and n_old/n",
         "as in the ANCL paper", {"lamb": "convex"}),
    _row("bic", "earlier corrections", "act on the old network", "FACIL",
         "act on the network that learns, too", "as in the original", {"correct_student": True}),
    _row("bic", "images of the correction", "as they are", "FACIL", "augmented",
         "as in the original", {"bias_augment": True}),
    _row("bic", "rate of the correction", "0.1, divided by 10 four times", "FACIL",
         "the task's rate (give `bias_lr`), constant", "as in the original",
         {"bias_milestones": ()}),
    _row("bic", "images held out", "drawn at random", "FACIL", "the first of every class",
         "the order of files should decide nothing"),
    _row("bic", "batch norm in the correction", "running statistics", "the original, PyCIL",
         "statistics of the batch", "the network is frozen there"),
    _row("bic", "ε in the network's own answers", "0", "FACIL", "1e-5", "as in the original",
         {"smoothing": 1e-5}),
    _row("wa", "rows of the head", "held at 0 or above", "PyCIL", "free", "as in the original",
         {"nonnegative": False}),
    _row("wa", "biases of the head", "none", "PyCIL", "there, and not aligned",
         "as in the original", {"bias": True}),
    _row("lucir", "new rows of the head", "begin as means of features", "FACIL",
         "begin at random", "as in the original", {"imprint": False}),
    _row("lucir", "factor of λ", "√(n_old/n_new)", "ANCL paper", "none written",
         "as in the original and FACIL", {"adaptive": False}),
    _row("lucir", "margin ranking", "mean over the nearest new classes", "ANCL paper", "sum",
         "as in the original", {"margin_reduction": "sum"}),
    _row("lucir", "balanced tuning", "none", "the original", "20 epochs, for ImageNet",
         "none for CIFAR-100, as in the original", {"balanced_epochs": 20}),
    _row("lucir eeil", "what patience judges by", "the task loss", "ANCL code",
         "the whole loss, for the methods it has", "as in FACIL", {"training.select_by": "loss"}),
    _row("podnet", "distance of pooled maps", "squared", "the original", "not squared",
         "two distances do not interpolate between two networks", {"pod_norm": "l2"}),
    _row("podnet", "weights of the distances", "λ = 10, λ_c = 1", "the original",
         "λ = 1, λ_c = 3", "the ANCL paper's λ, without a second factor",
         {"lamb": 1.0, "spatial": 3.0}),
    _row("podnet", "pooled maps and features", "squared, of length 1; 1 − cos", "ANCL paper",
         "as they are; squared distance", "as in the original",
         {"pod_square": False, "pod_normalize": "none", "flat_form": "l2"}),
    _row("podnet", "loss", "margin cancels, as in the released code", "the original",
         "with a margin, in its paper", "as in the released code",
         {"nca": "paper"}),
    _row("podnet", "similarity to proxies", "2 cos − 2", "PyCIL", "cos", "as in the original",
         {"similarity": "cosine"}),
    _row("podnet", "batch norm while the head is tuned", "running statistics", "the original",
         "statistics of the batch", "the backbone does not change there"),
    _row("icarl eeil bic wa", "memory", "20 images of every class",
         "the original", "2000 images in all", "as in the ANCL paper", {"memory.total": 2000}),
    _row("icarl eeil bic lucir", "a memory of fixed size", "⌊size/n⌋ of each class", "FACIL",
         "⌈size/n⌉ of each class", "it never holds more than its size"),
    _row(_MEMORY, "augmentation in the paper's benchmarks", "padded, then a crop of random size",
         "the original", "padded, then a crop of fixed size", "as in FACIL and the ANCL code",
         {"data.augment": "crop"}),
    _trained("icarl", "70 epochs from a rate of 2",
             {**_recipe(70, 2.0, 2e-5, (49, 63), 0.2), "distill": "bce_mean"}),
    _trained("eeil", "40 epochs from a rate of 0.1", _recipe(40, 0.1, 1e-4, (10, 20, 30))),
    _trained("bic wa", "250 epochs from a rate of 0.1", _recipe(250, 0.1, 2e-4, (100, 150, 200))),
    _trained("lucir", "160 epochs from a rate of 0.1", _recipe(160, 0.1, 5e-4, (80, 120))),
    _trained("podnet", "160 epochs from a rate of 0.1, cosine", _recipe(160, 0.1, 5e-4)),
    # -- networks that grow or merge
    _row("der", "classifier as a task begins", "initialised again", "the original",
         "keeps its old part, in its paper", "as in its released code", {"reuse": True}),
    _row("der", "first weights of the classifier", "PyTorch's default draw", "the original",
         "Kaiming's normal draw", "one way to draw weights"),
    _row("der", "the classifier at the end", "initialised again, and trained on balanced images",
         "PyCIL", "new rows scaled to the old ones' length", "as in the original",
         {"classifier": "align"}),
    _row("der", "biases of the classifier", "none", "PyCIL", "there", "as in the original",
         {"bias": True}),
    _row("der", "rate as a task begins", "its full value", "the original",
         "ten epochs of warm-up, then classifier and side head initialised again",
         "about 0.2 points, its authors say"),
    _row("der", "masks", "none; else inside residual blocks, from the second task on",
         "the original", "on all channels, in every task, in its paper",
         "its code has none; shortcuts tie all other channels"),
    _row("der", "network", "the run's", "the original", "a ResNet-18 with 11.2 million parameters",
         "one network for all methods"),
    _row("der", "memory", "20 images of every class", "the original", "2000 images in all",
         "one memory for all methods", {"memory.total": 2000}),
    _trained("der", "170 epochs from a rate of 0.1", _recipe(170, 0.1, 5e-4, (110, 130))),
    _row("connector", "what is averaged", "the old and the auxiliary network", "the original",
         "one network trained in the null space of earlier inputs, one that keeps features",
         "the two networks of ANCL: a baseline without λ", {"stability": "projected"}),
    _row("connector", "batch norms while both networks train", "free", "the original",
         "held by their Fisher information, 100 times", "no λ"),
    _row(_BRANCHES, "rate of the branches' weights", "0.01, gradients cleared at every step",
         "the original", "1e-8; on LUCIR gradients add up over the whole run, by a bug",
         "at 1e-8 cleared gradients move nothing", {"alpha_lr": 1e-8}),
    _row(_BRANCHES, "images that decide them", "equally many of every class, in random order",
         "the original", "all exemplars, and new images drawn from all classes together, in order",
         "they should be balanced"),
    _row(_BRANCHES, "batch norm of a frozen branch", "is fixed", "the original",
         "its statistics move", "a frozen branch always answers the same"),
    _row("ccgn", "gates while they are drawn", "open with probability σ(l)", "ChannelGatedCL",
         "with 1 − exp(−e^l), by one Gumbel variable in place of two",
         "the rule at test time, l > 0, is then the likelier of both"),
    _row("ccgn", "gates' logits at first", "around 2", "ChannelGatedCL", "around 0",
         "half of all channels shut at random learn nothing in few epochs"),
    _row("ccgn", "batch norm of gates", "running statistics at test time", "ChannelGatedCL",
         "statistics of the batch", "an image's path depends on no other image"),
    _row("ccgn", "kernels that are kept", "all that opened for a validation image",
         "ChannelGatedCL", "those that opened for more than 0.1 % of them",
         "nothing a task used is forgotten", {"threshold": 0.001}),
    _row("ccgn", "gates after their task", "open only what is kept", "ChannelGatedCL",
         "open anything", "otherwise new images may meet kernels of later tasks"),
    _row("ccgn", "optimizer", "SGD", "ChannelGatedCL", "Adam at a rate of 0.001",
         "one protocol for all methods, the ANCL paper's", {"training.optimizer": "adamw",
         "training.lr": 1e-3, "training.lr_first": 1e-3, "training.weight_decay": 0.0}),
    # -- with an auxiliary network
    _row("a-*", "classes of the auxiliary network's Ω", "the task's own", "ANCL paper",
         "all", "as in the ANCL code", {"auxiliary_classes": "all"}),
    _row("a-*", "images of the auxiliary network, with a memory", "of the task", "ANCL paper",
         "of the memory too, in one of its readings", "its text: solely the current task",
         {"auxiliary_data": "combined"}),
    _row("afec-*", "start of the auxiliary network", "the old network, in every task",
         "AFEC code", "its own last weights", "as the ANCL paper describes AFEC",
         {"afec_start": "carried"}),
    _row("afec-*", "batches of the Fisher information", "the training's size", "AFEC code",
         "20 images", "one scale for all estimates"),
    _row("afec-*", "optimizer", "SGD", "AFEC code", "Adam at a rate of 0.001",
         "one protocol for all methods, the ANCL paper's", {"training.optimizer": "adamw",
         "training.lr": 1e-3, "training.lr_first": 1e-3, "training.weight_decay": 0.0}),
    _row("afec-ewc", "importance over tasks", "halves: ½ before + ½ new, from zero", "AFEC code",
         "a running mean", "as in the ANCL code"),
    _row("afec-mas", "the pull to the old network", "λ", "AFEC code",
         "2 λ, added twice by a bug", "λ means λ", {"lamb": 100.0}),
    # -- all
    _row("*", "patience", "5 epochs in the paper's benchmarks", "ANCL code", "10 epochs",
         "as in the ANCL paper; --preset official has theirs", {"training.patience": 10}),
    _row("*", "rate", "0.1, then 0.05", "ANCL code, FACIL", "searched for every task",
         "a search costs three trainings per task; the paper prints no rates",
         {"training.lr": "search"}),
    _row("*", "norm of the gradient", "not clipped", "ANCL code, FACIL", "clipped at 10000",
         "it never acts", {"training.clip": 10_000.0}),
    _row("*", "an epoch that is not finite", "goes back to the best weights at a lower rate",
         "ANCL code, FACIL", "counts as one without improvement", "the run continues at once"),
)
# fmt: on
"""The table, method by method. What is equal everywhere, or only a name, is left out."""
