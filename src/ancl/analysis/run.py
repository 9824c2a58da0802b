"""An analysis carried out: λ chosen if asked, every network trained, every table made."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ancl.analysis.context import AnalysisContext, AnalysisOptions, Row, Tables
from ancl.analysis.networks import (
    TrainingPlan,
    learn_courses,
    learn_regime,
    plan_regime,
    storage_for,
)
from ancl.analysis.tables import Study
from ancl.errors import SpecError
from ancl.experiments.build import Experiment
from ancl.stages.events import Events
from ancl.stages.runner import Storage

Announce = Callable[[str], None]


class Found(NamedTuple):
    """One seed's tables, and what of the store they are made of."""

    tables: Tables
    keys: tuple[str, ...]


def carry_out(
    experiment: Experiment,
    wishes: AnalysisOptions,
    store: Storage,
    reporter: Events,
    announce: Announce = lambda text: None,
) -> Found:
    """Train what the store lacks and measure it; call it under ``threads``."""
    ways = plan_regime(experiment, wishes.task, wishes.lamb_as)
    store = storage_for(ways, store, reporter.say)
    regime = learn_regime(ways, experiment, store, reporter, announce)
    study = Study(AnalysisContext(experiment, wishes, ways, regime), store, announce)
    return Found(study.tables(), study.keys)


def lamb_row(
    experiment: Experiment,
    task: int,
    store: Storage,
    reporter: Events,
    announce: Announce = lambda text: None,
) -> Row:
    """How CL with one λ does on the validation images of all tasks so far.

    Raises:
        SpecError: There are none.
    """
    ways = plan_regime(experiment, task, (1.0,))
    courses: tuple[TrainingPlan, ...] = (*ways.before, ways.cl)
    store = storage_for(ways, store, reporter.say)
    found = learn_courses(courses, experiment, store, reporter, announce)
    told = "taw_val" if experiment.setting.task_aware else "tag_val"
    values = found[ways.cl.key("evaluate")].meta[told]
    if None in values:
        raise SpecError(
            "--search-lamb compares λ on validation images, and a task has none. Raise "
            "data.val_fraction, or give --lamb."
        )
    spec = experiment.spec
    return {
        "seed": spec.seed,
        "lamb": spec.options["lamb"],
        "validation": sum(values) / len(values),
    }


def choose_lamb(rows: Sequence[Row]) -> float:
    """The λ with the best mean over seeds; the smallest of equals.

    >>> choose_lamb([{"lamb": 1.0, "validation": 0.8}, {"lamb": 5.0, "validation": 0.9}])
    5.0
    """
    values: dict[float, list[float]] = {}
    for row in rows:
        values.setdefault(row["lamb"], []).append(row["validation"])
    return max(sorted(values), key=lambda lamb: sum(values[lamb]) / len(values[lamb]))
