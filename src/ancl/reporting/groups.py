"""Runs that differ by seed alone become one group, and its numbers means with standard errors."""

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
from ancl.metrics import Estimate, Matrix, mean_and_error
from ancl.reporting.collect import Damaged, Run

Settings = dict[str, Any]


class Difference(NamedTuple):
    """A variant minus its plain host, seed by seed, and the settings in which they differ."""

    estimate: Estimate
    differing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with one set of settings, by seed.

    Args:
        runs: The runs, by seed.
        settings: Every setting by dotted key, without the seed and where it ran.
        stream: The benchmark, with what tells it from others of its name.
        title: The method, with what tells it from others on the same stream.
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
        """What the runs found."""
        return [run.result for run in self.runs]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return [run.result.spec.seed for run in self.runs]

    @property
    def base(self) -> str:
        """The method without its variant."""
        return taken_apart(self.spec.method)[0]

    @property
    def variant(self) -> str:
        """CL, AFEC or ANCL."""
        return taken_apart(self.spec.method)[1]

    @property
    def decisive(self) -> str:
        """The metric the paper's tables show in this scenario."""
        return decisive(self.spec)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """The matrix that counts in the scenario, one a seed."""
        name = "taw" if self.spec.data.scenario == "til" else "tag"
        return [run.result.matrices[name] for run in self.runs]

    def estimate(self, metric: str) -> Estimate:
        """A metric over seeds."""
        return mean_and_error([run.result.metrics[metric] for run in self.runs])

    def cells(self) -> list[list[Estimate | None]]:
        """Every entry of the accuracy matrix over seeds; none above the diagonal."""
        count = len(self.matrices[0])
        return [[self._cell(i, j) if j <= i else None for j in range(count)] for i in range(count)]

    def _cell(self, i: int, j: int) -> Estimate:
        return mean_and_error([float(matrix[i, j]) for matrix in self.matrices])

    def finals(self) -> list[Estimate]:
        """Accuracy on every task after the last one."""
        return [estimate for estimate in self.cells()[-1] if estimate]

    def phases(self) -> list[Estimate]:
        """Accuracy after every task, over the tasks seen so far, as the decisive metric weighs."""
        sizes = self.runs[0].result.sizes
        weights = np.ones(len(sizes)) if self.decisive == "aac" else np.asarray(sizes, float)

        def seen(matrix: Matrix, phase: int) -> float:
            row = matrix[phase, : phase + 1]
            return float(np.average(row, weights=weights[: phase + 1]))

        return [mean_and_error([seen(m, i) for m in self.matrices]) for i in range(len(sizes))]

    def seconds(self) -> dict[str, Estimate]:
        """Seconds by the name of the stage, all tasks together."""
        by_run = [_by_stage(run.result.seconds) for run in self.runs]
        # The last task has all stages, in their order; the first one lacks some.
        last_first = (task for run in self.runs for task in reversed(_tasks(run.result.seconds)))
        names = dict.fromkeys(stage for task in last_first for stage in task)
        return {name: mean_and_error([each.get(name, 0.0) for each in by_run]) for name in names}


def decisive(spec: RunSpec) -> str:
    """AAC where the task is told at test time, else AIAC."""
    return "aac" if spec.data.scenario == "til" else "aiac"


def group_runs(runs: Iterable[Run]) -> tuple[list[Group], list[Damaged]]:
    """Groups in the order of the paper's tables, and runs left out as doubles of a seed."""
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    settings: dict[str, Settings] = {}
    doubles: list[Damaged] = []
    for run in sorted(runs, key=lambda each: each.directory.name):
        spec = run.result.spec
        own = settings_of(spec)
        key = json.dumps(own, sort_keys=True)
        first = found[key].setdefault(spec.seed, run)
        if first is not run:
            reason = f"left out: seed {spec.seed} is there in {first.directory.name}"
            doubles.append(Damaged(run.directory, reason))
        settings[key] = own
    plain = [
        Group(tuple(found[key][seed] for seed in sorted(found[key])), settings[key], "", "")
        for key in found
    ]
    return _titled(plain), doubles


def difference(group: Group, groups: Iterable[Group]) -> Difference | None:
    """A variant minus its plain host in the decisive metric, on the seeds both have.

    Of several hosts on the same stream, the one with the fewest other settings is taken, and what
    is still unlike is named.
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
    host = min(hosts, key=lambda each: len(_unlike(group, each)))
    ours, theirs = (_by_seed(each, group.decisive) for each in (group, host))
    pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Difference(mean_and_error(pairs), _unlike(group, host))


def _by_seed(group: Group, metric: str) -> dict[int, float]:
    return {run.result.spec.seed: run.result.metrics[metric] for run in group.runs}


def _unlike(group: Group, host: Group) -> tuple[str, ...]:
    """The settings both have, and have differently; the auxiliary network's are one's own."""
    return tuple(
        key
        for key, value in group.settings.items()
        if key in host.settings and key != "method" and not key.startswith("auxiliary.")
        if host.settings[key] != value
    )


def _titled(groups: Sequence[Group]) -> list[Group]:
    """Groups with their names, sorted: a stream is its data, a row all the rest."""
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
            told = ", ".join(f"{_short(key)}={_text(each[group].get(key))}" for key in keys)
            found[group] = f"{title} ({told})" if told else title
    return found


def _differing(settings: Sequence[Settings]) -> list[str]:
    """The keys whose values are not all the same; what follows from another one is not named."""
    keys = dict.fromkeys(key for each in settings for key in each)
    unlike = [k for k in keys if len({json.dumps(each.get(k)) for each in settings}) > 1]
    return [k for k in unlike if _twin(k) == k or _twin(k) not in unlike]


def _twin(key: str) -> str:
    """The main network's setting that an auxiliary one follows unless told otherwise."""
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
_SCENARIOS = ("til", "cil", "dil")


def taken_apart(method: str) -> tuple[str, str]:
    """(base, variant) of a method's name, without loading code a name may point to.

    >>> taken_apart("afec-lwf"), taken_apart("ewc")
    (('lwf', 'AFEC'), ('ewc', 'CL'))
    """
    for variant, prefix in _PREFIXES.items():
        if prefix and method.startswith(prefix):
            return method.removeprefix(prefix), variant
    return method, "CL"


def base_title(base: str) -> str:
    """A base method as papers write it; one from outside by the name it has in its file.

    >>> base_title("lwf"), base_title("my/own.py:mine")
    ('LwF', 'mine')
    """
    return METHODS.get(base, base.rpartition(":")[2])


def method_title(method: str) -> str:
    """A method as papers write it.

    >>> method_title("a-lwf"), method_title("afec-ewc")
    ('A-LwF', 'AFEC-EWC')
    """
    base, variant = taken_apart(method)
    return _TITLES[variant] + base_title(base)


def method_rank(method: str) -> tuple[int, str, int]:
    """Where a method stands: as in the paper's tables, then the others by name."""
    base, variant = taken_apart(method)
    known = list(METHODS)
    place = known.index(base) if base in METHODS else len(known)
    return place, base, VARIANTS.index(variant)


def stream_rank(spec: RunSpec) -> tuple[int, int, str]:
    """Where a stream stands: by scenario, then as the paper numbers them, then by name."""
    name = spec.benchmark
    place = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return _SCENARIOS.index(spec.data.scenario), place, name
