"""The networks that are compared: all of one task, all trained from the same old network.

The old network is the multitask network of the tasks before (for the second task, the plain
training of the first one). From it are trained: the auxiliary network, CL, ANCL for every λ_a,
and the next multitask network. For the second task all but the last are stages of ordinary runs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ancl.errors import MethodError, ScenarioError
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.regularization import joint
from ancl.methods.task_history import ClassHistory
from ancl.recipe.build import Experiment
from ancl.regularizers import WeightRegularizer
from ancl.stages.events import Events
from ancl.stages.plan import plan_kept, plan_task
from ancl.stages.runner import MemoryStore, Runner, StageStorage
from ancl.stages.stage import Stage
from ancl.state import BASE, IMPORTANCE, StateKeys, read_importance
from ancl.store.entry import StageResult
from ancl.types import Importance, Params, strip_prefix


class TrainingPlan(NamedTuple):
    """The stages that train one network, and the keys of what they leave."""

    title: str
    method: Method
    stages: tuple[Stage, ...]
    state: StateKeys

    def key(self, name: str) -> str:
        """The key of the last stage with this name."""
        return [stage.key for stage in self.stages if stage.name == name][-1]


class TrainingPlans(NamedTuple):
    """The plans of all networks: those before the task in order, then those of the task."""

    before: tuple[TrainingPlan, ...]
    cl: TrainingPlan
    ancl: Mapping[float, TrainingPlan]
    multi: TrainingPlan

    @property
    def in_order(self) -> tuple[TrainingPlan, ...]:
        """All plans, in an order in which they can be computed."""
        return (*self.before, self.cl, *self.ancl.values(), self.multi)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that are needed, deduplicated by key."""
        return needed_stages(self.in_order)


