"""An analysis of the synthetic stream, carried out once for all tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ancl import Events
from tests.lab import (
    AnalysisContext,
    AnalysisOptions,
    ComparedNetworks,
    Experiment,
    Layer,
    MemoryStore,
    MethodRef,
    TrainingPlans,
    make_stream,
    plan_networks,
    resolve,
    train_networks,
)

LAMB_AS = (0.5, 5.0, 50.0)


@dataclass(frozen=True, eq=False)
class Analysed:
    """A context, and what it is made of."""

    experiment: Experiment
    plans: TrainingPlans
    networks: ComparedNetworks
    context: AnalysisContext
    store: MemoryStore


Make = Callable[..., Experiment]


@pytest.fixture(scope="session")
def experiment(lab: Any) -> Make:
    def make(method: str = "a-ewc", lamb: float = 10.0, **options: Any) -> Experiment:
        layer = Layer("test", {"lamb": lamb, "lamb_a": 1.0})
        spec = resolve(method, "digits/5", [layer]).spec
        stream = make_stream(lab.source, tasks=3, val_fraction=0.2)
        setting = lab.setting(lab.conv(), **options)
        return Experiment(spec, MethodRef(method).make(spec.options), stream, setting, (), {})

    return make


def analysed(experiment: Experiment, options: AnalysisOptions) -> Analysed:
    store = MemoryStore()
    plans = plan_networks(experiment, options.task, options.lamb_as)
    networks = train_networks(plans, experiment, store, Events())
    return Analysed(
        experiment,
        plans,
        networks,
        AnalysisContext(experiment, options, plans, networks, store),
        store,
    )


@pytest.fixture(scope="session")
def ewc(experiment: Make) -> Analysed:
    return analysed(experiment("a-ewc"), AnalysisOptions(LAMB_AS, grid=3, images=60))


@pytest.fixture(scope="session")
def lwf(experiment: Make) -> Analysed:
    return analysed(experiment("a-lwf"), AnalysisOptions(LAMB_AS, grid=0, images=60))
