"""λ decided at every task, from the current task's images alone."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ancl.cli.progress import make_progress
from ancl.cli.searching import Asked, Found, Kept, search_directory, write_search
from ancl.cli.text import duration, failures_text, percent, table
from ancl.errors import SpecError, TrainingError
from ancl.executors.graph import Graph
from ancl.experiments.run import compute
from ancl.experiments.search_per_task import Attempt, Decay, Followed, follow
from ancl.experiments.search_two_stage import check_searchable, estimated_seconds, seconds_an_image
from ancl.experiments.spec import RunSpec
from ancl.metrics import summary
from ancl.stages.events import Events
from ancl.store.store import Store


def search_task_by_task(asked: Asked, dry_run: bool, quiet: bool) -> Found:
    """Plan, say what it costs, then decide task by task, for each search seed."""
    specs, decay, followed = _specs(asked), Decay(), dict[int, Followed]()
    seeds = [spec.seed for spec in specs]
    kept = Kept(search_directory(asked.places.runs, "per-task", specs[0], seeds))
    with make_progress(quiet) as events:
        store = Store(asked.places.store, events.say)
        plan = _plan(specs, asked, store, decay)
        if dry_run:
            return Found(plan["text"], plan)
        events.note(plan["text"])
        if asked.choice.description:
            events.note(asked.choice.description)
        store.check()
        work, told = _worker(asked, store, kept, events), _teller(events)
        for spec in specs:
            followed[spec.seed] = follow(spec, store, work, asked.places.data, decay, told)
    return _found(kept, specs, followed, decay)


def _specs(asked: Asked) -> list[RunSpec]:
    if any(asked.grids.values()):
        raise SpecError(
            "--protocol per-task halves λ from --lamb on, so it has no grid. Leave out --lamb-grid "
            "and --lamb-a-grid."
        )
    # The rate is searched by fine-tuning, which also shows what accuracy can be reached.
    settings = [*asked.request.settings, "training.lr_search=true"]
    request = dataclasses.replace(asked.request, settings=settings)
    specs = [resolved.spec for resolved in request.resolve()]
    check_searchable(specs[0])
    if not isinstance(specs[0].options.get("lamb"), int | float):
        raise SpecError(f"{specs[0].method} has no λ that is a number: there is nothing to halve.")
    return specs


def _plan(specs: list[RunSpec], asked: Asked, store: Store, decay: Decay) -> dict[str, Any]:
    graph = Graph(specs, asked.places.data)
    unstored = next((n.stage.unstored for n in graph.nodes.values() if n.stage.unstored), "")
    if unstored:
        raise SpecError(f"A search needs stages that can be stored. {unstored}")
    counts = graph.counts(store)
    todo = [graph.nodes[key] for key in graph.todo(store)]
    cost = 0.0
    if any(node.epochs for node in todo):
        cost = estimated_seconds(todo, seconds_an_image(specs[0], asked.places.data))
    text = (
        f"Search task by task: λ from {specs[0].options['lamb']:g} on, halved at most "
        f"{decay.trials} times a task while accuracy on it is below {1 - decay.drop:.0%} of "
        f"fine-tuning's\n{counts['stages']} stages, {counts['stages_to_do']} to do where the first "
        f"λ is kept: at most about {duration(cost)}, from a few timed steps; every halving trains "
        f"a task again"
    )
    return {**counts, "most_seconds": cost, "text": text}


def _worker(asked: Asked, store: Store, kept: Kept, events: Events) -> Callable[[Graph], None]:
    def work(graph: Graph) -> None:
        kept.add(graph.nodes)
        failures = compute(graph, store, asked.choice, events)
        if failures:  # what follows would have to decide without it
            raise TrainingError(failures_text(failures))

    return work


def _teller(events: Events) -> Callable[[Attempt], None]:
    def told(attempt: Attempt) -> None:
        if attempt.lamb is not None:
            verdict = "taken" if attempt.taken else "halved"
            events.note(
                f"task {attempt.task + 1}: λ = {attempt.lamb:g} reaches "
                f"{percent(attempt.accuracy)} %, fine-tuning {percent(attempt.reachable)} %: "
                f"{verdict}"
            )

    return told


def _found(kept: Kept, specs: list[RunSpec], followed: dict[int, Followed], decay: Decay) -> Found:
    trials = [
        {"seed": seed, **dataclasses.asdict(attempt)}
        for seed, each in followed.items()
        for attempt in each.attempts
    ]
    taken = {
        str(seed): [attempt.lamb for attempt in each.attempts if attempt.taken]
        for seed, each in followed.items()
    }
    decision = {
        "protocol": "per-task",
        "method": specs[0].method,
        "benchmark": specs[0].benchmark,
        "decided_by": "validation accuracy on the current task",
        "decay": dataclasses.asdict(decay),
        "lamb_by_task": taken,
    }
    directory = kept.directory
    results = {str(seed): _results(specs[0], each) for seed, each in followed.items()}
    write_search(kept, trials, {"result.json": results, "decision.json": decision})
    text = (
        f"{_table(trials)}\n\nTrials and decision: {directory}\n"
        f"The decisions are already carried out: test accuracy is in {directory / 'result.json'}.\n"
        f"The same command finds all of it in the store."
    )
    return Found(text, {**decision, "trials": trials, "directory": str(directory)})


def _results(spec: RunSpec, followed: Followed) -> dict[str, Any]:
    """Accuracy on test images with the λ that were taken."""
    count = len(followed.rows)
    matrix = np.full((count, count), np.nan)
    name = "taw" if spec.data.scenario == "til" else "tag"
    for index, row in enumerate(followed.rows):
        matrix[index, : len(row[name])] = row[name]
    metrics = summary(matrix, followed.sizes)
    return {
        "metrics": {key: None if np.isnan(value) else value for key, value in metrics.items()},
        "matrices": {key: [row[key] for row in followed.rows] for key in ("taw", "tag")},
    }


def _table(trials: list[dict[str, Any]]) -> str:
    rows = [
        [
            str(each["seed"]),
            str(each["task"] + 1),
            f"{each['rate']:g}",
            percent(each["reachable"]),
            "" if each["lamb"] is None else f"{each['lamb']:g}",
            percent(each["accuracy"]),
            "taken" if each["taken"] else "halved",
        ]
        for each in trials
    ]
    head = ["seed", "task", "rate", "fine-tuning, val %", "λ", "val %", ""]
    return table(head, rows, "rrrrrrl")