def needed_stages(plans: Sequence[TrainingPlan]) -> tuple[Stage, ...]:
    """The stages behind the networks and accuracies of some plans, deduplicated by key.

    A task's importance and memory are left out where no later stage reads them.
    """
    every = {stage.key: stage for plan in plans for stage in plan.stages}
    queue = [plan.state["network"] for plan in plans]
    queue += [stage.key for stage in every.values() if stage.name == "evaluate"]
    needed: set[str] = set()
    while queue:
        key = queue.pop()
        if key not in needed:
            needed.add(key)
            queue += every[key].inputs.values()
    return tuple(stage for key, stage in every.items() if key in needed)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network.

    Args:
        key: The key of the stage it comes from.
        tensors: All its tensors.
        accuracy: On every task's test images, as its method infers; empty where not evaluated.
    """

    key: str
    tensors: Params
    accuracy: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class ComparedNetworks:
    """The networks of one task, and the importance of the old and the auxiliary one's weights.

    The old network has no rows for the task's new classes; it gets the auxiliary network's.
    ``old_names`` are the tensors that the old network itself had.
    """

    old: Trained
    auxiliary: Trained
    multi: Trained
    cl: Trained
    ancl: Mapping[float, Trained]
    importance: Importance
    auxiliary_importance: Importance
    old_names: frozenset[str]

    @property
    def named(self) -> dict[tuple[str, float | None], Trained]:
        """Every network by its name and λ_a."""
        fixed = {"old": self.old, "auxiliary": self.auxiliary, "multi": self.multi, "cl": self.cl}
        networks: dict[tuple[str, float | None], Trained] = {(n, None): t for n, t in fixed.items()}
        return networks | {("ancl", lamb_a): trained for lamb_a, trained in self.ancl.items()}


def plan_networks(experiment: Experiment, task: int, lamb_as: Sequence[float]) -> TrainingPlans:
    """Plan the training of every network of one task.

    Args:
        experiment: A run of the ANCL variant; its λ_a is not read.
        task: The task, from 1 on: the first one has no old network.
        lamb_as: Every λ_a.

    Raises:
        ScenarioError: There is no such task.
        MethodError: The method's importance comes from a training that multitask networks lack,
            or its network gains weights in this task.
    """
    tasks, setting, spec = experiment.stream.tasks, experiment.setting, experiment.spec
    if not 1 <= task < len(tasks):
        raise ScenarioError(
            f"Task {task + 1} cannot be analysed: the first task has no old network, and there "
            f"are {len(tasks)} tasks. Possible: --task 2 to {len(tasks)}; from Python, where "
            f"tasks count from 0, task=1 to {len(tasks) - 1}."
        )
    if spec.data.scenario == "cir":
        raise ScenarioError(
            "An analysis compares networks of tasks whose classes are all new, and in the scenario "
            "cir known classes come again. Use --scenario cil or til."
        )
    host = replace(experiment.method, auxiliary=None)
    if task > 1 and host.watcher:
        raise MethodError(
            f"{spec.method} gathers importance while it trains, which the training of a multitask "
            f"network does not. Analyse the second task (--task 2, task=1): its old network was "
            f"trained by the method itself."
        )
    history, network = ClassHistory.of(tasks[: task + 1], setting.rows), setting.architecture
    if network.growth and network.gained(history.blocks) != network.gained(history.blocks_before):
        raise MethodError(
            f"In task {task + 1} the network of {spec.method} gains weights that its old network "
            f"does not have, so they cannot be compared. Analyse another task, if there is one: "
            f"with two branches any from the third task on."
        )
    before = _plan_before(host, experiment, task)
    state, so_far = before[-1].state, tasks[: task + 1]
    ancl = {
        lamb_a: MethodRef(spec.method).make({**spec.options, "lamb_a": lamb_a})
        for lamb_a in lamb_as
    }
    return TrainingPlans(
        before,
        TrainingPlan("CL", host, *plan_task(host, so_far, setting, state)),
        {
            lamb_a: TrainingPlan(
                f"ANCL, λ_a = {lamb_a:g}", method, *plan_task(method, so_far, setting, state)
            )
            for lamb_a, method in ancl.items()
        },
        TrainingPlan("multitask", joint(), *plan_task(joint(), so_far, setting, _start(state))),
    )


def _plan_before(host: Method, experiment: Experiment, task: int) -> tuple[TrainingPlan, ...]:
    """The first task, and the multitask networks up to the task before the analysed one."""
    tasks, setting = experiment.stream.tasks, experiment.setting
    plans = [TrainingPlan("first task", host, *plan_task(host, tasks[:1], setting, {}))]
    for index in range(1, task):
        state, so_far = plans[-1].state, tasks[: index + 1]
        start = _start(state)
        multi = TrainingPlan(
            f"multitask {index}", joint(), *plan_task(joint(), so_far, setting, start)
        )
        main = multi.state["network"]
        ends = {"network": main, "main": main, "start": multi.key("grow")}
        stages, state_keys = plan_kept(host, so_far, setting, ends, state)
        plans += [multi, TrainingPlan(f"kept {index}", host, stages, {**start, **state_keys})]
    return tuple(plans)


def _start(state: StateKeys) -> StateKeys:
    """What a multitask network starts from: no importance, no memory."""
    return {name: key for name, key in state.items() if name in ("network", "first rate", BASE)}


def storage_for(
    plans: TrainingPlans, store: StageStorage, say: Callable[[str], None]
) -> StageStorage:
    """The store, or one in memory where code has no source file."""
    unstored = next((stage.unstored for stage in plans.stages if stage.unstored), "")
    if not unstored:
        return store
    say(f"Results of this analysis are not stored: {unstored}")
    return MemoryStore()


def train_networks(
    plans: TrainingPlans, experiment: Experiment, store: StageStorage, events: Events
) -> ComparedNetworks:
    """Every network of the plans, from the store or by training it."""
    results = train_plans(plans.in_order, experiment, store, events)
    return _compared(plans, results, experiment.spec.accuracy)


def train_plans(
    plans: Sequence[TrainingPlan], experiment: Experiment, store: StageStorage, events: Events
) -> dict[str, StageResult]:
    """The results of the needed stages of some plans, by key."""
    needed = {stage.key for stage in needed_stages(plans)}
    results: dict[str, StageResult] = {}
    for plan in plans:
        events.note(plan.title)
        results |= _train_plan(plan, experiment, needed, store, events)
    return results


def _train_plan(
    plan: TrainingPlan,
    experiment: Experiment,
    needed: Collection[str],
    store: StageStorage,
    events: Events,
) -> dict[str, StageResult]:
    # Plans read each other's networks from one store, which storage_for has chosen.
    stages = [replace(stage, unstored="") for stage in plan.stages if stage.key in needed]
    tasks, device = experiment.stream.tasks, experiment.setting.device
    runner = Runner(stages, tasks, device, store, events)
    return {stage.key: runner.obtain(stage.key) for stage in stages}


def _compared(
    plans: TrainingPlans, results: Mapping[str, StageResult], accuracy: str
) -> ComparedNetworks:
    first = next(iter(plans.ancl.values()))
    state = plans.before[-1].state

    shared = strip_prefix(BASE, results[state[BASE]].tensors) if BASE in state else {}

    def network(key: str) -> Params:
        return {**shared, **strip_prefix("network", results[key].tensors)}

    def trained(plan: TrainingPlan) -> Trained:
        key, rows = plan.state["network"], results[plan.key("evaluate")].meta
        return Trained(key, network(key), tuple(rows[accuracy]))

    auxiliary = Trained(first.key("auxiliary"), network(first.key("auxiliary")))
    before = network(state["network"])
    old = plans.cl.method.old
    on_weights = old is not None and isinstance(old.regularizer, WeightRegularizer)
    return ComparedNetworks(
        Trained(state["network"], {**auxiliary.tensors, **before}),
        auxiliary,
        trained(plans.multi),
        trained(plans.cl),
        {lamb_a: trained(plan) for lamb_a, plan in plans.ancl.items()},
        read_importance(results[state[IMPORTANCE]].tensors) if on_weights else {},
        read_importance(results[first.key("auxiliary importance")].tensors) if on_weights else {},
        frozenset(before),
    )
