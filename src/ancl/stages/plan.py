"""Plans: learning a task as a chain of stages, made without loading a weight.

Keys hold the rule, never the outcome, and nothing a stage does not read: the first task's training
has no λ, the auxiliary network's has no λ_a.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ancl.data import Augment, Normalization, Task, bounded_size, check_augmentation
from ancl.memory import Memory
from ancl.methods.method import Finish, MainTrainer, Method
from ancl.methods.parts import AuxiliaryTraining, ImageFormat, TaskImages, TaskParts
from ancl.methods.task_history import ClassHistory, kept_counts
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Architecture
from ancl.regularizers import WeightRegularizer
from ancl.runtime import numerics
from ancl.stages.plan_checks import check_method, keeps_features, why_unstored
from ancl.stages.stage import Stage
from ancl.stages.steps import (
    AuxiliaryImportance,
    Evaluate,
    Features,
    Grow,
    Imprint,
    MakeBase,
    Rate,
    RateTrial,
    RunFinish,
    TrainAuxiliary,
    TrainMain,
    UpdateImportance,
    UpdateMemory,
)
from ancl.stages.windows import Piece, Windows, pieces
from ancl.state import (
    AUXILIARY,
    AUXILIARY_IMPORTANCE,
    BASE,
    CARRIED,
    FIRST_RATE,
    IMPORTANCE,
    LAMB,
    MEMORY,
    NETWORK,
    OLD,
    RATE,
    START,
    StateKeys,
)
from ancl.training.config import TRIALS, Training
from ancl.training.lambda_rules import Auto, weight_at
from ancl.training.objective import Auxiliary, Extra
from ancl.training.renewal import Renewal


@dataclass(frozen=True, eq=False)
class Setting:
    """All that decides a run besides its method and its tasks.

    Args:
        architecture: The network.
        training: How the main network is trained.
        auxiliary: How the auxiliary network is trained.
        normalization: Of images; none for other inputs.
        augment: The augmentation of training images.
        memory: What is kept of earlier tasks' images; nothing if left out.
        task_aware: Whether the task of a sample is known at test time (TIL).
        seed: Where all randomness comes from.
        device: Where to compute.
        rows: The number of classes of a head that has all of them from the start; none if it grows.
        renewed: Whether the memory takes every batch of a task that is learned, and not the task.
        windows: How tasks are learned piece by piece, where they are parts of a stream that comes
            once.
    """

    architecture: Architecture
    training: Training
    auxiliary: Training
    normalization: Normalization | None
    augment: Augment = "none"
    memory: Memory | None = None
    task_aware: bool = True
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rows: int | None = None
    renewed: bool = False
    windows: Windows | None = None

    def __post_init__(self) -> None:
        check_augmentation(self.augment, self.architecture.input_shape, self.normalization)

    @property
    def images(self) -> ImageFormat:
        """How images become batches where nothing is trained."""
        size = bounded_size(self.training.batch_size, self.architecture.input_shape)
        return ImageFormat(self.normalization, size)


def plan(method: Method, tasks: Sequence[Task], setting: Setting) -> tuple[Stage, ...]:
    """All stages of learning a stream, in an order in which they can be computed."""
    return plan_each([method] * len(tasks), tasks, setting)[0]


def plan_each(
    methods: Sequence[Method], tasks: Sequence[Task], setting: Setting
) -> tuple[tuple[Stage, ...], StateKeys]:
    """The stages with one method per task, for the first tasks; and the state at the end."""
    stages: list[Stage] = []
    state: StateKeys = {}
    for index, method in enumerate(methods):
        of_task, state = plan_task(method, tasks[: index + 1], setting, state)
        stages.extend(of_task)
    # Features of a task's images are read after later tasks too.
    return tuple({stage.key: stage for stage in stages}.values()), state


def plan_task(
    method: Method, tasks: Sequence[Task], setting: Setting, state: StateKeys
) -> tuple[tuple[Stage, ...], StateKeys]:
    """The stages of learning the last of ``tasks``, and the state the next one starts from.

    Raises:
        MethodError: A finishing stage has a name that another stage has.
    """
    return _Planner(method, tasks, setting).plan(state)


def plan_kept(
    method: Method,
    tasks: Sequence[Task],
    setting: Setting,
    ends: Mapping[str, str],
    state: StateKeys,
) -> tuple[tuple[Stage, ...], StateKeys]:
    """What a method keeps of a network that another one trained (``network, main, start``)."""
    planner = _Planner(method, tasks, setting)
    planner.base(state)
    kept = planner.keep(ends, state)
    return tuple(planner.stages), {NETWORK: ends[NETWORK], **planner.shared, **kept}


def plan_again(
    method: Method, tasks: Sequence[Task], setting: Setting, state: StateKeys, changed: str
) -> tuple[tuple[Stage, ...], StateKeys]:
    """The stages that follow where a piece of the state was changed without learning a task.

    These are the finishing stages after the one that yields it, which must not look at images.

    Args:
        method: The method.
        tasks: The tasks so far; no image of them is read.
        setting: What else decides.
        state: The state with the changed piece.
        changed: Its name.
    """
    planner, after = _Planner(method, tasks, setting), dict(state)
    yielding = [part for part in method.finish if changed in part.yields]
    later = method.finish[method.finish.index(yielding[-1]) + 1 :] if yielding else ()
    for part in later:
        assert not part.looks, "images of earlier tasks are gone"
        after |= dict.fromkeys(part.yields, planner.finish(part, after, state))
    return tuple(planner.stages), after


class _Planner:
    """Collects the stages of one task."""

    def __init__(self, method: Method, tasks: Sequence[Task], setting: Setting) -> None:
        self.method, self.tasks, self.setting = drop_zero_terms(method), tasks, setting
        self.task, self.history = tasks[-1], ClassHistory.of(tasks, setting.rows)
        self.first = self.task.index == 0
        self.kept = kept_counts(setting.memory, method.hold_out, self.history)
        self.data = TaskImages(self.task.key, self.kept[1])
        # One batch size for all that is not trained, whatever network it is of.
        self.varied = replace(setting.images, augment=setting.augment)
        if self.method.enlarge and not self.first:
            self.varied = replace(setting.images, versions=True)
        self.numerics = numerics(setting.device)
        trainings = (setting.training, setting.auxiliary)
        parts = (*self.method.parts, setting.architecture, setting.augment, *trainings)
        self.unstored = why_unstored(parts)
        self.stages: list[Stage] = []
        self.shared: dict[str, str] = {}
        # Where nothing is trained, nothing is augmented either.
        plain = setting.augment == "none" or self.method.trains_nothing
        fixed = setting.architecture.fixed and plain
        self.keeps_features = fixed and keeps_features(self.method)
        self.auto = self.method.old is not None and isinstance(self.method.old.lamb, Auto)
        self.pieces, self.old_task = self.cut()
        check_method(self.method, setting.architecture.learns)

    def plan(self, state: StateKeys) -> tuple[tuple[Stage, ...], StateKeys]:
        """Every stage in order, and the state after the last."""
        method, auxiliary = self.method, self.method.auxiliary
        self.base(state)
        grown, after = self.grow(state), dict(self.shared)
        shared = {START: grown, **self.features(state, [self.task])}
        if self.setting.training.lr_search:
            shared[RATE], after[FIRST_RATE] = self.rate(shared, state)
        inputs = {**shared, **self.old_inputs(state)}
        if method.data == "all":
            inputs |= self.features(state, self.tasks)
        if auxiliary and not self.first and not self.pieces:
            inputs |= self.auxiliary(auxiliary, shared, state)
        if method.main == "none" or (method.main == "first" and not self.first):
            main = grown
        elif method.main == "auxiliary" and not self.first:
            main = inputs[AUXILIARY]
        else:
            if self.measured():
                inputs |= self.features(state, self.tasks)
            if self.pieces:
                made, main = self.train_pieces(inputs, shared, state)
                inputs |= made
            else:
                main = self.train(inputs, self.old_task)
            after |= dict.fromkeys(self.trainer.yields if self.trainer else (), main)
        after[NETWORK] = main
        if self.auto and not self.first:
            after[LAMB] = main  # where the next task and stages after training find it
        if auxiliary and auxiliary.start == "carried" and not self.first:
            after[CARRIED] = main if auxiliary.renewed == "epoch" else inputs[AUXILIARY]
        for part in (p for p in method.finish if p.first or not self.first):
            if part.new_classes and not self.history.adds_classes:
                after |= self.left_alone(part, state)
                continue
            key = self.finish(part, {**inputs, **after}, state)
            after |= dict.fromkeys(part.yields, key)
        after |= self.keep({NETWORK: after[NETWORK], "main": main, START: grown}, state)
        windows = self.setting.windows
        if windows and windows.parts_a_copy > 1:
            renewed = self.task.index % windows.parts_a_copy == 0
            after[OLD] = after[NETWORK] if renewed else state[OLD]
        self.evaluate(after, state)
        return tuple(self.stages), after

    def cut(self) -> tuple[list[Piece], int | None]:
        """The pieces in which the task is learned, if several, and whose network the old one is.

        That is the last task's, if nothing else is said.
        """
        windows, old = self.setting.windows, self.method.old
        if windows is None or self.first:
            return [], None
        parts = windows.pieces(self.method, self.task.sizes[0])
        last = windows.copied_after(self.task.index)
        older = old is not None and not old.stored and last < self.task.index - 1
        return parts if len(parts) > 1 else [], last if older else None

    def keep(self, ends: Mapping[str, str], state: StateKeys) -> dict[str, str]:
        """Stages that keep what the next task reads of a trained network besides itself."""
        method, kept = self.method, dict[str, str]()
        if method.old and isinstance(method.old.regularizer, WeightRegularizer):
            before = {"before": state[IMPORTANCE]} if not self.first else {}
            fields = self.common({**ends, **before}, images=self.varied, data=self.data)
            regularizer = method.old.regularizer
            kept[IMPORTANCE] = self.add(UpdateImportance(**fields, regularizer=regularizer))
        yielded = any(MEMORY in part.yields for part in method.finish)
        if self.setting.memory and method.data == "current" and not yielded:
            before = {MEMORY: state[MEMORY]} if not self.first else {}
            before |= self.features(state, [self.task])
            if self.setting.renewed and not self.first:
                before["main"] = ends["main"]  # it holds what the memory took
            fields = self.common(
                {NETWORK: ends[NETWORK], **before},
                images=self.setting.images,
                data=self.data,
                memory=self.chooser(self.setting.memory),
                kept=self.kept,
                records=method.records,
            )
            kept[MEMORY] = self.add(UpdateMemory(**fields))
        return kept

    def add(self, stage: Stage) -> str:
        """Append a stage and return its key."""
        self.stages.append(stage)
        return stage.key

    def common(self, inputs: Mapping[str, str], **parts: Any) -> dict[str, Any]:
        """The fields that stages have in common; with the network and the history, these parts."""
        network = self.setting.architecture
        parts_read = TaskParts(architecture=network, history=self.history, **parts)
        return self.fields({**inputs, **self.shared}, parts_read)

    def fields(self, inputs: Mapping[str, str], parts: TaskParts) -> dict[str, Any]:
        """The fields that all stages have."""
        return {
            "task": self.task.index,
            "seed": self.setting.seed,
            "numerics": self.numerics,
            "inputs": dict(inputs),
            "unstored": self.unstored,
            "parts": parts,
        }

    # -- stages ------------------------------------------------------------------------------

    def base(self, state: StateKeys) -> None:
        """What networks share, as the last task left it, or from a stage; in most runs nothing.

        One base serves all heads, and all seeds where it is not random.
        """
        network = self.setting.architecture
        if not network.base:
            return
        key = state.get(BASE)
        if key is None:
            parts = TaskParts(architecture=replace(network, head="linear", head_options={}))
            seed = self.setting.seed if network.probe.base_is_random else 0
            fields = self.fields({}, parts) | {"task": 0, "seed": seed}
            key = self.add(MakeBase(**fields))
        self.shared = {BASE: key}

    def features(self, state: StateKeys, tasks: Sequence[Task]) -> dict[str, str]:
        """Stages that compute the features of these tasks' images, where they never change."""
        if not self.keeps_features:
            return {}
        parts = TaskParts(architecture=self.setting.architecture, images=self.setting.images)
        keys: dict[str, str] = {}
        for task in tasks:
            fields = self.fields(self.shared, parts) | {"task": task.index}
            # Where nothing is trained, equal images are to leave equal bits in any task.
            exact = self.method.trains_nothing
            stage = Features(**fields, keys=(task.key, task.test_key), exact=exact)
            keys[f"features {task.index}"] = stage.key
            if all(planned.key != stage.key for planned in self.stages):
                self.add(stage)
        return keys

    def grow(self, state: StateKeys) -> str:
        """The network to begin with: the last task's with new rows, or a fresh one."""
        before: dict[str, str] = {}
        imprint = None
        if self.method.start == "old" and not self.first:
            before = {NETWORK: state[NETWORK]}
            if self.method.imprint and self.history.adds_classes:
                imprint = Imprint(self.data, self.setting.images)
                before |= self.features(state, [self.task])
        return self.add(Grow(**self.common(before), imprint=imprint))

    def rate(self, shared: Mapping[str, str], state: StateKeys) -> tuple[str, str]:
        """Trials of fine-tuning, and the best of them: this task's rate and the first task's."""
        inputs = dict(shared)
        if not self.first:
            inputs[FIRST_RATE] = state[FIRST_RATE]
        training = self.training(self.setting.training, True)
        of = AuxiliaryTraining(training, frozen_blocks=self.history.earlier_blocks)
        fields = self.common(inputs, **self.training_parts(of, task_aware=True))
        trials = {
            f"trial {index}": self.add(RateTrial(**fields, trial=index)) for index in range(TRIALS)
        }
        rate = self.add(Rate(**self.fields(trials, TaskParts())))
        return rate, rate if self.first else state[FIRST_RATE]

    def auxiliary(
        self, auxiliary: Auxiliary, shared: Mapping[str, str], state: StateKeys
    ) -> dict[str, str]:
        """Stages that make the auxiliary network, and what the main training reads of them."""
        extra: dict[str, str] = {}
        if auxiliary.start == "carried" and CARRIED in state:
            extra[CARRIED] = state[CARRIED]
        if auxiliary.data == "combined" and MEMORY in state:
            extra[MEMORY] = state[MEMORY]
        if auxiliary.renewed == "epoch":
            return extra
        training = self.auxiliary_training(auxiliary)
        parts = self.training_parts(
            training, task_aware=training.combined and self.setting.task_aware
        )
        fields = self.common({**shared, **extra}, **parts)
        begins: dict[str, Any] = {"trains": training.trains, "cleared": training.cleared}
        key = self.add(TrainAuxiliary(**fields, combined=training.combined, **begins))
        made = {AUXILIARY: key}
        if isinstance(auxiliary.regularizer, WeightRegularizer):
            inputs = {NETWORK: key, START: shared[START]}
            fields = self.common(inputs, images=self.varied, data=self.data)
            stage = AuxiliaryImportance(**fields, regularizer=auxiliary.regularizer, **begins)
            made[AUXILIARY_IMPORTANCE] = self.add(stage)
        return made

    def train(self, inputs: Mapping[str, str], old_task: int | None) -> str:
        """The main network's stage."""
        parts = self.main_parts() | ({} if old_task is None else {"old_task": old_task})
        stage = TrainMain(**self.common(inputs, **parts), trainer=self.trainer, **self.measured())
        return self.add(stage)

    def train_pieces(
        self, inputs: Mapping[str, str], shared: Mapping[str, str], state: StateKeys
    ) -> tuple[dict[str, str], str]:
        """The stages that learn a part piece by piece, and what the last one read of them.

        A window is learned by the auxiliary network first, as a whole.
        """
        whole, windows, auxiliary = self.data, self.setting.windows, self.method.auxiliary
        assert windows is not None, "there are pieces"
        buffered = dict(pieces(self.task.sizes[0], windows.window))
        reached, before, made = {0: inputs[START]}, dict(state), dict[str, str]()
        for start, stop in self.pieces:
            begins = {START: reached[start]}
            if auxiliary and start in buffered:
                self.data = replace(whole, piece=(start, buffered[start]))
                made = self.auxiliary(auxiliary, {**shared, **begins}, before)
            self.data = replace(whole, piece=(start, stop))
            old, old_task = self.copied(windows, start, reached, state)
            last = {LAMB: reached[start]} if start and self.auto else {}
            main = self.train({**inputs, **begins, **made, **last, **old}, old_task)
            reached[stop] = main
            before[CARRIED] = made.get(AUXILIARY, main)
        self.data = whole
        return made, main

    def copied(
        self, windows: Windows, start: int, reached: Mapping[int, str], state: StateKeys
    ) -> tuple[dict[str, str], int | None]:
        """The old network of a piece, and the task whose head it has, if it is not the start.

        A copy from within the part speaks for the classes that came before the part.
        """
        if self.method.old is None or self.method.old.stored:
            return {}, None
        copy = start // windows.copy * windows.copy
        if copy == 0 and self.old_task is not None:
            return {OLD: state[OLD]}, self.old_task
        return ({}, None) if copy == start else ({OLD: reached[copy]}, self.task.index)

    def finish(self, part: Finish, inputs: Mapping[str, str], state: StateKeys) -> str:
        """A finishing stage; it may read whatever the main training read."""
        reads = (*part.reads, LAMB) if self.auto else part.reads
        read = {n: k for n, k in {**state, **inputs}.items() if n in reads}
        if not part.looks:
            held = TaskParts(history=self.history, task_aware=self.setting.task_aware)
            return self.add(RunFinish(**self.fields(read, held), part=part))
        read |= {NETWORK: inputs[NETWORK], START: inputs[START]}
        read |= self.features(state, [self.task])
        parts = self.main_parts() | {
            "correction": self.method.infer,
            "memory": self.setting.memory and self.chooser(self.setting.memory),
            "kept": self.kept,
        }
        trainer = None if self.first else self.method.trainer
        return self.add(RunFinish(**self.common(read, **parts), part=part, trainer=trainer))

    def left_alone(self, part: Finish, state: StateKeys) -> dict[str, str]:
        """What stays of the last task where a stage is left out.

        A correction that the network learned with stays. One that its old network alone had was
        distilled into the network since.
        """
        keeps = self.method.infer.student({}) is not None
        return {n: state[n] for n in part.yields if keeps and n in state and n != NETWORK}

    def evaluate(self, after: StateKeys, state: StateKeys) -> None:
        """The stage that measures."""
        columns = [task for task in self.tasks if task.is_column]
        names = (NETWORK, *self.method.infer.reads)
        read = {name: after[name] for name in names if name in after}
        inputs = {**read, **self.features(state, columns)}
        stage = Evaluate(
            **self.common(inputs, images=self.setting.images),
            infer=self.method.infer,
            test=tuple(task.test_key for task in columns),
            val=tuple(task.key for task in columns),
        )
        self.add(stage)

    # -- what decides them -------------------------------------------------------------------

    def old_inputs(self, state: StateKeys) -> dict[str, str]:
        """What the main training reads of earlier tasks."""
        if self.first:
            return {}
        read = {}
        if self.method.needs_importance:
            read[IMPORTANCE] = state[IMPORTANCE]
        if self.method.start == "fresh" and self.method.old:
            read[OLD] = state[NETWORK]
        if self.old_task is not None:
            read[OLD] = state[OLD]
        if self.auto and LAMB in state:
            read[LAMB] = state[LAMB]
        if MEMORY in state:
            read[MEMORY] = state[MEMORY]
        infer, trainer = self.method.infer, self.trainer
        names = (*(trainer.reads if trainer else ()), *(infer.reads * infer.changes_learning))
        return read | {name: state[name] for name in names if name in state}

    @property
    def trainer(self) -> MainTrainer | None:
        """The method's own training, where it has one for this task."""
        trainer = self.method.trainer
        return trainer if trainer and (trainer.first or not self.first) else None

    def training_parts(self, of: AuxiliaryTraining, *, task_aware: bool) -> dict[str, Any]:
        """What any training on the task's images depends on."""
        return {
            "task_loss": self.method.task_loss,
            "training": of.training,
            "watcher": of.watcher,
            "frozen_blocks": of.frozen_blocks,
            "constrain": self.method.constrain,
            "data": self.data,
            "images": self.varied,
            "task_aware": task_aware,
        }

    def main_parts(self) -> dict[str, Any]:
        """What the main network learns from, and how: in the first task by no other term."""
        method, first = self.method, self.first
        blocks, backbone = self.frozen_parts()
        training = self.training(self.setting.training, first)
        of = AuxiliaryTraining(training, method.watcher, blocks)
        # Among one task's classes nothing needs to be known, and there is nothing to hold to.
        parts = self.training_parts(of, task_aware=self.setting.task_aware and not first) | {
            "frozen_backbone": backbone,
            "earlier": tuple(t.key for t in self.tasks[:-1]) if method.data == "all" else (),
            "task_weight": 1.0,
            "extras": self.extras(lambda extra: extra.first),
            **dict.fromkeys(("old", "auxiliary", "alternating", "correction")),
        }
        return parts if first else parts | self.terms()

    def terms(self) -> dict[str, Any]:
        """The other terms, with the numbers their λ stand for in this task."""
        method, counts = self.method, self.history.counts
        terms: dict[str, Any] = {
            "task_weight": weight_at(method.task_weight, *counts),
            "extras": self.extras(lambda e: self.history.adds_classes or not e.new_classes),
            "correction": method.infer if method.infer.changes_learning else None,
        }
        # What it moves is there once a second group of classes let the network grow.
        if method.outer and self.setting.memory and len(self.history.blocks) > 1:
            terms["outer"] = replace(method.outer, memory=self.chooser(self.setting.memory))
        if method.replays and self.setting.memory:
            terms |= {"replay": self.setting.memory.batch, "retrieve": method.retrieve}
            if self.setting.renewed:
                rule = self.setting.memory.selection
                terms["renewal"] = Renewal(rule, self.kept[0], method.records)
        if method.old:
            terms["old"] = replace(method.old, lamb=weight_at(method.old.lamb, *counts))
        if method.auxiliary:
            lamb_a = weight_at(method.auxiliary.lamb_a, *counts)
            terms["auxiliary"] = replace(method.auxiliary, lamb_a=lamb_a)
            if method.auxiliary.renewed == "epoch":
                terms["alternating"] = self.auxiliary_training(method.auxiliary)
        return terms

    def measured(self) -> dict[str, Any]:
        """After how many epochs the main network is tested, and on which images."""
        every = self.setting.training.evaluate_every
        tests = tuple(task.test_key for task in self.tasks if task.is_column)
        return {"evaluate_every": every, "tests": tests} if every else {}

    def extras(self, wanted: Callable[[Extra], bool]) -> tuple[Extra, ...]:
        """The method's extra terms that mean something in this task."""
        told = self.setting.task_aware
        return tuple(e for e in self.method.extras if wanted(e) and (e.told or not told))

    def auxiliary_training(self, auxiliary: Auxiliary) -> AuxiliaryTraining:
        """How the auxiliary network is trained: on this task, with the task loss alone."""
        combined = auxiliary.data == "combined"
        blocks = self.frozen_parts()[0] if combined else self.history.earlier_blocks
        training = self.training(self.setting.auxiliary, True)
        return AuxiliaryTraining(
            training,
            self.method.auxiliary_watcher,
            blocks,
            combined,
            auxiliary.trains,
            auxiliary.start == "zero",
        )

    def training(self, training: Training, task_loss_alone: bool) -> Training:
        """A training with the values of this task, and what patience judges by decided.

        Where the loss is the task loss alone, two values mean the same: stages share one.
        """
        by = training.select_by or self.method.select_by
        if task_loss_alone and by == "task_loss":
            by = "loss"
        # What is measured on the way is a matter of the main network's stage.
        return replace(training.at(self.task.index), select_by=by, evaluate_every=None)

    def frozen_parts(self) -> tuple[int, bool]:
        """How many of the head's first blocks the main network leaves alone, and its backbone."""
        method, blocks = self.method, self.history.earlier_blocks
        over = getattr(method.task_loss, "over", None)
        rehearses = self.setting.memory is not None or method.data == "all"
        if self.history.returning and not self.setting.task_aware:
            rehearses = rehearses or over != "own_task"
        # As in FACIL: without images of old classes nothing should move their rows.
        alone = not rehearses and over != "seen"
        leaves = method.trains == "new rows" or (method.trains != "everything" and alone)
        return blocks if leaves else 0, method.trains == "head" and not self.first

    def chooser(self, memory: Memory) -> Memory:
        """How exemplars are chosen, without their number: that is another field."""
        return Memory(selection=memory.selection)
