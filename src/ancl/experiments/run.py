"""One engine for runs: specs become a graph, an executor computes it, results are written."""

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, overload

from ancl.compute import ExecutorChoice, choose_executor
from ancl.compute.graph import Graph, Node, Plan, StageEnd, epochs_done
from ancl.compute.serial import reason, runner_of
from ancl.errors import SpecError, StoreError, TrainingError, counted
from ancl.experiments.groups import expected_numbers
from ancl.experiments.results import (
    Finished,
    Places,
    RunResult,
    make_result,
    prepare_run,
    result_json,
    run_directory,
    spec_hash,
    write_run,
)
from ancl.recipe.build import build, threads
from ancl.recipe.outside_parts import Digests
from ancl.recipe.recipe import SEARCH, Resolved, RunSpec
from ancl.recipe.request import spec as make_spec
from ancl.stages.events import Events
from ancl.store.store import Store


class Failure(NamedTuple):
    """A stage that failed by itself, why, and the number of runs that lack it."""

    node: Node
    reason: str
    runs: int

    def json(self) -> dict[str, Any]:
        """The failure as JSON."""
        return {
            "stage": self.node.title,
            "key": self.node.stage.key,
            "runs": self.runs,
            "reason": self.reason,
        }


class Outcome(NamedTuple):
    """The runs that finished, in the order of their specs, and what failed.

    Args:
        finished: The runs.
        failures: The stages.
        outside: What decided each run from outside, by the hash of its spec.
    """

    finished: list[Finished]
    failures: list[Failure]
    outside: Mapping[str, Digests] = {}

    @property
    def results(self) -> list[RunResult]:
        """The results alone."""
        return [run.result for run in self.finished]


@overload
def run(specs: RunSpec | str, benchmark: str | None = ..., **values: Any) -> RunResult: ...


@overload
def run(specs: Sequence[RunSpec], benchmark: None = ..., **values: Any) -> list[RunResult]: ...


def run(
    specs: RunSpec | Sequence[RunSpec] | str,
    benchmark: str | None = None,
    *,
    runs: str | Path | None = "runs",
    store: str | Path | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    data_root: str | Path | None = None,
    overwrite: bool = False,
    events: Events | None = None,
    **settings: Any,
) -> RunResult | list[RunResult]:
    """Learn streams of tasks and measure the accuracy; stages in common are computed once.

    A run that was stopped is resumed by the same call, and a finished one is only read.

    Args:
        specs: A method's name, or what ``ancl.spec`` returns; or several specs with the same
            number of threads.
        benchmark: Beside a method's name, the benchmark's.
        runs: Where run directories are written; ``None`` keeps nothing on disk.
        store: Where stages are kept; by default ``.store`` below ``runs``.
        executor: ``serial`` (the default), ``pool`` or ``ray``.
        workers: The number of stages computed at the same time, by a pool or Ray.
        address: The address of a running Ray cluster.
        data_root: Where data is; see ``ancl.data.data_root``.
        overwrite: Whether results replace files in their way that ancl did not write.
        events: Receives progress; silent by default.
        settings: Beside a method's name, all that ``ancl.spec`` takes: ``lamb``, ``seed``,
            ``training=dict(epochs=3)`` …

    Returns:
        The result of a single spec, or a list with one result for each.

    Raises:
        SpecError: Settings beside a spec, or wrong ones beside a method's name.
        TrainingError: A run failed; all others are finished and stored.
    """
    if isinstance(specs, str):
        specs = make_spec(specs, benchmark, **settings)
    elif benchmark is not None or settings:
        surplus = ", ".join([*settings, *(["benchmark"] if benchmark is not None else [])])
        raise SpecError(
            f"{surplus}: a spec has its settings already. Give them to ancl.spec, or give the "
            f'method\'s name: ancl.run("lwf", "digits/5", …).'
        )
    given = [specs] if isinstance(specs, RunSpec) else list(specs)
    count = given[0].threads if given else None
    choice = choose_executor(executor, workers, address, count)
    with TemporaryDirectory(prefix="ancl-") as temporary:
        where = temporary if runs is None else runs
        places = Places.of(where, store, data_root, overwrite=overwrite)
        outcome = run_all(given, places, choice, events)
    if outcome.failures:
        raise TrainingError(failures_message(outcome.failures))
    by_directory = {finished.directory: finished.result for finished in outcome.finished}
    results = [by_directory[run_directory(places.runs, spec)] for spec in given]
    if runs is None:
        results = [replace(result, places=None) for result in results]
    return results[0] if isinstance(specs, RunSpec) else results


