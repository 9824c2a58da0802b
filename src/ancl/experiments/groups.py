"""Groups of runs that differ only by seed: their means, and the numbers expected of them."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ancl.data import PUBLISHED
from ancl.data.stream import SCENARIOS
from ancl.experiments.results import Damaged, Finished, RunResult, estimate_json, estimates
from ancl.metrics import Estimate, Matrix, main_metric, mean_and_error
from ancl.outside import is_outside
from ancl.recipe.benchmarks import benchmark
from ancl.recipe.paper import RUNS, Expected, expected
from ancl.recipe.recipe import SEARCH, RunSpec
from ancl.recipe.request import QUICK_LOOK, is_quick_look
from ancl.recipe.resolve import resolve
from ancl.training.cost import Cost
from ancl.wording import method_rank, method_title, natural, setting_text, split_method, value_text

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with one set of settings, by seed.

    Args:
        runs: The runs, by seed.
        settings: Every setting by dotted key, without seed, device and threads.
        stream: The benchmark, with the settings that distinguish it from others of its name.
        title: The method, with the settings that distinguish it on the same stream.
    """

    runs: tuple[Finished, ...]
    settings: Mapping[str, Any]
    stream: str
    title: str

    @property
    def spec(self) -> RunSpec:
        """The spec of the first seed."""
        return self.runs[0].result.spec

    @property
    def results(self) -> list[RunResult]:
        """The results of the runs."""
        return [run.result for run in self.runs]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return [run.result.spec.seed for run in self.runs]

    @property
    def notes(self) -> list[str]:
        """Limits of the results that a reader should know, each once."""
        look = [QUICK_LOOK] if is_quick_look(self.spec) else []
        return list(dict.fromkeys([*look, *(n for result in self.results for n in result.notes)]))

    @property
    def base(self) -> str:
        """The method without its variant."""
        return split_method(self.spec.method)[0]

    @property
    def variant(self) -> str:
        """CL, AFEC or ANCL."""
        return split_method(self.spec.method)[1]

    @property
    def decisive(self) -> str:
        """The metric the paper's tables show in this scenario."""
        return main_metric(self.spec.task_aware)

    @cached_property
    def unlike_expected(self) -> list[str]:
        """What is not as in the benchmark's recipe, where numbers are expected of the method."""
        return protocol_differences(self.results) if self._expected else []

    @cached_property
    def obstacles(self) -> list[str]:
        """What keeps expected numbers from standing beside these; empty where there are none."""
        return obstacles(self.results[0]) if self._expected else []

    @property
    def _expected(self) -> tuple[Expected, ...]:
        return expected(self.spec.benchmark, self.spec.method)

    def expected(self, metric: str) -> Expected | None:
        """The paper's or the benchmark's number, where it may stand beside the group's."""
        numbers = () if self.obstacles else self._expected
        return next((number for number in numbers if number.metric == metric), None)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """The accuracy matrix that counts in the scenario, one per seed."""
        return [run.result.counted for run in self.runs]

    @property
    def tasks(self) -> int:
        """The number of tasks that are tested."""
        return int(self.matrices[0].shape[1])

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed."""
        return {run.result.spec.seed: run.result.metrics[metric] for run in self.runs}

    def estimate(self, metric: str) -> Estimate:
        """A metric over seeds."""
        return mean_and_error(list(self.values(metric).values()))

    def cells(self) -> list[list[Estimate | None]]:
        """Every entry of the accuracy matrix over seeds; none where a task was not yet learned."""
        stacked = np.stack(self.matrices)
        return [
            [None if np.isnan(cell).any() else mean_and_error(cell.tolist()) for cell in row]
            for row in np.moveaxis(stacked, 0, 2)
        ]

    def curves(self) -> dict[str, list[list[float]]]:
        """Accuracy along steps or tasks, one line per seed, by what it is taken on.

        ``phases``: all tasks so far after every step, weighted as in the decisive metric.
        ``finals``: every task, at the end. ``news``: every task, when it was new. ``first``: the
        first task, after every step.
        """
        return {
            "phases": [self._phases(matrix) for matrix in self.matrices],
            "finals": [matrix[-1].tolist() for matrix in self.matrices],
            "news": [_when_new(matrix) for matrix in self.matrices],
            "first": [matrix[:, 0].tolist() for matrix in self.matrices],
        }

    def _phases(self, matrix: Matrix) -> list[float]:
        sizes = np.asarray(self.runs[0].result.sizes, float)
        weights = np.ones(self.tasks) if self.decisive == "aac" else sizes
        seen = ~np.isnan(matrix)
        return [
            float(np.average(row[some], weights=weights[some])) if some.any() else math.nan
            for row, some in zip(matrix, seen, strict=True)
        ]

    def curve(self, name: str) -> list[Estimate]:
        """Mean and error over seeds along one of ``curves``."""
        return [mean_and_error(list(values)) for values in zip(*self.curves()[name], strict=True)]

    def class_names(self) -> list[list[str]]:
        """The classes of every task that brought new ones, where the run knows them."""
        state = self.runs[0].result.state
        tasks = [task.names for task in state.tasks if task.names] if state else []
        return [[str(name) for name in names] for names in tasks]

    def parameters(self) -> list[dict[str, int]]:
        """Parameters after every task, stored and trained, where the first run counted them."""
        counted = self.runs[0].result.parameters
        return [{"stored": count.stored, "trained": count.trained} for count in counted]

    def costs(self) -> dict[str, Cost]:
        """What trainings took by the name of the stage, all tasks together: the mean over seeds.

        Nothing where a run did not count it.
        """
        total: dict[str, Cost] = {}
        for result in self.results:
            for name, cost in result.costs.items():
                stage = name.rpartition(" ")[0]
                total[stage] = total.get(stage, Cost(0, 0, 0.0)).plus(cost)
        counted = all(result.costs for result in self.results)
        share = len(self.runs)
        return {name: Cost(*(v / share for v in c)) for name, c in total.items() if counted}

    def seconds(self) -> dict[str, Estimate]:
        """Seconds by the name of the stage, all tasks together."""
        by_run = [_by_stage(run.result.seconds) for run in self.runs]
        # The last task has all stages, in their order; the first one lacks some.
        last_first = (task for run in self.runs for task in reversed(_tasks(run.result.seconds)))
        names = dict.fromkeys(stage for task in last_first for stage in task)
        return {name: mean_and_error([spent.get(name, 0.0) for spent in by_run]) for name in names}


def _when_new(matrix: Matrix) -> list[float]:
    """The first accuracy of each column."""
    accuracies = [column[~np.isnan(column)] for column in matrix.T]
    return [float(column[0]) if len(column) else math.nan for column in accuracies]


def group_of(runs: Sequence[Finished]) -> Group:
    """Runs of one method that differ only by seed, as a group by the method's name."""
    spec = runs[0].result.spec
    return Group(tuple(runs), spec.settings(), spec.stream, spec.method)


