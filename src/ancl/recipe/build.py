"""From a spec to an experiment: every name becomes an object, and the stages are planned."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ancl.data import (
    Normalization,
    Source,
    Stream,
    chosen_normalization,
    find_augmentation,
    make_stream,
    raw_floats,
)
from ancl.data.augment import augmentation_code
from ancl.data.encoded import use_workers
from ancl.data.registry import load_source
from ancl.data.repetition import returning_classes
from ancl.errors import SpecError
from ancl.memory import Memory, RunMemory
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.task_history import check_hold_out
from ancl.networks import Architecture, architecture
from ancl.networks.learnable import ALL
from ancl.picture import PictureRule
from ancl.recipe.outside_parts import Digests, own_images, own_optimizers, part_digests
from ancl.recipe.recipe import Recipe, RunSpec
from ancl.recipe.resolve import memory_problems
from ancl.stages.plan import plan_each
from ancl.stages.plan_notes import plan_notes, tuning_notes, untrained_notes
from ancl.stages.setting import Setting
from ancl.stages.stage import Stage
from ancl.stages.windows import Windows
from ancl.state import StateKeys

Reading = Callable[[str, Path | None, int | None, PictureRule, int | None], Source]
"""Loads images as ``load_source`` does; ``lru_cache(1)(load_source)`` reads those of many runs
once."""
_COLLAPSE = (
    "Warning: {method} keeps no images of earlier tasks. In class-incremental learning the network "
    "is then expected to collapse to the newest task's classes."
)


@dataclass(frozen=True, eq=False)
class Experiment:
    """A spec as objects: what is learned, by which method, and the planned stages.

    ``state`` are the keys of what the last task leaves behind. ``lambs`` are the λ of the planned
    tasks, where each task has its own. ``outside`` are the hashes of your own code, weights and
    images that it was made of.
    """

    spec: RunSpec
    method: Method
    stream: Stream
    setting: Setting
    stages: tuple[Stage, ...]
    state: StateKeys
    lambs: tuple[float, ...] = ()
    outside: Digests = field(default_factory=dict)

    @property
    def unstored(self) -> str:
        """Why results of this run must not be stored; empty where they may be."""
        return next((stage.unstored for stage in self.stages if stage.unstored), "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know before the run begins."""
        notes = [f"Results of this run are not stored: {self.unstored}"] if self.unstored else []
        if self.method.collapses(self.stream.scenario, self.setting.memory):
            notes.append(_COLLAPSE.format(method=self.spec.method))
        notes += self.setting.architecture.notes
        notes += untrained_notes(self.method, self.setting.architecture)
        notes += tuning_notes(self.method, self.setting)
        notes += _room_notes(self.spec, self.setting, self.stream)
        notes += plan_notes(self.method, self.stream.tasks, self.setting)
        notes += raw_floats(self.stream.source.train.x, self.spec.data.normalization)
        return (*notes, *self.stream.source.notes)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with this number of threads, then restore the number before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build(
    spec: RunSpec,
    root: Path | None = None,
    read: Reading = load_source,
    lambs: Sequence[float] = (),
) -> Experiment:
    """Turn every name of a spec into an object, and plan the run; call it under ``threads``.

    Args:
        spec: What decides the run.
        root: Where data is; see ``ancl.data.data_root``. It decides nothing.
        read: What reads the data.
        lambs: The λ of each task, where λ is decided task by task; later tasks are not planned.
    """
    data = spec.data
    use_workers(data.workers)
    source = read(data.source, root, data.size, data.pictures, data.short_side)
    stream = make_stream(
        source,
        scenario=data.scenario,
        tasks=data.tasks,
        classes=data.classes,
        first=data.first,
        order=data.order,
        domains=data.domains,
        seed=spec.seed,
        val_fraction=data.val_fraction,
        per_class=data.per_class,
        test_per_class=data.test_per_class,
        returning=data.returning,
        per_coming=data.per_coming,
        arrival=data.arrival(spec.training.batch_size),
        imbalance=data.imbalance,
        noise=data.noise,
    )
    named, augment = MethodRef(spec.method), augmentation_code(data.augment)
    method = named.make(spec.options)
    _check_memory(spec, method, stream)
    images = source.train
    moments = chosen_normalization(data.normalization, images.x, source.normalization)
    plain = make_setting(spec, method, images.input_shape, moments, torch.device(spec.device))
    network = plain.architecture
    sizes = [len(task.names) for task in stream.tasks]
    memory = affordable(spec.memory, network, sizes, images.x.row_bytes)
    rows = stream.tasks[-1].classes.stop if method.all_classes else None
    windows = _windows(spec, method)
    renewed = spec.memory.renewed == "batch"
    setting = replace(plain, memory=memory, rows=rows, windows=windows, renewed=renewed)
    for count in range(1, len(stream.tasks) + 1):
        check_hold_out(setting.memory, method.hold_out, stream.tasks[:count])
    methods = [_method_at(spec, lamb) for lamb in lambs] or [method] * len(stream.tasks)
    stages, state = plan_each(methods, stream.tasks, setting)
    digest = source.fingerprint if own_images(data.source) else None
    outside = part_digests(
        named.code,
        augment,
        network.maker,
        network.pretrained,
        digest,
        own_optimizers(spec),
    )
    return Experiment(spec, method, stream, setting, stages, state, tuple(lambs), outside)


