"""λ decided at every task."""

from pathlib import Path

from ancl import Events, Store, spec
from tests.lab import Decay, Graph, Serial, compute_with, follow


def test_after_the_last_trial_the_next_value_is_taken_whatever_it_reaches(tmp_path: Path) -> None:
    settings = {"data.tasks": 2, "training.epochs": 1, "training.lr_search": True}
    first = spec("lwf", "digits/5", settings=settings, lamb=1e6, threads=1)
    decay = Decay(drop=-1.0, factor=0.1, trials=2)  # twice the reachable accuracy: never near
    store, trained_each = Store(tmp_path), list[int]()

    def compute(graph: Graph) -> None:
        trained_each.append(sum(graph.nodes[key].epochs > 0 for key in graph.todo(store)))
        assert compute_with(Serial(), graph, store, Events()) == {}

    found = follow(first, store, compute, decay=decay)

    assert trained_each == [4, 4, 1, 1]  # three rates and the task; then the task with another λ

    assert [(a.task, a.lamb, a.taken) for a in found.attempts] == [
        (0, None, True),
        (1, 1e6, False),
        (1, 1e5, False),
        (1, 1e4, True),
    ]
