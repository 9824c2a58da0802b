"""Groups of runs that differ only by seed: their means, and variants against their hosts."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from ancl.data.stream import SCENARIOS
from ancl.experiments.pairing import Conditions, Pairing, conditions, pairing
from ancl.experiments.paper_check import obstacles, protocol_differences
from ancl.experiments.results import Damaged, Finished, RunResult
from ancl.metrics import (
    Estimate,
    Interval,
    Matrix,
    main_metric,
    mean_and_error,
    paired,
    t_interval,
)
from ancl.recipe.paper import Expected, expected
from ancl.recipe.recipe import RunSpec
from ancl.recipe.request import QUICK_LOOK, is_quick_look
from ancl.wording import (
    method_rank,
    method_title,
    natural,
    setting_text,
    split_method,
    value_text,
)

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
    def conditions(self) -> Conditions:
        """What decided the results, besides the seed."""
        return conditions(self.runs[0].result)

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
        found = () if self.obstacles else self._expected
        return next((each for each in found if each.metric == metric), None)

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
        found = np.stack(self.matrices)
        return [
            [None if np.isnan(cell).any() else mean_and_error(cell.tolist()) for cell in row]
            for row in np.moveaxis(found, 0, 2)
        ]

    def curves(self) -> dict[str, list[list[float]]]:
        """Accuracy along steps or tasks, one line per seed, by what it is taken on.

        ``phases``: all tasks so far after every step, weighted as in the decisive metric.
        ``finals``: every task, at the end. ``news``: every task, when it was new. ``first``: the
        first task, after every step.
        """
        return {
            "phases": [self._phases(each) for each in self.matrices],
            "finals": [each[-1].tolist() for each in self.matrices],
            "news": [_when_new(each) for each in self.matrices],
            "first": [each[:, 0].tolist() for each in self.matrices],
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
        return [mean_and_error(list(each)) for each in zip(*self.curves()[name], strict=True)]

    def class_names(self) -> list[list[str]]:
        """The classes of every task that brought new ones, where the run knows them."""
        state = self.runs[0].result.state
        tasks = [task.names for task in state.tasks if task.names] if state else []
        return [[str(name) for name in names] for names in tasks]

    def parameters(self) -> list[dict[str, int]]:
        """Parameters after every task, stored and trained, where the first run counted them."""
        counted = self.runs[0].result.parameters
        return [{"stored": each.stored, "trained": each.trained} for each in counted]

    def seconds(self) -> dict[str, Estimate]:
        """Seconds by the name of the stage, all tasks together."""
        by_run = [_by_stage(run.result.seconds) for run in self.runs]
        # The last task has all stages, in their order; the first one lacks some.
        last_first = (task for run in self.runs for task in reversed(_tasks(run.result.seconds)))
        names = dict.fromkeys(stage for task in last_first for stage in task)
        return {name: mean_and_error([each.get(name, 0.0) for each in by_run]) for name in names}


def _when_new(matrix: Matrix) -> list[float]:
    """The first accuracy of each column."""
    found = [column[~np.isnan(column)] for column in matrix.T]
    return [float(each[0]) if len(each) else math.nan for each in found]


def group_of(runs: Sequence[Finished]) -> Group:
    """Runs of one method that differ only by seed, as a group by the method's name."""
    spec = runs[0].result.spec
    return Group(tuple(runs), spec.settings(), spec.stream, spec.method)


def group_runs(runs: Iterable[Finished]) -> tuple[list[Group], list[Damaged]]:
    """Groups in the order of the paper's tables, and runs left out as duplicates of a seed."""
    found: dict[str, dict[int, Finished]] = defaultdict(dict)
    settings: dict[str, Settings] = {}
    duplicates: list[Damaged] = []
    for run in sorted(runs, key=lambda each: each.directory.name):
        spec = run.result.spec
        own = spec.settings()
        key = json.dumps(own, sort_keys=True)
        first = found[key].setdefault(spec.seed, run)
        if first is not run:
            reason = (
                f"left out: seed {spec.seed} is already in {first.directory.name}, with the same "
                "settings but for threads, device or version"
            )
            duplicates.append(Damaged(run.directory, reason))
        settings[key] = own
    plain = [
        Group(tuple(found[key][seed] for seed in sorted(found[key])), settings[key], "", "")
        for key in found
    ]
    return _titled(plain), duplicates


