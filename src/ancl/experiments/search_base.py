"""What searches share: what is asked for, what is found, and the directory it is written to."""

import csv
import io
import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ancl.compute import ExecutorChoice
from ancl.compute.graph import Graph
from ancl.errors import SpecError
from ancl.experiments.forecast import estimate_time
from ancl.experiments.grid import check_searchable
from ancl.experiments.results import Places, run_directory
from ancl.experiments.run import Failure, compute
from ancl.files import STAGES, claim, csv_cell, read_stages, replace_text, write_stages, writing
from ancl.hashing import digest
from ancl.recipe.recipe import RunSpec
from ancl.recipe.request import Request
from ancl.stages.events import Events
from ancl.store.store import Store

REPORTED = 3
"""How many seeds follow those that decide, where none are given."""


@dataclass(frozen=True)
class SearchRequest:
    """A search that is asked for.

    Args:
        request: The runs, with the seeds that decide.
        protocol: ``two-stage`` or ``per-task``.
        grids: Values to try of ``lamb`` and ``lamb_a``; the benchmark's where there are none.
        report_seeds: Seeds of the runs that follow.
        places: The directories of results, stages and data.
        executor: Where stages are computed.
        race: Whether values that have no chance to win stop early.
    """

    request: Request
    protocol: str
    grids: Mapping[str, Sequence[float] | None]
    report_seeds: Sequence[int] | None
    places: Places
    executor: ExecutorChoice
    race: bool = False


Tried = tuple[tuple[str, str, tuple[float, ...]], ...]
"""What is tried in turn: ``lamb`` or ``lamb_a``, the method, and the values."""


@dataclass(frozen=True)
class SearchPlan:
    """What a search would do.

    Args:
        decided_by: The score that decides.
        tried: What is tried in turn.
        counts: Runs, stages and epochs; see ``Graph.counts``.
        summary: The same in words.
        most_seconds: At most about this long, estimated from a few timed steps.
    """

    decided_by: str
    tried: Tried
    counts: Mapping[str, int]
    summary: str
    most_seconds: float


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found; the same is in its directory.

    Args:
        protocol: ``two-stage`` or ``per-task``.
        method: What was searched for.
        benchmark: On what.
        decided_by: The score that decided.
        search_seeds: The seeds that decided.
        chosen: ``lamb`` and ``lamb_a``; or ``lamb_by_task`` by seed.
        trials: Every value tried, with its scores.
        directory: Where all of it is written.
        notes: Limits of the result that a reader should know.
        details: More that belongs to the protocol.
        failures: Stages that failed.
        follow_up: The runs with what was chosen; none where they are already computed.
        data_root: Where data was.
    """

    protocol: str
    method: str
    benchmark: str
    decided_by: str
    search_seeds: tuple[int, ...]
    chosen: Mapping[str, Any]
    trials: tuple[Mapping[str, Any], ...]
    directory: Path
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    follow_up: Request | None = None
    data_root: Path | None = None

    def specs(self) -> list[RunSpec]:
        """Runs of the method with what was chosen, one per report seed."""
        return [resolved.spec for resolved in self.follow_up.resolve()] if self.follow_up else []

    @property
    def command(self) -> str:
        """The command that does the same; none where it is already done."""
        return run_command(self.follow_up, self.data_root) if self.follow_up else ""

    def decision(self) -> dict[str, Any]:
        """What was decided and by what, as JSON."""
        return {
            "protocol": self.protocol,
            "method": self.method,
            "benchmark": self.benchmark,
            "decided_by": self.decided_by,
            "search_seeds": list(self.search_seeds),
            **self.details,
            **self.chosen,
            "notes": list(self.notes),
            "command": self.command,
            "failures": [failure.json() for failure in self.failures],
        }


class Search(ABC):
    """A search whose settings are checked."""

    decided_by: str
    """The score that decides."""

    def __init__(self, asked: SearchRequest, specs: Sequence[RunSpec], events: Events) -> None:
        self.asked, self.events = asked, events
        self.specs, self.spec = specs, specs[0]
        check_searchable(self.spec)
        self.seeds = tuple(spec.seed for spec in specs)
        self.store = Store(asked.places.store, events.say)

    @abstractmethod
    def plan(self) -> SearchPlan:
        """The work to do, with its cost; nothing is trained but a few steps to time them."""

    def run(self) -> SearchResult:
        """Try the values and decide."""
        self.asked.places.check()
        self.store.check()
        if self.asked.executor.description:
            self.events.note(self.asked.executor.description)
        return self.decide()

    @abstractmethod
    def decide(self) -> SearchResult:
        """Try the values and decide; called by ``run``."""

    @property
    @abstractmethod
    def decisive(self) -> Any:
        """What decides the result besides the protocol and the first run, as JSON."""

    @cached_property
    def directory(self) -> "SearchDirectory":
        """Where the search is written."""
        asked = self.asked
        return SearchDirectory(asked.places, asked.protocol, self.spec, self.decisive)

    def compute(self, graph: Graph) -> list[Failure]:
        """Compute what the store lacks of a graph; its stages are noted before."""
        self.directory.add_stages(graph.nodes)
        for plan in graph.plans:
            name = run_directory(Path(), plan.spec).name
            # λ that is decided task by task is not part of the spec.
            name = "_".join([name, *(f"{lamb:g}" for lamb in next(iter(plan.values())).lambs)])
            values = plan.spec.plain()
            self.events.run_begins(self.directory.path / "trials" / name, values, [*plan])
        return compute(graph, self.store, self.asked.executor, self.events)

    def graph(self, specs: Sequence[RunSpec], first_tasks: int | None = None) -> Graph:
        """The stages of some runs, or those of their first tasks.

        Raises:
            SpecError: One of them cannot be stored.
        """
        graph = Graph(specs, self.asked.places.data, first_tasks=first_tasks)
        unstored = next((n.stage.unstored for n in graph.nodes.values() if n.stage.unstored), "")
        if unstored:
            raise SpecError(f"A search needs stages that can be stored. {unstored}")
        return graph

    def plan_of(self, graph: Graph, tried: Tried, workers: int = 1) -> SearchPlan:
        """The work of a graph, with its cost at this number of stages at the same time."""
        seconds = estimate_time(graph, self.store, workers).seconds
        counts, summary = graph.counts(self.store), graph.summary(self.store)
        return SearchPlan(self.decided_by, tried, counts, summary, seconds)

    def result(
        self, chosen: Mapping[str, Any], trials: Iterable[Mapping[str, Any]], **more: Any
    ) -> SearchResult:
        """What was chosen, of which trials; with more fields of ``SearchResult``."""
        return SearchResult(
            self.asked.protocol,
            self.spec.method,
            self.spec.stream,
            self.decided_by,
            self.seeds,
            chosen,
            tuple(trials),
            self.directory.path,
            **more,
        )


# -- the runs that follow --------------------------------------------------------------------


def seeds_to_report(
    given: Sequence[int] | None, searched: Sequence[int]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The seeds of the runs that follow, other than those that decided; and what to note."""
    if given is None:
        first = max(searched) + 1
        return tuple(range(first, first + REPORTED)), ()
    both = sorted(set(given) & set(searched))
    if not both:
        return tuple(given), ()
    seeds = ", ".join(map(str, both))
    return tuple(given), (
        f"Seeds that decided are reported too ({seeds}), which flatters the result. Keep --seeds "
        f"and --search-seeds apart.",
    )


