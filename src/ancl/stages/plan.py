"""Plans: learning a task as a chain of stages, made without loading a weight.

Keys hold the rule, never the outcome, and nothing a stage does not read: the first task's training
has no λ, the auxiliary network's has no λ_a.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ancl.data import Task
from ancl.methods.method import Finish, Method
from ancl.methods.parts import AuxiliaryTraining, TaskParts
from ancl.regularizers import WeightRegularizer
from ancl.runtime import numerics
from ancl.stages.plan_checks import check_method, keeps_features, why_unstored
from ancl.stages.setting import Setting, TaskTrainings
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
from ancl.training.config import TRIALS
from ancl.training.lambda_rules import Auto
from ancl.training.objective import Auxiliary


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
    state_after = planner.keep(ends, state)
    return tuple(planner.stages), {NETWORK: ends[NETWORK], **planner.shared, **state_after}


def plan_grown(
    method: Method, tasks: Sequence[Task], setting: Setting, state: StateKeys, known: int
) -> tuple[tuple[Stage, ...], StateKeys]:
    """The network with rows for the classes of tasks that it takes over without learning them.

    Args:
        method: A method that trains nothing in these tasks.
        tasks: All tasks; no image of them is read.
        setting: What else decides.
        state: The state after the tasks that are known.
        known: How many these are.
    """
    stages: list[Stage] = []
    for index in range(known, len(tasks)):
        planner = _Planner(method, tasks[: index + 1], setting)
        planner.base(state)
        state = {**state, NETWORK: planner.grow(state)}
        stages += planner.stages
    return tuple(stages), state


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


class _Planner(TaskTrainings):
    """Collects the stages of one task."""

    def __init__(self, method: Method, tasks: Sequence[Task], setting: Setting) -> None:
        super().__init__(method, tasks, setting)
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
        method, state_after = self.method, dict[str, str]()
        if method.old and isinstance(method.old.regularizer, WeightRegularizer):
            before = {"before": state[IMPORTANCE]} if not self.first else {}
            fields = self.common({**ends, **before}, images=self.varied, data=self.data)
            regularizer = method.old.regularizer
            state_after[IMPORTANCE] = self.add(UpdateImportance(**fields, regularizer=regularizer))
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
            state_after[MEMORY] = self.add(UpdateMemory(**fields))
        return state_after

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
