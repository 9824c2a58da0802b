"""Ray: the same bits as one process. Where Ray is not installed, a stand-in runs the tasks."""

import importlib.util
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ancl import AnclError, Events, RunSpec, SpecError, Store
from ancl import specs as make_specs
from tests.lab import (
    Cluster,
    Graph,
    Layer,
    RayShift,
    Serial,
    Shipped,
    compute_with,
    program,
    resolve,
    ship,
    unpack,
)

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'ancl[ray]'")
SETTINGS = {"training.epochs": 2, "data.tasks": 2, "threads": 1}
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

def mine(*, lamb: float = 1.0) -> Method:
    return Method("mine", old=Term(Lwf(2.0), lamb))
""")


class Heard(Events):
    def __init__(self) -> None:
        self.begun, self.epochs = 0, 0

    def stage_begins(self, stage: Any) -> None:
        self.begun += 1

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1


class LostError(Exception):
    pass


class LostHereError(LostError):
    pass


class StandIn:
    """As much of Ray as the executor calls, at once and in this process.

    Args:
        losing: Names of functions whose results are lost, each once: of tasks and of the board.
    """

    exceptions = SimpleNamespace(RayError=LostError, LocalRayletDiedError=LostHereError)
    util = SimpleNamespace(
        scheduling_strategies=SimpleNamespace(
            NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft)
        )
    )

    def __init__(self, losing: Sequence[str] = ()) -> None:
        self._losing = list(losing)
        self.actors: list[dict[str, Any]] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "here", "Alive": True, "Resources": {"CPU": 1.0}}]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:1", get_node_id=lambda: "here")

    def put(self, value: Any) -> Any:
        return Reference(value)

    def remote(self, code: Any = None, **options: Any) -> Any:
        if code is None:
            return partial(self.remote, **options)
        if isinstance(code, type):
            self.actors.append(options)
            return SimpleNamespace(remote=lambda: self._actor(code()))
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._call(code)))

    def _actor(self, made: Any) -> Any:
        methods = {n: SimpleNamespace(remote=self._call(getattr(made, n))) for n in ("put", "take")}
        return SimpleNamespace(**methods)

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Reference:
            lost = [g.value for g in given if isinstance(g, Reference) and g.lost]
            if lost:
                return Reference(lost[0])
            name = function.__name__
            if name in self._losing:
                self._losing.remove(name)
                return Reference(LostError(f"{name} was lost\nwith a long trace"))
            return Reference(function(*(g.value if isinstance(g, Reference) else g for g in given)))

        return call

    def get(self, reference: Any, timeout: float | None = None) -> Any:
        if reference.lost:
            raise reference.value
        return reference.value

    def wait(
        self, references: list[Any], num_returns: int, timeout: float
    ) -> tuple[list[Any], list[Any]]:
        """As Ray: any that is ready where one is asked for, else all of them in the order given."""
        ready = references[-1:] if num_returns == 1 else references[:3]
        return ready, [each for each in references if each not in ready]


class Reference:
    def __init__(self, value: Any) -> None:
        self.value, self.lost = value, isinstance(value, LostError)


def specs(*methods: str, **options: str) -> list[RunSpec]:
    return make_specs(methods, "digits/5", settings=SETTINGS, **options)


def failed(ends: Iterable[Any]) -> dict[str, str]:
    return {end.key: end.failure for end in ends if end.failure is not None}


def assert_same(one: Store, other: Store, keys: Any) -> None:
    for key in keys:
        ours, theirs = one.load(key), other.load(key)
        assert ours is not None
        assert theirs is not None
        assert all(torch.equal(ours.tensors[n], theirs.tensors[n]) for n in theirs.tensors)
        assert ours.meta.get("taw") == theirs.meta.get("taw")


def test_the_driver_orders_stages_stores_results_and_contains_failures(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BROKEN)
    graph = Graph(specs("a-ewc", f"{file}:mine", f"{file}:broken"))
    sound = Graph(specs("a-ewc", f"{file}:mine"))
    one, other, heard = Store(tmp_path / "ray"), Store(tmp_path / "serial"), Heard()
    stand_in = StandIn()

    failures = failed(RayShift(stand_in, graph, one, heard).work(graph.todo(one)))
    compute_with(Serial(), sound, other, Heard())

    [key] = failures
    assert graph.nodes[key].spec.method.endswith(":broken")
    assert failures[key].startswith("ZeroDivisionError: as written")
    assert_same(one, other, sound.nodes)
    # Inputs found in the driver's store are handed to tasks that lack them.
    again = Graph(specs("a-ewc", f"{file}:mine", "ewc"))
    assert failed(RayShift(stand_in, again, one, heard).work(again.todo(one))) == {}
    assert again.todo(one) == []


def test_the_board_is_beside_the_command_and_its_loss_costs_no_result(tmp_path: Path) -> None:
    graph = Graph(specs("ewc"))
    one, other, heard = Store(tmp_path / "ray"), Store(tmp_path / "serial"), Heard()
    stand_in = StandIn(losing=["take", "take"])

    failures = failed(RayShift(stand_in, graph, one, heard).work(graph.todo(one)))
    compute_with(Serial(), graph, other, Heard())

    assert failures == {}
    assert_same(one, other, graph.nodes)
    assert heard.begun == len(graph.nodes)  # told later, since this board kept them
    [options] = stand_in.actors
    assert options == {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": ("here", False)}


def test_a_lost_stage_fails_once_and_what_needs_it_is_left_out(tmp_path: Path) -> None:
    graph, store = Graph(specs("finetune")), Store(tmp_path)
    first = next(iter(graph.nodes))

    failures = failed(
        RayShift(StandIn(["_compute"]), graph, store, Heard()).work(graph.todo(store))
    )

    assert failures == {first: "It was lost 4 times with its worker: _compute was lost"}
    assert graph.todo(store) == list(graph.nodes)


def test_a_machine_that_loses_its_own_part_of_the_cluster_stops(tmp_path: Path) -> None:
    graph, store, ray = Graph(specs("finetune")), Store(tmp_path), StandIn()
    shift = RayShift(ray, graph, store, Heard())

    with pytest.raises(AnclError, match="This machine is no longer part of the Ray cluster at 127"):
        list(shift._receive(next(iter(graph.nodes)), Reference(LostHereError())))


def test_threads_that_no_machine_has_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    graph = Graph(make_specs(["ewc"], "digits/5", settings={**SETTINGS, "threads": 2}))
    ray = StandIn()

    with pytest.raises(SpecError, match="needs 2 CPUs of one machine"):
        RayShift(ray, graph, Store(tmp_path), Heard())

    assert ray.actors == []


@pytest.mark.parametrize("variant", ["", "a-"])
def test_a_method_file_reaches_a_machine_that_has_none(tmp_path: Path, variant: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BROKEN)
    graph = Graph(specs(f"{variant}{file}:mine"))
    shipped = ship(next(iter(graph.nodes.values())), None)
    file.unlink()

    there = unpack(shipped)

    assert str(tmp_path) not in there.method
    assert list(Graph([there]).nodes) == list(graph.nodes)


OWN = """
import numpy as np
from torch import nn
from own_parts import layer, shades

