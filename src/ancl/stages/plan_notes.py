"""What a user should know of a plan before training."""

from collections.abc import Sequence

from ancl.data import Task
from ancl.losses import OpenCrossEntropy
from ancl.methods.method import Method
from ancl.methods.task_history import ClassHistory, adds_classes
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Architecture
from ancl.networks.learnable import ALL
from ancl.stages.setting import Setting
from ancl.training.lambda_rules import Rule


def plan_notes(method: Method, tasks: Sequence[Task], setting: Setting) -> list[str]:
    """What a user should know before training: parts that are left out or have no effect."""
    if len(tasks) < 2:
        return []
    method, adds = drop_zero_terms(method), ClassHistory.of(tasks[:2]).adds_classes
    auxiliary, notes = method.auxiliary, list[str]()
    if method.old and method.old.regularizer.reads in ("features", "maps"):
        held = f"{method.name} holds the old network's features, which are frozen"
        notes += [] if setting.architecture.learns else [f"{held}: its term changes nothing."]
    notes += left_out(method, tasks[1:])
    strange = auxiliary and auxiliary.classes == "all" and auxiliary.data == "current"
    if strange and setting.memory and adds:
        notes.append(
            f"Warning: {method.name} holds exemplars of old classes to an auxiliary network that "
            f"learned from this task's images alone. Use auxiliary_classes=new, or "
            f"auxiliary_data=combined."
        )
    return notes + replay_notes(method, tasks, setting)


def replay_notes(method: Method, tasks: Sequence[Task], setting: Setting) -> list[str]:
    """Say that new classes are not taught against old ones, where no replay batch holds them."""
    apart = isinstance(method.task_loss, OpenCrossEntropy) and not setting.task_aware
    if not apart or setting.renewed or any(task.returning for task in tasks[1:]):
        return []
    return [
        f"Warning: {method.name} lets new images compete with their own task's classes alone, and "
        f"its memory takes them when the task ends. Until then nothing teaches the newest classes "
        f"against the old ones, and they get few answers. In a run use memory.renewed=batch with "
        f"memory.selection=reservoir."
    ]


def untrained_notes(method: Method, network: Architecture) -> list[str]:
    """Say that features are random, where nothing has trained a network and nothing will.

    Nothing is known of a network from outside: it may bring its own weights.
    """
    known_here = network.prototype is None and not (network.maker and network.maker.code)
    random = network.pretrained is None and (network.learns or bool(network.base))
    if method.infer.holds is None or method.main != "none" or not known_here or not random:
        return []
    return [
        f"{method.name} trains no weight, and those of {network.name} are random: this shows what "
        f"is possible without pretraining. Use pretrained weights (those of efficientnet_lite0, or "
        f"timm:NAME with network.weights), or network=features for vectors of another model."
    ]


def tuning_notes(method: Method, setting: Setting) -> list[str]:
    """Say how pretrained weights are trained: too fast, and they lose what they know."""
    network, training = setting.architecture, setting.training
    if network.pretrained is None or not network.learns or method.trains_nothing:
        return []
    first, fixed = training.at(0).lr, network.options.get("norms") == "fixed"
    later = f", {training.lr:g} after the first task" if training.lr != first else ""
    rate = "searched" if training.lr_search else f"{first:g}{later}"
    augment = setting.augment if isinstance(setting.augment, str) else "your own"
    notes = [
        f"{network.name} begins with pretrained weights. Of its backbone these learn: "
        f"{network.options.get('trains')}. The head's learning rate is {rate}; the backbone's is "
        f"{training.backbone_factor:g} times that. Statistics of batch norms are "
        f"{'fixed' if fixed else 'moving'}; augmentation: {augment}."
    ]
    library = network.maker.library if network.maker else None
    if network.options.get("trains") == ALL and library and library.embeds_patches:
        notes.append(
            f"network.trains=all lets the patch embedding of {network.name} learn. It takes most "
            f"of the gradient: a transformer trained so ended far below a classifier on its frozen "
            f"features, at every learning rate that was measured. Leave network.trains out, so "
            f"that all but the embedding learns (body)."
        )
    return notes


def left_out(method: Method, tasks: Sequence[Task]) -> list[str]:
    """What is left out of a method in those of some later tasks that bring no new classes."""
    without = [task for task in tasks if not adds_classes(task)]
    parts = [f"the {extra.name} term" for extra in method.extras if extra.new_classes]
    parts += ["imprinting"] if method.imprint else []
    parts += ["the factor on λ"] if method.old and isinstance(method.old.lamb, Rule) else []
    parts += [f"the stage {part.name!r}" for part in method.finish if part.new_classes]
    if not without or not parts:
        return []
    shown = ", ".join(str(task.index + 1) for task in without)
    which = f"task {shown} brings" if len(without) == 1 else f"tasks {shown} bring"
    if without[0].is_column:  # in the scenario dil all of them
        which = "tasks bring"
    return [f"{method.name}: {which} no new classes; left out: {', '.join(parts)}."]