def run_all(
    specs: Sequence[RunSpec],
    places: Places,
    choice: ExecutorChoice | None = None,
    events: Events | None = None,
) -> Outcome:
    """Run every spec; each directory is written as soon as its last stage is stored."""
    events, choice = events or Events(), choice or choose_executor()
    places.check()
    unique = {run_directory(places.runs, spec): spec for spec in specs}
    graph = Graph(unique.values(), places.data)
    store = Store(places.store, events.say)
    store.check()
    engine = _Engine(graph, store, places, events)
    runs = [_Run(plan, directory) for directory, plan in zip(unique, graph.plans, strict=True)]
    engine.prepare(runs)
    for run in runs:
        events.run_begins(run.directory, run.plan.spec.plain(), [*run.plan])
        run.missing = {key for key in run.plan if not store.has(key)}
        if not run.missing:
            engine.finish(run)
    if choice.description:
        events.note(choice.description)
    failures: list[Failure] = []
    with closing(stage_ends(graph, store, choice, events)) as ends:
        for end in ends:
            if end.failure is not None:
                failures.append(_failure(graph, graph.nodes[end.key], end.failure))
                continue
            for run in runs:
                if run.completed_by(end.key):
                    engine.finish(run)
    failed = {failure.node.stage.key for failure in failures}
    for run in runs:  # that must not be stored, or that another process completed
        if not run.ended and not failed & run.plan.keys():
            engine.finish(run)
    finished = [run.finished for run in runs if run.finished]
    outside = {spec_hash(plan.spec): plan.outside for plan in graph.plans}
    return Outcome(finished, [*failures, *engine.failures], outside)


def compute(
    graph: Graph, store: Store, choice: ExecutorChoice, events: Events | None = None
) -> list[Failure]:
    """Compute the stages of a graph that the store lacks; a failure stops only its dependents."""
    return [
        _failure(graph, graph.nodes[end.key], end.failure)
        for end in stage_ends(graph, store, choice, events or Events())
        if end.failure is not None
    ]


def stage_ends(
    graph: Graph, store: Store, choice: ExecutorChoice, events: Events
) -> Generator[StageEnd, None, None]:
    """Compute the stages of a graph that the store lacks, each told when it ended."""
    events.note(graph.summary(store))
    epochs = {key: node.epochs for key, node in graph.nodes.items()}
    events.work_begins(graph.titles(), epochs, graph.todo(store), choice.workers)
    with closing(choice.executor.run(graph, store, events)) as ends:
        for end in ends:
            stage = graph.nodes[end.key].stage
            if end.failure is None:
                events.stage_ends(stage, found=False, seconds=end.seconds)
            else:
                events.stage_fails(stage, end.failure)
            yield end


def failures_message(failures: Sequence[Failure]) -> str:
    """What failed and why, one line for each."""
    lines = [f"  {failure.node.title}: {failure.reason}" for failure in failures]
    return "\n".join([f"{counted(len(failures), 'stage')} failed:", *lines])


def _failure(graph: Graph, node: Node, why: str) -> Failure:
    return Failure(node, why, sum(node.stage.key in plan for plan in graph.plans))


@dataclass(eq=False)
class _Run:
    """One run on its way: the keys of stages that it waits for, and its result once written."""

    plan: Plan
    directory: Path
    missing: set[str] = field(default_factory=set)
    ended: bool = False
    finished: Finished | None = None

    def completed_by(self, key: str) -> bool:
        """Whether a stage that is stored now was the last; not where a run must not be stored."""
        self.missing.discard(key)
        return not (self.missing or self.ended or self.plan.unstored)


