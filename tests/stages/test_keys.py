"""Equal keys, equal results: whatever can change a stage's numbers is in its key.

Two specs differ in one or two settings, often by very little. Each computes the stages that have
equal keys in both, from nothing and in a store of its own; the results must agree to the bit.
Settings come from the lists that runs are checked against, so that a new one is covered at once.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ancl.checks import checked
from ancl.data import AUGMENTATIONS
from ancl.data.registry import load_source
from ancl.errors import AnclError, MethodError
from ancl.experiments.build import Experiment, build
from ancl.experiments.spec import SECTIONS, Field, Layer, RunSpec, fields_for, resolve
from ancl.methods.registry import MethodRef
from ancl.methods.regularization import METHODS, VARIANTS
from ancl.stages.events import Events
from ancl.stages.runner import MemoryStore, Runner
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult

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


def fields_of(method: str, network: str) -> dict[str, Field]:
    return fields_for(MethodRef(method), network)


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
    changes = [f"{n}: {one.get(n, 'default')!r} and {other.get(n, 'default')!r}" for n in names]
    assert not found, (
        f"{method} has equal keys and different results, where these settings differ: "
        f"{'; '.join(changes)}\n" + "\n".join(map(str, found)) + f"\nCommon settings: {common}"
    )


# -- small runs ----------------------------------------------------------------------------------

OWN = f"{Path(__file__).with_name('any_method.py')}:any_method"
TRAINING = {"epochs": 1, "lr": 0.05, "lr_first": 0.1, "batch_size": 16}
SMALL = {
    "data.tasks": None,
    "data.per_class": 12,
    "data.test_per_class": 5,
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
READ_MAPS = ("lwm", "podnet")
MLP = {"network.name": "mlp", "network.hidden": (8,)}
RESNET = {"network.name": "resnet8", "network.width": 2}


def network_of(method: str) -> Settings:
    return RESNET if method.endswith(READ_MAPS) else MLP


def small(method: str, scenario: str, network: Settings | None = None) -> dict[str, Any]:
    """Settings of a run of a few hundredths of a second."""
    options = MethodRef(method).settings
    return {
        **SMALL,
        **SCENARIOS[scenario],
        **(network or network_of(method)),
        **{name: value for name, value in CHEAP.items() if name in options},
    }


def possible(method: str) -> bool:
    try:
        MethodRef(method).make({})
    except MethodError:
        return False
    return True


NAMES = [
    *METHODS,
    *(n for v in VARIANTS for m in METHODS if possible(n := f"{v}-{m}")),
]

# -- neighbours of a value -----------------------------------------------------------------------

TEXTS: dict[str, Sequence[str]] = {
    "data.order": ("natural", "seed:1", "seed:2"),
    "data.domains": ("rotation", "rotation:0,30", "permutation", "corruption"),
    "data.augment": tuple(AUGMENTATIONS),
    "data.classes": ("4,3,3", "4,3,2,1", "4,6", "7,3", "5,5"),
}
NOT_VARIED = {
    "device": "one is all there is",
    "threads": "kernels may give other bits, so that every key has it",
    "data.source": "images are in keys by their content",
    "network.name": "it decides which other settings there are",
}


def neighbours(key: str, field: Field, value: Any) -> list[Any]:
    """Other values of a setting, most of them near to the one it has."""
    found: list[Any] = []
    for kind in members(field.type):
        found += near(kind, value, TEXTS.get(key, ()))
    taken = {}
    for other in found:
        try:
            taken[repr(checked(field.type, other))] = other
        except ValueError:
            continue
    taken.pop(repr(value), None)
    return list(taken.values())


def members(kind: Any) -> Iterator[Any]:
    """The types a value may have, of an annotated union of them."""
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from members(member)
    elif get_origin(kind) is Annotated:
        yield from members(get_args(kind)[0])
    else:
        yield kind


def near(kind: Any, value: Any, texts: Sequence[str]) -> list[Any]:
    """Values of one type."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind is NoneType:
        return [None]
    if kind is bool:
        return [True, False]
    if kind is int:
        return [number + step for step in (-3, -2, -1, 1, 2, 3)] if number else [1, 2, 3]
    if kind is float:
        return [number * factor for factor in (0.5, 0.9, 1.1, 2.0)] if number else [0.01, 0.5]
    if kind is str:
        return list(texts)
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_args(kind)[:1] == (int,):
        longer = tuple(value) if isinstance(value, tuple) else ()
        return [(*longer, 1), (*longer, 2), tuple(item + 1 for item in longer)]
    return []


