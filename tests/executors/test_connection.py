"""Addresses, machines and the end of a cluster; a package that stands in for Ray."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ancl import AnclError, SpecError
from tests.lab import (
    Watch,
    check_address,
    check_threads,
    connected,
    load_ray,
    patch_part,
    try_address,
)


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head-1.example.org:1", "[::1]:6379"])
def test_addresses_that_ray_knows(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address",
    ["", "local", "nonsense", "10.0.0.1", "host name:6379", "head:0", "head:65536", "head:6379/x"],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_address(address)

    assert str(caught.value) == (
        f"--address: {address!r} is not an address of a Ray cluster. Write HOST:PORT of its first "
        f"machine, such as 10.0.0.1:6379, or auto for the one here."
    )


def test_the_client_of_ray_is_refused_with_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"RAY_ADDRESS: 'ray://head:10001' .* run the command on"):
        check_address("ray://head:10001", "RAY_ADDRESS")


@pytest.mark.parametrize(
    ("cpus", "threads", "message"),
    [
        ([1.0, 4.0, 2.0], 4, None),
        ([1.0, 4.0, 2.0], 5, "needs 5 CPUs of one machine, and the largest of 3 machines of the "),
        ([3.5], 4, "the largest of 1 machine of the cluster has 3. Use --threads 3 or less."),
        ([0.0], 1, "has 0. Add a machine that has CPUs."),
        ([], 1, "the largest of 0 machines of the cluster has 0. Add a machine"),
    ],
)
def test_threads_are_those_of_one_machine(
    cpus: list[float], threads: int, message: str | None
) -> None:
    if message is None:
        check_threads(cpus, threads)
        return
    with pytest.raises(SpecError) as caught:
        check_threads(cpus, threads)
    assert message in str(caught.value)


@pytest.fixture
def listening() -> Iterator[str]:
    """The address of something that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def fake_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package ``ray`` whose ``init`` does what is written; undone after the test."""

    def make(body: str) -> None:
        text = f"import os, signal, sys, time\nlog = []\ndef init(**given):\n    {body}\n"
        text += "def is_initialized():\n    return False\ndef shutdown():\n    log.append('down')\n"
        (tmp_path / "ray.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(sys.modules, "ray", None)  # so that it is as before in the end
        del sys.modules["ray"]

    return make


def test_a_port_where_nothing_is_takes_no_second_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]

    with pytest.raises(SpecError, match=rf"nothing answers at 127.0.0.1:{free} \(Connection refu"):
        try_address(f"127.0.0.1:{free}")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise RuntimeError('Version mismatch:\\n  Ray: 2.9')", "Version mismatch: Ray: 2.9."),
        ("os.abort()", "Ray ended with code -6."),
        ("time.sleep(60)", "it did not answer within 2 seconds."),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_message(
    body: str,
    why: str,
    listening: str,
    fake_ray: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_ray(body)
    patch_part(monkeypatch, "ANSWER_SECONDS", 2.0)

    with pytest.raises(SpecError) as caught:
        try_address(listening)

    assert f"no Ray cluster can be used at {listening}: {why}" in str(caught.value)
    assert "This machine must be part of the cluster" in str(caught.value)


def test_no_cluster_on_this_machine_is_one_message(fake_ray: Callable[[str], None]) -> None:
    fake_ray("raise ConnectionError('Could not find one. Please say where.')")

    with pytest.raises(SpecError) as caught:
        try_address("auto")

    assert str(caught.value) == (
        "--address: no Ray cluster can be used on this machine: Could not find one. Start one with "
        "'ray start --head', or leave out --address."
    )


def test_a_cluster_that_answers_is_asked_once(
    listening: str, fake_ray: Callable[[str], None], tmp_path: Path
) -> None:
    asked = tmp_path / "asked.txt"
    fake_ray(f"print(given['address'], file=open({str(asked)!r}, 'a'))")

    try_address(listening)

    assert asked.read_text() == f"{listening}\n"


def test_sigterm_while_ray_connects_reaches_the_handler_of_before(
    fake_ray: Callable[[str], None],
) -> None:
    # As Ray does: its own handler, which exits with the number of the signal.
    fake_ray("signal.signal(15, lambda n, f: sys.exit(n)); signal.raise_signal(15); log.append(1)")
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with connected(None, 2) as ray:
            assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) not in (before, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ray.log == ["down"]


def test_ray_starts_here_whatever_the_environment_names_and_keeps_off_the_output(
    fake_ray: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_ray("log.append(given)")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    with connected(None, 3) as ray:
        print("(raylet) a machine is lost")

    assert ray.log[0]["address"] == "local"
    assert ray.log[0]["num_cpus"] == 3
    assert ray.log[1:] == ["down"]
    assert capsys.readouterr().out == ""


def test_an_error_of_ray_is_one_message_and_ray_is_shut_down(
    fake_ray: Callable[[str], None],
) -> None:
    fake_ray("raise RuntimeError('no\\n   room')")

    with pytest.raises(SpecError, match="started or connected: no room"), connected(None, 1):
        pass

    assert sys.modules["ray"].log == ["down"]


def test_a_process_that_uses_ray_keeps_it(fake_ray: Callable[[str], None]) -> None:
    fake_ray("log.append(given)")
    ray: Any = load_ray()
    ray.is_initialized = lambda: True

    with pytest.raises(SpecError, match=r"Call ray.shutdown\(\) first"), connected(None, 1):
        pass

    assert ray.log == []


class Watched:
    """A cluster whose machines and time a test sets."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch, **cpus: float) -> None:
        self.cpus, self.now, self.said = dict(cpus), 100.0, list[str]()
        context = SimpleNamespace(gcs_address=address, get_node_id=lambda: "here")
        patch_part(monkeypatch, "connection_clock", lambda: self.now)
        ray = SimpleNamespace(nodes=self._nodes, get_runtime_context=lambda: context)
        self.watch = Watch(ray, 2, self.said.append)

    def _nodes(self) -> list[dict[str, Any]]:
        gone = {"NodeID": "gone", "Alive": False, "Resources": {}}
        found = [
            {"NodeID": name, "Alive": True, "Resources": {"CPU": count} if count else {}}
            for name, count in self.cpus.items()
        ]
        return [gone, *found]

    def look(self, seconds: float) -> None:
        self.now += seconds
        self.watch.look()


