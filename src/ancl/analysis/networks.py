"""The networks that are compared: all of one task, all begun with the same multitask network.

The old network is the multitask network of the tasks before (of the first task alone, that is
its plain training). From it go out: the auxiliary network, CL, ANCL for every λ_a, and the next
multitask network. For the second task all but the last are stages that ordinary runs have too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ancl.errors import MethodError, ScenarioError
from ancl.experiments.build import Experiment
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.regularization import joint
from ancl.regularizers import WeightRegularizer
from ancl.stages.events import Events
from ancl.stages.plan import StateKeys, plan_kept, plan_task
from ancl.stages.runner import MemoryStore, Runner, Storage
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult
from ancl.types import Importance, Params, strip_prefix


class TrainingPlan(NamedTuple):
    """One method's way: its stages, and the keys of what it leaves behind."""

    title: str
    method: Method
    stages: tuple[Stage, ...]
    pieces: StateKeys

    def key(self, name: str) -> str:
        """The key of its last stage of a name."""
        return [stage.key for stage in self.stages if stage.name == name][-1]


class TrainingPlans(NamedTuple):
    """Every way to train: those before the task in order, then those that go out from them."""

    before: tuple[TrainingPlan, ...]
    cl: TrainingPlan
    ancl: Mapping[float, TrainingPlan]
    multi: TrainingPlan

    @property
    def courses(self) -> tuple[TrainingPlan, ...]:
        """All of them, in an order in which they can be computed."""
        return (*self.before, self.cl, *self.ancl.values(), self.multi)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that are needed, each once."""
        return needed(self.courses)


def needed(courses: Sequence[TrainingPlan]) -> tuple[Stage, ...]:
    """What courses' networks and accuracies are made of, each stage once.

    A task's importance and memory are left out where no later one reads them.
    """
    every = {stage.key: stage for course in courses for stage in course.stages}
    queue = [course.pieces["network"] for course in courses]
    queue += [stage.key for stage in every.values() if stage.name == "evaluate"]
    wanted: set[str] = set()
    while queue:
        key = queue.pop()
        if key not in wanted:
            wanted.add(key)
            queue += every[key].inputs.values()
    return tuple(stage for key, stage in every.items() if key in wanted)


@dataclass(frozen=True, eq=False)
class Trained:
    """A network that is compared.

    Args:
        key: The key of the stage it comes from.
        tensors: All it knows.
        accuracy: On every task's test images, as its method infers; empty where not evaluated.
    """

    key: str
    tensors: Params
    accuracy: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class ComparedNetworks:
    """The networks of one task, and the importance of old and auxiliary one's weights.

    The old network's rows for the task's new classes are the auxiliary network's.
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
        """Every network by what it is and its λ_a."""
        fixed = {"old": self.old, "auxiliary": self.auxiliary, "multi": self.multi, "cl": self.cl}
        found: dict[tuple[str, float | None], Trained] = {(n, None): t for n, t in fixed.items()}
        return found | {("ancl", lamb_a): each for lamb_a, each in self.ancl.items()}


def plan_regime(experiment: Experiment, task: int, lamb_as: Sequence[float]) -> TrainingPlans:
    """Plan every way to train one task.

    Args:
        experiment: A run of the ANCL variant; its λ_a is not read.
        task: The task, from 1 on: the first one has no old network.
        lamb_as: Every λ_a.

    Raises:
        ScenarioError: There is no such task.
        MethodError: The method's importance comes from a training that multitask networks lack.
    """
    tasks, setting, spec = experiment.stream.tasks, experiment.setting, experiment.spec
    if not 1 <= task < len(tasks):
        raise ScenarioError(
            f"Task {task} cannot be analysed: tasks count from 0, the first one has no old "
            f"network, and there are {len(tasks)}. Possible: 1 to {len(tasks) - 1}."
        )
    host = replace(experiment.method, auxiliary=None)
    if task > 1 and host.watcher:
        raise MethodError(
            f"{spec.method} gathers importance while it trains, which a multitask network's "
            f"training does not. Analyse task 1, whose old network the method trained itself."
        )
    before = _before(host, experiment, task)
    pieces = before[-1].pieces
    reached = tasks[: task + 1]
    start = {name: key for name, key in pieces.items() if name in ("network", "first rate")}
    ancl = {
        lamb_a: MethodRef(spec.method).make({**spec.options, "lamb_a": lamb_a})
        for lamb_a in lamb_as
    }
    return TrainingPlans(
        before,
        TrainingPlan("CL", host, *plan_task(host, reached, setting, pieces)),
        {
            lamb_a: TrainingPlan(
                f"ANCL, λ_a = {lamb_a:g}", method, *plan_task(method, reached, setting, pieces)
            )
            for lamb_a, method in ancl.items()
        },
        TrainingPlan("multitask", joint(), *plan_task(joint(), reached, setting, start)),
    )