def run_command(request: Request, data_root: Path | None = None) -> str:
    """The command that runs a request: a value given by a flag by that flag, others by ``--set``.

    Examples:
        >>> from ancl.recipe.request import make_request
        >>> run_command(make_request("lwf", "digits/5", {"data.tasks": 2}, (0, 1, 2, 7)))
        'ancl run lwf digits/5 --set data.tasks=2 --seeds 0-2,7'
    """
    given = {
        key: (layer.label(key), value)
        for layer in request.layers
        for key, value in layer.values.items()
    }
    words, flags = ["ancl", "run", *filter(None, (request.method, request.benchmark))], set[str]()
    for key, (label, value) in given.items():
        if label == "--set" or not label.startswith("--"):
            words += ["--set", f"{key}={_value_text(value)}"]
        elif label not in flags:  # a flag's second value follows from its first
            flags.add(label)
            words += [label, _value_text(value)]
    if request.config:
        words += ["--config", str(request.config)]
    if request.preset != "paper":
        words += ["--preset", request.preset]
    if request.quick:
        words.append("--quick")
    if data_root:
        words += ["--data-root", str(data_root)]
    if request.seeds:
        words += ["--seeds", _seeds_text(request.seeds)]
    return shlex.join(words)


def _value_text(value: Any) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _seeds_text(seeds: Sequence[int]) -> str:
    """Seeds with ranges: 0-2,7."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1].append(seed)
        else:
            ranges.append([seed])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)


# -- what a search writes --------------------------------------------------------------------


class SearchDirectory:
    """The files of a search. The same search always has the same directory.

    Its stages are noted before they are computed, so that ``ancl store prune`` keeps them.

    Args:
        places: Where results go, and whether they replace files that ancl did not write.
        protocol: Of the search.
        spec: Its first run.
        decisive: What else decides its result, as JSON.
    """

    def __init__(self, places: Places, protocol: str, spec: RunSpec, decisive: Any) -> None:
        outside = ":" in spec.method
        method = Path(spec.method.rpartition(":")[0]).stem if outside else spec.method
        mark = digest([protocol, spec.plain(), decisive])[:8]
        name = f"{spec.benchmark.replace('/', '-')}_{method}_{protocol}_{mark}"
        self.path, self._overwrite = places.runs / "searches" / name, places.overwrite
        self._keys: dict[str, None] = {}
        self._before: frozenset[str] = frozenset()
        with suppress(OSError, ValueError):  # a search that is repeated or resumed
            self._before = read_stages(self.path)

    def add_stages(self, keys: Iterable[str]) -> None:
        """Note the keys of stages that are about to be computed."""
        self._keys |= dict.fromkeys(keys)
        self._write({}, dict.fromkeys([*sorted(self._before), *self._keys]))

    def write(self, result: SearchResult, files: Mapping[str, Any] | None = None) -> None:
        """Write every trial as JSON and CSV, then other files by name; the decision comes last."""
        table = io.StringIO()
        columns = list(dict.fromkeys(key for trial in result.trials for key in trial))
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: csv_cell(json.dumps(v) if isinstance(v, dict) else v) for k, v in trial.items()}
            for trial in result.trials
        )
        contents = {
            "trials.json": list(result.trials),
            **(files or {}),
            "decision.json": result.decision(),
        }
        texts = {name: json.dumps(content, indent=1) for name, content in contents.items()}
        self._write({"trials.csv": table.getvalue(), **texts}, self._keys)

    def _write(self, texts: Mapping[str, str], keys: Iterable[str]) -> None:
        """Replace files by name, and the keys of stages; each file is complete or unchanged.

        Raises:
            StoreError: The directory cannot be written, or holds files that ancl did not write.
        """
        names = [STAGES, "decision.json", *texts]
        claim(self.path, names, [STAGES], overwrite=self._overwrite)
        advice = (
            "Free some space or give another --runs DIR; the same command finds everything that "
            "is trained."
        )
        with writing(self.path, "The search", advice):
            write_stages(self.path, keys)
            for name, text in texts.items():
                replace_text(self.path / name, text)
