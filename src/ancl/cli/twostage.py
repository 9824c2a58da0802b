"""λ with the plain method, then λ_a with the auxiliary network and λ fixed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ancl.cli.progress import make_progress
from ancl.cli.request import FLAGS, Request
from ancl.cli.searching import (
    Asked,
    Found,
    Kept,
    run_command,
    search_directory,
    seeds_to_report,
    write_search,
)
from ancl.cli.several import resolve_several
from ancl.cli.text import duration, failures_text, percent, table
from ancl.errors import SpecError, TrainingError
from ancl.executors.graph import Graph
from ancl.experiments import benchmark as benchmark_named
from ancl.experiments.run import Failure, compute
from ancl.experiments.search_two_stage import (
    STEPS,
    Trial,
    best,
    check_searchable,
    estimated_seconds,
    on_edge,
    score_name,
    seconds_an_image,
    validation_score,
)
from ancl.experiments.spec import RunSpec
from ancl.methods.registry import MethodRef
from ancl.stages.events import Events
from ancl.store.store import Store

_SIGNS = {"lamb": "λ", "lamb_a": "λ_a"}


def search_two_stages(asked: Asked, dry_run: bool, quiet: bool) -> Found:
    """Plan, say what it costs, then decide step by step."""
    with make_progress(quiet) as events:
        search = _TwoStages(asked, events)
        plan = search.plan()
        if dry_run:
            return Found(plan["text"], plan)
        events.note(plan["text"])
        if asked.choice.description:
            events.note(asked.choice.description)
        search.run()
    return search.found()


class _TwoStages:
    """The steps of one search, their grids, and what was decided so far."""

    def __init__(self, asked: Asked, events: Events) -> None:
        self.asked, self.events = asked, events
        # Everything but λ and λ_a is checked here, and names from a file are filled in.
        self.specs = [resolved.spec for resolved in asked.request.resolve()]
        self.spec = self.specs[0]
        check_searchable(self.spec)
        self.ref = MethodRef(self.spec.method)
        self.steps = [s for s in STEPS if s in self._method_of(s).settings]
        if not self.steps:
            raise SpecError(f"{self.ref.name} has neither λ nor λ_a: there is nothing to search.")
        self.grids = {step: self._grid(step) for step in self.steps}
        self.store = Store(asked.places.store, events.say)
        decisive = [self.grids, [spec.seed for spec in self.specs]]
        self.kept = Kept(search_directory(asked.places.runs, "two-stage", self.spec, decisive))
        self.chosen: dict[str, float] = {}
        self.trials: list[Trial] = []
        self.failures: list[Failure] = []
        self.notes: list[str] = []

    # -- what is tried -----------------------------------------------------------------------

    def _method_of(self, step: str) -> MethodRef:
        """λ is searched with the plain method, λ_a with the variant."""
        return MethodRef(self.ref.base) if step == "lamb" else self.ref

    def _grid(self, step: str) -> tuple[float, ...]:
        flag = f"--{step.replace('_', '-')}-grid"
        text = self.asked.grids[step]
        if text is None:
            grid = benchmark_named(self.spec.benchmark).grids.get(self._method_of(step).name)
            if grid is None or grid.setting != step:
                raise SpecError(
                    f"{self.spec.benchmark} has no grid for {_SIGNS[step]} of {self.ref.name}. "
                    f"Give one: {flag} 0.1,1,10."
                )
            return grid.values
        try:
            values = tuple(dict.fromkeys(float(part) for part in text.split(",")))
        except ValueError:
            values = ()
        if not values or not all(math.isfinite(v) and v >= 0 for v in values):
            raise SpecError(f"{flag}: {text!r} is no list of numbers ≥ 0. Write 0.1,1,10.")
        return values

    def _specs(self, step: str, value: float) -> list[RunSpec]:
        """One run a search seed; λ as decided before, or as given where it is not searched."""
        lambs = {**self.chosen, step: value}
        flags = dict(self.asked.request.flags)
        names = {key: flag for flag, (key, _) in FLAGS.items()}
        flags |= {names[key]: repr(v) for key, v in lambs.items()}
        request: Request = replace(self.asked.request, flags=flags, benchmark=self.spec.benchmark)
        return resolve_several(request, [self._method_of(step).name], [self.ref.name])

    # -- plan, trials, decision --------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """What all steps come to; λ_a's are counted with the first λ, since none is chosen yet."""
        specs: list[RunSpec] = []
        for step in self.steps:
            for value in self.grids[step]:
                specs += self._specs(step, value)
            self.chosen[step] = self.grids[step][0]
        self.chosen = {}
        graph = Graph(specs, self.asked.places.data)
        unstored = next((n.stage.unstored for n in graph.nodes.values() if n.stage.unstored), "")
        if unstored:
            raise SpecError(f"A search needs stages that can be stored. {unstored}")
        todo = [graph.nodes[key] for key in graph.todo(self.store)]
        cost = 0.0
        if any(node.epochs for node in todo):
            cost = estimated_seconds(todo, seconds_an_image(self.spec, self.asked.places.data))
        cost /= self.asked.choice.workers
        tried = ", then ".join(
            f"{_SIGNS[step]} of {self._method_of(step).name} in "
            f"{', '.join(f'{value:g}' for value in self.grids[step])}"
            for step in self.steps
        )
        text = (
            f"Search by {score_name(self.spec)}: {tried}\n"
            f"In all {graph.summary(self.store)}; at most about {duration(cost)}, from a few "
            f"timed steps"
        )
        return {**graph.counts(self.store), "most_seconds": cost, "text": text}

    def run(self) -> None:
        """Every step: all its trials, then its decision."""
        self.store.check()
        for step in self.steps:
            trials = self._try(step)
            self.trials += trials
            winner = best(trials)
            if winner is None:
                raise TrainingError(
                    f"Every value of {_SIGNS[step]} failed:\n{failures_text(self.failures)}"
                )
            self.chosen[step] = winner.value
            if on_edge(winner, self.grids[step]):
                self.notes.append(
                    f"{_SIGNS[step]} = {winner.value:g} lies on the edge of its grid: a better "
                    f"value may lie beyond."
                )

    def _try(self, step: str) -> list[Trial]:
        values = {value: self._specs(step, value) for value in self.grids[step]}
        graph = Graph([spec for specs in values.values() for spec in specs], self.asked.places.data)
        self.kept.add(graph.nodes)
        failures = compute(graph, self.store, self.asked.choice, self.events)
        self.failures += failures
        lacking = {failure.node.stage.key: failure.reason for failure in failures}
        plans = iter(graph.plans)
        trials = []
        for value, specs in values.items():
            own = [next(plans) for _ in specs]
            why = next((lacking[key] for plan in own for key in plan if key in lacking), "")
            scores = {plan.spec.seed: validation_score(plan, self.store) for plan in own if not why}
            spec = specs[0]
            trials.append(Trial(step, spec.method, spec.options, value, scores, why))
        return trials

    # -- what it leaves ----------------------------------------------------------------------

    def found(self) -> Found:
        """The decision on disk, on screen and as JSON."""
        searched = [spec.seed for spec in self.specs]
        seeds, said = seeds_to_report(self.asked, searched)
        decision: dict[str, Any] = {
            "protocol": "two-stage",
            "method": self.spec.method,
            "benchmark": self.spec.benchmark,
            "decided_by": score_name(self.spec),
            "search_seeds": searched,
            **self.chosen,
            "notes": [*self.notes, *said],
            "command": run_command(self.asked, self.spec, self.chosen, seeds),
            "failures": [each.json() for each in self.failures],
        }
        directory = self.kept.directory
        trials = [trial_json(trial, self.chosen) for trial in self.trials]
        write_search(self.kept, trials, {"decision.json": decision})
        found = {**decision, "trials": trials, "directory": str(directory)}
        parts = [trials_text(self.trials, self.chosen, decision["decided_by"])]
        if self.failures:
            parts.append(failures_text(self.failures))
        parts += decision["notes"]
        parts.append(f"Trials and decision: {directory}\nRun it:\n  {decision['command']}")
        return Found("\n\n".join(parts), found, bool(self.failures))


def trial_json(trial: Trial, chosen: dict[str, float]) -> dict[str, Any]:
    """A trial as JSON; what failed has no score."""
    return {
        "step": trial.step,
        "method": trial.method,
        "lamb": trial.options.get("lamb"),
        "lamb_a": trial.options.get("lamb_a"),
        "scores": {str(seed): score for seed, score in trial.scores.items()},
        "mean": None if trial.failed else trial.mean,
        "chosen": chosen[trial.step] == trial.value,
        "failed": trial.failed,
    }


def trials_text(trials: Sequence[Trial], chosen: dict[str, float], metric: str) -> str:
    """Every trial with the score that decides; no test image has been looked at for it."""
    rows = [
        [
            _SIGNS[trial.step],
            trial.method,
            *(f"{v:g}" if (v := trial.options.get(k)) is not None else "" for k in STEPS),
            percent(trial.mean),
            str(len(trial.scores)),
            "failed" if trial.failed else "chosen" if chosen[trial.step] == trial.value else "",
        ]
        for trial in trials
    ]
    head = ["searched", "method", "λ", "λ_a", f"{metric}, %", "n", ""]
    return table(head, rows, "llrrrrl")
