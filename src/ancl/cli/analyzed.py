"""An analysis asked for by a command line, carried out seed by seed, and told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ancl.analysis import Analysis, AnalysisOptions, carry_out, choose_lamb, draw, plan_regime
from ancl.analysis.cka import ESTIMATORS
from ancl.analysis.context import SPLITS, parts
from ancl.analysis.figures import INSTALL, can_draw
from ancl.analysis.interpolation import parameter_names, vector
from ancl.analysis.landscape import PointEvaluator
from ancl.analysis.landscape_tables import PATHS, STEPS
from ancl.analysis.run import Announce, Found, lamb_row
from ancl.cli.progress import Progress, make_progress
from ancl.cli.text import duration, percent, table
from ancl.errors import MethodError, SpecError, counted, unknown
from ancl.experiments.build import Experiment, build, threads
from ancl.experiments.results import Places
from ancl.experiments.settings import Request
from ancl.experiments.spec import RunSpec
from ancl.methods.registry import MethodRef
from ancl.methods.task_history import ClassHistory
from ancl.seeding import seeded
from ancl.stages.events import Events
from ancl.stages.stage import Stage
from ancl.store.store import Store


class Question(NamedTuple):
    """A checked question: the ANCL variant's run of every seed, and what is asked of it."""

    specs: Sequence[RunSpec]
    wishes: AnalysisOptions
    lambs: tuple[float, ...]


class Answer(NamedTuple):
    """An analysis, where it was written, its figures, and how long it took."""

    analysis: Analysis
    directory: Path
    figures: list[Path]
    seconds: float

    def json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            **self.analysis.json(),
            "directory": str(self.directory),
            "figures": [str(path) for path in self.figures],
            "seconds": self.seconds,
        }


