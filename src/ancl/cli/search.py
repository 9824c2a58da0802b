"""``ancl search``: λ with the plain method, then λ_a with λ fixed, or λ task by task."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flag_values import parse_numbers, parse_seeds
from ancl.cli.flags import (
    Machines,
    PresetSettings,
    Results,
    Seeding,
    Weights,
    make_request,
    with_flags,
)

if TYPE_CHECKING:
    from ancl.experiments.search_base import SearchPlan, SearchRequest, SearchResult


@with_flags
def search(
    method: str | None = None,
    benchmark: str | None = None,
    *,
    protocol: str = "two-stage",
    lamb_grid: str | None = None,
    lamb_a_grid: str | None = None,
    search_seeds: str = "0",
    seeds: str | None = None,
    race: bool = False,
    weights: Weights,
    settings: PresetSettings,
    machines: Machines,
    log: str | None = None,
    results: Results,
) -> None:
    """Search λ and λ_a on validation images, and print the command that runs what was found."""
    from ancl.experiments.search_base import SearchRequest

    deciding = Seeding(seeds=search_seeds)
    grids = {
        "lamb": parse_numbers("--lamb-grid", lamb_grid),
        "lamb_a": parse_numbers("--lamb-a-grid", lamb_a_grid),
    }
    asked = SearchRequest(
        make_request(method, benchmark, weights, deciding, settings, machines),
        protocol,
        grids,
        parse_seeds(seeds) if seeds is not None else None,
        results.places(settings.data_root),
        machines.choose(),
        race,
    )
    _search(asked, log, results)


def _search(asked: SearchRequest, log: str | None, shown: Results) -> None:
    from ancl.cli.progress import progress_and_log
    from ancl.cli.text import FAILED
    from ancl.experiments.search import prepare_search

    with progress_and_log(shown.quiet, log) as events:
        search = prepare_search(asked, events)
        plan = search.plan()
        text = plan_text(asked.protocol, plan)
        if shown.dry_run:
            costs = {**plan.counts, "most_seconds": plan.most_seconds, "text": text}
            print(json.dumps(costs) if shown.as_json else text)
            return
        events.note(text)
        result = search.run()
    if shown.as_json:
        summary = {**result.decision(), "trials": result.trials, "directory": str(result.directory)}
        print(json.dumps(summary))
    else:
        print(result_text(result))
    if result.failures:
        raise typer.Exit(FAILED)


# -- text ------------------------------------------------------------------------------------


def plan_text(protocol: str, plan: SearchPlan) -> str:
    """What a search will try, and what it costs."""
    from ancl.wording import SIGNS, duration

    cost = f"at most about {duration(plan.most_seconds)}: an estimate, from a few timed steps"
    if protocol == "per-task":
        return _halving_text(plan, cost)
    tried = ", then ".join(
        f"{SIGNS[step]} of {method} in {', '.join(f'{value:g}' for value in grid)}"
        for step, method, grid in plan.tried
    )
    race = f"\n{_race_text(plan.counts)}" if "earliest_stop" in plan.counts else ""
    return f"Search by {plan.decided_by}: {tried}\n{plan.summary}; {cost}{race}"


def _race_text(counts: Mapping[str, int]) -> str:
    """What a race can save at least and at most."""
    most, first = counts["most_epochs_to_do"], counts["earliest_stop"]
    saved = most - counts["least_epochs_to_do"]
    share = f" ({saved / most:.0%})" if most else ""
    return (
        f"Race: values that have no chance to win stop, after task {first} at the earliest. It "
        f"saves nothing where no value stops, and at most {saved} of {most} epochs{share}."
    )


def _halving_text(plan: SearchPlan, cost: str) -> str:
    from ancl.experiments.search_per_task import Decay

    decay, [(_, _, [first])] = Decay(), plan.tried
    return (
        f"Search task by task: λ begins at {first:g} and is halved at most {decay.trials} times "
        f"per task, while accuracy on the task is below {1 - decay.drop:.0%} of fine-tuning's\n"
        f"{plan.counts['stages']} stages, {plan.counts['stages_to_do']} to do if the first λ is "
        f"kept: {cost}; every halving trains a task again"
    )


def result_text(result: SearchResult) -> str:
    """Every trial, what failed, what to know, and what to do next."""
    from ancl.cli.text import failures_text

    where = f"Trials and decision: {result.directory}"
    if result.protocol == "per-task":
        return (
            f"{_attempts_table(result.trials)}\n\n{where}\n"
            f"The runs with these λ are done: their test accuracy is in "
            f"{result.directory / 'result.json'}.\n"
            f"The same command finds all of it in the store."
        )
    failed = [failures_text(result.failures)] if result.failures else []
    parts = [_trials_table(result), *failed, *result.notes]
    return "\n\n".join([*parts, f"{where}\nRun it:\n  {result.command}"])


def _trials_table(result: SearchResult) -> str:
    """Every trial with the score that decides; no test image is used for it."""
    from ancl.wording import SIGNS, percent, table

    race = "race" in result.details
    rows = [
        [
            SIGNS[trial["step"]],
            trial["method"],
            *("" if trial[name] is None else f"{trial[name]:g}" for name in SIGNS),
            *([str(trial["tasks_learned"])] if race else []),
            percent(fmean(trial["scores"].values()) if trial["scores"] else math.nan),
            str(len(trial["scores"])),
            _outcome(trial),
        ]
        for trial in result.trials
    ]
    tasks = ["tasks"] if race else []
    head = ["searched", "method", "λ", "λ_a", *tasks, f"{result.decided_by}, %", "n", ""]
    return table(head, rows, "llrrrrrl" if race else "llrrrrl")


def _outcome(trial: Mapping[str, Any]) -> str:
    """The outcome of a value."""
    from ancl.experiments.grid import Stop
    from ancl.wording import SIGNS

    if trial["stopped"]:
        return Stop(**trial["stopped"]).text(SIGNS[trial["step"]])
    return "failed" if trial["failed"] else "chosen" if trial["chosen"] else ""


def _attempts_table(trials: Sequence[Any]) -> str:
    from ancl.wording import percent, table

    rows = [
        [
            str(trial["seed"]),
            str(trial["task"] + 1),
            f"{trial['rate']:g}",
            percent(trial["reachable"]),
            "" if trial["lamb"] is None else f"{trial['lamb']:g}",
            percent(trial["accuracy"]),
            "taken" if trial["taken"] else "halved",
        ]
        for trial in trials
    ]
    head = ["seed", "task", "rate", "fine-tuning, val %", "λ", "val %", ""]
    return table(head, rows, "rrrrrrl")