def group_runs(runs: Iterable[Finished]) -> tuple[list[Group], list[Damaged]]:
    """Groups in the order of the paper's tables, and runs left out as duplicates of a seed."""
    by_settings: dict[str, dict[int, Finished]] = defaultdict(dict)
    settings: dict[str, Settings] = {}
    duplicates: list[Damaged] = []
    for run in sorted(runs, key=lambda run: run.directory.name):
        spec = run.result.spec
        values = spec.settings()
        key = json.dumps(values, sort_keys=True)
        first = by_settings[key].setdefault(spec.seed, run)
        if first is not run:
            reason = (
                f"left out: seed {spec.seed} is already in {first.directory.name}, with the same "
                "settings but for threads, device or version"
            )
            duplicates.append(Damaged(run.directory, reason))
        settings[key] = values
    plain = [
        Group(tuple(by_seed[seed] for seed in sorted(by_seed)), settings[key], "", "")
        for key, by_seed in by_settings.items()
    ]
    return _titled(plain), duplicates


# -- titles ----------------------------------------------------------------------------------


def _titled(groups: Sequence[Group]) -> list[Group]:
    """Groups with their names, sorted: data settings name the stream, all others the row."""
    streams = _distinct(groups, lambda g: g.spec.stream, lambda g: _section(g, data=True))
    rows = _distinct(
        groups,
        lambda g: f"{streams[g]}\n{method_title(g.spec.method)}",
        lambda g: _section(g, data=False),
    )
    titled = [Group(g.runs, g.settings, streams[g], rows[g].partition("\n")[2]) for g in groups]
    return sorted(titled, key=_rank)


