"""Many runs as one graph of stages, deduplicated by key."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ancl.data.registry import load_source
from ancl.errors import SpecError, counted
from ancl.hashing import UnstorableError
from ancl.recipe.build import Experiment, Reading, build, threads, validation_weights
from ancl.recipe.recipe import RunSpec
from ancl.stages.final_state import FinalState
from ancl.stages.stage import Stage, is_own


@dataclass(frozen=True, eq=False)
class Node:
    """A stage, and a run that has it in its plan (others may have it too).

    Args:
        stage: The stage.
        spec: What a worker rebuilds it from.
        tasks: The number of tasks of the run.
        images: The number of images that the stage's task trains on.
        lambs: The λ of each task, where λ is decided task by task.
    """

    stage: Stage
    spec: RunSpec
    tasks: int
    images: int
    lambs: tuple[float, ...] = ()

    @property
    def short_title(self) -> str:
        """Which stage of which task."""
        return f"task {self.stage.task + 1}/{self.tasks} {self.stage.name}"

    @property
    def title(self) -> str:
        """Which stage of which run."""
        spec, stage = self.spec, self.stage
        lamb = self.lambs[stage.task] if self.lambs else spec.options.get("lamb")
        signs = {"λ": lamb, "λ_a": spec.options.get("lamb_a")}
        values = "".join(
            f" {sign}={v if isinstance(v, str) else f'{v:g}'}"
            for sign, v in signs.items()
            if isinstance(v, int | float | str)
        )
        return f"{spec.method}{values} seed {spec.seed}, {self.short_title}"

    @property
    def epochs(self) -> int:
        """The most epochs; 0 where nothing is trained."""
        return self.stage.epochs


class Plan(dict[str, Node]):
    """One run's stages by key, in an order in which they can be computed.

    Attributes:
        spec: What decides the run.
        sizes: Images to train, validate and test on, of every task.
        warnings: What a user must know before the run begins.
        outside: The hashes of your own code, weights and images that it is made of.
        newest_classes: The number of classes of the last task that brought any.
        notes: Limits of the data, which belong to the result.
        state: What the run leaves behind; none where its stages must not be stored.
        unstored: Why its stages must not be stored; empty where they may be.
        experiment: The run as objects, until the graph releases it.
    """

    def __init__(
        self,
        spec: RunSpec,
        root: Path | None,
        read: Reading,
        lambs: Sequence[float],
        first_tasks: int | None,
    ) -> None:
        with threads(spec.threads):
            experiment = build(spec, root, read, lambs)
        tasks = experiment.stream.tasks
        super().__init__(
            (stage.key, Node(stage, spec, len(tasks), tasks[stage.task].sizes[0], tuple(lambs)))
            for stage in experiment.stages
            if first_tasks is None or stage.task < first_tasks
        )
        self.spec = spec
        self.sizes = tuple(task.sizes for task in tasks)
        self.warnings = experiment.warnings
        self.outside = experiment.outside
        self.state = _state(experiment)
        self.newest_classes = [len(task.names) for task in tasks if task.is_column][-1]
        self.notes = experiment.stream.source.notes
        self.unstored = experiment.unstored
        self.lambs = tuple(lambs)
        self.experiment: Experiment | None = experiment

    def release(self) -> None:
        """Forget the objects; code without a source file has other keys each time it is built."""
        if not self.unstored:
            self.experiment = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in order."""
        return tuple(node.stage for node in self.values())

    @property
    def val_sizes(self) -> tuple[int, ...]:
        """What every column of a validation matrix weighs."""
        return validation_weights(self.spec, self.sizes)


def _state(experiment: Experiment) -> FinalState | None:
    if experiment.unstored:
        return None
    tasks = experiment.stream.tasks
    try:
        return FinalState.of(experiment.method, tasks, experiment.setting, experiment.state)
    except UnstorableError:  # by a rule for λ, of which stages hold the number alone
        return None


class Holds(Protocol):
    """Knows whether the result of a key is stored, and how far an unfinished one is."""

    def has(self, key: str) -> bool: ...  # noqa: D102
    def checkpoint_meta(self, key: str) -> Mapping[str, Any] | None: ...  # noqa: D102


def epochs_done(stage: Stage, store: Holds) -> int:
    """The epochs of a stage that its checkpoint holds."""
    if not stage.epochs or stage.unstored:
        return 0
    meta = store.checkpoint_meta(stage.key)
    return sum(is_own(stage, record["role"]) for record in meta["log"]) if meta else 0


