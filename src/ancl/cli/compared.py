"""Methods side by side: means over seeds, and differences to a baseline, seed by seed."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ancl.cli.comparison import with_error
from ancl.cli.outcome import estimate_json, estimates, estimates_json, unit
from ancl.cli.session import Finished
from ancl.cli.sweeping import Swept, failures_json, failures_text
from ancl.cli.table import duration, percent, table
from ancl.errors import SpecError, StoreError, unknown
from ancl.experiments.spec import RunSpec
from ancl.hashing import digest
from ancl.methods.registry import MethodRef
from ancl.metrics import METRICS, Estimate, mean_and_error

TOLD = ("aac", "forgetting", "learning_accuracy")
NOT_TOLD = ("aiac", "final_accuracy", "forgetting")
"""The columns where the task is told at test time, and where it is not; the first one decides."""


class Comparison:
    """What a sweep over methods and seeds found.

    Args:
        specs: All runs that were asked for.
        swept: What became of them.
        baseline: The method differences are taken to.
        seconds: How long it took.
    """

    def __init__(
        self, specs: Sequence[RunSpec], swept: Swept, baseline: str, seconds: float
    ) -> None:
        self.specs, self.swept, self.baseline, self.seconds = specs, swept, baseline, seconds
        self.methods = list(dict.fromkeys(spec.method for spec in specs))
        self.columns = TOLD if specs[0].data.scenario == "til" else NOT_TOLD

    def of(self, method: str) -> list[Finished]:
        """A method's finished runs."""
        return [each for each in self.swept.finished if each.result.spec.method == method]

    def difference(self, method: str, metric: str) -> Estimate | None:
        """A method minus the baseline on the seeds both have, or nothing where they have none."""
        ours, theirs = (
            {each.result.spec.seed: each.result.metrics[metric] for each in self.of(name)}
            for name in (method, self.baseline)
        )
        pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        return mean_and_error(pairs) if pairs and method != self.baseline else None

    def json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "benchmark": self.specs[0].benchmark,
            "scenario": self.specs[0].data.scenario,
            "seeds": sorted({spec.seed for spec in self.specs}),
            "baseline": self.baseline,
            "methods": {
                method: {
                    "metrics": estimates_json(estimates(self.of(method))),
                    "minus_baseline": {
                        name: estimate_json(found)
                        for name in METRICS
                        if (found := self.difference(method, name)) is not None
                    },
                    "runs": [str(each.directory) for each in self.of(method)],
                }
                for method in self.methods
                if self.of(method)
            },
            "failures": failures_json(self.swept.failures),
            "seconds": self.seconds,
        }

    def text(self, place: Path) -> str:
        """A table, what failed, and where everything is."""
        decisive = METRICS[self.columns[0]].label
        head = ["method", *(f"{METRICS[n].label}, {unit(METRICS[n])}" for n in self.columns), "n"]
        head.append(f"{decisive} minus {self.baseline}, points")
        rows = [self._row(method) for method in self.methods]
        align = "l" + "r" * (len(head) - 1)
        title = (
            f"{self.specs[0].benchmark}: mean ± standard error over n seeds; differences are taken "
            f"seed by seed."
        )
        parts = [f"{title}\n\n{table(head, rows, align)}"]
        if self.swept.failures:
            parts.append(failures_text(self.swept.failures))
        where = "\n".join(f"  {each.directory}" for each in self.swept.finished)
        work = sum(sum(each.result.seconds.values()) for each in self.swept.finished)
        time = f"Time: {duration(self.seconds)}; each run on its own: {duration(work)} of work"
        parts.append(f"{time}\nResults:\n{where}\n  {place}")
        return "\n\n".join(parts)

    def _row(self, method: str) -> list[str]:
        finished = self.of(method)
        if not finished:
            return [method, *("–" for _ in self.columns), "0", ""]
        found = estimates(finished)
        difference = self.difference(method, self.columns[0])
        cells = [with_error(found[name]) for name in self.columns]
        return [method, *cells, str(len(finished)), difference_text(difference)]

    def write(self, runs: Path) -> Path:
        """Write the comparison where a report finds it; the same command, the same file."""
        mark = digest([json.loads(spec.model_dump_json()) for spec in self.specs])[:8]
        name = f"{self.specs[0].benchmark.replace('/', '-')}_{mark}.json"
        place = runs / "comparisons" / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(self.json(), indent=1), encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"The comparison cannot be written to {place} ({error.strerror}). Make room or "
                f"give another --runs DIR; the same command finds everything trained."
            ) from error
        return place


def difference_text(estimate: Estimate | None) -> str:
    """A difference in points with its standard error, where there is one."""
    if estimate is None:
        return ""
    error = "" if math.isnan(estimate.error) else f" ± {percent(estimate.error)}"
    return f"{100 * estimate.mean:+.1f}{error}"


def choose_baseline(methods: Sequence[str], asked: str | None) -> str:
    """The method asked for, else the plain host of a variant, else the first.

    >>> choose_baseline(["finetune", "a-lwf", "lwf"], None)
    'lwf'
    """
    refs = [MethodRef(method) for method in methods]
    names = [ref.name for ref in refs]
    if asked is None:
        hosts = [ref.base for ref in refs if ref.variant and ref.base in names]
        return hosts[0] if hosts else names[0]
    name = MethodRef(asked).name
    if name not in names:
        raise SpecError("--baseline: " + unknown("compared method", asked, names))
    return name
