"""Specs carried out one after the other, sharing a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ancl.cli.progress import Progress
from ancl.errors import StoreError
from ancl.experiments.build import (
    Experiment,
    RunResult,
    build,
    run_directory,
    run_experiment,
    spec_yaml,
    threads,
    write_run,
)
from ancl.experiments.results import Places
from ancl.experiments.spec import RunSpec
from ancl.store.store import Store


class Finished(NamedTuple):
    """A run's result and where it was written."""

    directory: Path
    result: RunResult


def run_all(specs: Sequence[RunSpec], places: Places, progress: Progress) -> list[Finished]:
    """Carry out every spec; what they have in common is computed once."""
    store = Store(places.store, progress.say)
    store.check()
    finished, warned = [], set()
    with progress:
        for spec in specs:
            with threads(spec.threads):
                experiment = build(spec, places.data)
                if spec.method not in warned and collapses(experiment):
                    warned.add(spec.method)
                    progress.say(COLLAPSE.format(method=spec.method))
                directory = run_directory(places.runs, spec)
                prepare(directory, spec)
                progress.begin(experiment, [s for s in experiment.stages if not store.has(s.key)])
                result = run_experiment(experiment, store, progress)
            write_run(directory, result)
            progress.end(result)
            finished.append(Finished(directory, result))
    return finished


COLLAPSE = (
    "Warning: {method} keeps no images of earlier tasks. In class-incremental learning the network "
    "is then expected to collapse to the newest task's classes."
)


def collapses(experiment: Experiment) -> bool:
    """Whether the newest task's classes are expected to be all that is left."""
    kept = experiment.setting.memory is not None or experiment.method.data == "all"
    return experiment.stream.scenario == "cil" and not kept


def prepare(directory: Path, spec: RunSpec) -> None:
    """Write the spec before training: a bad directory is found, and a stopped run is known."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "spec.yaml").write_text(spec_yaml(spec))
    except OSError as error:
        raise StoreError(
            f"Results cannot be written to {directory} ({error.strerror}). Choose a directory that "
            f"you may write to with --runs DIR."
        ) from error