_BENCHMARKS = (
    "cifar100/10",
    "cifar100/20",
    "tinyimagenet/10",
    "tinyimagenet/20",
    "cifar100/6",
    "cifar100/11",
    "tinyimagenet/11",
    "tinyimagenet/21",
)


def _stream_rank(spec: RunSpec) -> tuple[int, int, str]:
    """The rank of a stream: by scenario, then as in the paper, then by name."""
    name = spec.stream
    position = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return SCENARIOS.index(spec.data.scenario), position, name


def _rank(group: Group) -> tuple[Any, ...]:
    stream, method = _stream_rank(group.spec), method_rank(group.spec.method)
    return *stream, group.stream, *method, natural(group.title)


def _section(group: Group, *, data: bool) -> Settings:
    return {k: v for k, v in group.settings.items() if k.startswith("data.") == data}


def _distinct(
    groups: Sequence[Group], name: Callable[[Group], str], settings: Callable[[Group], Settings]
) -> dict[Group, str]:
    """A name for each group, with the settings in which it differs from others of that name."""
    like: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        like[name(group)].append(group)
    names: dict[Group, str] = {}
    for title, members in like.items():
        values = {group: settings(group) for group in members}
        keys = _differing(list(values.values()))
        for group in members:
            texts = [f"{_short(key)}={value_text(values[group].get(key))}" for key in keys]
            names[group] = f"{title} ({', '.join(texts)})" if texts else title
    return names


def _differing(settings: Sequence[Settings]) -> list[str]:
    """The keys with different values; what only follows another key is left out."""
    keys = dict.fromkeys(key for values in settings for key in values)
    unlike = [k for k in keys if len({json.dumps(values.get(k)) for values in settings}) > 1]
    return [k for k in unlike if _twin(k) == k or _twin(k) not in unlike]


def _twin(key: str) -> str:
    """The main network's setting, which the auxiliary one has by default too."""
    return key.replace("auxiliary.", "training.", 1)


def _short(key: str) -> str:
    return setting_text(key).removeprefix("data.")


def _tasks(seconds: Mapping[str, float]) -> list[list[str]]:
    """The names of the stages of every task."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for name in seconds:
        stage, _, task = name.rpartition(" ")
        by_task[task].append(stage)
    return list(by_task.values())


def _by_stage(seconds: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for name, value in seconds.items():
        total[name.rpartition(" ")[0]] += value
    return dict(total)


# -- expected numbers -------------------------------------------------------------------------

_RATES = frozenset({"lr", "lr_first", "lr_search"})


class Verdict(NamedTuple):
    """The paper's numbers for a method, and what keeps runs from being compared with them."""

    numbers: tuple[Expected, ...]
    differences: list[str]
    notes: list[str]


def expected_numbers(spec: RunSpec) -> tuple[tuple[Expected, ...], list[str]]:
    """Numbers to expect of a run that is not started, and its settings that are not theirs."""
    numbers = expected(spec.benchmark, spec.method) if spec.stream == spec.benchmark else ()
    changed = changed_settings(spec) if numbers else {}
    return numbers, [_not_as(key, *values) for key, values in changed.items()]