def asked(request: Request, lamb_as: str, lambs: str | None, wishes: Mapping[str, Any]) -> Question:
    """Check a command line.

    Raises:
        SpecError: A value that does not fit.
        MethodError: A method without an ANCL variant.
    """
    assert request.method is not None
    method = MethodRef(request.method)
    if method.variant not in ("", "a"):
        raise MethodError(
            f"{method.name} is not analysed: its auxiliary network moves with the main one. Use "
            f"{method.base} or a-{method.base}."
        )
    if wishes["split"] not in (None, *SPLITS):
        raise SpecError("--split: " + unknown("split", str(wishes["split"]), SPLITS))
    if wishes["estimator"] not in ESTIMATORS:
        raise SpecError("--cka: " + unknown("estimator", wishes["estimator"], ESTIMATORS))
    if lambs and request.given("lamb"):
        raise SpecError("--lamb and --search-lamb were both given. Leave out one.")
    if wishes["grid"] == 1:
        raise SpecError("--grid 1 is no landscape. Give 2 or more points a side, or 0 for none.")
    every = _numbers("--lamb-a", lamb_as)
    asked = replace(request, method=f"a-{method.base}").with_values(
        "--lamb-a", {"lamb_a": every[0]}
    )
    resolved = asked.resolve()
    return Question(
        [each.spec for each in resolved],
        AnalysisOptions(every, **wishes),
        _numbers("--search-lamb", lambs) if lambs else (),
    )


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    """Positive numbers, ascending, each once."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(math.isfinite(value) and value > 0 for value in found):
        raise SpecError(
            f"{flag}: {text!r} is no list of positive numbers. Write it as {flag} 10,100,1000."
        )
    return tuple(found)


def analyzed(question: Question, places: Places, quiet: bool) -> Answer:
    """Carry out an analysis and write it."""
    began, progress = monotonic(), make_progress(quiet)
    store = Store(places.store, progress.say)
    store.check()
    tables: dict[str, list[dict[str, Any]]] = {}
    keys: dict[str, None] = {}
    with progress:
        question, rows = _with_lamb(question, places, store, progress, quiet)
        if rows:
            tables["lamb"] = rows
        for spec in question.specs:
            found = _one_seed(spec, question.wishes, places, store, progress, quiet)
            for name, more in found.tables.items():
                tables.setdefault(name, []).extend(more)
            keys |= dict.fromkeys(found.keys)
    analysis = Analysis(question.specs, question.wishes, tables, tuple(keys))
    directory = analysis.write(places.runs)
    figures = draw(analysis, directory / "figures") if can_draw() else []
    return Answer(analysis, directory, figures, monotonic() - began)


def _with_lamb(
    question: Question, places: Places, store: Store, progress: Progress, quiet: bool
) -> tuple[Question, list[dict[str, Any]]]:
    """The question with the λ that CL does best with, where it is to be searched."""
    rows = []
    for lamb in question.lambs:
        for spec in _with_option(question.specs, lamb):
            with threads(spec.threads):
                experiment = build(spec, places.data)
                _begin(progress, experiment, experiment.stages, [])
                say = _announcer(progress, quiet, f"λ = {lamb:g}, ")
                rows.append(lamb_row(experiment, question.wishes.task, store, progress, say))
    if not rows:
        return question, rows
    return question._replace(specs=_with_option(question.specs, choose_lamb(rows))), rows


def _with_option(specs: Sequence[RunSpec], lamb: float) -> list[RunSpec]:
    return [spec.model_copy(update={"options": {**spec.options, "lamb": lamb}}) for spec in specs]


def _one_seed(
    spec: RunSpec,
    wishes: AnalysisOptions,
    places: Places,
    store: Store,
    progress: Progress,
    quiet: bool,
) -> Found:
    with threads(spec.threads):
        experiment = build(spec, places.data)
        stages = plan_regime(experiment, wishes.task, wishes.lamb_as).stages
        _begin(progress, experiment, stages, [s.key for s in stages if not store.has(s.key)])
        return carry_out(experiment, wishes, store, progress, _announcer(progress, quiet))


def _begin(
    events: Events, experiment: Experiment, stages: Sequence[Stage], todo: Sequence[str]
) -> None:
    """Name the run and its stages."""
    spec, count = experiment.spec, len(experiment.stream.tasks)
    stored = len(stages) - len(todo)
    text = f" ({stored} of {counted(len(stages), 'stage')} stored)" if stored else ""
    events.note(f"{spec.method} on {spec.benchmark}, seed {spec.seed}{text}")
    titles = {stage.key: f"task {stage.task + 1}/{count} {stage.name}" for stage in stages}
    epochs = {stage.key: stage.epochs for stage in stages}
    events.work_begins(titles, epochs, todo)


def _announcer(progress: Progress, quiet: bool, prefix: str = "") -> Announce:
    def announce(text: str) -> None:
        if not quiet:
            progress.say(f"{prefix}{text}")

    return announce


# -- the plan --------------------------------------------------------------------------------


def planned(question: Question, places: Places) -> dict[str, Any]:
    """What there is to train and to measure, and how long a point of the landscape takes."""
    store, wishes = Store(places.store), question.wishes
    epochs, todo, stages = 0, 0, 0
    for spec in question.specs:
        with threads(spec.threads):
            experiment = build(spec, places.data)
            planned_stages = plan_regime(experiment, wishes.task, wishes.lamb_as).stages
        left = [stage for stage in planned_stages if not store.has(stage.key)]
        stages, todo = stages + len(planned_stages), todo + len(left)
        epochs += sum(stage.epochs for stage in left)
    networks = 4 + len(wishes.lamb_as)
    points = wishes.grid**2 + networks + len(PATHS) * STEPS if wishes.grid else 0
    with threads(spec.threads):
        seconds = timed_point(experiment, wishes) if points else 0.0
    return {
        "method": spec.method,
        "benchmark": spec.benchmark,
        "seeds": [spec.seed for spec in question.specs],
        "stages": stages,
        "stages_to_do": todo,
        "most_epochs_to_do": epochs,
        "points": points * len(question.specs),
        "seconds_a_point": seconds,
    }


def timed_point(experiment: Experiment, wishes: AnalysisOptions) -> float:
    """Seconds that one point takes, from a network that has learned nothing."""
    tasks, setting = experiment.stream.tasks[: wishes.task + 1], experiment.setting
    with seeded(0, "analysis"):
        network = setting.architecture.build(ClassHistory.of(tasks).blocks).to(setting.device)
    images = [
        parts(tasks, split, wishes.images, setting.seed)
        for split in ("train", wishes.split or "test")
    ]
    surveyor = PointEvaluator(network, images[0], images[1], [t.classes for t in tasks], setting)
    weights = vector(dict(network.named_parameters()), parameter_names(network))
    surveyor.at(weights)  # the first one also warms up
    began = monotonic()
    surveyor.at(weights)
    return monotonic() - began


def planned_text(plan: Mapping[str, Any]) -> str:
    """The same in words."""
    stored = plan["stages"] - plan["stages_to_do"]
    seconds = plan["points"] * plan["seconds_a_point"]
    return (
        f"{plan['method']} on {plan['benchmark']}, {counted(len(plan['seeds']), 'seed')}: "
        f"{counted(plan['stages'], 'stage')}, {stored} stored, {plan['stages_to_do']} to do (at "
        f"most {counted(plan['most_epochs_to_do'], 'epoch')})\n"
        f"Landscape: {counted(plan['points'], 'point')}, about {duration(seconds)} "
        f"({plan['seconds_a_point']:.2f} s each, timed just now)"
    )


# -- the answer ------------------------------------------------------------------------------


def analyzed_text(answer: Answer) -> str:
    """A table over λ_a, the rank correlations, and where everything is."""
    analysis = answer.analysis
    spec, label = analysis.specs[0], analysis.tables["cka"][0]
    title = (
        f"{spec.method} on {spec.benchmark}, λ = {spec.options.get('lamb')}, task "
        f"{analysis.wishes.task}: mean over {counted(len(analysis.seeds), 'seed')}\n"
        f"Distances over all parameters; CKA {label['estimator']} on {label['images']} "
        f"{label['split']} images"
    )
    correlations = "\n".join(
        f"  {name.replace('_', ' ')}: {_signed(found.mean)}"
        for name, found in analysis.correlations().items()
    )
    where = [f"Results: {answer.directory} ({duration(answer.seconds)})"]
    where += [f"  {path}" for path in answer.figures if path.suffix == ".png"]
    if not answer.figures:
        where.append(INSTALL)
    parts_ = [title, _table(analysis), f"Rank correlations:\n{correlations}", "\n".join(where)]
    return "\n\n".join(parts_)


def _table(analysis: Analysis) -> str:
    head = ["network", "λ_a", "mean acc., %"]
    head += [f"{kind} to {ref}" for kind in ("distance", "CKA") for ref in ("old", "aux", "multi")]
    names: list[tuple[str, float | None]] = [("cl", None)]
    names += [("ancl", lamb_a) for lamb_a in analysis.wishes.lamb_as]
    rows = []
    for name, lamb_a in names:
        wanted = {"network": name, "lamb_a": lamb_a}
        cells = [percent(_mean(analysis.rows("accuracy", **wanted), "mean"))]
        for table_name, more in (("distance", {}), ("cka", {"layer": "mean"})):
            found = analysis.rows(table_name, **wanted, **more)
            cells += [f"{_mean(found, ref):.4f}" for ref in ("old", "auxiliary", "multi")]
        rows.append([name.upper(), "" if lamb_a is None else f"{lamb_a:g}", *cells])
    return table(head, rows, "lr" + "r" * 7)


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"