def net(shape, *, width: int = 4):
    return nn.Sequential(nn.Flatten(), layer(shape, width))

def data():
    return shades()

def augment(x):
    return x.flip(1)
"""
OWN_PARTS = """
import math
import numpy as np
from torch import nn

def layer(shape, width):
    return nn.Linear(math.prod(shape), width)

def shades():
    y = np.arange(32) % 4
    return (np.arange(32 * 4).reshape(32, 2, 2) + y[:, None, None]).astype(np.uint8), y
"""
ELSEWHERE = program("""
import json, pickle, sys
from pathlib import Path
from tests.lab import Graph
from tests.lab import unpack
shipped = pickle.loads(Path(sys.argv[1]).read_bytes())
specs = [unpack(each) for each in shipped]
print(json.dumps([[s.method, s.network["name"], s.data.source, s.data.augment] for s in specs]))
print(json.dumps([list(Graph([spec]).nodes) for spec in specs]))
""")


def elsewhere(tmp_path: Path, shipped: list[Shipped]) -> tuple[Any, Any]:
    """Names and keys on a machine that has none of the files: another process, another folder."""
    file = tmp_path / "shipped"
    file.write_bytes(pickle.dumps(shipped))
    place = tmp_path / "elsewhere"
    place.mkdir()
    command = [sys.executable, "-c", ELSEWHERE, str(file)]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    names, keys = ended.stdout.splitlines()
    return json.loads(names), json.loads(keys)


def test_method_network_data_and_augmentation_travel_with_their_own_modules(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    files = {"own.py": OWN, "own_parts.py": OWN_PARTS, "mine.py": BROKEN}
    folder = write("driver", files)
    network, data = f"{folder}/own.py:net", f"{folder}/own.py:data"
    values = {"network.name": network, "data.tasks": 2, "threads": 1}
    values["data.augment"] = f"{folder}/own.py:augment"
    both = Layer("test", {**values, "data.source": data})
    sent = [
        resolve(f"a-{folder}/mine.py:mine", None, [both]).spec,
        resolve("lwf", "digits/5", [Layer("test", {**values, "network.width": 3})]).spec,
    ]
    graphs = [Graph([spec]) for spec in sent]
    shipped = [ship(next(iter(graph.nodes.values())), None) for graph in graphs]
    for file in files:
        (folder / file).unlink()

    names, keys = elsewhere(tmp_path, shipped)

    assert keys == [list(graph.nodes) for graph in graphs]
    assert all(str(tmp_path) not in name for each in names for name in each)
    folders = {Path(name.rpartition(":")[0]).parent for name in (*names[0][1:], names[1][1])}
    assert len(folders) == 1  # one own_parts for all of them
    assert [name.rpartition(":")[2] for name in names[0]] == ["mine", "net", "data", "augment"]
    assert names[0][0].startswith("a-/")


def test_a_package_travels_unless_it_is_installed(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OWN.replace("own_parts", ".inner")
    files = {"travels/__init__.py": "", "travels/own.py": own, "travels/inner.py": OWN_PARTS}
    monkeypatch.syspath_prepend(write("driver", files))
    layer = Layer("test", {"network.name": "travels.own:net", "threads": 1})
    graph = Graph([resolve("lwf", "digits/5", [layer]).spec])
    shipped = ship(next(iter(graph.nodes.values())), None)

    names, keys = elsewhere(tmp_path, [shipped])

    assert names == [["lwf", "travels.own:net", "digits", "none"]]
    assert keys == [list(graph.nodes)]
    assert [name for name, _ in shipped.code[0].files] == sorted(files)


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"pip install 'ancl\[ray\]'"):
        compute_with(Cluster(None, 2), Graph(specs("finetune")), Store(tmp_path), Heard())


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", [{}, {"lamb_a": "balance"}, {"lamb": "auto", "lamb_a": "balance"}]
)
def test_ray_gives_the_bits_of_one_process(rules: dict[str, str], tmp_path: Path) -> None:
    graph, heard = Graph(specs("a-lwf", "a-ewc", **rules)), Heard()
    one, other = Store(tmp_path / "ray"), Store(tmp_path / "serial")

    assert compute_with(Cluster(None, 2), graph, one, heard) == {}
    compute_with(Serial(), graph, other, Heard())

    assert_same(one, other, graph.nodes)
    assert heard.epochs > 0