def verdict(results: Sequence[RunResult]) -> Verdict | None:
    """The paper's numbers for these runs; nothing where it has none for what was learned."""
    spec = results[0].spec
    numbers = expected(spec.benchmark, spec.method)
    if not numbers or spec.stream != spec.benchmark:
        return None
    return Verdict(numbers, protocol_differences(results), _notes(spec))


def verdict_json(verdict: Verdict, results: Sequence[RunResult]) -> dict[str, Any]:
    """Our numbers and the paper's as JSON, in fractions."""
    got = estimates(results)
    return {
        "comparable": not verdict.differences,
        "differences": verdict.differences,
        "notes": verdict.notes,
        "metrics": {
            number.metric: {
                "got": estimate_json(got[number.metric]),
                "paper": {
                    "mean": number.mean / 100,
                    "standard_error": number.error / 100,
                    "n": number.n,
                    "table": number.table,
                },
            }
            for number in verdict.numbers
        },
    }


def _notes(spec: RunSpec) -> list[str]:
    """What the benchmark had to choose because the paper does not say it."""
    if spec.training.lr_search:
        return [f"training.lr={SEARCH}: by the released code's rule."]
    recipe, changed = benchmark(spec.benchmark), changed_settings(spec)
    values = recipe.values(spec.method)
    return [
        f"{key} {values[key]} is {source}."
        for key, source in recipe.sources(spec.method).items()
        if source.startswith("ours") and key not in changed
    ]


def changed_settings(spec: RunSpec) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the recipe's, and the recipe's; a searched rate is the paper's rule."""
    if is_outside(spec.method):  # read back from a run: its code is not ours to import
        return {}
    recipe = resolve(spec.method, spec.benchmark).spec.settings()
    searched = _RATES if spec.training.lr_search else frozenset()
    return {
        key: (value, recipe.get(key))
        for key, value in spec.settings().items()
        if value != recipe.get(key) and key.rpartition(".")[2] not in searched
    }


def protocol_differences(results: Sequence[RunResult]) -> list[str]:
    """Settings, images and seeds that are not the recipe's, each in a few words."""
    first = results[0]
    texts = [_not_as(key, *values) for key, values in changed_settings(first.spec).items()]
    texts += _missing_images(first)
    # Our own numbers are measured again by anybody, with any number of seeds.
    measured = any(not number.table for number in expected(first.spec.benchmark, first.spec.method))
    if len(results) != RUNS and not measured:
        texts.append(f"n is {len(results)} instead of {RUNS} seeds")
    return texts


def obstacles(result: RunResult) -> list[str]:
    """What keeps expected numbers from standing beside a run's: a quick look is never beside them.

    The images and the network must be the recipe's, and the epochs at least as many. All else that
    differs is named beside the numbers: ``protocol_differences``.
    """
    return [
        _not_as(key, ours, theirs)
        for key, (ours, theirs) in changed_settings(result.spec).items()
        if key.startswith(("data.", "network.")) or _fewer_epochs(key, ours, theirs)
    ] + _missing_images(result)


def _fewer_epochs(key: str, ours: Any, theirs: Any) -> bool:
    numbers = isinstance(ours, int) and isinstance(theirs, int)
    return key in ("training.epochs", "training.epochs_first") and numbers and ours < theirs


def _missing_images(result: RunResult) -> list[str]:
    whole = PUBLISHED.get(result.spec.data.source)
    if whole is None or result.spec.data.per_class is not None:
        return []
    counts = (sum(train + val for train, val, _ in result.images), sum(result.sizes))
    return [
        f"{count:,} of the publisher's {total:,} {kind} images"
        for kind, count, total in zip(("training", "test"), counts, whole.images, strict=True)
        if count != total
    ]


def _not_as(key: str, ours: Any, theirs: Any) -> str:
    return f"{key} is {_text(ours)} instead of {_text(theirs)}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