def varied(method: str, base: Settings) -> dict[str, list[str]]:
    """The settings that can be changed, by section; ``method`` has the method's own."""
    found: dict[str, list[str]] = {}
    for key, field in fields_of(method, base["network.name"]).items():
        section = key.partition(".")[0] if key.startswith(SECTIONS) else "method"
        if key not in NOT_VARIED and neighbours(key, field, base.get(key, field.default)):
            found.setdefault(section, []).append(key)
    return found


@pytest.mark.parametrize("network", [MLP, RESNET], ids=["mlp", "resnet"])
@pytest.mark.parametrize("name", [*NAMES, OWN], ids=[*NAMES, "own"])
def test_every_setting_of_a_method_is_varied(name: str, network: Settings) -> None:
    base = small(name, "cil", network)
    there = {key for keys in varied(name, base).values() for key in keys}

    assert fields_of(name, base["network.name"]).keys() - there == NOT_VARIED.keys()


# -- drawn pairs ---------------------------------------------------------------------------------

Pair = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""What two specs have in common, and what each has alone."""


@st.composite
def pairs(draw: st.DrawFn, method: str, mixed: bool = False) -> Pair:
    """Two small runs that differ in one or two settings; ``mixed`` draws all the others too."""
    scenario = draw(st.sampled_from(sorted(SCENARIOS)))
    base = small(method, scenario)
    fields = fields_of(method, base["network.name"])
    for name, setting in MethodRef(method).settings.items() if mixed else ():
        base[name] = draw(st.sampled_from([setting.default, *neighbours(name, fields[name], None)]))
    if keeps_memory(method, base) or draw(st.booleans()):
        base["memory.total"] = MEMORY[scenario]
    if draw(st.integers(0, 3)) == 0:
        base |= {"training.lr_search": True, "auxiliary.lr_search": True}
    sections = varied(method, base)
    one, other = {}, {}
    for _ in range(draw(st.integers(1, 2))):
        key = draw(st.sampled_from(sections[draw(st.sampled_from(sorted(sections)))]))
        one[key] = base.get(key, fields[key].default)
        other[key] = draw(st.sampled_from(neighbours(key, fields[key], one[key])))
    return base, one, other


def keeps_memory(method: str, values: Settings) -> bool:
    made = MethodRef(method)
    return made.make({n: v for n, v in values.items() if n in made.settings}).memory is not None


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        # The first pair found says enough: a smaller one would be the same two or one settings.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", NAMES)
def test_equal_keys_mean_equal_results(name: str) -> None:
    @drawn(12)
    @given(pairs(name))
    def run(pair: Pair) -> None:
        with suppress(AnclError):  # a setting that is refused has no results
            check(name, *pair)

    run()


def test_equal_keys_mean_equal_results_in_any_mix_of_parts() -> None:
    computed: list[Pair] = []

    @drawn(40)
    @given(pairs(OWN, mixed=True))
    def run(pair: Pair) -> None:
        common, one, other = pair
        # Some mixes of parts make no sense: what cannot be computed says nothing about keys.
        with suppress(Exception):
            lies(*(spec_of(OWN, {**common, **own}) for own in (one, other)))
            computed.append(pair)
        if pair in computed:
            check(OWN, *pair)

    run()
    assert computed


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_methods_that_share_a_stage_get_the_same_from_it(scenario: str) -> None:
    specs: dict[str, RunSpec] = {}
    for name in NAMES:
        values = small(name, scenario)
        if scenario != "til" or keeps_memory(name, values):
            values["memory.total"] = MEMORY[scenario]
        with suppress(AnclError):
            specs[name] = spec_of(name, values)
    found, made = [], dict[str, str]()
    for name, spec in specs.items():
        makers = {made.setdefault(stage.key, name) for stage in stages_of(spec)} - {name}
        found += [f"{name} and {o}: {lie}" for o in sorted(makers) for lie in lies(specs[o], spec)]

    assert found == []


# -- pairs that need to be told apart, or need not -------------------------------------------------

TWO_TASKS = {"data.classes": (7, 3)}
SEARCHED = {"training.lr_search": True, "auxiliary.lr_search": True}
TOTAL = {"memory.total": 20}


class Directed(NamedTuple):
    """Two specs of one method: what they have in common, and what each has alone."""

    method: str
    scenario: str
    common: Settings
    one: Settings
    other: Settings


def flips(method: str, scenario: str, common: Settings, key: str, *values: Any) -> Directed:
    return Directed(method, scenario, common, {key: values[0]}, {key: values[1]})


DIRECTED = {
    # 77 and 80 images are 11 for each of 7 classes; then 7 or 8 for each of 10.
    **{
        f"{name}, quota of balanced tuning": flips(name, "cil", TWO_TASKS, "memory.total", 77, 80)
        for name in ("eeil", "lucir", "podnet", "a-eeil", "a-lucir", "afec-eeil")
    },
    "eeil, quota, held to the old network": flips(
        "eeil", "cil", TWO_TASKS | {"balanced_keeps": "old"}, "memory.total", 77, 80
    ),
    "eeil, quota, in the third task": flips("eeil", "til", {}, "memory.total", 28, 31),
    "eeil, quota, no tuning": flips(
        "eeil", "cil", TWO_TASKS | {"balanced_epochs": 0}, "memory.total", 77, 80
    ),
    "icarl, quota": flips("icarl", "cil", TWO_TASKS, "memory.total", 77, 80),
    "bic, quota": flips("bic", "cil", TWO_TASKS, "memory.total", 77, 80),
    "wa, quota": flips("wa", "cil", TWO_TASKS, "memory.total", 77, 80),
    "finetune, total or per class": Directed(
        "finetune", "cil", TWO_TASKS, {"memory.total": 35}, {"memory.per_class": 5}
    ),
    "eeil, total or per class": Directed(
        "eeil", "cil", TWO_TASKS, {"memory.total": 35}, {"memory.per_class": 5}
    ),
    **{
        f"{name}, correct_student": flips(name, scenario, TOTAL, "correct_student", False, True)
        for name, scenario in (
            ("bic", "cil"),
            ("bic", "til"),
            ("a-bic", "cil"),
            ("afec-bic", "til"),
        )
    },
    "a-bic, correct_student, all classes": flips(
        "a-bic", "cil", TOTAL | {"auxiliary_classes": "all"}, "correct_student", False, True
    ),
    "bic, hold_out, same count": flips("bic", "cil", TOTAL, "hold_out", 0.1, 0.11),
    "bic, hold_out, other count": flips("bic", "cil", TOTAL, "hold_out", 0.1, 0.3),
    "bic, hold_out, other count later": flips(
        "bic", "cil", TWO_TASKS | {"memory.total": 77}, "hold_out", 0.27, 0.29
    ),
    "bic, bias_augment": flips("bic", "cil", TOTAL, "bias_augment", False, True),
    "bic, bias_augment, augmented": flips(
        "bic", "cil", TOTAL | {"data.augment": "crop"}, "bias_augment", False, True
    ),
    **{
        f"{name}, memory.selection": flips(
            name, "cil", TOTAL, "memory.selection", "herding", "random"
        )
        for name in ("finetune", "icarl", "eeil", "bic", "lucir", "a-lwf")
    },
    "icarl, mirrored": flips("icarl", "cil", TOTAL, "mirrored", True, False),
    "icarl, mirrored, by logits": flips(
        "icarl", "cil", TOTAL | {"classify": "logits"}, "mirrored", True, False
    ),
    **{
        f"{name}, {scenario}, loss_over{', memory' * kept}": flips(
            name, scenario, TOTAL if kept else {"memory.total": None}, "loss_over", *values
        )
        for name in ("finetune", "a-lwf")
        for scenario in ("til", "cil")
        for kept in (False, True)
        for values in [("auto", "seen" if not kept else "own_task")]
    },
    **{
        f"{name}, select_by, {by}": flips(
            name, "cil", TOTAL | {"training.epochs": 4}, "training.select_by", "loss", by
        )
        for name in ("lucir", "a-lwf", "afec-lwf")
        for by in ("task_loss", "accuracy")
    },
    "afec-lwf, afec_over": flips("afec-lwf", "til", {}, "afec_over", "own", "seen"),
    "afec-ewc, afec_over": flips("afec-ewc", "til", {}, "afec_over", "auto", "own"),
    "ewc, drop_last": flips("ewc", "til", {}, "drop_last", False, True),
    "eeil, enlarge": flips("eeil", "cil", TOTAL, "enlarge", True, False),
    "eeil, augment, enlarged": flips(
        "eeil", "cil", TOTAL | {"enlarge": True}, "data.augment", "none", "flip"
    ),
    "lucir, imprint": flips("lucir", "cil", TOTAL, "imprint", True, False),
    "lucir, imprint, domains": flips("lucir", "dil", {"memory.total": 41}, "imprint", True, False),
    "ewc, augment of the estimate": flips(
        "ewc", "til", {"data.augment": "flip"}, "augment", True, False
    ),
    # The auxiliary network is trained by its own batches and validated by the main one's.
    **{
        f"{name}, training.batch_size": flips(name, "til", {}, "training.batch_size", 16, 13)
        for name in ("finetune", "joint", "a-lwf", "a-ewc", "afec-ewc", "dmc")
    },
    **{
        f"{name}, auxiliary.batch_size": flips(name, "til", {}, "auxiliary.batch_size", 16, 13)
        for name in ("a-lwf", "a-ewc", "afec-ewc", "dmc")
    },
    "dmc, training.batch_size, batch norm": flips(
        "dmc", "cil", RESNET, "training.batch_size", 16, 13
    ),
    "afec-ewc, afec_start": flips("afec-ewc", "til", {}, "afec_start", "old", "carried"),
    "afec-ewc, afec_start, renewed by task": flips(
        "afec-ewc", "til", {"afec_renewed": "task"}, "afec_start", "old", "carried"
    ),
    "afec-lwf, afec_renewed": flips("afec-lwf", "cil", TOTAL, "afec_renewed", "epoch", "task"),
    "afec-lwf, afec_renewed, carried": flips(
        "afec-lwf", "cil", TOTAL | {"afec_start": "carried"}, "afec_renewed", "epoch", "task"
    ),
    **{
        f"{name}, {key}": flips(name, "cil", TOTAL, key, *values)
        for name in ("a-lwf", "a-ewc", "a-icarl", "a-lucir", "a-bic")
        for key, values in (
            ("auxiliary_classes", ("new", "all")),
            ("auxiliary_data", ("current", "combined")),
        )
    },
    "a-lwf, auxiliary_data, no memory": flips(
        "a-lwf", "til", {}, "auxiliary_data", "current", "combined"
    ),
    "a-lucir, adaptive_auxiliary": flips(
        "a-lucir", "cil", TOTAL, "adaptive_auxiliary", "both", "old_only"
    ),
    # A trial is no training of the auxiliary network, and must not depend on what that one is.
    **{
        f"{name}, {scenario}, auxiliary_data, searched": flips(
            name, scenario, TOTAL | SEARCHED, "auxiliary_data", "current", "combined"
        )
        for name, scenario in (("a-lwf", "cil"), ("a-eeil", "cil"), ("a-eeil", "til"))
    },
    "a-eeil, no λ_a, searched": flips(
        "a-eeil", "cil", TOTAL | SEARCHED | {"auxiliary_data": "combined"}, "lamb_a", 0.0, 1.0
    ),
    "a-lwf, searched": flips("a-lwf", "til", {}, "training.lr_search", False, True),
    "a-lwf, lr, searched": flips("a-lwf", "til", SEARCHED, "training.lr", 0.05, 0.04),
    "a-lwf, auxiliary.lr_search": flips(
        "a-lwf", "til", SEARCHED, "auxiliary.lr_search", True, False
    ),
    "afec-ewc, auxiliary.lr_search": flips(
        "afec-ewc", "til", SEARCHED, "auxiliary.lr_search", True, False
    ),
    "dmc, batch size, searched": flips("dmc", "til", SEARCHED, "training.batch_size", 16, 13),
    # What a user may put together.
    "fresh, imprint": flips(
        OWN, "cil", TOTAL | {"start": "fresh", "head": "cosine"}, "imprint", False, True
    ),
    "fresh, imprint, images": flips(
        OWN,
        "cil",
        TOTAL | {"start": "fresh", "head": "cosine", "imprint": True},
        "data.per_class",
        12,
        11,
    ),
    "auxiliary_data combined, trains": flips(
        OWN,
        "til",
        TOTAL | {"auxiliary": "lwf", "auxiliary_data": "combined"},
        "trains",
        "auto",
        "new rows",
    ),
    "auxiliary_data combined, data": flips(
        OWN, "til", {"auxiliary": "lwf", "auxiliary_data": "combined"}, "data", "current", "all"
    ),
    "quota, held out, bias": flips(
        OWN,
        "cil",
        TWO_TASKS | {"finish": "bias", "hold_out": 0.5, "infer": "corrected"},
        "memory.total",
        77,
        80,
    ),
    "correction of the answers": flips(
        OWN,
        "cil",
        TOTAL | {"finish": "bias", "hold_out": 0.5},
        "infer",
        "corrected",
        "corrected student",
    ),
    "augmented bias, enlarged, fresh": flips(
        OWN,
        "cil",
        TOTAL | {"finish": "augmented bias", "hold_out": 0.5, "enlarge": True, "start": "fresh"},
        "data.augment",
        "none",
        "crop",
    ),
}


@pytest.mark.parametrize("pair", DIRECTED.values(), ids=DIRECTED.keys())
def test_equal_keys_mean_equal_results_where_settings_meet(pair: Directed) -> None:
    common = {**small(pair.method, pair.scenario), **pair.common}
    if "network.name" in pair.common:
        common.pop("network.hidden", None)

    check(pair.method, common, pair.one, pair.other)


def test_a_lie_would_be_found() -> None:
    """What the tests above rest on: another result is seen, whatever part of it differs."""
    spec = spec_of("finetune", small("finetune", "cil"))
    main = next(stage.key for stage in stages_of(spec) if stage.name == "main")
    result = compute(spec, [main])[main]
    name = next(iter(result.tensors))
    moved = {n: t.nextafter(t + 1) if n == name else t for n, t in result.tensors.items()}
    later = [{**epoch, "seconds": -1.0} for epoch in result.meta["log"]]
    other = [{**epoch, "epoch": -1} for epoch in result.meta["log"]]

    assert differences(result, StageResult(moved, result.meta)) == [name]
    assert differences(result, StageResult({}, result.meta)) == sorted(result.tensors)
    timed = StageResult(result.tensors, {**result.meta, "seconds": -1.0, "log": later})
    assert differences(result, timed) == []
    logged = StageResult(result.tensors, {**result.meta, "log": other})
    assert differences(result, logged) == ["log"]
