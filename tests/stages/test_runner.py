"""Stages computed once: interrupted and resumed equals uninterrupted, to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Events, Store, Training, make_method
from tests.lab import Epoch, MemoryStore, Stage, StageResult, patch_part

TRAINING = Training(epochs=3, lr=0.05, lr_first=0.1, batch_size=16, patience=1)
METHODS: dict[str, dict[str, Any]] = {
    "a-lwf": {"lamb": 2.0},
    "lwf+ancl": {"lamb": 2.0, "lamb_a": "balance"},
    "afec-ewc": {"lamb": 20.0, "lamb_a": 5.0},
    "a-si": {"lamb": 0.5},
    "a-lfl": {"lamb": "auto"},
    "ewc+ancl": {"lamb": "auto", "lamb_a": "balance"},
    "aanets-icarl": {},
    "ccgn": {"hidden": 4},
}


class Interrupting(Events):
    """Raises as Ctrl-C does when the n-th epoch ends, counted over all stages."""

    def __init__(self, at: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.left, self.error = at, error

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


class Counting(Events):
    """Counts what was computed and what was found."""

    def __init__(self) -> None:
        self.epochs = 0
        self.computed: list[tuple[str, int]] = []
        self.found: list[tuple[str, int]] = []

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self.epochs += 1

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        (self.found if found else self.computed).append((stage.name, stage.task))


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


def assert_equal_entries(one: StageResult, other: StageResult) -> None:
    assert one.tensors.keys() == other.tensors.keys()
    differ = [n for n in one.tensors if not torch.equal(one.tensors[n], other.tensors[n])]
    assert not differ
    assert without_seconds(one.meta) == without_seconds(other.meta)


@pytest.fixture(scope="module", params=list(METHODS))
def uninterrupted(request, lab):
    """A method's name, the setting, and what it leaves behind undisturbed."""
    structured = request.param in ("aanets-icarl", "ccgn")
    # They train one network a task: more epochs, to be interrupted as often.
    training = replace(TRAINING, epochs=5, patience=5) if structured else TRAINING
    setting = lab.setting(lab.resnet() if structured else lab.conv(), training)
    made = make_method(request.param, **METHODS[request.param])
    return made, setting, lab.learn(made, setting, lab.tasks())


@pytest.mark.parametrize("at", [2, 5, 8, 11])
def test_interrupted_and_resumed_equals_uninterrupted(at, uninterrupted, lab, tmp_path) -> None:
    made, setting, expected = uninterrupted
    with pytest.raises(KeyboardInterrupt):
        lab.learn(made, setting, store=Store(tmp_path), reporter=Interrupting(at))

    resumed = lab.learn(made, setting, store=Store(tmp_path))

    assert [s.key for s in resumed.stages] == [s.key for s in expected.stages]
    for stage in expected.stages:
        assert_equal_entries(resumed.entries[stage.key], expected.entries[stage.key])


def test_interrupted_at_every_epoch_equals_uninterrupted(
    uninterrupted, lab, tmp_path, monkeypatch
) -> None:
    """A process that is killed leaves the last checkpoint; here one is written every epoch."""
    patch_part(monkeypatch, "CHECKPOINT_SECONDS", 0.0)
    made, setting, expected = uninterrupted
    kills = 0
    while True:
        try:
            # AFEC is settled after every second epoch; the third ends after a checkpoint.
            killer = Interrupting(3, RuntimeError)
            resumed = lab.learn(made, setting, store=Store(tmp_path), reporter=killer)
            break
        except RuntimeError:
            kills += 1

    assert kills >= 5
    for stage in expected.stages:
        assert_equal_entries(resumed.entries[stage.key], expected.entries[stage.key])


def test_killed_between_the_last_epoch_and_the_result(
    uninterrupted, lab, tmp_path, monkeypatch
) -> None:
    patch_part(monkeypatch, "CHECKPOINT_SECONDS", 0.0)
    made, setting, expected = uninterrupted
    last = expected.stage("main", 2)

    class Failing(Store):
        def save(self, key: str, entry: StageResult) -> None:
            if key == last.key:
                raise RuntimeError("killed")
            super().save(key, entry)

    with pytest.raises(RuntimeError, match="killed"):
        lab.learn(made, setting, store=Failing(tmp_path))
    counting = Counting()
    resumed = lab.learn(made, setting, store=Store(tmp_path), reporter=counting)

    assert counting.epochs == 0
    assert_equal_entries(resumed.entries[last.key], expected.entries[last.key])


def test_a_resumed_training_goes_on_where_it_was(lab, tmp_path: Path) -> None:
    setting = lab.setting(training=replace(TRAINING, schedule="constant", epochs=4))
    finetune, tasks = make_method("finetune"), lab.tasks()[:1]
    with pytest.raises(KeyboardInterrupt):
        lab.learn(finetune, setting, tasks, Store(tmp_path), Interrupting(4))

    counting = Counting()
    learned = lab.learn(finetune, setting, tasks, Store(tmp_path), counting)

    assert counting.epochs == 1  # three of four were done when the fourth was interrupted
    assert [row["epoch"] for row in learned.entry("main", 0).meta["log"]] == [0, 1, 2, 3]
    assert Store(tmp_path).load_checkpoint(learned.stage("main", 0).key) is None


def test_a_stage_in_the_store_is_found_and_not_computed(lab, tmp_path: Path) -> None:
    lab.learn(make_method("a-lwf", lamb_a=1.0), store=Store(tmp_path))
    same, other = Counting(), Counting()

    lab.learn(make_method("a-lwf", lamb_a=1.0), store=Store(tmp_path), reporter=same)
    lab.learn(make_method("a-lwf", lamb_a=2.0), store=Store(tmp_path), reporter=other)

    assert (same.epochs, same.computed) == (0, [])
    assert other.computed[0] == ("main", 1)
    assert ("auxiliary", 1) in other.found
    assert ("auxiliary", 2) in other.computed


def test_what_a_stage_leaves_names_it_and_its_inputs(lab) -> None:
    learned = lab.learn(make_method("a-lwf", lamb_a=1.0), tasks=lab.tasks()[:2])
    stage, meta = learned.stage("main", 1), learned.entry("main", 1).meta

    assert (meta["stage"], meta["task"]) == ("main", 1)
    assert meta["inputs"] == dict(stage.inputs)
    assert set(meta["inputs"]) == {"start", "auxiliary"}
    assert meta["lambs"] == {"old": 10.0, "auxiliary": 1.0}
    assert meta["seconds"] > 0


def test_a_memory_store_keeps_only_what_is_asked() -> None:
    store = MemoryStore()
    store.save("a", StageResult({}, {"n": 1}))
    store.save("b", StageResult({}, {"n": 2}))

    store.keep_only(["b"])

    kept = store.load("b")
    assert store.load("a") is None
    assert kept is not None
    assert kept.meta == {"n": 2}
    assert store.load_checkpoint("b") is None
