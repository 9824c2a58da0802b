"""Signals, lost machines and wrong addresses, as a user's command meets them.

Tests of Ray need Ray (``pip install 'ancl[ray]'``) and are slow.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

from ancl import Events, Store
from ancl import specs as make_specs
from tests.lab import Cluster, Graph, Serial, compute_with

HAS_RAY = importlib.util.find_spec("ray") is not None
SLOW = (pytest.mark.slow, pytest.mark.timeout(600))
RAY = (
    *SLOW,
    pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'ancl[ray]'"),
)
ANCL = (sys.executable, "-m", "ancl")
SHORT = ("--epochs", "20", "--threads", "1", "--set", "training.batch_size=8")
WORK = ("compare", "ewc", "a-lwf", "--on", "digits/5", *SHORT)
LITTLE = ("run", "lwf", "digits/5", *SHORT)
MARK = "ANCL_TEST_MARK"
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc"
)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A text in the environment of all processes that this test starts, and of theirs."""
    text = uuid4().hex
    monkeypatch.setenv(MARK, text)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return text


def marked(mark: str, title: str = "") -> list[int]:
    """The processes with a mark whose title begins so; those that ended are left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            of = (entry / "environ").read_bytes().split(b"\0")
            named = (entry / "cmdline").read_bytes().startswith(title.encode())
            if f"{MARK}={mark}".encode() in of and named:
                found.append(int(entry.name))
    return found


def none_left(mark: str, title: str = "", seconds: float = 20.0) -> bool:
    """Whether processes end by themselves within some time."""
    end = time.monotonic() + seconds
    while marked(mark, title) and time.monotonic() < end:
        time.sleep(0.2)
    return not marked(mark, title)


@contextmanager
def working(runs: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command at work; it is killed at the end of a test that fails."""
    command = [*ANCL, *words, "--runs", str(runs)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read what a command says until a text occurs; all of it if it never does."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            break
    return said


def bits(runs: Path) -> dict[str, dict[str, torch.Tensor]]:
    store, found = Store(runs / ".store"), {}
    for info in store.entries():
        entry = store.load(info.key)
        assert entry is not None
        found[info.key] = entry.tensors
    return found


def assert_as_serial(runs: Path, serial: Path) -> None:
    """A command that is done gave the bits of one process."""
    alone = subprocess.run([*ANCL, *WORK, "--runs", str(serial)], capture_output=True, check=False)
    assert alone.returncode == 0
    expected, actual = bits(serial), bits(runs)
    assert actual.keys() == expected.keys()
    for key, tensors in expected.items():
        assert all(torch.equal(tensors[name], actual[key][name]) for name in tensors), key


POOL, LOCAL_RAY = ("--workers", "2"), ("--executor", "ray", "--workers", "2")
TRAINED, BEGUN = "main:", " to do "


@pytest.mark.parametrize(
    ("words", "labour", "sent", "when"),
    [
        pytest.param(LITTLE, POOL, signal.SIGINT, TRAINED, id="pool int"),
        pytest.param(WORK, POOL, signal.SIGINT, BEGUN, id="pool early int", marks=SLOW),
        pytest.param(WORK, POOL, signal.SIGTERM, TRAINED, id="pool term", marks=SLOW),
        pytest.param(WORK, LOCAL_RAY, signal.SIGINT, TRAINED, id="ray int", marks=RAY),
        pytest.param(WORK, LOCAL_RAY, signal.SIGTERM, TRAINED, id="ray term", marks=RAY),
        pytest.param(WORK, LOCAL_RAY, signal.SIGINT, BEGUN, id="ray early int", marks=RAY),
        pytest.param(WORK, LOCAL_RAY, signal.SIGTERM, BEGUN, id="ray early term", marks=RAY),
    ],
)
def test_a_signal_leaves_no_process_and_the_same_command_resumes(
    words: tuple[str, ...],
    labour: tuple[str, ...],
    sent: signal.Signals,
    when: str,
    tmp_path: Path,
    mark: str,
) -> None:
    runs = tmp_path / "runs"
    with working(runs, *words, *labour) as process:
        until(process, when)
        time.sleep(when == BEGUN)  # while Ray, or the workers, start
        os.killpg(process.pid, sent)  # as a terminal does
        _, said = process.communicate(timeout=120)

    assert process.returncode == 128 + sent
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")
    assert "Traceback" not in said
    assert none_left(mark)
    again = subprocess.run([*ANCL, *words, "--runs", str(runs)], capture_output=True, check=False)
    assert again.returncode == 0
    assert (b" 0 stored" in again.stderr) == (when == BEGUN)
    if words == WORK:
        assert_as_serial(runs, tmp_path / "serial")


@pytest.fixture
def machines(mark: str) -> Iterator[Any]:
    """A cluster of three machines with one CPU each; the command joins at the first."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def ray_test(test: Callable[..., None]) -> Callable[..., None]:
    for each in RAY:
        test = each(test)
    return test


@ray_test
def test_each_of_three_machines_is_lost_once_and_the_bits_are_those_of_one_process(
    machines: Any, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    first, second = machines.worker_nodes
    with working(runs, *WORK, "--address", machines.address) as process:
        said = until(process, TRAINED)
        machines.remove_node(first, allow_graceful=False)
        said += until(process, "Ray lost 1 machine (2 left)")
        said += until(process, TRAINED)
        machines.remove_node(second, allow_graceful=False)
        said += until(process, TRAINED)
        machines.remove_node(machines.head_node, allow_graceful=False)  # with board and command
        _, rest = process.communicate(timeout=120)

    assert process.returncode == 2, said + rest
    assert "Ray lost 1 machine (2 left); stages that were computed there start again." in said
    assert rest.endswith("What was finished is stored; the same command resumes, on any cluster.\n")
    assert "Traceback" not in said + rest
    assert " failed: " not in said + rest
    stored = bits(runs)
    assert len(stored) >= 3
    again = subprocess.run(
        [*ANCL, *WORK, *LOCAL_RAY, "--runs", str(runs)], capture_output=True, text=True, check=False
    )
    assert again.returncode == 0
    assert f" {len(stored)} stored, " in again.stderr
    assert_as_serial(runs, tmp_path / "serial")


@ray_test
def test_a_signal_to_the_command_frees_a_cluster_that_others_use(
    machines: Any, tmp_path: Path, mark: str
) -> None:
    with working(tmp_path, *WORK, "--address", machines.address) as process:
        until(process, TRAINED)
        assert marked(mark, "ray::_Board")
        assert marked(mark, "ray::ewc") or marked(mark, "ray::a-lwf")
        process.terminate()
        _, said = process.communicate(timeout=60)

    assert process.returncode == 143
    assert said.endswith("Stopped. What was finished is stored; the same command resumes.\n")
    for title in ("ray::_Board", "ray::ewc", "ray::a-lwf"):
        assert none_left(mark, title), title


@ray_test
def test_threads_that_no_machine_has_are_refused(machines: Any, tmp_path: Path) -> None:
    command = [*ANCL, "run", "ewc", "digits/5", "--threads", "2", "--runs", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--address", machines.address], capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 2
    assert ended.stderr.endswith(
        "--threads: a stage needs 2 CPUs of one machine, and the largest of 3 machines of the "
        "cluster has 1. Use --threads 1 or less.\n"
    )


@ray_test
def test_a_board_that_is_killed_starts_again(tmp_path: Path, mark: str) -> None:
    class Killing(Events):
        """Kills the board at the third epoch; counts those that are told later."""

        killed: tuple[int, ...] = ()
        epochs = after = 0

        def epoch_ends(self, stage: Any, epoch: Any) -> None:
            self.epochs += 1
            self.after += bool(self.killed)
            if self.epochs == 3:
                self.killed = tuple(marked(mark, "ray::_Board"))
                for pid in self.killed:
                    os.kill(pid, signal.SIGKILL)

    values = {"training.epochs": 20, "training.batch_size": 8, "threads": 1}
    graph = Graph(make_specs(["ewc", "a-lwf"], "digits/5", settings=values))
    one, other, events = Store(tmp_path / "ray"), Store(tmp_path / "serial"), Killing()

    assert compute_with(Cluster(None, 2), graph, one, events) == {}
    compute_with(Serial(), graph, other, Events())

    assert len(events.killed) == 1
    assert events.after > 0
    for key in graph.nodes:
        ours, theirs = one.load(key), other.load(key)
        assert ours is not None
        assert theirs is not None
        assert all(torch.equal(ours.tensors[n], theirs.tensors[n]) for n in theirs.tensors)


@ray_test
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("ray://127.0.0.1:10001", "is an address of Ray's client"),
        ("nonsense", "is not an address of a Ray cluster"),
        ("127.0.0.1:1", "nothing answers at 127.0.0.1:1 (Connection refused)"),
        ("nowhere.invalid:6379", "nothing answers at nowhere.invalid:6379 ("),
        ("192.0.2.1:6379", "nothing answers at 192.0.2.1:6379 ("),  # kept free by RFC 5737
        ("silent", "it did not answer within 15 seconds"),
    ],
)
def test_a_wrong_address_is_one_message_within_30_seconds(
    address: str, why: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        if address == "silent":
            address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [*ANCL, "run", "ewc", "digits/5", "--address", address, "--runs", str(tmp_path)]
        subprocess.run([*ANCL, "run", "--help"], capture_output=True, check=True)  # libraries read
        began = time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began

    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert why in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""
    assert seconds < 30
