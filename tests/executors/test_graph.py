"""Many runs as one graph: what is shared is there once, and a failure takes only its own along."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ancl import Events, RunSpec, SpecError, Store, StoreError
from ancl import spec as make_spec
from ancl import specs as make_specs
from tests.lab import (
    Epoch,
    Graph,
    Schedule,
    Serial,
    Stage,
    compute_with,
    load_source,
    patch_part,
    program,
)

SETTINGS = {"training.epochs": 1, "data.tasks": 2, "threads": 1}


def spec(method: str, seed: int = 0, **options: Any) -> RunSpec:
    return make_spec(method, "digits/5", seed=seed, settings=SETTINGS, **options)


class Heard(Events):
    """Keeps what happened."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.epochs = 0
        self.failed: list[str] = []

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self.epochs += 1

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        self.ended.append(stage.key)

    def stage_fails(self, stage: Stage, reason: str) -> None:
        self.failed.append(stage.key)


def test_a_graph_holds_each_stage_once(tmp_path: Path) -> None:
    graph = Graph([spec("lwf"), spec("a-lwf"), spec("a-lwf", lamb_a=2)])
    plans = [set(plan) for plan in graph.plans]
    counts = graph.counts(Store(tmp_path))

    assert set(graph.nodes) == set().union(*plans)
    # lwf: 3 stages a task; a-lwf one more. All share the first task and the second one's head,
    # both a-lwf also the auxiliary network, whose training knows no λ_a.
    assert [len(plan) for plan in plans] == [6, 7, 7]
    assert len(graph.nodes) == 4 + 2 + 3 + 2
    assert (counts["stages"], counts["unique_stages"], counts["stages_to_do"]) == (20, 11, 11)
    assert (counts["most_epochs"], counts["unique_most_epochs"]) == (2 + 3 + 3, 1 + 1 + 2 + 1)


def test_only_what_the_store_lacks_is_computed_and_each_once(tmp_path: Path) -> None:
    store, first, second = Store(tmp_path), Heard(), Heard()
    graph = Graph([spec("lwf"), spec("lwf", lamb=3)])

    assert compute_with(Serial(), graph, store, first) == {}
    assert compute_with(Serial(), graph, store, second) == {}

    assert first.ended == list(graph.nodes)
    assert first.epochs == 3
    assert second.ended == []
    assert graph.todo(store) == []


def test_a_graph_reads_the_data_of_its_runs_once_and_the_next_graph_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "mine.npz", list[str]()
    given = {**SETTINGS, "data.source": f"arrays:{file}"}

    def keys(pixel: int) -> list[set[str]]:
        images = np.arange(40 * 16, dtype=np.uint8).reshape(40, 4, 4, 1) + np.uint8(pixel)
        np.savez(file, x=images, y=np.arange(40) % 4)
        specs = make_specs(["lwf", "ewc", "a-lwf"], "digits/5", settings=given)
        return [set(plan) for plan in Graph(specs).plans]

    def counted(name: str, *how: Any) -> Any:
        read.append(name)
        return load_source(name, *how)

    patch_part(monkeypatch, "graph_load_source", counted)
    first, again, other = keys(0), keys(0), keys(1)

    assert len(read) == 3
    assert first == again
    # What grows a network reads no image; everything else has another key.
    assert all(len(one & two) <= 1 for one, two in zip(first, other, strict=True))


def test_tasks_may_have_a_lambda_each_and_are_then_computed_with_it(tmp_path: Path) -> None:
    """With one λ for all it is the run itself; with others, only what a λ decides is another."""
    store, heard = Store(tmp_path), Heard()
    plain, alike = Graph([spec("lwf", lamb=3)]), Graph([spec("lwf")], lambs=[3.0, 3.0])
    other = Graph([spec("lwf")], lambs=[3.0, 5.0])
    five = Graph([spec("lwf", lamb=5)])

    assert list(alike.nodes) == list(plain.nodes)
    assert list(other.nodes) == list(five.nodes)  # the first task has no λ
    assert list(Graph([spec("lwf")], lambs=[7.0]).nodes) == list(plain.nodes)[:3]
    compute_with(Serial(), other, store, heard)
    main = next(n for n in other.nodes.values() if (n.stage.name, n.stage.task) == ("main", 1))
    assert "λ=5 " in main.title
    ours, theirs = store.load(main.stage.key), Store(tmp_path / "five")
    compute_with(Serial(), five, theirs, Heard())
    reference = theirs.load(main.stage.key)
    assert ours is not None
    assert reference is not None
    assert all(torch.equal(ours.tensors[n], reference.tensors[n]) for n in reference.tensors)


BROKEN = program("""
import dataclasses
from ancl import Method
from ancl.extend import Term
from tests.lab import Lwf

@dataclasses.dataclass(frozen=True)
class Broken(Lwf):
    def penalty(self, step, anchor):
        raise ZeroDivisionError("as written")

def broken(*, lamb: float = 1.0) -> Method:
    return Method("broken", old=Term(Broken(2.0), lamb))
""")


def test_a_failing_stage_takes_its_dependants_along_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    graph = Graph([spec(f"{tmp_path}/mine.py:broken"), spec("lwf")])
    broken, sound = graph.plans
    heard, store = Heard(), Store(tmp_path / "store")

    failures = compute_with(Serial(), graph, store, heard)

    [key] = failures
    node = broken[key]
    assert (node.stage.name, node.stage.task) == ("main", 1)
    assert failures[key].startswith("ZeroDivisionError: as written (")
    assert heard.failed == [key]
    assert all(store.has(key) for key in sound)
    lacking = [each.stage.name for key, each in broken.items() if not store.has(key)]
    assert lacking == ["main", "evaluate"]


def test_a_store_that_cannot_be_written_stops_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, key: str, entry: Any) -> None:
        raise StoreError("no space")

    monkeypatch.setattr(Store, "save", full)

    with pytest.raises(StoreError, match="no space"):
        compute_with(Serial(), Graph([spec("lwf")]), Store(tmp_path), Heard())


def test_a_lost_stage_is_handed_out_again_before_others() -> None:
    graph = Graph([spec("lwf")])
    keys = list(graph.nodes)
    schedule = Schedule(graph.nodes, keys)

    assert schedule.take() == keys[0]
    assert schedule.take() is None  # all others wait for it
    schedule.again(keys[0])
    assert schedule.take() == keys[0]
    schedule.done(keys[0])
    assert schedule.take() == keys[1]
    schedule.fail(keys[1])
    assert schedule.finished


def test_a_single_run_is_named_once_and_several_are_named_at_every_stage(tmp_path: Path) -> None:
    store, one, two = Store(tmp_path), Graph([spec("lwf")]), Graph([spec("lwf"), spec("ewc")])

    assert one.summary(store) == (
        "lwf on digits, 2 tasks, til, seed 0, 6 stages: 0 shared, 0 stored, 6 to do "
        "(at most 2 epochs)"
    )
    assert list(one.titles().values())[1] == "task 1/2 main"
    assert two.summary(store).startswith("2 runs, 14 stages: 4 shared, 0 stored, 10 to do")
    assert list(two.titles().values())[1] == "lwf λ=10 seed 0, task 1/2 main"
    assert "λ=3 " in list(Graph([spec("lwf")], lambs=[3.0]).titles().values())[1]


def test_runs_with_different_threads_are_refused() -> None:
    with pytest.raises(SpecError, match="one number of threads, not 1, 2"):
        Graph([spec("lwf"), spec("ewc", threads=2)])
