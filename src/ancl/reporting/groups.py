"""Groups of runs that differ only by seed, and their means with standard errors."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ancl.experiments.paper_check import settings_of
from ancl.experiments.results import RunResult
from ancl.experiments.spec import RunSpec
from ancl.metrics import (
    Estimate,
    Matrix,
    first_rows,
    learned_after,
    mean_and_error,
    paired_difference,
)
from ancl.reporting.collect import Damaged, Run

Settings = dict[str, Any]


class Difference(NamedTuple):
    """A variant minus its plain host, paired by seed, and the settings in which they differ."""

    estimate: Estimate
    differing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with one set of settings, by seed.

    Args:
        runs: The runs, by seed.
        settings: Every setting by dotted key, without seed, device and threads.
        stream: The benchmark, with the settings that distinguish it from others of its name.
        title: The method, with the settings that distinguish it on the same stream.
    """

    runs: tuple[Run, ...]
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
        return list(dict.fromkeys(note for result in self.results for note in result.notes))

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
        return decisive(self.spec)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """The accuracy matrix that counts in the scenario, one per seed."""
        return [run.result.counted for run in self.runs]

    def estimate(self, metric: str) -> Estimate:
        """A metric over seeds."""
        return mean_and_error([run.result.metrics[metric] for run in self.runs])

    def cells(self) -> list[list[Estimate | None]]:
        """Every entry of the accuracy matrix over seeds; none above the diagonal."""
        begins = learned_after(self.matrices[0])
        return [
            [self._cell(i, j) if begin <= i else None for j, begin in enumerate(begins)]
            for i in range(len(self.matrices[0]))
        ]

    def _cell(self, i: int, j: int) -> Estimate:
        return mean_and_error([float(matrix[i, j]) for matrix in self.matrices])

    def finals(self) -> list[Estimate]:
        """Accuracy on every task after the last one."""
        return [estimate for estimate in self.cells()[-1] if estimate]

    def phases(self) -> list[Estimate]:
        """Accuracy on the tasks so far after every task, weighted as in the decisive metric."""
        sizes = self.runs[0].result.sizes
        weights = np.ones(len(sizes)) if self.decisive == "aac" else np.asarray(sizes, float)

        def seen(matrix: Matrix, phase: int) -> float:
            row = first_rows(matrix, phase + 1)[-1]
            return float(np.average(row, weights=weights[: len(row)]))

        count = len(self.matrices[0])
        return [mean_and_error([seen(m, i) for m in self.matrices]) for i in range(count)]

    def seconds(self) -> dict[str, Estimate]:
        """Seconds by the name of the stage, all tasks together."""
        by_run = [_by_stage(run.result.seconds) for run in self.runs]
        # The last task has all stages, in their order; the first one lacks some.
        last_first = (task for run in self.runs for task in reversed(_tasks(run.result.seconds)))
        names = dict.fromkeys(stage for task in last_first for stage in task)
        return {name: mean_and_error([each.get(name, 0.0) for each in by_run]) for name in names}


def decisive(spec: RunSpec) -> str:
    """AAC where the task is known at test time, else AIAC."""
    return "aac" if spec.task_aware else "aiac"


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[Damaged]]:
    """Groups in the order of the paper's tables, and runs left out as duplicates of a seed."""
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    settings: dict[str, Settings] = {}
    duplicates: list[Damaged] = []
    for run in sorted(runs, key=lambda each: each.directory.name):
        spec = run.result.spec
        own = settings_of(spec)
        key = json.dumps(own, sort_keys=True)
        first = found[key].setdefault(spec.seed, run)
        if first is not run:
            reason = f"left out: seed {spec.seed} is already in {first.directory.name}"
            duplicates.append(Damaged(run.directory, reason))
        settings[key] = own
    plain = [
        Group(tuple(found[key][seed] for seed in sorted(found[key])), settings[key], "", "")
        for key in found
    ]
    return _titled(plain), duplicates


