"""An analysis from values: choose λ if asked, train every network, measure them, write tables."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ancl.analysis.cka import Estimator
from ancl.analysis.context import (
    AnalysisContext,
    AnalysisOptions,
    ImagePart,
    Row,
    Tables,
    build_network,
    split_images,
)
from ancl.analysis.figures import draw
from ancl.analysis.interpolation import parameter_names, vector
from ancl.analysis.landscape import PointEvaluator, number_of_points
from ancl.analysis.networks import (
    TrainingPlan,
    TrainingPlans,
    needed_stages,
    plan_networks,
    storage_for,
    train_networks,
    train_plans,
)
from ancl.analysis.results import AnalysisResult
from ancl.analysis.tables import TableFunction, check_names, make_tables
from ancl.errors import MethodError, SpecError
from ancl.experiments.grid import best_value
from ancl.experiments.results import Places
from ancl.methods.registry import MethodRef
from ancl.recipe import request as run_settings
from ancl.recipe.build import Experiment, build, threads
from ancl.recipe.recipe import RunSpec
from ancl.runtime import can_draw
from ancl.stages.events import Events
from ancl.stages.runner import StageStorage
from ancl.stages.stage import Stage
from ancl.store.store import Store

SpecsOf = Callable[[str, float], Sequence[RunSpec]]
"""Makes the runs of a method with this λ_a, one per seed."""

_FIXED_NETWORKS = 4
"""Networks besides ANCL's: old, auxiliary, multitask and CL."""


