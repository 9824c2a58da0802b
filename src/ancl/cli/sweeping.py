"""Specs carried out as one graph, by any executor, each to its own run directory."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ancl.cli.session import COLLAPSE, Finished, collapses, prepare
from ancl.cli.table import table
from ancl.cli.watching import Watching, plan_text
from ancl.executors import ExecutorChoice
from ancl.executors.graph import Graph
from ancl.experiments.build import run_directory, write_run
from ancl.experiments.results import Places
from ancl.experiments.run import Failure, collect, compute, whole
from ancl.experiments.spec import RunSpec
from ancl.stages.runner import Reporter
from ancl.store.store import Store

FAILED = 1
"""The exit code where some stage failed and the others finished."""


class Swept(NamedTuple):
    """Finished runs in the order of their specs, and what failed."""

    finished: list[Finished]
    failures: list[Failure]


def sweep(
    specs: Sequence[RunSpec], places: Places, labour: ExecutorChoice, watching: Watching
) -> Swept:
    """Carry out every spec; what they have in common is computed once."""
    store = Store(places.store, watching.say)
    store.check()
    graph = Graph(specs, places.data)
    for spec in specs:
        prepare(run_directory(places.runs, spec), spec)
    if labour.description:
        watching.note(labour.description)
    failures = compute(graph, store, labour, watching)
    finished, once = [], _Once(watching)
    for experiment, result in collect(whole(graph, failures), store, once, places.data):
        if collapses(experiment):
            once.say(COLLAPSE.format(method=result.spec.method))
        directory = run_directory(places.runs, result.spec)
        write_run(directory, result)
        finished.append(Finished(directory, result))
    return Swept(finished, failures)


class _Once(Reporter):
    """Passes a message on once, however many runs it concerns."""

    def __init__(self, watching: Watching) -> None:
        self._watching, self._said = watching, set[str]()

    def say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._watching.say(message)


def show_plan(specs: Sequence[RunSpec], places: Places, as_json: bool) -> None:
    """What a sweep would do, on standard output."""
    graph, store = Graph(specs, places.data), Store(places.store)
    print(json.dumps(graph.counts(store)) if as_json else plan_text(graph, store))


def failures_text(failures: Sequence[Failure]) -> str:
    """What failed, how many runs lack it, and why."""
    rows = [[each.node.title, str(each.runs), each.reason] for each in failures]
    return "Failed, while the others finished:\n" + table(["stage", "runs", "why"], rows, "lrw")


def failures_json(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """The same as JSON."""
    return [each.json() for each in failures]