def test_lost_machines_are_told_once(listening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Watched(listening, monkeypatch, here=0.0, small=1.0, large=2.0)

    cluster.look(6)
    assert cluster.said == []
    del cluster.cpus["small"]
    cluster.look(1)  # too early to look again
    assert cluster.said == []
    cluster.look(6)
    cluster.look(6)
    assert cluster.said == [
        "Ray lost 1 machine (2 left); stages that were computed there start again."
    ]
    del cluster.cpus["large"]
    cluster.look(6)
    assert cluster.said[1:] == [
        "Ray lost 1 machine (1 left); stages that were computed there start again.",
        "No machine that is left has 2 CPUs, which a stage needs: the stages wait for one to join.",
    ]


def test_a_silent_cluster_is_given_up_before_ray_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        cluster = Watched(address, monkeypatch, here=2.0)
        cluster.look(6)
    cluster.cpus.clear()  # must not be asked for: Ray would wait for the answer

    for _ in range(5):
        cluster.look(6)
    with pytest.raises(AnclError) as caught:
        cluster.look(6)

    assert str(caught.value) == (
        f"The Ray cluster at {address} does not answer any more. What was finished is stored; the "
        f"same command resumes, on any cluster."
    )


def test_a_machine_that_the_cluster_gave_up_stops(
    listening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Watched(listening, monkeypatch, here=2.0, other=2.0)
    del cluster.cpus["here"]

    with pytest.raises(AnclError, match="This machine is no longer part of the Ray cluster"):
        cluster.look(6)


def test_the_variables_that_ray_reads_are_left_as_a_user_set_them(
    fake_ray: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ray("pass")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", raising=False)

    load_ray()

    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
    assert os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"