def analyze(
    method: str,
    benchmark: str,
    *,
    lamb_a: Sequence[float],
    lamb: float | None = None,
    search_lamb: Sequence[float] | None = None,
    task: int = 1,
    grid: int = 7,
    split: ImagePart | None = None,
    images: int | None = 1000,
    estimator: Estimator = "biased",
    double: bool = False,
    seeds: Sequence[int] = (0,),
    runs: str | Path = "runs",
    store: str | Path | None = None,
    data_root: str | Path | None = None,
    overwrite: bool = False,
    events: Events | None = None,
    more_tables: Mapping[str, TableFunction] | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> AnalysisResult:
    """Compare CL and ANCL for every λ_a with the old, the auxiliary and the multitask network.

    Networks that are in the store are not trained again.

    Args:
        method: A method with an ANCL variant: ``ewc`` and ``a-ewc`` mean the same here.
        benchmark: The stream of tasks, such as ``digits/5``.
        lamb_a: Every λ_a to compare.
        lamb: λ; the default is the benchmark's or the method's own.
        search_lamb: Choose λ among these values with CL, by validation accuracy.
        task: The task, counted from 0; 1 is the second, the first that has an old network.
        grid: Points along each side of the landscape; 0 for no landscape.
        split: The images for CKA and landscape: test, val, train or old (training images of
            earlier tasks). The default is old for CKA and test for the landscape.
        images: Most images per measurement; None for all.
        estimator: The estimator of CKA: biased, unbiased or minibatch.
        double: Whether the Hessian is computed in double precision.
        seeds: One analysis per seed; tables have the rows of all.
        runs: Where results are written.
        store: Where stages are kept; the default is ``RUNS/.store``.
        data_root: Where data is.
        overwrite: Whether results replace files in their way that ancl did not write.
        events: Receives progress and messages.
        more_tables: Your own tables by name, each a function from an ``AnalysisContext`` to rows.
        config: A file of settings, such as a run's ``spec.yaml``.
        settings: Other settings by dotted key, such as ``{"training.epochs": 5}``.
        options: The method's own settings, and ``device`` and ``threads``.

    Raises:
        SpecError: A value that does not fit.
        MethodError: A method without an ANCL variant.
    """
    given = {**(settings or {}), **options, **({} if lamb is None else {"lamb": lamb})}

    def specs_of(name: str, first_lamb_a: float) -> list[RunSpec]:
        values = {**given, "lamb_a": first_lamb_a}
        asked = run_settings.make_request(name, benchmark, values, seeds, config=config)
        return [resolved.spec for resolved in asked.resolve()]

    request = make_request(
        method,
        specs_of,
        lamb_a=lamb_a,
        lamb=lamb,
        search_lamb=search_lamb,
        task=task,
        grid=grid,
        split=split,
        images=images,
        estimator=estimator,
        double=double,
    )
    return run_analysis(
        request,
        runs=runs,
        store=store,
        data_root=data_root,
        overwrite=overwrite,
        events=events,
        more_tables=more_tables,
    )


# -- the request -----------------------------------------------------------------------------


class AnalysisRequest(NamedTuple):
    """A checked analysis: the ANCL variant's run of every seed, and what is measured.

    Args:
        specs: The runs; their λ_a is not read.
        options: What is measured.
        search_lamb: The values to choose λ from; empty where it is given.
    """

    specs: Sequence[RunSpec]
    options: AnalysisOptions
    search_lamb: tuple[float, ...] = ()


def make_request(
    method: str,
    specs_of: SpecsOf,
    *,
    lamb_a: Sequence[float],
    lamb: object = None,
    search_lamb: Sequence[float] | None = None,
    **options: Any,
) -> AnalysisRequest:
    """Check an analysis before anything is trained.

    Args:
        method: The method or its ANCL variant.
        specs_of: Makes its runs.
        lamb_a: Every λ_a.
        lamb: λ, if the runs were given one.
        search_lamb: The values to choose λ from.
        options: The other fields of ``AnalysisOptions``.

    Raises:
        SpecError: A value that does not fit.
        MethodError: A method without an ANCL variant.
    """
    name = MethodRef(method)
    if name.variant not in ("", "a"):
        raise MethodError(
            f"{name.name} is not analysed: its auxiliary network moves with the main one. Use "
            f"{name.base} or a-{name.base}."
        )
    if search_lamb and lamb is not None:
        raise SpecError("lamb and search_lamb were both given. Leave out one.")
    checked = AnalysisOptions(positive_numbers("lamb_a", lamb_a), **options)
    lambs = positive_numbers("search_lamb", search_lamb) if search_lamb else ()
    specs = specs_of(f"a-{name.base}", checked.lamb_as[0])
    if str(specs[0].options.get("lamb")).startswith("auto"):
        raise SpecError("lamb is auto. An analysis needs one λ: give a number, or search_lamb.")
    return AnalysisRequest(specs, checked, lambs)


def positive_numbers(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Positive numbers, ascending, without duplicates.

    Examples:
        >>> positive_numbers("lamb_a", [10, 1, 10])
        (1.0, 10.0)
    """
    numbers = sorted({float(value) for value in values})
    if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
        given = ", ".join(f"{value:g}" for value in values)
        raise SpecError(
            f"{name}: {given or 'nothing'} is not a list of positive numbers. Give some, such as "
            f"10, 100, 1000."
        )
    return tuple(numbers)


# -- the plan --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnalysisPlan:
    """What an analysis has to train and to measure.

    Args:
        method: The ANCL variant.
        benchmark: The stream of tasks.
        seeds: The seeds.
        stages: The number of stages.
        stages_to_do: Those that are not in the store.
        most_epochs_to_do: The most epochs these can take.
        points: Points of all landscapes.
        seconds_per_point: Time of one point, measured with an untrained network.
    """

    method: str
    benchmark: str
    seeds: tuple[int, ...]
    stages: int
    stages_to_do: int
    most_epochs_to_do: int
    points: int
    seconds_per_point: float

    def json(self) -> dict[str, Any]:
        """The plan as JSON."""
        return asdict(self)


def plan_analysis(
    request: AnalysisRequest, *, store: str | Path, data_root: str | Path | None = None
) -> AnalysisPlan:
    """The work to do; nothing is trained."""
    storage, options, specs = Store(Path(store)), request.options, request.specs
    root = Path(data_root) if data_root else None
    count = todo = epochs = 0
    for spec in specs:
        with threads(spec.threads):
            experiment = build(spec, root)
            stages = plan_networks(experiment, options.task, options.lamb_as).stages
        missing = [stage for stage in stages if not storage.has(stage.key)]
        count, todo = count + len(stages), todo + len(missing)
        epochs += sum(stage.epochs for stage in missing)
    points = number_of_points(options.grid, _FIXED_NETWORKS + len(options.lamb_as))
    with threads(specs[-1].threads):
        seconds = seconds_per_point(experiment, options) if points else 0.0
    return AnalysisPlan(
        specs[0].method,
        specs[0].stream,
        tuple(spec.seed for spec in specs),
        count,
        todo,
        epochs,
        points * len(specs),
        seconds,
    )


def seconds_per_point(experiment: Experiment, options: AnalysisOptions) -> float:
    """Seconds for one point of the landscape, measured with an untrained network."""
    tasks, setting = experiment.stream.tasks[: options.task + 1], experiment.setting
    network = build_network(tasks, setting)
    training, measured = (
        split_images(tasks, split, options.images, setting.seed)
        for split in ("train", options.split or "test")
    )
    evaluator = PointEvaluator(network, training, measured, [t.classes for t in tasks], setting)
    weights = vector(dict(network.named_parameters()), parameter_names(network))
    evaluator.at(weights)  # the first one also warms up
    began = monotonic()
    evaluator.at(weights)
    return monotonic() - began


# -- the analysis ----------------------------------------------------------------------------


def run_analysis(
    request: AnalysisRequest,
    *,
    runs: str | Path = "runs",
    store: str | Path | None = None,
    data_root: str | Path | None = None,
    overwrite: bool = False,
    events: Events | None = None,
    more_tables: Mapping[str, TableFunction] | None = None,
) -> AnalysisResult:
    """Train what the store lacks, measure every seed, and write tables and figures.

    The arguments are those of :func:`analyze`.
    """
    began, events = monotonic(), events or Events()
    check_names(more_tables or {})
    places = Places.of(runs, store, data_root)
    places.check()
    storage = Store(places.store, events.say)
    storage.check()
    root = places.data
    lamb_rows = _try_lambs(request, storage, root, events)
    specs = request.specs
    if lamb_rows:
        specs = [_with_lamb(spec, choose_lamb(lamb_rows)) for spec in specs]
    tables: Tables = {"lamb": lamb_rows} if lamb_rows else {}
    # Files in the way are named before the training.
    place = AnalysisResult(specs, request.options, tables, ()).place(
        places.runs, overwrite=overwrite
    )
    keys: dict[str, None] = {}
    for spec in specs:
        with threads(spec.threads):
            experiment = build(spec, root)
            plans = plan_networks(experiment, request.options.task, request.options.lamb_as)
            _announce(experiment, plans.stages, storage, events)
            _begin_trainings(spec, plans, place / "trainings", events)
            measured = measure(experiment, request.options, storage, events, more_tables)
        for name, rows in measured.tables.items():
            tables.setdefault(name, []).extend(rows)
        keys |= dict.fromkeys(measured.keys)
    result = AnalysisResult(specs, request.options, tables, tuple(keys))
    directory = result.write(places.runs, overwrite=overwrite)
    figures = draw(result, directory / "figures") if can_draw() else []
    return replace(result, directory=directory, figures=tuple(figures), seconds=monotonic() - began)


class SeedTables(NamedTuple):
    """The tables of one seed, and the keys of the stored entries they are made of."""

    tables: Tables
    keys: tuple[str, ...]


def measure(
    experiment: Experiment,
    options: AnalysisOptions,
    store: StageStorage,
    events: Events | None = None,
    more_tables: Mapping[str, TableFunction] | None = None,
) -> SeedTables:
    """Train what the store lacks for one seed and measure it; call it under ``threads``."""
    events = events or Events()
    plans = plan_networks(experiment, options.task, options.lamb_as)
    store = storage_for(plans, store, events.say)
    networks = train_networks(plans, experiment, store, events)
    context = AnalysisContext(experiment, options, plans, networks, store, events)
    tables = make_tables(context, more_tables)
    return SeedTables(tables, tuple(context.keys))


def _begin_trainings(spec: RunSpec, plans: TrainingPlans, place: Path, events: Events) -> None:
    """Every network's training as a run of its own: two λ_a have the same stages and epochs."""
    values = spec.plain()
    for number, plan in enumerate(plans.in_order):
        name = re.sub(r"[^A-Za-z0-9.]+", "-", f"seed{spec.seed} {number} {plan.title}")
        events.run_begins(place / name, values, [stage.key for stage in plan.stages])


def _announce(
    experiment: Experiment, stages: Sequence[Stage], store: Store, events: Events
) -> None:
    """Announce what is computed."""
    spec, count = experiment.spec, len(experiment.stream.tasks)
    events.note(f"{spec.method} on {spec.stream}, seed {spec.seed}")
    events.work_begins(
        {stage.key: f"task {stage.task + 1}/{count} {stage.name}" for stage in stages},
        {stage.key: stage.epochs for stage in stages},
        [stage.key for stage in stages if not store.has(stage.key)],
    )


# -- choosing λ ------------------------------------------------------------------------------


def _try_lambs(
    request: AnalysisRequest, store: Store, root: Path | None, events: Events
) -> list[Row]:
    rows, task = [], request.options.task
    for lamb in request.search_lamb:
        for spec in request.specs:
            with threads(spec.threads):
                experiment = build(_with_lamb(spec, lamb), root)
                stages = needed_stages(_cl_plans(plan_networks(experiment, task, (1.0,))))
                _announce(experiment, stages, store, events)
                events.note(f"λ = {lamb:g}")
                rows.append(validate_lamb(experiment, task, store, events))
    return rows


def _cl_plans(plans: TrainingPlans) -> tuple[TrainingPlan, ...]:
    return (*plans.before, plans.cl)


def _with_lamb(spec: RunSpec, lamb: float) -> RunSpec:
    return spec.model_copy(update={"options": {**spec.options, "lamb": lamb}})


def validate_lamb(
    experiment: Experiment, task: int, store: StageStorage, events: Events | None = None
) -> Row:
    """The mean validation accuracy over all tasks so far of CL with the experiment's λ.

    Raises:
        SpecError: A task has no validation images.
    """
    events = events or Events()
    plans = plan_networks(experiment, task, (1.0,))
    store = storage_for(plans, store, events.say)
    results = train_plans(_cl_plans(plans), experiment, store, events)
    spec = experiment.spec
    values = results[plans.cl.key("evaluate")].meta[f"{spec.accuracy}_val"]
    if None in values:
        raise SpecError(
            "search_lamb compares λ on validation images, and a task has none. Raise "
            "data.val_fraction, or give lamb."
        )
    return {
        "seed": spec.seed,
        "lamb": spec.options["lamb"],
        "validation": sum(values) / len(values),
    }


def choose_lamb(rows: Sequence[Row]) -> float:
    """The λ with the best mean over seeds; the smallest of equals.

    Examples:
        >>> choose_lamb([{"lamb": 1.0, "validation": 0.8}, {"lamb": 5.0, "validation": 0.9}])
        5.0
    """
    values: dict[float, list[float]] = {}
    for row in rows:
        values.setdefault(row["lamb"], []).append(row["validation"])
    chosen = best_value(dict(sorted(values.items())))
    assert chosen is not None, "a network that trained has an accuracy"
    return chosen
