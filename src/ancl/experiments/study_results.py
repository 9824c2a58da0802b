"""The runs of a study: those that are kept, one small JSON file each, and those it asks for.

The small files are all that is needed to resume it: no store.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from annotated_types import Ge, Le, MinLen

from ancl.checks import checked
from ancl.errors import SpecError, StoreError, counted, printable
from ancl.experiments.results import (
    ParameterCount,
    column_sizes,
    decode_matrix,
    run_directory,
    spec_hash,
)
from ancl.files import MARK, carries_mark, claim, read_json, replace_text
from ancl.metrics import checked_summary, main_metric, score
from ancl.recipe.benchmarks import BENCHMARKS
from ancl.recipe.build import validation_weights
from ancl.recipe.method_rows import resolve_methods
from ancl.recipe.outside_parts import UNKNOWN, Digests, outside_digests, part_name
from ancl.recipe.recipe import RunSpec
from ancl.recipe.request import make_request
from ancl.runtime import NUMERICS

Images = tuple[tuple[int, int, int], ...]
"""The number of images of every task to train, validate and test on."""
_Count = Annotated[int, Ge(0), Le(10**12)]
_Images = Annotated[tuple[tuple[_Count, _Count, _Count], ...], MinLen(1)]
_Rows = tuple[tuple[Annotated[float, Ge(0), Le(1)] | None, ...], ...]
_Seconds = Annotated[float, Ge(0)]
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


@dataclass(frozen=True, eq=False)
class StudyRun:
    """What a study keeps of a run.

    Args:
        spec: What decided it.
        score: Validation AAC in ``til``, else validation AIAC; NaN where the run failed.
        metrics: Test metrics by name.
        images: The number of images of every task to train, validate and test on.
        seconds: How long its stages took, shared ones included.
        numerics: The versions and the processor that decide bits.
        parameters: Of the network after every task; empty in results from before they were kept.
        failed: Why it failed; empty where it did not.
        outside: The hashes of your own code, weights and images that decided it, by setting.
    """

    spec: RunSpec
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    images: Images = ()
    seconds: float = 0.0
    numerics: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[ParameterCount, ...] = ()
    failed: str = ""
    outside: Digests = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The metric that counts in the scenario."""
        return self.metrics.get(main_metric(self.spec.task_aware), math.nan)

    @property
    def test_image(self) -> float:
        """What one of all its test images counts."""
        return 1 / sum(column_sizes(self.images))

    @classmethod
    def read(cls, spec: RunSpec, stored: Mapping[str, Any]) -> Self:
        """The run of a file's content.

        Raises:
            ValueError: A field is not what it must be.
        """
        outside = checked(dict[str, str], stored.get("outside", {}))
        if stored["failed"]:
            return cls(spec, math.nan, failed=checked(str, stored["failed"]), outside=outside)
        images = checked(_Images, stored["images"])
        rows = checked(_Rows, stored["matrices"][f"{spec.accuracy}_val"])
        val, weights = decode_matrix(rows), validation_weights(spec, images)
        if val.shape != (len(images), len(weights)) or not sum(weights):
            raise ValueError(f"accuracies of shape {val.shape} for {counted(len(images), 'task')}")
        validated = score(val, weights, spec.task_aware)
        written = checked(dict[str, float | None], stored["metrics"])
        test = decode_matrix(checked(_Rows, stored["matrices"][spec.accuracy]))
        if test.shape != (len(images), len(column_sizes(images))):
            raise ValueError(f"accuracies of shape {test.shape} for {counted(len(images), 'task')}")
        metrics = checked_summary(test, column_sizes(images), written)
        if not (math.isfinite(validated) and 0 <= metrics[main_metric(spec.task_aware)] <= 1):
            raise ValueError("an accuracy is missing")
        seconds, numerics = checked(_Seconds, stored["seconds"]), stored["numerics"]
        counts = checked(tuple[ParameterCount, ...], stored.get("parameters", ()))
        versions = checked(dict[str, Any], numerics)
        made = cls(spec, validated, metrics, images, seconds, versions, counts)
        return replace(made, outside=outside)