class Graph:
    """The union of plans by key.

    Args:
        specs: The runs. All have one thread count, which is part of every key.
        root: Where data is; see ``ancl.data.data_root``.
        lambs: The λ of each task, where λ is decided task by task; later tasks are left out.
        first_tasks: Only the stages of this number of first tasks, with the keys of the whole run.

    Raises:
        SpecError: The runs have different thread counts.
    """

    def __init__(
        self,
        specs: Iterable[RunSpec],
        root: Path | None = None,
        lambs: Sequence[float] = (),
        first_tasks: int | None = None,
    ) -> None:
        self.root = root
        self.read = lru_cache(maxsize=1)(load_source)  # once for all runs; a later graph reads anew
        self.plans: list[Plan] = []
        self.nodes: dict[str, Node] = {}
        self._plan_of: dict[str, Plan] = {}
        for spec in _alike(specs):
            plan = Plan(spec, root, self.read, lambs, first_tasks)
            self._keep(plan)
            self.plans.append(plan)
            for key, node in plan.items():
                # A stage that one run must not store is stored for another that may.
                if key not in self.nodes or self.nodes[key].stage.unstored:
                    self.nodes[key], self._plan_of[key] = node, plan

    def experiment(self, plan: Plan) -> Experiment:
        """A run as objects: as it was built for its plan, or built again if it was released."""
        if plan.experiment is None:
            with threads(plan.spec.threads):
                plan.experiment = build(plan.spec, self.root, self.read, plan.lambs)
            self._keep(plan)
        return plan.experiment

    def experiment_with(self, key: str) -> Experiment:
        """The run as objects that a stage is computed for."""
        return self.experiment(self._plan_of[key])

    def release(self) -> None:
        """Forget all objects and images: other processes build and read their own."""
        self.read.cache_clear()
        for plan in self.plans:
            plan.release()

    def _keep(self, newest: Plan) -> None:
        """Release the runs on other images than the newest's: one data set is held at a time."""
        assert newest.experiment is not None
        source = newest.experiment.stream.source
        for plan in self.plans:
            if plan.experiment and plan.experiment.stream.source is not source:
                plan.release()

    def todo(self, store: Holds) -> list[str]:
        """The keys to compute; code without a source file is left to the run that has it."""
        return [
            key
            for key, node in self.nodes.items()
            if not node.stage.unstored and not store.has(key)
        ]

    def counts(self, store: Holds) -> dict[str, int]:
        """Numbers of stages and epochs: of all runs, deduplicated, and to do."""
        planned = [node for plan in self.plans for node in plan.values()]
        # What must not be stored is computed in every run, though not by the executor.
        todo = [n for key, n in self.nodes.items() if n.stage.unstored or not store.has(key)]
        return {
            "runs": len(self.plans),
            "stages": len(planned),
            "unique_stages": len(self.nodes),
            "stages_to_do": len(todo),
            "most_epochs": _total(planned),
            "unique_most_epochs": _total(self.nodes.values()),
            "most_epochs_to_do": _total(todo),
            "epochs_done": sum(epochs_done(node.stage, store) for node in todo),
        }

    def summary(self, store: Holds) -> str:
        """The numbers of stages that are shared, stored and to do."""
        counts = self.counts(store)
        runs = counted(counts["runs"], "run")
        if len(self.plans) == 1:
            spec = self.plans[0].spec
            runs = f"{spec.method} on {spec.stream}, seed {spec.seed}"
        shared = counts["stages"] - counts["unique_stages"]
        stored = counts["unique_stages"] - counts["stages_to_do"]
        done = counts["epochs_done"]
        before = f", {done} of them done" if done else ""
        return (
            f"{runs}, {counted(counts['stages'], 'stage')}: {shared} shared, {stored} stored, "
            f"{counts['stages_to_do']} to do (at most "
            f"{counted(counts['most_epochs_to_do'], 'epoch')}{before})"
        )

    def titles(self) -> dict[str, str]:
        """What to call each stage, by key; a single run need not be named."""
        alone = len(self.plans) == 1 and not any(node.lambs for node in self.nodes.values())
        return {k: node.short_title if alone else node.title for k, node in self.nodes.items()}


def _alike(specs: Iterable[RunSpec]) -> list[RunSpec]:
    runs = list(specs)
    counts = sorted({spec.threads for spec in runs})
    if len(counts) > 1:
        raise SpecError(
            f"Runs computed together need one number of threads, not {', '.join(map(str, counts))}:"
            f" bits depend on it. Give all the same threads."
        )
    return runs


def _total(nodes: Iterable[Node]) -> int:
    """The most epochs in all."""
    return sum(node.epochs for node in nodes)


class StageEnd(NamedTuple):
    """A stage that is stored now, and the seconds it took; or why it failed."""

    key: str
    seconds: float = 0.0
    failure: str | None = None


class Schedule:
    """Which stages can be computed now; what depends on a failed stage is dropped.

    Args:
        nodes: The graph's stages.
        todo: The keys to compute, inputs before what reads them.
    """

    def __init__(self, nodes: Mapping[str, Node], todo: Sequence[str]) -> None:
        left = set(todo)
        self._inputs = {key: left & set(nodes[key].stage.inputs.values()) for key in todo}
        self._waiting = list(todo)
        self._gone: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to hand out."""
        return not self._waiting

    def take(self) -> str | None:
        """The first stage whose inputs are all stored; None if there is none yet."""
        for key in self._waiting:
            if not self._inputs[key]:
                self._waiting.remove(key)
                return key
        return None

    def done(self, key: str) -> None:
        """A stage is in the store."""
        for inputs in self._inputs.values():
            inputs.discard(key)

    def again(self, key: str) -> None:
        """A stage was lost with its worker: it comes first."""
        self._waiting.insert(0, key)

    def fail(self, key: str) -> None:
        """A stage failed; what needs it is not computed."""
        self._gone.add(key)
        for later in list(self._waiting):  # inputs come first, so one pass finds all
            if self._inputs[later] & self._gone:
                self._gone.add(later)
                self._waiting.remove(later)