def make_setting(
    recipe: Recipe,
    method: Method,
    input_shape: Sequence[int],
    moments: Normalization | None,
    device: torch.device,
    *,
    pixels: bool = True,
) -> Setting:
    """What stages are planned from, for images of this shape.

    Args:
        recipe: What decides the learning.
        method: Its method.
        input_shape: The shape of a sample, channels first.
        moments: What the images are normalised by: that of the recipe, or else their own.
        device: Where it learns.
        pixels: Whether images are kept as bytes, and not as numbers of 4 bytes.
    """
    options = dict(recipe.network)
    network = architecture(
        options.pop("name"),
        input_shape,
        head=method.head,
        head_options=method.head_options,
        growth=method.growth and method.growth.told(recipe.task_aware),
        **options,
    )
    _check_auxiliary(network, method)
    memory, image_bytes = recipe.memory, math.prod(input_shape) * (1 if pixels else 4)
    return Setting(
        architecture=network,
        training=recipe.training,
        auxiliary=recipe.auxiliary,
        normalization=moments if recipe.data.normalization else network.moments(moments),
        augment=find_augmentation(recipe.data.augment),
        memory=memory.in_images(image_bytes) if memory.size else None,
        task_aware=recipe.task_aware,
        seed=recipe.seed,
        device=device,
    )


def _windows(spec: RunSpec, method: Method) -> Windows | None:
    """How parts of a stream are learned piece by piece, where that is asked for."""
    data, size = spec.data, spec.training.batch_size
    if data.every is None or (data.window is None and data.old_every is None):
        return None
    window, copy = data.window or data.every, data.old_every or data.every
    windows = Windows(data.every * size, window * size, copy * size)
    windows.check(method)
    if spec.memory.renewed == "batch" and len(windows.pieces(method, windows.part)) > 1:
        raise SpecError(
            f"memory.renewed is batch, and {method.name} learns a part in pieces (data.window, "
            f"data.old_every): its memory is renewed within a piece alone. Leave one of them out."
        )
    return windows


def _check_auxiliary(network: Architecture, method: Method) -> None:
    """Refuse a part that the network has not, before anything is trained."""
    auxiliary = method.auxiliary
    if auxiliary and (auxiliary.trains != ALL or auxiliary.start == "zero"):
        network.check_auxiliary(auxiliary.trains, cleared=auxiliary.start == "zero")


def _check_memory(spec: RunSpec, method: Method, stream: Stream) -> None:
    """Check what a spec cannot where the number of classes is known only after reading."""
    groups = sum(len(task.names) for task in stream.tasks)
    memory = spec.memory.in_images(stream.source.train.x.row_bytes)
    problems = memory_problems(memory, method, spec.data.scenario, groups)
    if problems:
        raise SpecError("\n".join(problems))


def affordable(
    memory: RunMemory, network: Architecture, sizes: Sequence[int], image_bytes: int
) -> Memory | None:
    """The memory of a run, smaller by what the network gains where it is to be fair.

    Args:
        memory: What was asked for.
        network: The network.
        sizes: The number of new classes of every task.
        image_bytes: The size of one image as it is kept.

    Raises:
        SpecError: Nothing would be left.
    """
    if not (memory.fair and network.growth):
        return memory.in_images(image_bytes) if memory.size else None
    return memory.paid(network.gained([n for n in sizes if n]), sum(sizes), image_bytes)


def _room_notes(spec: RunSpec, setting: Setting, stream: Stream) -> list[str]:
    """What a network that grows costs, in images of the memory."""
    network, memory = setting.architecture, setting.memory
    sizes = [len(task.names) for task in stream.tasks if task.names]
    if memory is None or network.growth is None or len(sizes) < 2:
        return []
    images = network.gained(sizes) * 4 / stream.source.train.x.row_bytes
    name = "memory.per_class" if memory.per_class else "memory.total"
    cost = f"The network gains weights that take the room of {images:.0f} images of the memory"
    if spec.memory.fair:
        asked = spec.memory.in_images(stream.source.train.x.row_bytes)
        return [f"{cost}, so {name} is {memory.size} in place of {asked.size}."]
    left = math.floor(memory.size - images / (sum(sizes) if memory.per_class else 1))
    fair = f"with memory.fair=true {name} would be {left}" if left > 0 else "it holds fewer"
    return [f"{cost}: {fair}."]


