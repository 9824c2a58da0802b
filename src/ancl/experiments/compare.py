"""Methods side by side: means over seeds, and paired differences to a baseline."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from ancl.compute import ExecutorChoice, choose_executor
from ancl.errors import SpecError, StoreError, unknown
from ancl.experiments.groups import group_of
from ancl.experiments.pairing import Difference, Pairing, Searches
from ancl.experiments.read_results import read_searches
from ancl.experiments.results import Finished, Places, estimate_json, estimates
from ancl.experiments.run import Outcome, run_all
from ancl.files import MARK, claim, replace_text
from ancl.hashing import digest
from ancl.methods.registry import MethodRef
from ancl.metrics import METRICS, Estimate, main_metric
from ancl.recipe.method_rows import MethodRow, resolve_rows
from ancl.recipe.recipe import RunSpec
from ancl.recipe.request import is_quick_look, make_request
from ancl.stages.events import Events

_TASK_AWARE = ("forgetting", "learning_accuracy")
_TASK_AGNOSTIC = ("final_accuracy", "forgetting")


class Comparison:
    """What runs of several methods and seeds found.

    Args:
        rows: The runs that were asked for, by the method as it was written: ``lwf@lamb=3``.
        outcome: The runs that finished, and what failed.
        baseline: The row that all differences are taken to; the first one by default.
        seconds: How long it took.
        searches: Searches that may have chosen λ and λ_a of runs.
    """

    def __init__(
        self,
        rows: Mapping[str, Sequence[RunSpec]],
        outcome: Outcome,
        baseline: str | None,
        seconds: float,
        searches: Searches = (),
    ) -> None:
        self.rows, self.outcome, self.seconds, self.searches = rows, outcome, seconds, searches
        self.specs = [spec for specs in rows.values() for spec in specs]
        self.methods = list(rows)
        self.baseline = choose_baseline(self.methods, baseline)
        aware = self.specs[0].task_aware
        self.columns = (main_metric(aware), *(_TASK_AWARE if aware else _TASK_AGNOSTIC))
        """The metrics to show; the first one decides."""

    @property
    def quick_look(self) -> bool:
        """Whether a run has the few images of ``quick``: its numbers say nothing of the method."""
        return any(is_quick_look(spec) for spec in self.specs)

    def of(self, method: str) -> list[Finished]:
        """A method's finished runs."""
        return [run for run in self.outcome.finished if run.result.spec in self.rows[method]]

    def estimates(self, method: str) -> dict[str, Estimate]:
        """A method's metrics: mean and standard error over its finished runs."""
        return estimates([run.result for run in self.of(method)])

    def difference_to_baseline(self, method: str) -> Difference | None:
        """A method's runs beside the baseline's; nothing where there are none, or it is itself."""
        sides = [self.of(name) for name in (method, self.baseline)]
        if self.baseline == method or not all(sides):
            return None
        ours, theirs = (group_of(side) for side in sides)
        return Difference.between(ours, theirs, self.searches)

    def pairing(self, method: str) -> Pairing | None:
        """What differs from the baseline besides the method; nothing where there is none."""
        difference = self.difference_to_baseline(method)
        return difference.pairing if difference else None

    def difference(self, method: str, metric: str) -> Estimate | None:
        """A method minus the baseline, seed by seed.

        Nothing where there is no baseline, or where data, network or images are not the same.
        """
        difference = self.difference_to_baseline(method)
        return difference.estimate(metric) if difference else None

    def json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "benchmark": self.specs[0].stream,
            "scenario": self.specs[0].data.scenario,
            "quick": self.quick_look,
            "baseline": self.baseline,
            "seeds": sorted({spec.seed for spec in self.specs}),
            "methods": {name: self._method_json(name) for name in self.methods if self.of(name)},
            "failures": [failure.json() for failure in self.outcome.failures],
            "seconds": self.seconds,
        }

    def _method_json(self, method: str) -> dict[str, Any]:
        finished = self.of(method)
        means, pair = self.estimates(method), self.pairing(method)
        return {
            "metrics": {name: estimate_json(estimate) for name, estimate in means.items()},
            "baseline": None if self.baseline == method else self.baseline,
            "minus_baseline": {
                name: estimate_json(gap)
                for name in METRICS
                if (gap := self.difference(method, name)) is not None
            },
            "differs_also": list(pair.differing) if pair else [],
            "not_compared": list(pair.refused) if pair else [],
            "runs": [str(run.directory) for run in finished],
        }

    def write(self, runs: Path, *, overwrite: bool = False) -> Path:
        """Write the comparison where a report finds it, to a deterministic file.

        Args:
            runs: Where results go.
            overwrite: Whether a file that ancl did not write is replaced.

        Raises:
            StoreError: The file cannot be written, or is there and not ours.
        """
        file = _claimed(runs, self.specs, overwrite)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            content = {"format": f"comparison, {MARK}", **self.json()}
            replace_text(file, json.dumps(content, indent=1))
        except OSError as error:
            raise StoreError(
                f"The comparison cannot be written to {file} ({error.strerror}). Make room or "
                f"give another --runs DIR; the same command finds everything trained."
            ) from error
        return file


