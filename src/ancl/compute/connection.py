"""A connection to Ray: which addresses there are, whether one answers, and when it is lost.

Ray itself waits for minutes where nothing answers and may end its process with it. So an address
is tried in a process of its own first, and the cluster is watched while it works.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from time import monotonic
from typing import Any

from ancl.errors import AnclError, SpecError, counted

AUTO = "auto"
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_REACH_SECONDS = 5.0
_ANSWER_SECONDS = 15.0
_WATCH_SECONDS = 5.0
_SILENCE_SECONDS = 30.0
"""How long a cluster may be silent; Ray ends the whole process after 60 seconds."""
_KEPT = " What was finished is stored; the same command resumes, on any cluster."
_HELP = "Write HOST:PORT of its first machine, such as 10.0.0.1:6379, or auto for the one here."
_TRIAL = """
import sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
except Exception as error:
    print(" ".join(str(error).split()))
    sys.exit(1)
"""


def check_address(address: str, given: str = "--address") -> str:
    """The address as it was given, if Ray could have a cluster there.

    Raises:
        SpecError: It is not one.
    """
    if address == AUTO:
        return address
    if "://" in address:
        raise SpecError(
            f"{given}: {address!r} is an address of Ray's client, which cannot be used here: run "
            f"the command on a machine of the cluster. {_HELP}"
        )
    match = _HOST_AND_PORT.fullmatch(address)
    if not match or not 0 < int(match[2]) < 65536:
        raise SpecError(f"{given}: {address!r} is not an address of a Ray cluster. {_HELP}")
    return address


def check_threads(cpus: Collection[float], threads: int) -> None:
    """Refuse a number of threads that no machine has, for which Ray would wait without end.

    Args:
        cpus: The CPUs of every machine.
        threads: The CPUs that a stage needs.

    Raises:
        SpecError: No machine has as many.
    """
    most = int(max(cpus, default=0))
    if most < threads:
        raise SpecError(
            f"--threads: a stage needs {counted(threads, 'CPU')} of one machine, and the largest "
            f"of {counted(len(cpus), 'machine')} of the cluster has {most}. "
            + (f"Use --threads {most} or less." if most else "Add a machine that has CPUs.")
        )


def try_address(address: str) -> None:
    """Connect once in a process of its own, so that Ray can be stopped if it waits.

    Raises:
        SpecError: There is no cluster that this machine can use.
    """
    if address != AUTO:
        try:
            _reach(address)
        except OSError as error:
            raise SpecError(
                f"--address: nothing answers at {address} ({error.strerror or error}). Is the "
                f"cluster running ('ray start --head'), and is this its port?"
            ) from error
    why = _refusal(address)
    if why and address == AUTO:
        raise SpecError(
            f"--address: no Ray cluster can be used on this machine: {why.split('. ')[0]}. Start "
            f"one with 'ray start --head', or leave out --address."
        )
    if why:
        raise SpecError(
            f"--address: no Ray cluster can be used at {address}: {why}. Is it the port of 'ray "
            f"start --head', with the same versions of Ray and Python? This machine must be part "
            f"of the cluster: 'ray start --address=HOST:PORT'."
        )


def _refusal(address: str) -> str:
    """Why Ray cannot connect; empty where it can."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        "RAY_gcs_server_request_timeout_seconds": str(int(_ANSWER_SECONDS / 2)),
    }
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, address],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_ANSWER_SECONDS:.0f} seconds"
    if ended.returncode == 0:
        return ""
    return ended.stdout.strip().rstrip(".") or f"Ray ended with code {ended.returncode}"


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, shut down on exit, also after an error or a signal.

    Args:
        address: Of a running cluster, which was tried; None to start one on this machine.
        cpus: The CPUs of a cluster that is started.

    Raises:
        SpecError: Ray is not installed, in use, or cannot connect.
    """
    ray = load_ray()
    if ray.is_initialized():
        raise SpecError(
            "Ray is in use in this process. Call ray.shutdown() first; then --address is the "
            "address of the cluster."
        )
    where = {"address": address} if address else {"address": "local", "num_cpus": cpus}
    # Ray writes news of machines to the standard output, where results go.
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            _start(ray, **where)
            yield ray
        finally:
            ray.shutdown()


def load_ray() -> Any:
    """The package, which is optional.

    Raises:
        SpecError: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        return import_module("ray")
    except ImportError as error:
        raise SpecError(
            "--executor ray needs Ray, which is not installed: pip install 'ancl[ray]'. Or use "
            "--executor pool."
        ) from error


def _start(ray: Any, **where: Any) -> None:
    """Connect, and keep the handler of SIGTERM, for which Ray puts its own."""
    before, stopped = signal.getsignal(signal.SIGTERM), False
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except SystemExit:  # of Ray's handler
        stopped = True
    except (OSError, RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise SpecError(f"Ray cannot be started or connected: {why}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
    if stopped:
        signal.raise_signal(signal.SIGTERM)


def machines(ray: Any) -> dict[str, float]:
    """The CPUs of every machine that is there, by the name of its node."""
    return {
        node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]
    }


class Watch:
    """Notices that the cluster is gone, or has lost machines.

    Args:
        ray: The package, connected.
        threads: The CPUs that a stage needs.
        say: Receives what a user must know.
    """

    def __init__(self, ray: Any, threads: int, say: Callable[[str], None]) -> None:
        self._ray, self._threads, self._say = ray, threads, say
        context = ray.get_runtime_context()
        self._address, self._here = context.gcs_address, context.get_node_id()
        self._machines = machines(ray)
        check_threads(self._machines.values(), threads)
        self._looked = self._answered = monotonic()

    def look(self) -> None:
        """Look every few seconds; call it often.

        Raises:
            AnclError: The cluster, or this machine's part in it, is gone.
        """
        now = monotonic()
        if now - self._looked < _WATCH_SECONDS:
            return
        self._looked = now
        with suppress(OSError):
            _reach(self._address)
            self._answered = now
        if self._answered == now:  # else Ray would wait for an answer, and end the process
            self._compare(machines(self._ray))
        elif now - self._answered > _SILENCE_SECONDS:
            raise AnclError(f"The Ray cluster at {self._address} does not answer any more.{_KEPT}")

    def _compare(self, present: dict[str, float]) -> None:
        if self._here not in present:
            raise self.alone()
        lost, self._machines = self._machines.keys() - present.keys(), present
        if lost:
            self._say(
                f"Ray lost {counted(len(lost), 'machine')} ({len(present)} left); stages that were "
                f"computed there start again."
            )
        if lost and max(present.values()) < self._threads:
            self._say(
                f"No machine that is left has {counted(self._threads, 'CPU')}, which a stage "
                f"needs: the stages wait for one to join."
            )

    def alone(self) -> AnclError:
        """What to raise where this machine, through which all goes, is lost to the cluster."""
        return AnclError(
            f"This machine is no longer part of the Ray cluster at {self._address}.{_KEPT}"
        )