def _method_at(spec: RunSpec, lamb: float) -> Method:
    return MethodRef(spec.method).make({**spec.options, "lamb": lamb})


def validation_weights(spec: RunSpec, images: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """What every column of a validation matrix weighs: the number of its images.

    Where known classes come again, validation images of a task are not of its own classes alone.
    Then its test images count, whose number follows that of the classes, too.

    Args:
        spec: The run.
        images: To train, validate and test on, of every task.
    """
    if spec.data.scenario == "cir":
        return tuple(test for _, _, test in images if test)
    return tuple(val for _, val, _ in images)


# -- equal computation -----------------------------------------------------------------------


def images_per_epoch(
    spec: RunSpec, images: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    """Images that an epoch of the main and of the auxiliary network learns, task by task.

    With ``memory.fair`` these are the most that can be: what the weights take is not known yet.
    """
    method = MethodRef(spec.method).make(spec.options)
    sizes, memory = spec.data.sizes(), spec.memory
    if sizes is None:
        what = f"not {spec.data.source}"
        if spec.data.arrival(1):
            what = "not a stream without boundaries (data.every, data.blurry, data.gradual)"
        raise SpecError(f"A study needs data whose number of classes is known, {what}.")
    counts, before = [], 0
    again: Sequence[Sequence[int]] = [()] * len(sizes)
    if spec.data.scenario == "cir":
        again = returning_classes(sizes, spec.data.returning, spec.seed)
    for task, (train, _, _) in enumerate(images[: len(sizes)]):
        quota = memory.quota(before) if memory.size and before else 0
        exemplars = (
            quota if memory.shared else before * (quota - math.ceil(method.hold_out * quota))
        )
        replayed = exemplars
        before += sizes[task]
        held = math.ceil(method.hold_out * memory.quota(before)) if memory.size else 0
        new = train - held * (sizes[task] + len(again[task]))
        if memory.batch and method.replays:  # each batch of the task has one of the memory
            replayed = math.ceil(new / spec.training.batch_size) * min(memory.batch, exemplars)
        every = sum(sizes_of_task[0] for sizes_of_task in images[: task + 1])
        main = every if method.data == "all" else new + replayed
        combined = method.auxiliary is not None and method.auxiliary.data == "combined"
        auxiliary = new + exemplars * combined
        counts.append((main * spec.training.inner, auxiliary * spec.auxiliary.inner))
    return counts


def equal_epochs(spec: RunSpec, images: Sequence[tuple[int, int, int]]) -> int:
    """Epochs after the first task at which the plain method has ANCL's number of backward passes.

    They are the main network's times (auxiliary + main passes) / main passes, over all tasks after
    the first. A fixed schedule is stretched with them; stages after training stay as they are.

    Args:
        spec: A run of the ANCL variant.
        images: The number of images of every task to train, validate and test on.

    Raises:
        SpecError: The schedule cannot be stretched, or the size of the memory is not known.
    """
    if spec.memory.fair:
        raise SpecError(
            "memory.fair is true, and equal computation is counted before images are read. Give "
            "memory.per_class or memory.total what is left; a run with memory.fair says it."
        )
    if spec.memory.bytes:
        raise SpecError(
            "memory.bytes is given, and equal computation is counted before images are read. Give "
            "memory.total, the number of images."
        )
    if spec.training.schedule not in ("cosine", "constant"):
        raise SpecError(
            f"Equal computation needs training.schedule=cosine or constant, which epochs stretch, "
            f"not {spec.training.schedule}."
        )
    if spec.training.epochs_by_task or spec.auxiliary.epochs_by_task:
        raise SpecError("Equal computation needs one number of epochs, not a list by task.")
    if spec.options.get("auxiliary_trains", ALL) != ALL:
        raise SpecError(
            f"auxiliary_trains is {spec.options['auxiliary_trains']}: a backward pass of that part "
            f"costs less than one of the main network, and equal computation counts passes. Leave "
            f"auxiliary_trains out."
        )
    main_epochs, auxiliary_epochs = spec.training.epochs, spec.auxiliary.epochs
    later = images_per_epoch(spec, images)[1:]
    main = main_epochs * sum(each for each, _ in later)
    auxiliary = auxiliary_epochs * sum(each for _, each in later)
    return round(main_epochs * (auxiliary + main) / main)