# -- a variant against its host --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Difference:
    """A variant minus its plain host, paired by seed.

    Args:
        group: The variant.
        host: Its plain method on the same stream.
        pairing: What else differs. Where it refuses, there is no number.
    """

    group: Group
    host: Group
    pairing: Pairing

    @classmethod
    def between(cls, group: Group, host: Group) -> Self:
        """A group minus another, with what else differs."""
        return cls(group, host, pairing(group.conditions, host.conditions))

    @property
    def title(self) -> str:
        """Which is taken from which."""
        return f"{self.group.title} − {self.host.title}"

    def gaps(self, metric: str) -> dict[int, float]:
        """Ours minus the host's by seed, on the seeds both have; empty where refused."""
        if self.pairing.refused:
            return {}
        ours, theirs = (each.values(metric) for each in (self.group, self.host))
        return paired(ours, theirs)

    def estimate(self, metric: str) -> Estimate | None:
        """Mean and standard error of the difference."""
        gaps = list(self.gaps(metric).values())
        return mean_and_error(gaps) if gaps else None

    def interval(self, metric: str) -> Interval | None:
        """Mean and 95 % interval of the difference, at least one test image each way."""
        gaps = list(self.gaps(metric).values())
        return t_interval(gaps, 1 / sum(self.group.results[0].sizes)) if gaps else None

    def cells(self) -> list[list[float]]:
        """The accuracy matrix minus the host's: the mean over the seeds that both have."""
        if self.pairing.refused:
            return []
        ours, theirs = (
            dict(zip(each.seeds, each.matrices, strict=True)) for each in (self.group, self.host)
        )
        gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        found: list[list[float]] = np.mean(gaps, axis=0).tolist()
        return found


def differences(groups: Sequence[Group]) -> dict[Group, Difference]:
    """Every variant that has a host with a seed in common, on the same stream.

    Of several hosts the likest one is taken: one that is not refused, with the fewest settings
    that differ.
    """
    found: dict[Group, Difference] = {}
    for group in groups:
        kind = (group.stream, group.base, "CL")
        pairs = [
            Difference.between(group, each)
            for each in groups
            if (each.stream, each.base, each.variant) == kind and set(each.seeds) & set(group.seeds)
        ]
        if pairs and group.variant != "CL":
            found[group] = min(
                pairs, key=lambda p: (bool(p.pairing.refused), len(p.pairing.differing))
            )
    return found


class Sweep(NamedTuple):
    """Groups that differ in one number only, in its order.

    Args:
        setting: ``lamb`` for plain methods, ``lamb_a`` for variants.
        values: The numbers.
        groups: One group each; with ``lamb_a`` of ANCL the host comes first, as 0.
    """

    setting: str
    values: tuple[float, ...]
    groups: tuple[Group, ...]


def sweeps(groups: Sequence[Group], found: Mapping[Group, Difference]) -> list[Sweep]:
    """Curves over λ of plain methods and over λ_a of variants, where there are several values."""
    families: dict[str, list[tuple[float, Group]]] = defaultdict(list)
    for group in groups:
        setting = _swept(group)
        value = group.settings.get(setting)
        if isinstance(value, int | float):
            rest = {k: v for k, v in group.settings.items() if k != setting}
            families[json.dumps(rest, sort_keys=True)].append((float(value), group))
    made = []
    for members in families.values():
        pair = found.get(members[0][1])
        members.sort(key=lambda each: each[0])
        if pair and pair.group.variant == "ANCL" and not any(pair.pairing):
            members = [(0.0, pair.host), *(each for each in members if each[0])]
        if len(members) > 1:
            values, along = zip(*members, strict=True)
            made.append(Sweep(_swept(along[-1]), tuple(values), tuple(along)))
    return made


def _swept(group: Group) -> str:
    return "lamb" if group.variant == "CL" else "lamb_a"


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
    place = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return SCENARIOS.index(spec.data.scenario), place, name


def _rank(group: Group) -> tuple[Any, ...]:
    own, method = _stream_rank(group.spec), method_rank(group.spec.method)
    return *own, group.stream, *method, natural(group.title)


def _section(group: Group, *, data: bool) -> Settings:
    return {k: v for k, v in group.settings.items() if k.startswith("data.") == data}


def _distinct(
    groups: Sequence[Group], name: Callable[[Group], str], settings: Callable[[Group], Settings]
) -> dict[Group, str]:
    """A name for each group, with the settings in which it differs from others of that name."""
    like: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        like[name(group)].append(group)
    found: dict[Group, str] = {}
    for title, members in like.items():
        each = {group: settings(group) for group in members}
        keys = _differing(list(each.values()))
        for group in members:
            texts = [f"{_short(key)}={value_text(each[group].get(key))}" for key in keys]
            found[group] = f"{title} ({', '.join(texts)})" if texts else title
    return found


def _differing(settings: Sequence[Settings]) -> list[str]:
    """The keys with different values; what only follows another key is left out."""
    keys = dict.fromkeys(key for each in settings for key in each)
    unlike = [k for k in keys if len({json.dumps(each.get(k)) for each in settings}) > 1]
    return [k for k in unlike if _twin(k) == k or _twin(k) not in unlike]


def _twin(key: str) -> str:
    """The main network's setting, which the auxiliary one has by default too."""
    return key.replace("auxiliary.", "training.", 1)


def _short(key: str) -> str:
    return setting_text(key).removeprefix("data.")


def _tasks(seconds: Mapping[str, float]) -> list[list[str]]:
    """The names of the stages of every task."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in seconds:
        stage, _, task = name.rpartition(" ")
        found[task].append(stage)
    return list(found.values())


def _by_stage(seconds: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for name, value in seconds.items():
        total[name.rpartition(" ")[0]] += value
    return dict(total)