class ResultFolder:
    """One small JSON file per run. A run is done when its file holds the hash of its spec.

    It also holds the hashes of your own code, weights and images that decided the run. Where one
    of them is another now, the run is to be computed again.

    Args:
        path: The folder; it need not exist.
        overwrite: Whether files of these names that ancl did not write are replaced.
        root: Where data is; see ``ancl.data.data_root``.

    Raises:
        StoreError: It is there, and is not a folder.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, root: Path | None = None) -> None:
        if os.path.lexists(path) and not path.is_dir():
            raise StoreError(f"{path} is not a folder. Give one for results: --results DIR.")
        self.path, self._overwrite, self._root = path, overwrite, root
        self._read: dict[str, StudyRun] = {}
        self._now: dict[str, Digests] = {}
        self._outdated: dict[str, set[str]] = {}

    @property
    def changes(self) -> tuple[str, ...]:
        """What has changed, so that results of it are not taken."""
        return tuple(
            f"{why}. Its runs in {self.path} are not taken, and have to be computed again."
            for why, marks in self._outdated.items()
            if marks
        )

    def get(self, spec: RunSpec) -> StudyRun | None:
        """The run of a spec, if it is done.

        Raises:
            StoreError: Its file is damaged.
        """
        mark = spec_hash(spec)
        file = self.file(spec)
        if mark not in self._read and os.path.lexists(file):
            if self._overwrite and not carries_mark(file):
                return None
            try:
                stored = read_json(file)
                if not isinstance(stored, dict):
                    raise ValueError("JSON of another shape")
                # What older arithmetic of this package gave is not a result of this study.
                older = not stored["failed"] and stored["numerics"]["ancl"] != NUMERICS
                if stored["hash"] != mark or older:
                    return None
                run = StudyRun.read(spec, stored)
            except _DAMAGE as error:
                why = printable(f"{type(error).__name__}: {error}", 200)
                raise StoreError(
                    f"{file} is damaged ({why}). Delete it to run it again. If it is not of a "
                    f"study, move it, or replace it: overwrite=True (--overwrite)."
                ) from error
            if why := self._outdated_by(run):
                self._outdated.setdefault(why, set()).add(mark)
                return None
            self._read[mark] = run
        return self._read.get(mark)

    def _outdated_by(self, run: StudyRun) -> str:
        """What from outside is not what it was when a run was computed; empty where all is."""
        now = self._outside(run.spec)
        for setting in sorted(now.keys() | run.outside.keys()):
            was, part = run.outside.get(setting), part_name(run.spec, setting)
            if was is None:
                return f"{part}: no hash of it was kept with its results"
            if now.get(setting) != was:
                more = was.startswith(UNKNOWN)
                return f"{part} {'may depend on more than its code' if more else 'has changed'}"
        return ""

    def _outside(self, spec: RunSpec) -> Digests:
        """The hashes of now, found once: a study is computed from one state of all of them."""
        names = self._names(spec)
        if names not in self._now:
            self._now[names] = outside_digests(spec, self._root)
        return self._now[names]

    def save(self, result: Mapping[str, Any]) -> None:
        """Keep a finished run, given as in ``result.json``."""
        spec, outside = RunSpec.model_validate(result["spec"]), result["outside"]
        names = ("metrics", "images", "matrices", "numerics", "parameters")
        fields = {name: result[name] for name in names}
        seconds = round(sum(result["seconds"].values()), 1)
        self._write(spec, {"failed": "", "seconds": seconds, **fields}, outside)

    def fail(self, spec: RunSpec, reason: str, outside: Digests) -> None:
        """Keep that a run failed, so that it is not tried again with the same parts."""
        self._write(spec, {"failed": reason or "unknown"}, outside)

    def _write(self, spec: RunSpec, content: Mapping[str, Any], outside: Digests) -> None:
        stored: dict[str, Any] = {"format": f"run of a study, {MARK}", "hash": spec_hash(spec)}
        stored |= {"spec": spec.plain(), **content, **({"outside": outside} if outside else {})}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in stored.items()]
        file = self.file(spec)
        claim(self.path, [file.name], [file.name], overwrite=self._overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_text(file, "{" + ",\n".join(lines) + "}\n")
        except OSError as error:
            raise StoreError(f"{file} cannot be written ({error.strerror}). Make room.") from error
        for marks in self._outdated.values():
            marks.discard(spec_hash(spec))
        self._check_same(spec, outside)

    def _check_same(self, spec: RunSpec, outside: Digests) -> None:
        """Refuse to go on where a part was changed in the middle of a study."""
        names = self._names(spec)
        begun = self._now.setdefault(names, outside)
        changed = [part_name(spec, s) for s in outside if outside[s] != begun.get(s)]
        if changed:
            raise SpecError(
                f"{' and '.join(changed)} changed while the study ran, and runs of both are not "
                f"mixed. Run the same command again: what is computed already is kept."
            )

    @staticmethod
    def _names(spec: RunSpec) -> str:
        """All that a spec names from outside."""
        data, network = spec.data, spec.network
        named = [spec.method, network["name"], network.get("weights"), data.source, data.augment]
        named += [spec.training.optimizer, spec.auxiliary.optimizer]
        return json.dumps(named)

    def file(self, spec: RunSpec) -> Path:
        """Where the result of a run is, or will be."""
        return self.path / f"{run_directory(Path(), spec).name}.json"


# -- what a study asks for ------------------------------------------------------------------

Get = Callable[[RunSpec], StudyRun | None]
"""The run of a spec, if it is done."""
Batch = tuple[str, str]
"""A benchmark, and the method or row whose runs are carried out together."""


def study_specs(
    method: str,
    benchmark: str,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
    among: Sequence[str] = (),
) -> list[RunSpec]:
    """Runs of a study: on the CPU with one thread unless the benchmark or the file says otherwise.

    Neither depends on the machine, so that a spec has the same hash everywhere.
    """
    request = make_request(None, benchmark, {**fixed_settings(benchmark), **settings}, seeds)
    return resolve_methods(request, [method], among)


def fixed_settings(benchmark: str) -> dict[str, Any]:
    """Where runs of a study are computed, unless its file says otherwise."""
    known = BENCHMARKS[benchmark].settings if benchmark in BENCHMARKS else {}
    return {"threads": known.get("threads", 1), "device": "cpu"}


class Runs:
    """The runs that a study asks for: those that are done, and those that can be carried out now.

    Args:
        get: The run of a spec, if it is done.
        specs: Specs by what they are made from; those made now are added.
    """

    def __init__(self, get: Get, specs: dict[str, list[RunSpec]] | None = None) -> None:
        self._get, self._specs = get, {} if specs is None else specs
        self.done: dict[Batch, dict[str, StudyRun]] = {}
        self.todo: dict[Batch, dict[str, RunSpec]] = {}

    def specs(
        self,
        method: str,
        benchmark: str,
        settings: Mapping[str, Any],
        seeds: Sequence[int],
        among: Sequence[str] = (),
    ) -> list[RunSpec]:
        """As ``study_specs``; the same ones are made once."""
        made_from = json.dumps([method, benchmark, settings, seeds, among], default=repr)
        if made_from not in self._specs:
            self._specs[made_from] = study_specs(method, benchmark, settings, seeds, among)
        return self._specs[made_from]

    def take(self, batch: Batch, specs: Sequence[RunSpec]) -> tuple[StudyRun, ...] | None:
        """The runs of specs; nothing while one of them is missing."""
        runs: list[StudyRun] = []
        for spec in specs:
            # Two rows may be the same run: an equal search's best λ may be the first one's.
            if run := self._get(spec):
                self.done.setdefault(batch, {})[spec_hash(spec)] = run
                runs.append(run)
            else:
                self.todo.setdefault(batch, {})[spec_hash(spec)] = spec
        return tuple(runs) if len(runs) == len(specs) else None
