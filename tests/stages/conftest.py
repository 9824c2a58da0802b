"""What tests of keys share: two small runs, and where equal keys hide different results."""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from ancl import Events, RunSpec
from tests.lab import (
    Experiment,
    Layer,
    MemoryStore,
    MethodRef,
    Runner,
    Stage,
    StageResult,
    build,
    load_source,
    resolve,
)

Settings = Mapping[str, Any]

# -- the library, as far as this test knows it ---------------------------------------------------


class Computed(NamedTuple):
    """A planned run, and what computes its stages in a store of its own."""

    experiment: Experiment
    runner: Runner


@lru_cache(maxsize=64)
def _computed(spec: str) -> Computed:
    experiment = build(RunSpec.model_validate_json(spec), read=_read)
    tasks, device = experiment.stream.tasks, experiment.setting.device
    runner = Runner(experiment.stages, tasks, device, MemoryStore(), Events())
    return Computed(experiment, runner)


_read = lru_cache(1)(load_source)


def spec_of(method: str, values: Settings) -> RunSpec:
    return resolve(method, "digits/5", [Layer("test", values)]).spec


def stages_of(spec: RunSpec) -> Sequence[Stage]:
    """The plan: each stage has a name, a task, a key and the keys of its inputs."""
    return _computed(spec.model_dump_json()).experiment.stages


def compute(spec: RunSpec, wanted: Collection[str]) -> dict[str, StageResult]:
    """The results of these keys: no other spec's results are read for them."""
    runner = _computed(spec.model_dump_json()).runner
    return {key: runner.obtain(key) for key in wanted}


# -- equal keys, different results ---------------------------------------------------------------


class Lie(NamedTuple):
    """A stage whose key is the same in two specs, and whose result is not."""

    stage: str
    task: int
    differs: tuple[str, ...]
    inherited: bool

    def __str__(self) -> str:
        cause = "an input differs already" if self.inherited else "its inputs are equal"
        return f"{self.stage}, task {self.task}: {', '.join(self.differs)} ({cause})"


def lies(one: RunSpec, other: RunSpec) -> list[Lie]:
    """The stages whose keys do not tell two specs apart, although their results do."""
    keys = {stage.key for stage in stages_of(one)}
    shared = [stage for stage in stages_of(other) if stage.key in keys]
    wanted = [stage.key for stage in shared]
    first, second = compute(one, wanted), compute(other, wanted)
    found: list[Lie] = []
    wrong: set[str] = set()
    for stage in shared:
        differs = differences(first[stage.key], second[stage.key])
        if differs:
            inherited = bool(wrong & set(stage.inputs.values()))
            found.append(Lie(stage.name, stage.task, tuple(differs), inherited))
            wrong.add(stage.key)
    return found


def differences(one: StageResult, other: StageResult) -> list[str]:
    """The names of tensors and numbers in which two results differ, by bits; time aside."""
    names = sorted(one.tensors.keys() | other.tensors.keys())
    found = [n for n in names if bits(one.tensors.get(n)) != bits(other.tensors.get(n))]
    metas = [untimed(result.meta) for result in (one, other)]
    for name in sorted(metas[0].keys() | metas[1].keys()):
        texts = [json.dumps(meta.get(name, "absent"), sort_keys=True) for meta in metas]
        found += [name] if texts[0] != texts[1] else []
    return found


def bits(tensor: Tensor | None) -> object:
    return tensor if tensor is None else (tensor.dtype, tensor.shape, tensor.numpy().tobytes())


def untimed(value: Any) -> Any:
    """The same without any ``seconds``."""
    if isinstance(value, Mapping):
        return {name: untimed(item) for name, item in value.items() if name != "seconds"}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def check(method: str, common: Settings, one: Settings, other: Settings) -> None:
    """Fail where a stage of one spec would be taken for that of the other."""
    found = lies(spec_of(method, {**common, **one}), spec_of(method, {**common, **other}))
    names = sorted(one.keys() | other.keys())
    values = [[{**common, **own}.get(n, "default") for own in (one, other)] for n in names]
    changes = [f"{n}: {a!r} and {b!r}" for n, (a, b) in zip(names, values, strict=True)]
    assert not found, (
        f"{method} has equal keys and different results, where these settings differ: "
        f"{'; '.join(changes)}\n" + "\n".join(map(str, found)) + f"\nCommon settings: {common}"
    )


# -- small runs ----------------------------------------------------------------------------------

TRAINING = {"epochs": 1, "lr": 0.05, "lr_first": 0.1, "batch_size": 16}
SMALL = {
    "data.tasks": None,
    "data.per_class": 12,
    "data.test_per_class": 5,
    "data.val_fraction": 0.04,
    # Both are given, since otherwise the auxiliary network's training follows the main one's.
    **{f"training.{name}": value for name, value in TRAINING.items()},
    **{f"auxiliary.{name}": value for name, value in TRAINING.items()},
}
SCENARIOS: dict[str, Settings] = {
    "til": {"data.scenario": "til", "data.classes": (4, 3, 3)},
    "cil": {"data.scenario": "cil", "data.classes": (4, 3, 3)},
    "dil": {"data.scenario": "dil", "data.tasks": 2, "data.domains": "rotation"},
}
# 20 images are 5 for each of 4 classes, 2 for each of 7: with 21 they are 5 and 3.
MEMORY = {"til": 20, "cil": 20, "dil": 41}
CHEAP = {"lamb": 1.0, "enlarge": False, "balanced_epochs": 1, "bias_epochs": 2, "proxies": 2}
SEARCHED = {"training.lr_search": True, "auxiliary.lr_search": True}
READ_MAPS = ("lwm", "podnet", "ccgn")
MLP = {"network.name": "mlp", "network.hidden": (8,)}
RESNET = {"network.name": "resnet8", "network.width": 2, "data.per_class": 6}


def network_of(method: str) -> Settings:
    return RESNET if method.endswith(READ_MAPS) or "aanets-" in method else MLP


def small(method: str, scenario: str, network: Settings | None = None) -> dict[str, Any]:
    """Settings of a run of a few hundredths of a second."""
    options = MethodRef(method).settings
    return {
        **SMALL,
        **SCENARIOS[scenario],
        **(network or network_of(method)),
        **{name: value for name, value in CHEAP.items() if name in options},
    }


def keeps_memory(method: str, values: Settings) -> bool:
    made = MethodRef(method)
    return made.make({n: v for n, v in values.items() if n in made.settings}).memory is not None


class Runs:
    """The small runs, as a fixture: tests are no package that others could import from."""

    small, keeps_memory, spec_of = map(staticmethod, (small, keeps_memory, spec_of))
    stages_of, compute = map(staticmethod, (stages_of, compute))
    check, lies, differences = map(staticmethod, (check, lies, differences))
    scenarios, memory, searched = SCENARIOS, MEMORY, SEARCHED
    mlp, resnet = MLP, RESNET


@pytest.fixture(scope="session")
def runs() -> type[Runs]:
    return Runs
