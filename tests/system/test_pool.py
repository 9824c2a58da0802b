"""A pool gives what one process gives, also where a worker is killed or a stage fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Events, RunSpec, Store
from ancl import specs as make_specs
from tests.lab import ATTEMPTS, Graph, Layer, Pool, Serial, compute_with, program, resolve

SETTINGS = {"training.epochs": 2, "data.tasks": 2, "threads": 1}
METHODS = program("""
import dataclasses, signal
from pathlib import Path
from ancl import Method
from ancl.extend import Term
from tests.lab import Lwf

HERE = Path(__file__).parent

@dataclasses.dataclass(frozen=True)
class Deadly(Lwf):
    always: bool = False

    def penalty(self, step, anchor):
        try:
            (HERE / "killed").mkdir(exist_ok=self.always)
        except FileExistsError:
            pass
        else:
            signal.raise_signal(signal.SIGKILL)
        print("what a method prints is no message of its worker")
        return super().penalty(step, anchor)

@dataclasses.dataclass(frozen=True)
class Broken(Lwf):
    def penalty(self, step, anchor):
        raise ZeroDivisionError("as written")

def once(*, lamb: float = 1.0) -> Method:
    return Method("once", old=Term(Deadly(2.0), lamb))

def always(*, lamb: float = 1.0) -> Method:
    return Method("always", old=Term(Deadly(2.0, always=True), lamb))

def broken(*, lamb: float = 1.0) -> Method:
    return Method("broken", old=Term(Broken(2.0), lamb))
""")


class Heard(Events):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.epochs: list[tuple[str, int]] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs.append((stage.key, epoch.epoch))


def specs(*methods: str, **options: Any) -> list[RunSpec]:
    return make_specs(methods, "digits/5", settings=SETTINGS, **options)


def assert_same(one: Store, other: Store, keys: Any) -> None:
    for key in keys:
        ours, theirs = one.load(key), other.load(key)
        assert ours is not None
        assert theirs is not None
        assert ours.tensors.keys() == theirs.tensors.keys()
        assert all(torch.equal(ours.tensors[n], theirs.tensors[n]) for n in ours.tensors)
        for name in ("taw", "tag", "taw_val", "tag_val"):
            assert ours.meta.get(name) == theirs.meta.get(name)


def test_a_pool_gives_the_bits_of_one_process_whatever_befalls_its_workers(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHODS)
    sound = ("a-lwf", "ewc", "der", "connector", f"{file}:once")
    graph = Graph(specs(*sound, f"{file}:broken", lamb_a="balance"))
    pooled, alone, heard = Store(tmp_path / "pool"), Store(tmp_path / "serial"), Heard()

    failures = compute_with(Pool(2), graph, pooled, heard)
    healthy = Graph(specs(*sound, lamb_a="balance"))
    assert compute_with(Serial(), healthy, alone, Heard()) == {}

    assert_same(pooled, alone, healthy.nodes)
    [key] = failures
    assert graph.nodes[key].spec.method.endswith(":broken")
    assert failures[key].startswith("ZeroDivisionError: as written")
    [said] = heard.said
    assert said.endswith("task 2/2 main was killed by signal 9; another resumes it.")
    # Two epochs of every training, and thirty of a classifier that is learned at last.
    assert {epoch for _, epoch in heard.epochs} == set(range(30))


def test_a_pool_finds_the_same_lamb(tmp_path: Path) -> None:
    five = {**SETTINGS, "data.tasks": 5}
    asked = make_specs(("a-lwf", "ewc"), "digits/5", settings=five, lamb="auto", lamb_a="balance")
    graph, pooled, alone = Graph(asked), Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert compute_with(Pool(2), graph, pooled, Heard()) == {}
    assert compute_with(Serial(), graph, alone, Heard()) == {}

    assert_same(pooled, alone, graph.nodes)
    mains = [key for key, node in graph.nodes.items() if node.stage.name == "main"]
    found = [[store.load(key).meta["lambs"] for key in mains] for store in (pooled, alone)]
    assert found[0] == found[1]


def test_a_pool_gives_the_bits_of_one_process_for_branches_and_gates(tmp_path: Path) -> None:
    values = {
        "data.scenario": "cil",
        "data.tasks": 2,
        "data.per_class": 12,
        "memory.per_class": 3,
        "network.width": 2,
        "training.epochs": 2,
        "threads": 1,
    }
    graph = Graph(make_specs(("aanets-icarl", "ccgn"), "digits/5", settings=values))
    pooled, alone = Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert compute_with(Pool(2), graph, pooled, Heard()) == {}
    assert compute_with(Serial(), graph, alone, Heard()) == {}

    assert_same(pooled, alone, graph.nodes)
    names = {node.stage.name for node in graph.nodes.values()}
    assert {"main", "protect", "memory"} <= names


@pytest.mark.slow
def test_a_stage_that_always_kills_its_worker_fails_in_the_end(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHODS)
    graph, heard = Graph(specs(f"{file}:always")), Heard()

    [why] = compute_with(Pool(1), graph, Store(tmp_path / "store"), heard).values()

    assert why.startswith(f"Its worker was killed by signal 9, {ATTEMPTS} times.")
    assert len(heard.said) == ATTEMPTS - 1


def test_workers_find_code_where_this_process_does(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = (
        "import math\nfrom torch import nn\nfrom .sizes import WIDTH\n"
        "def net(shape): return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), WIDTH))\n"
    )
    files = {"pooled/__init__.py": "", "pooled/net.py": net, "pooled/sizes.py": "WIDTH = 3\n"}
    data = (
        "import numpy as np\nimport pooled_data\n"
        "def data(): return pooled_data.X, np.arange(32) % 4\n"
    )
    images = "import numpy as np\nX = np.arange(128, dtype=np.uint8).reshape(32, 2, 2)\n"
    monkeypatch.syspath_prepend(write("path", files))
    folder = write("place", {"mine.py": data, "pooled_data.py": images})
    monkeypatch.chdir(folder)
    values = {"network.name": "pooled.net:net", "data.source": "mine.py:data", "data.tasks": 2}
    short = {"training.epochs": 1, "threads": 1}
    graph = Graph([resolve("lwf", None, [Layer("test", {**values, **short})]).spec])
    pooled, alone = Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert compute_with(Pool(2), graph, pooled, Heard()) == {}
    assert compute_with(Serial(), graph, alone, Heard()) == {}

    assert_same(pooled, alone, graph.nodes)


def test_nothing_to_do_starts_no_worker(tmp_path: Path) -> None:
    graph, store = Graph(specs("finetune")), Store(tmp_path)
    compute_with(Serial(), graph, store, Heard())
    heard = Heard()

    assert compute_with(Pool(2), graph, store, heard) == {}
    assert heard.epochs == []
