"""What studies of every kind share: a file, a folder of results, and how what is missing is run."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from ancl.errors import counted
from ancl.executors import ExecutorChoice
from ancl.executors.graph import Graph
from ancl.experiments.benchmarks import BENCHMARKS
from ancl.experiments.results import Places, spec_hash
from ancl.experiments.run import failures_message, run_all
from ancl.experiments.search_two_stage import passes, seconds_an_image
from ancl.experiments.settings import make_request, resolve_methods
from ancl.experiments.spec import RunSpec
from ancl.experiments.study_results import ResultFolder
from ancl.stages.events import Events, Forward

Result = TypeVar("Result")


class Forecast(NamedTuple):
    """What is left of a study, supposing that no search ends at an edge.

    Args:
        runs: The number of runs of each method, references together, and of these to do.
        seconds: About how long they take one by one, from a few timed steps.
    """

    runs: dict[str, tuple[int, int]]
    seconds: float


class StudyFile(ABC, Generic[Result]):
    """A study that is checked and can be forecast, carried out and read.

    Args:
        path: Its file.
        results: The folder of its results; by default ``results`` beside the file.
        overwrite: Whether results replace files in their way that ancl did not write.
        root: Where data is; see ``ancl.data.data_root``.

    Raises:
        SpecError: All mistakes, each on its own line.
        StoreError: A file that ancl did not write is in the way of a result.
    """

    def __init__(
        self,
        path: Path,
        results: Path | None = None,
        *,
        overwrite: bool = False,
        root: Path | None = None,
    ) -> None:
        self._root, place = root, results or path.parent / "results"
        self.folder = ResultFolder(place, overwrite=overwrite, root=root)
        self._open(path)

    @abstractmethod
    def _open(self, path: Path) -> None:
        """Read the file and find all mistakes in it."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Which results that were read are computed again, and what has changed, as sentences."""
        return self.folder.changes

    @abstractmethod
    def result(self) -> Result:
        """What the finished runs say."""

    @abstractmethod
    def _batches(self) -> Iterator[tuple[str, list[RunSpec]]]:
        """What can be run now, and what it is called. Each is run before the next is asked for."""

    @abstractmethod
    def _supposed(self, root: Path | None) -> Iterator[dict[str, list[RunSpec]]]:
        """Every run of each benchmark, by what a forecast calls it; what is not decided made up."""

    def run(
        self, places: Places, choice: ExecutorChoice | None = None, events: Events | None = None
    ) -> Result:
        """Run all that can be run."""
        events = events or Events()
        self.result()  # reads what there is
        for change in self.changes:
            events.say(change)
        for name, todo in self._batches():
            events.note(f"{name}: {counted(len(todo), 'run')} to do now.")
            compute_runs(todo, self.folder, places, choice, events)
        return self.result()

    def forecast(self, root: Path | None = None) -> Forecast:
        """How many runs there are, and about how long those to do take; a few steps are timed."""
        runs: dict[str, tuple[int, int]] = {}
        seconds = 0.0
        for found in self._supposed(root):
            todo: list[RunSpec] = []
            for name, specs in found.items():
                own = [spec for spec in specs if self.folder.get(spec) is None]
                runs[name] = (len(specs), len(own))
                todo += own
            if todo:
                graph = Graph(todo, root)
                speed, images = seconds_an_image(todo[0], root), graph.plans[0].sizes
                seconds += sum(speed * passes(node, images) for node in graph.nodes.values())
        return Forecast(runs, seconds)


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
    known = BENCHMARKS[benchmark].settings if benchmark in BENCHMARKS else {}
    where = {"threads": known.get("threads", 1), "device": "cpu"}
    request = make_request(None, benchmark, {**where, **settings}, seeds)
    return resolve_methods(request, [method], among)


def compute_runs(
    todo: Sequence[RunSpec],
    folder: ResultFolder,
    places: Places,
    choice: ExecutorChoice | None,
    events: Events,
) -> None:
    """Compute runs; each is kept as soon as it ends, also one that failed."""
    outcome = run_all(list(todo), places, choice, _Saver(folder, events))
    for spec in todo:
        if folder.get(spec) is None:
            own = [each for each in outcome.failures if each.node.spec == spec]
            why = failures_message(own or outcome.failures)
            folder.fail(spec, why, outcome.outside[spec_hash(spec)])


class _Saver(Forward):
    """Keeps every run as soon as it ends."""

    def __init__(self, folder: ResultFolder, events: Events) -> None:
        super().__init__(events)
        self._folder = folder

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        """Keep it, then pass it on."""
        self._folder.save(result)
        super().run_ends(directory, result)
