"""What a learner reports while it learns, and the warnings before."""

import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from rich.console import Console
from torch import Tensor, nn

from ancl.data import Label, Task
from ancl.errors import counted
from ancl.learner.held import Change
from ancl.methods.method import Method
from ancl.networks import Architecture
from ancl.seeding import seeded
from ancl.stages.events import Events, Forward
from ancl.stages.plan_notes import left_out, plan_notes, tuning_notes, untrained_notes
from ancl.stages.progress import Progress, make_progress
from ancl.stages.setting import Setting
from ancl.stages.stage import Stage
from ancl.wording import percent

_NAMES = ("fc", "classifier", "head", "heads", "logits", "last_linear")
"""What classifiers call their last layer."""
_MANY = 100
"""A last linear layer with this many outputs is noticed whatever it is called."""
FEW, IMBALANCE, FALL = 10, 10, 0.1
"""What is said of classes: fewer images than this, this many times as many as another, and a recall
that falls by more than this."""
_SHOWN = 5


class Warner(Events):
    """Messages a user must see become Python's warnings; all else is silent."""

    def say(self, message: str) -> None:
        """A warning that names the line which called the library."""
        level, frame = 2, sys._getframe(1)
        while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "ancl":
            level, frame = level + 1, frame.f_back
        warnings.warn(message, UserWarning, stacklevel=level)


@contextmanager
def reporting(events: Events | None, verbose: bool | None) -> Iterator[Events]:
    """Who receives what happens while a task is learned.

    Args:
        events: The user's own receiver, if there is one.
        verbose: Whether progress is shown; left out, it is on a terminal where there is no
            receiver.
    """
    shown: Progress | None = None
    if verbose or (verbose is None and events is None and Console(stderr=True).is_terminal):
        shown = make_progress(quiet=False)
    with shown or nullcontext():
        if shown and events:
            yield Forward(shown, events)
        else:
            yield shown or events or Warner()


def announce(
    method: Method,
    scenario: str,
    tasks: Sequence[Task],
    setting: Setting,
    stages: Sequence[Stage],
    events: Events,
) -> None:
    """Say what a user should know before a task is learned, and what is computed for it."""
    for note in task_notes(method, scenario, tasks, setting):
        events.say(note)
    # Nothing is evaluated here, nor are features computed of images that only that would read.
    computed = [stage for stage in stages if stage.name != "evaluate"]
    read = {key for stage in computed for key in stage.inputs.values()}
    todo = {stage.key: stage for stage in computed if stage.name != "features" or stage.key in read}
    titles = {key: f"task {len(tasks)} {stage.name}" for key, stage in todo.items()}
    events.work_begins(titles, {key: stage.epochs for key, stage in todo.items()}, todo)


def class_notes(labels: Sequence[Label], known: Sequence[Label]) -> Iterator[str]:
    """What a user should know of the classes that come, a line each.

    Args:
        labels: The label of every image.
        known: The classes known before.
    """
    counts = Counter(labels)
    plain: dict[str, Label] = {}
    for label in (*known, *sorted(counts.keys() - set(known), key=str)):
        other = plain.setdefault(_plain_name(label), label)
        if other != label and (label in counts or other in counts):
            yield (
                f"The classes {other!r} and {label!r} differ by case, spaces or accents alone, and "
                f"are two classes."
            )
    few = sorted((label for label, count in counts.items() if count < FEW), key=str)
    if few:
        shown = ", ".join(f"{label!r} ({counts[label]})" for label in few[:_SHOWN])
        more = f" and {len(few) - _SHOWN} more" if len(few) > _SHOWN else ""
        yield (
            f"Fewer than {FEW} images: {shown}{more}. Little can be learned of so few, and what is "
            f"measured on one or two held images says little."
        )
    (most, many), (least, count) = counts.most_common()[0], counts.most_common()[-1]
    if many > IMBALANCE * count:
        yield (
            f"{most!r} has {many} images and {least!r} {count}: more than {IMBALANCE} times as "
            f"many. Images of {least!r} will often get the labels of larger classes."
        )


def _plain_name(label: Label) -> str:
    """A name without case, accents, spaces, hyphens and underscores."""
    apart = unicodedata.normalize("NFKD", str(label).casefold())
    return "".join(c for c in apart if not unicodedata.combining(c) and c not in " _-\t\xa0")


def recall_notes(recalls: Sequence[Change], classes: Sequence[Label]) -> Iterator[str]:
    """Classes that fewer images get the label of than before the task, a line each."""
    for change in recalls:
        assert isinstance(change.of, int)
        assert change.before is not None
        lost = change.before - change.after
        if lost > FALL + 1e-9 and lost * change.images > 1.5:  # of few images, one says nothing
            yield (
                f"The recall of {classes[change.of]!r} fell from {percent(change.before)} % to "
                f"{percent(change.after)} % ({counted(change.images, 'held image')})."
            )


def task_notes(method: Method, scenario: str, tasks: Sequence[Task], setting: Setting) -> list[str]:
    """What a user should know before the last of these tasks is learned."""
    index = tasks[-1].index
    if index < 2:
        general = list(notes(method, scenario, setting)) if index == 0 else []
        return general + plan_notes(method, tasks, setting)
    return [] if tasks[-1].is_column else left_out(method, tasks[-1:])


def notes(method: Method, scenario: str, setting: Setting) -> Iterator[str]:
    """What a user should know before the first task is learned."""
    net = setting.architecture
    if method.collapses(scenario, setting.memory):
        yield (
            f"{method.name} keeps no images of earlier tasks, and with scenario='cil' it must tell "
            f"old classes from new ones that it never saw together: from the second task on, "
            f"expect many images of old classes, often nearly all, to get labels of new ones. Give "
            f"it memory=ancl.Memory(per_class=20), use a method that keeps images (wa, bic, icarl, "
            f"lucir …), or scenario='til' where you know the task of an image when you predict."
        )
    yield from net.notes
    yield from untrained_notes(method, net)
    yield from tuning_notes(method, setting)
    layer = classifier_layer(net)
    if layer:
        name, outputs = layer
        yield (
            f"The features of the network are the {outputs} outputs of its last linear layer "
            f"{name!r}: it seems to be a whole classifier. Take that layer off, so that what lies "
            f"before it is learned from: ancl.extend.without_head(module, {name!r}). With timm: "
            f"create_model(…, num_classes=0)."
        )


def classifier_layer(net: Architecture) -> tuple[str, int] | None:
    """The linear layer whose outputs are a user's features, if it looks like a classifier's.

    It is called as classifiers call it, or has 100 outputs or more.
    """
    if net.prototype is None and not (net.maker and net.maker.code):
        return None
    outputs: dict[str, Tensor] = {}
    with seeded(0, "probe"), torch.no_grad():
        module = net.backbone().eval()

        def watched(name: str) -> None:
            def keep(part: nn.Module, inputs: object, output: Tensor) -> None:
                outputs[name] = output

            module.get_submodule(name).register_forward_hook(keep)

        for name, part in module.named_modules():
            if isinstance(part, nn.Linear):
                watched(name)
        features = module(torch.zeros(2, *net.input_shape))
    for name, output in outputs.items():
        called = {name.partition(".")[0], name.rpartition(".")[2]} & set(_NAMES)
        if output.data_ptr() == features.data_ptr() and (called or output.shape[1] >= _MANY):
            return name or type(module).__name__, output.shape[1]
    return None
