"""Search λ and λ_a: values in, trials and a decision out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ancl.errors import SpecError, unknown
from ancl.executors import choose_executor
from ancl.experiments.results import Places
from ancl.experiments.search_base import Search, SearchRequest, SearchResult
from ancl.experiments.search_per_task import PerTaskSearch
from ancl.experiments.search_two_stage import TwoStageSearch
from ancl.experiments.settings import make_request
from ancl.stages.events import Events

PROTOCOLS: dict[str, Callable[[SearchRequest, Events], Search]] = {
    "two-stage": TwoStageSearch,
    "per-task": PerTaskSearch,
}


def search(
    method: str | None = None,
    benchmark: str | None = None,
    *,
    protocol: str = "two-stage",
    lamb_grid: Sequence[float] | None = None,
    lamb_a_grid: Sequence[float] | None = None,
    search_seeds: Sequence[int] = (0,),
    report_seeds: Sequence[int] | None = None,
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    store: str | Path | None = None,
    data_root: str | Path | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    events: Events | None = None,
    **options: Any,
) -> SearchResult:
    """Search λ, then λ_a, by validation images alone. A stopped search is resumed.

    Args:
        method: Such as ``a-lwf``: λ is searched with ``lwf``, then λ_a with ``a-lwf``.
        benchmark: Such as ``digits/5``.
        protocol: ``two-stage``: one λ, then one λ_a, for all tasks. ``per-task``: λ is halved at
            each task until the task is learned.
        lamb_grid: λ to try; the benchmark's grid by default.
        lamb_a_grid: λ_a to try; the same.
        search_seeds: Seeds that decide, by their mean.
        report_seeds: Seeds of the runs that follow, see ``SearchResult.specs``; by default the
            three after those that decide.
        preset: As in ``spec``.
        quick: As in ``spec``.
        config: As in ``spec``.
        settings: As in ``spec``.
        runs: Where results go.
        store: Where stages are kept; by default ``.store`` in ``runs``.
        data_root: Where data is; see ``ancl.data.data_root``.
        executor: ``serial`` (the default), ``pool`` or ``ray``.
        workers: The number of stages computed at the same time, by a pool or Ray.
        address: The address of a running Ray cluster.
        events: Receives progress; silent by default.
        options: As in ``spec``.

    Raises:
        SpecError: All mistakes, each on its own line; or there is nothing to search.
        TrainingError: No value of a grid could be trained.
    """
    values = {**(settings or {}), **options}
    threads = values.get("threads")
    asked = SearchRequest(
        make_request(method, benchmark, values, search_seeds, preset, quick, config),
        protocol,
        {"lamb": lamb_grid, "lamb_a": lamb_a_grid},
        report_seeds,
        Places.of(runs, store, data_root),
        choose_executor(executor, workers, address, threads if isinstance(threads, int) else None),
    )
    return prepare_search(asked, events or Events()).run()


def prepare_search(asked: SearchRequest, events: Events) -> Search:
    """Check a search, so that it can be planned and run.

    Raises:
        SpecError: All mistakes, each on its own line; or there is nothing to search.
    """
    if asked.protocol not in PROTOCOLS:
        raise SpecError("--protocol: " + unknown("protocol", asked.protocol, PROTOCOLS))
    asked = replace(asked, request=asked.request.with_threads(asked.executor.threads))
    return PROTOCOLS[asked.protocol](asked, events)
