"""Images that make room for the weights of networks that grow: prices, refusals, the same runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from ancl import Events, Learner, Memory, SpecError, load_run, spec
from ancl.extend import architecture
from tests.lab import (
    MethodRef,
    Places,
    RunMemory,
    Study,
    build,
    equal_epochs,
    run_all,
    spec_hash,
)

SMALL = {
    "data.scenario": "cil",
    "data.tasks": 2,
    "data.per_class": 40,
    "network.name": "resnet8",
    "network.width": 2,
    "training.epochs": 1,
    "training.schedule": "cosine",
    "threads": 1,
}
# Width 2, grey, 10 classes: 1,294 weights of the plastic branch, 170 factors, 3 shares. At 4 bytes
# a weight and 64 bytes an image that is the room of 92 images: 9.2 of each class.
BRANCH = 1294 + 170 + 3


@pytest.mark.parametrize(
    ("method", "network", "shape", "sizes", "told", "weights"),
    [
        # ResNet-32: the plastic branch, one factor a kernel of the stable one, and three shares.
        ("aanets-lucir", {}, (3, 32, 32), (50, 10, 10, 10, 10, 10), False, 466_256 + 53_808 + 3),
        ("aanets-icarl", {"name": "resnet8"}, (3, 16, 16), (20, 10), False, 77_392 + 10_800 + 3),
        ("aanets-icarl", {"name": "resnet8"}, (3, 16, 16), (20,), False, 0),
        # Nine more extractors, each read by 100 classes; the side head answers nothing.
        ("der", {}, (3, 32, 32), (10,) * 10, False, 9 * (466_256 + 64 * 100)),
        ("der", {"name": "resnet8", "width": 8}, (1, 8, 8), (2,) * 5, False, 4 * (19_480 + 320)),
        # Gates and their batch norms of every task, and batch norms of the layers of all but one.
        ("ccgn", {"name": "resnet8"}, (3, 16, 16), (2, 2, 2), True, 3 * (7_056 + 224) + 2 * 672),
        # Besides, with the task not told: 3 · 64 features to 64 units to 3 tasks.
        (
            *("ccgn", {"name": "resnet8"}, (3, 16, 16), (2, 2, 2), False),
            3 * (7_056 + 224) + 2 * 672 + (192 + 1) * 64 + (64 + 1) * 3,
        ),
    ],
)
def test_what_networks_gain(
    method: str, network: dict[str, Any], shape: Any, sizes: Any, told: bool, weights: int
) -> None:
    made = MethodRef(method).make({})
    assert made.growth is not None
    found = architecture(
        **{"network": network.get("name", "resnet32")},
        input_shape=shape,
        head=made.head,
        head_options=made.head_options,
        growth=made.growth.told(told),
        **{key: value for key, value in network.items() if key != "name"},
    )

    assert found.gained(sizes) == weights


@pytest.mark.parametrize(
    ("memory", "left"),
    [
        # 520,064 weights of 4 bytes are 677.2 images of 3 · 32 · 32 bytes, 6.8 of 100 classes.
        (RunMemory(per_class=20, fair=True), Memory(per_class=13)),
        (RunMemory(total=2000, selection="random", fair=True), Memory(None, 1322, "random")),
        (RunMemory(per_class=8, fair=True), Memory(per_class=1)),
        (RunMemory(total=778, fair=True), Memory(total=100)),
    ],
)
def test_what_is_left_of_a_memory(memory: RunMemory, left: Memory) -> None:
    found = memory.paid(466_256 + 53_808, 100, 3072)

    assert (found, type(found)) == (left, Memory)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (RunMemory(per_class=7, fair=True), r"room of 677 images: of memory.per_class=7 not one"),
        (RunMemory(per_class=7, fair=True), r"Give memory.per_class=8 or more"),
        (RunMemory(total=777, fair=True), r"memory.total=777 not one .* memory.total=778 or more"),
        (RunMemory(fair=True), r"none are kept. Give memory.per_class or memory.total"),
    ],
)
def test_what_nothing_is_left_of(memory: RunMemory, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        memory.paid(466_256 + 53_808, 100, 3072)


def made(method: str, **settings: Any) -> Any:
    return build(spec(method, "digits/5", settings={**SMALL, **settings}))


def test_a_fair_run_is_that_of_the_memory_that_is_left() -> None:
    fair = made("aanets-icarl", **{"memory.per_class": 20, "memory.fair": True})
    left = made("aanets-icarl", **{"memory.per_class": 10})
    whole = made("aanets-icarl", **{"memory.per_class": 20})

    assert fair.setting.architecture.gained((5, 5)) == BRANCH
    assert [each.key for each in fair.stages] == [each.key for each in left.stages]
    assert fair.stages[-1].key != whole.stages[-1].key
    cost = "The network gains weights that take the room of 92 images of the memory"
    assert f"{cost}, so memory.per_class is 10 in place of 20." in fair.warnings
    assert f"{cost}: with memory.fair=true memory.per_class would be 10." in whole.warnings
    few = made("aanets-icarl", **{"memory.per_class": 9})
    assert f"{cost}: it holds fewer." in few.warnings
    # What came later leaves the names of earlier runs alone.
    assert "fair" not in whole.spec.plain()["memory"]
    assert spec_hash(fair.spec) != spec_hash(whole.spec)


def test_a_network_that_does_not_grow_keeps_its_images() -> None:
    fair, plain = (
        made("icarl", **{"memory.per_class": 20, "memory.fair": fair}) for fair in (True, False)
    )

    assert [each.key for each in fair.stages] == [each.key for each in plain.stages]
    assert fair.warnings == plain.warnings


def test_where_it_cannot_be_fair_it_is_refused() -> None:
    with pytest.raises(SpecError, match="none are kept"):
        made("ccgn", **{"data.scenario": "til", "memory.fair": True})
    with pytest.raises(SpecError, match=r"memory.per_class=9 not one image per class is left"):
        made("aanets-icarl", **{"memory.per_class": 9, "memory.fair": True})
    fair = spec("a-icarl", "digits/5", settings={**SMALL, "memory.fair": True})
    with pytest.raises(SpecError, match="equal computation is counted before images are read"):
        equal_epochs(fair, ((200, 0, 10),) * 2)
    with pytest.raises(SpecError, match="a learner does not know how many will come"):
        Learner("a-icarl", memory={"fair": True})


def test_a_fair_run_is_opened_with_the_memory_that_was_left(tmp_path: Path) -> None:
    given = {**SMALL, "memory.per_class": 12, "memory.fair": True}
    outcome = run_all([spec("aanets-icarl", "digits/5", settings=given)], Places.of(tmp_path))
    [finished] = outcome.finished
    learner = load_run(finished.directory, events=Events())

    assert learner._recipe.memory == Memory(per_class=2)
    assert [each.images for each in finished.result.parameters] == [10, 20]
    assert learner._exemplars() is not None
    assert len(learner._exemplars().samples) == 20


def test_the_time_of_a_fair_run_is_estimated_with_all_its_images(tmp_path: Path) -> None:
    given = {**SMALL, "method": "aanets-icarl", "memory.per_class": 12, "memory.fair": True}
    seeds = {"search_seeds": [1], "table_seeds": [2], "reference_seeds": [3]}
    plan = tmp_path / "study.yaml"
    plan.write_text(json.dumps({**seeds, "benchmarks": {"digits/5": {"references": {"x": given}}}}))

    forecast = Study(plan).forecast()

    assert forecast.runs == {"digits/5 references": (1, 1)}
    assert forecast.seconds > 0