def difference(group: Group, groups: Iterable[Group]) -> Difference | None:
    """A variant minus its plain host in the decisive metric, on the seeds both have.

    Of several hosts on the same stream, the one with the fewest different settings is taken, and
    these settings are named.
    """
    if group.variant == "CL":
        return None
    hosts = [
        each
        for each in groups
        if (each.stream, each.base, each.variant) == (group.stream, group.base, "CL")
        and set(each.seeds) & set(group.seeds)
    ]
    if not hosts:
        return None
    host = min(hosts, key=lambda each: len(_setting_differences(group, each)))
    ours, theirs = (_by_seed(each, group.decisive) for each in (group, host))
    estimate = paired_difference(ours, theirs)
    assert estimate is not None, "hosts have a seed of the group"
    return Difference(estimate, _setting_differences(group, host))


def _by_seed(group: Group, metric: str) -> dict[int, float]:
    return {run.result.spec.seed: run.result.metrics[metric] for run in group.runs}


def _setting_differences(group: Group, host: Group) -> tuple[str, ...]:
    """The settings of both that have different values, without the auxiliary network's."""
    return tuple(
        key
        for key, value in group.settings.items()
        if key in host.settings and key != "method" and not key.startswith("auxiliary.")
        if host.settings[key] != value
    )


def _titled(groups: Sequence[Group]) -> list[Group]:
    """Groups with their names, sorted: data settings name the stream, all others the row."""
    streams = _distinct(groups, lambda g: g.spec.benchmark, lambda g: _section(g, data=True))
    rows = _distinct(
        groups,
        lambda g: f"{streams[g]}\n{method_title(g.spec.method)}",
        lambda g: _section(g, data=False),
    )
    titled = [Group(g.runs, g.settings, streams[g], rows[g].partition("\n")[2]) for g in groups]
    return sorted(
        titled,
        key=lambda g: (*stream_rank(g.spec), g.stream, *method_rank(g.spec.method), g.title),
    )


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
            differences = ", ".join(f"{_short(key)}={_text(each[group].get(key))}" for key in keys)
            found[group] = f"{title} ({differences})" if differences else title
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
    return key.removeprefix("data.").removeprefix("training.")


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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


METHODS = {
    "finetune": "Fine-tuning",
    "joint": "Joint",
    "freeze": "Freezing",
    "lwm": "LwM",
    "dmc": "DMC",
    "eeil": "EEIL",
    "ewc": "EWC",
    "mas": "MAS",
    "si": "SI",
    "rwalk": "R-Walk",
    "lwf": "LwF",
    "lfl": "LFL",
    "icarl": "iCaRL",
    "bic": "BiC",
    "wa": "WA",
    "lucir": "LUCIR",
    "podnet": "PODNet",
}
VARIANTS = ("CL", "AFEC", "ANCL")
_PREFIXES = {"CL": "", "AFEC": "afec-", "ANCL": "a-"}
_TITLES = {"CL": "", "AFEC": "AFEC-", "ANCL": "A-"}
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
_SCENARIOS = ("til", "cil", "dil", "cir")


def split_method(method: str) -> tuple[str, str]:
    """(base, variant) of a method's name, without loading the code of the method.

    >>> split_method("afec-lwf"), split_method("ewc")
    (('lwf', 'AFEC'), ('ewc', 'CL'))
    """
    for variant, prefix in _PREFIXES.items():
        if prefix and method.startswith(prefix):
            return method.removeprefix(prefix), variant
    return method, "CL"


def base_title(base: str) -> str:
    """A base method as papers write it; a user's method by its name in its file.

    >>> base_title("lwf"), base_title("my/own.py:mine")
    ('LwF', 'mine')
    """
    return METHODS.get(base, base.rpartition(":")[2])


def method_title(method: str) -> str:
    """A method as papers write it.

    >>> method_title("a-lwf"), method_title("afec-ewc")
    ('A-LwF', 'AFEC-EWC')
    """
    base, variant = split_method(method)
    return _TITLES[variant] + base_title(base)


def method_rank(method: str) -> tuple[int, str, int]:
    """The rank of a method: as in the paper's tables, then the others by name."""
    base, variant = split_method(method)
    known = list(METHODS)
    place = known.index(base) if base in METHODS else len(known)
    return place, base, VARIANTS.index(variant)


def stream_rank(spec: RunSpec) -> tuple[int, int, str]:
    """The rank of a stream: by scenario, then as in the paper, then by name."""
    name = spec.benchmark
    place = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return _SCENARIOS.index(spec.data.scenario), place, name