def _before(host: Method, experiment: Experiment, task: int) -> tuple[TrainingPlan, ...]:
    """The first task, and multitask networks up to the task before the one in question."""
    tasks, setting = experiment.stream.tasks, experiment.setting
    courses = [TrainingPlan("first task", host, *plan_task(host, tasks[:1], setting, {}))]
    for index in range(1, task):
        pieces, reached = courses[-1].pieces, tasks[: index + 1]
        start = {name: key for name, key in pieces.items() if name in ("network", "first rate")}
        multi = TrainingPlan(
            f"multitask {index}", joint(), *plan_task(joint(), reached, setting, start)
        )
        main = multi.pieces["network"]
        ends = {"network": main, "main": main, "start": multi.key("grow")}
        stages, kept = plan_kept(host, reached, setting, ends, pieces)
        courses += [multi, TrainingPlan(f"kept {index}", host, stages, {**start, **kept})]
    return tuple(courses)


def storage_for(ways: TrainingPlans, store: Storage, say: Callable[[str], None]) -> Storage:
    """The store, or one that ends with the process where code has no source file."""
    unstored = next((stage.unstored for stage in ways.stages if stage.unstored), "")
    if not unstored:
        return store
    say(f"Results of this analysis are not stored: {unstored}")
    return MemoryStore()


def learn_regime(
    ways: TrainingPlans,
    experiment: Experiment,
    store: Storage,
    reporter: Events,
    announce: Callable[[str], None] = lambda text: None,
) -> ComparedNetworks:
    """Obtain every network of a plan, from the store or by training it."""
    found = learn_courses(ways.courses, experiment, store, reporter, announce)
    return _regime(ways, found, "taw" if experiment.setting.task_aware else "tag")


def learn_courses(
    courses: Sequence[TrainingPlan],
    experiment: Experiment,
    store: Storage,
    reporter: Events,
    announce: Callable[[str], None] = lambda text: None,
) -> dict[str, StageResult]:
    """What the needed stages of some courses leave behind, by key."""
    wanted = {stage.key for stage in needed(courses)}
    found: dict[str, StageResult] = {}
    for course in courses:
        announce(course.title)
        found |= _obtain(course, experiment, wanted, store, reporter)
    return found


def _obtain(
    course: TrainingPlan,
    experiment: Experiment,
    wanted: Collection[str],
    store: Storage,
    reporter: Events,
) -> dict[str, StageResult]:
    # All courses read each other's networks from one store; storage_for has chosen which.
    stages = [replace(stage, unstored="") for stage in course.stages if stage.key in wanted]
    tasks, device = experiment.stream.tasks, experiment.setting.device
    runner = Runner(stages, tasks, device, store, reporter)
    return {stage.key: runner.obtain(stage.key) for stage in stages}


def _regime(
    ways: TrainingPlans, found: Mapping[str, StageResult], accuracy: str
) -> ComparedNetworks:
    first = next(iter(ways.ancl.values()))
    pieces = ways.before[-1].pieces

    def trained(course: TrainingPlan) -> Trained:
        key, rows = course.pieces["network"], found[course.key("evaluate")].meta
        return Trained(key, strip_prefix("network", found[key].tensors), tuple(rows[accuracy]))

    auxiliary = Trained(
        first.key("auxiliary"), strip_prefix("network", found[first.key("auxiliary")].tensors)
    )
    before = strip_prefix("network", found[pieces["network"]].tensors)
    old = Trained(pieces["network"], {**auxiliary.tensors, **before})
    on_weights = isinstance(_omega(ways.cl.method), WeightRegularizer)
    return ComparedNetworks(
        old,
        auxiliary,
        trained(ways.multi),
        trained(ways.cl),
        {lamb_a: trained(course) for lamb_a, course in ways.ancl.items()},
        _importance(found[pieces["importance"]]) if on_weights else {},
        _importance(found[first.key("auxiliary importance")]) if on_weights else {},
        frozenset(before),
    )


def _omega(method: Method) -> object:
    return method.old.regularizer if method.old else None


def _importance(entry: StageResult) -> Importance:
    found: Importance = {}
    for name, tensor in strip_prefix("importance", entry.tensors).items():
        kind, weight = name.split("/", 1)
        found.setdefault(kind, {})[weight] = tensor
    return found
