"""Which executor is chosen, with how many workers and threads."""

import pytest

from ancl import SpecError
from tests.lab import Cluster, Pool, Serial, choose_executor, cores


def test_what_is_left_out_is_chosen() -> None:
    alone, pool = choose_executor(), choose_executor(workers=1)
    every, cluster = choose_executor("pool"), choose_executor(address="auto")

    assert isinstance(alone.executor, Serial)
    assert (alone.workers, alone.threads, alone.description) == (1, None, "")
    assert isinstance(pool.executor, Pool)
    assert (pool.workers, pool.threads) == (1, cores())
    assert (every.workers, every.threads) == (cores(), 1)
    assert isinstance(cluster.executor, Cluster)
    assert cluster.description == "Ray on the cluster at auto, 1 thread per stage."


def test_ray_on_this_machine_has_a_cpu_for_each_thread_of_each_worker() -> None:
    choice = choose_executor("ray", workers=1, threads=cores() + 1)

    assert isinstance(choice.executor, Cluster)
    assert choice.executor.cpus == cores() + 1
    assert choice.description.startswith("Ray on this machine: 1 worker, each with ")
    assert choice.description.endswith("lower --workers or --threads.")


def test_more_threads_than_cores_are_warned_of() -> None:
    few, many = choose_executor(workers=1, threads=1), choose_executor(workers=cores(), threads=2)

    assert few.description.startswith("1 worker, each with 1 thread, on ")
    assert "More threads than cores" not in few.description
    assert "More threads than cores are slow" in many.description
    assert many.threads == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "pol"}, "--executor: There is no executor 'pol'. Did you mean 'pool'?"),
        ({"workers": 0}, "--workers: 0 is not a number of workers."),
        ({"name": "serial", "workers": 2}, "--workers is for --executor pool or ray"),
        ({"name": "pool", "address": "x"}, "--address is for --executor ray"),
        ({"address": ""}, "--address: '' is not an address of a Ray cluster."),
        ({"address": "ray://head:10001"}, "--address: 'ray://head:10001' is an address of Ray's"),
        ({"address": "auto", "workers": 2}, "--workers is for Ray on this machine"),
    ],
)
def test_values_that_do_not_fit(given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        choose_executor(**given)  # type: ignore[arg-type]

    assert message in str(caught.value)