def _claimed(runs: Path, specs: Sequence[RunSpec], overwrite: bool) -> Path:
    """The file of a comparison; refused where ancl did not write what is there."""
    mark = digest([spec.plain() for spec in specs])[:8]
    name = f"{specs[0].benchmark.replace('/', '-')}_{mark}.json"
    claim(runs / "comparisons", [name], [name], overwrite=overwrite)
    return runs / "comparisons" / name


def compare(
    methods: Sequence[str],
    benchmark: str | None = None,
    *,
    seeds: Sequence[int] = (),
    baseline: str | None = None,
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    store: str | Path | None = None,
    executor: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    data_root: str | Path | None = None,
    overwrite: bool = False,
    events: Events | None = None,
    **options: Any,
) -> Comparison:
    """Compare methods on one benchmark; stages in common are computed once.

    Args:
        methods: Their names, such as ``["lwf", "a-lwf", "joint"]``; values for one method alone
            stand behind it: ``"lwf@lamb=3"``.
        benchmark: Its name, such as ``digits/5``.
        seeds: One run per method and seed; seed 0 by default.
        baseline: The method that all differences are taken to; the first one by default.
        preset: As in ``spec``.
        quick: As in ``spec``.
        config: As in ``spec``.
        settings: As in ``spec``; a setting goes to the methods that have it.
        runs: Where run directories and the comparison are written.
        store: Where stages are kept; by default ``.store`` below ``runs``.
        executor: ``serial`` (the default), ``pool`` or ``ray``.
        workers: The number of stages computed at the same time, by a pool or Ray.
        address: The address of a running Ray cluster.
        data_root: Where data is; see ``ancl.data.data_root``.
        overwrite: Whether results replace files in their way that ancl did not write.
        events: Receives progress; silent by default.
        options: As in ``spec``.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    values = {**(settings or {}), **options}
    threads = values.get("threads")
    choice = choose_executor(
        executor, workers, address, threads if isinstance(threads, int) else None
    )
    request = make_request(None, benchmark, values, seeds, preset, quick, config)
    rows = resolve_rows(request.with_threads(choice.threads), methods)
    places = Places.of(runs, store, data_root, overwrite=overwrite)
    return compare_rows(rows, places, choice, baseline, events)


def compare_rows(
    rows: Mapping[str, Sequence[RunSpec]],
    places: Places,
    choice: ExecutorChoice | None = None,
    baseline: str | None = None,
    events: Events | None = None,
) -> Comparison:
    """Run several methods and compare them.

    Raises:
        SpecError: There are no runs, or the baseline is not among the methods.
    """
    began = monotonic()
    if not rows:
        raise SpecError("There is nothing to compare. Name at least one method.")
    # Both are refused before training.
    choose_baseline(list(rows), baseline)
    specs = [spec for row in rows.values() for spec in row]
    _claimed(places.runs, specs, places.overwrite)
    outcome = run_all(specs, places, choice, events)
    searches = read_searches(places.runs)
    return Comparison(rows, outcome, baseline, monotonic() - began, searches)


def choose_baseline(methods: Sequence[str], named: str | None = None) -> str:
    """What all differences are taken to: the method that is named, or the first.

    Args:
        methods: The methods as they were written, each maybe with values.
        named: One of them: as it was written, or its name alone where no other has the same.

    Examples:
        >>> choose_baseline(["finetune", "lwf@lamb=3", "a-lwf"], "lwf")
        'lwf@lamb=3'

    Raises:
        SpecError: There is no such method among them, or there are several.
    """
    if named is None or named in methods:
        return methods[0] if named is None else named
    name = MethodRef(MethodRow.read(named).method).name
    same = [m for m in methods if MethodRef(MethodRow.read(m).method).name == name]
    if len(same) > 1 and "@" not in named:
        raise SpecError(f"--baseline: {named} stands for {' and '.join(same)}. Write one of them.")
    if not same or "@" in named:
        raise SpecError("--baseline: " + unknown("compared method", named, methods))
    return same[0]