class _Engine:
    """Begins runs and finishes them, from what their stages stored."""

    def __init__(self, graph: Graph, store: Store, places: Places, events: Events) -> None:
        self._graph, self._store, self._places, self._events = graph, store, places, events
        self._metas: dict[str, Mapping[str, Any]] = {}
        self.failures: list[Failure] = []

    def prepare(self, runs: Sequence[_Run]) -> None:
        """Warn, and write every spec."""
        for message in dict.fromkeys(text for run in runs for text in run.plan.warnings):
            self._events.say(message)
        for run in runs:
            overwrite = self._places.overwrite
            prepare_run(run.directory, run.plan.spec, run.plan, overwrite=overwrite)

    def finish(self, run: _Run) -> None:
        """Write a run's directory; ``result.json`` makes it complete."""
        run.ended = True
        plan = run.plan
        metas = self._stored(plan) or self._computed(plan)
        if metas is None:
            return
        made = make_result(plan.spec, plan.stages, plan.sizes, metas, plan.state)
        notes = (*plan.notes, *chance_note(made, plan.newest_classes))
        result = replace(made, notes=notes, outside=plan.outside, places=self._places)
        write_run(run.directory, result)
        run.finished = Finished(run.directory, result)
        self._events.run_ends(run.directory, {**result_json(result), "log": list(result.log)})

    def _stored(self, plan: Plan) -> Mapping[str, Mapping[str, Any]] | None:
        """What stages stored besides tensors, from headers; nothing where one is damaged."""
        for key in plan:
            if key not in self._metas:
                meta = None if plan.unstored else self._store.load_meta(key)
                if meta is None:
                    return None
                self._metas[key] = meta
        return self._metas

    def _computed(self, plan: Plan) -> Mapping[str, Mapping[str, Any]] | None:
        """The same, computed in this process; nothing where a stage fails."""
        metas: dict[str, Mapping[str, Any]] = {}
        with threads(plan.spec.threads):
            runner = runner_of(self._graph.experiment(plan), self._store, self._events)
            for stage in plan.stages:
                try:
                    metas[stage.key] = runner.obtain(stage.key).meta
                except StoreError:
                    raise
                except Exception as error:  # a method from outside may raise anything
                    why = reason(error)
                    self.failures.append(_failure(self._graph, plan[stage.key], why))
                    self._events.stage_fails(stage, why)
                    return None
        return metas


def chance_note(result: RunResult, classes: int) -> tuple[str, ...]:
    """A note where the network ends no better than chance on the newest task with classes.

    Args:
        result: The run.
        classes: The number of classes of that task.
    """
    accuracy, images = result.matrices["taw"][-1, -1], result.sizes[-1]
    chance = 1 / classes
    limit = chance + 2 * math.sqrt(chance * (1 - chance) / max(images, 1))
    if classes < 2 or not accuracy <= limit:
        return ()
    return (
        f"Seed {result.spec.seed}: the newest task was not learned. On its {images} test images "
        f"the network is right in {accuracy:.1%}, and chance among its {classes} classes is "
        f"{chance:.1%}. Lower λ or train longer.",
    )


# -- what a run would do ---------------------------------------------------------------------


def preview(resolved: Resolved, places: Places) -> dict[str, Any]:
    """A run that is not started, as JSON: its tasks, its stages, its settings and their sources."""
    spec, store = resolved.spec, Store(places.store)
    with threads(spec.threads):
        experiment = build(spec, places.data)
    values = spec.values()
    names = [name for task in experiment.stream.tasks for name in task.names]
    numbers, differences = expected_numbers(spec)
    return {
        "method": spec.method,
        "benchmark": spec.stream,
        "seed": spec.seed,
        "directory": str(run_directory(places.runs, spec)),
        "notes": list(experiment.warnings),
        "expected": [number._asdict() for number in numbers],
        "not_as_expected": differences,
        "tasks": [
            {
                "task": task.index,
                "classes": list(task.names),
                **({"returning": [names[n] for n in task.returning]} if task.returning else {}),
                **dict(zip(("train", "val", "test"), task.sizes, strict=True)),
            }
            for task in experiment.stream.tasks
        ],
        "stages": [
            {
                "task": stage.task,
                "stage": stage.name,
                "key": stage.key,
                "stored": store.has(stage.key),
                "most_epochs": stage.epochs,
                "epochs_done": epochs_done(stage, store),
            }
            for stage in experiment.stages
        ],
        "settings": {
            key: {"value": _value(values, key), "source": resolved.sources[_decides(values, key)]}
            for key in resolved.sources
        },
    }


def _decides(values: Mapping[str, Any], key: str) -> str:
    """The setting that decides a value: a rate may be one to search."""
    section, _, name = key.partition(".")
    searched = name in ("lr", "lr_first") and values[section]["lr_search"]
    return f"{section}.lr_search" if searched else key


def _value(values: Mapping[str, Any], key: str) -> Any:
    section, dot, name = key.partition(".")
    if dot:
        return SEARCH if _decides(values, key) != key else values[section][name]
    return values[key] if key in values else values["options"][key]
