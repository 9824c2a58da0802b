"""A learner from what is on disk, or from the settings of a run."""

import math
from pathlib import Path

from ancl.data import Augment
from ancl.errors import StoreError
from ancl.experiments.read_results import read_run
from ancl.experiments.results import Places, RunResult
from ancl.experiments.spec import GENERAL, RunSpec
from ancl.experiments.state import FinalState
from ancl.files import STAGES
from ancl.learner.card import Measured
from ancl.learner.config import Given, config_of_spec
from ancl.learner.learner import Learner
from ancl.learner.place import is_saved, tidy
from ancl.learner.saved import explained
from ancl.methods.method import Method
from ancl.metrics import learned_after
from ancl.stages.events import Events
from ancl.store.entry import StageResult
from ancl.store.store import Store


def is_run(place: Path) -> bool:
    """Whether a directory is that of a run, finished or not."""
    return (place / STAGES).is_file() and (place / "spec.yaml").is_file()


def open_learner(
    directory: str | Path,
    *,
    method: str | Method | None = None,
    network: str | None = None,
    augment: Augment | None = None,
    accept_changed: bool = False,
    store: str | Path | None = None,
    device: str = GENERAL["device"].default,
    events: Events | None = None,
) -> Learner:
    """Open a saved learner or a finished run: see ``Learner.load`` and ``load_run``.

    Raises:
        StoreError: The directory is neither.
    """
    place = Path(directory)
    if not is_run(place) and not is_saved(place):
        there = (
            "is neither a finished run nor a saved learner" if place.exists() else "does not exist"
        )
        raise StoreError(
            f"{place} {there}. Give the directory of a run (ancl run), or of a learner "
            f"(ancl learn, Learner.save)."
        )
    if not is_run(place):
        tidy(place, (events or Events()).say)
    opened = load_run if is_run(place) else Learner.load
    return opened(
        place,
        method=method,
        network=network,
        augment=augment,
        accept_changed=accept_changed,
        store=store,
        device=device,
        events=events,
    )


def learner_of(
    spec: RunSpec,
    *,
    store: str | Path | None = None,
    device: str = GENERAL["device"].default,
    events: Events | None = None,
) -> Learner:
    """A new learner with the settings of a run; those of its data are ignored."""
    given = Given(Path(), "ancl.spec", spec.method, str(spec.network["name"]), spec.data.augment)
    learner = Learner.__new__(Learner)
    learner._begin(config_of_spec(spec, given, None), device, store, events, None)
    return learner


def load_run(
    directory: str | Path,
    *,
    store: str | Path | None = None,
    method: str | Method | None = None,
    network: str | None = None,
    augment: Augment | None = None,
    accept_changed: bool = False,
    device: str = GENERAL["device"].default,
    verbose: bool | None = None,
    events: Events | None = None,
) -> Learner:
    """Open a finished run as a learner that predicts, evaluates, saves and learns more.

    Its labels are the names of the classes in the run's data. No data is read.

    Args:
        directory: The directory of the run, as ``run`` and ``ancl run`` write it.
        store: The store that holds its stages, and keeps what is learned later; by default
            ``.store`` beside the run.
        method: The method again, where the run has one from outside the package: a ``Method``,
            or ``path/file.py:NAME``. It is compared with the run's.
        network: The same for the network: ``path/file.py:NAME`` or ``package.module:NAME``.
        augment: The same for the augmentation: a function, or ``path/file.py:NAME``.
        accept_changed: Whether they may differ from those of the run; it is recorded in
            ``accepted_changes`` of the learner, and saved with it.
        device: ``auto``, ``cpu``, ``cuda`` …
        verbose: Whether progress is shown while learning; left out, a bar on a terminal.
        events: Receives every stage and epoch, and all warnings.

    Raises:
        StoreError: The directory is not a finished run, or the store lacks what it left behind.
        SpecError: The network is from outside, and is not given or not the same.
        MethodError: The same for the method.
    """
    place = Path(directory)
    result = read_run(place)
    spec, state = result.spec, result.state
    if state is None:
        raise StoreError(
            f"{place} cannot be opened: its result.json does not say what was learned. Its stages "
            f"were not stored, or an earlier version wrote it. Run it again: {_again(place)}"
        )
    at = Places.of(place.absolute().parent, store).store
    given = Given(place, "ancl.load_run", method, network, augment, accept_changed)
    with explained(place, f"Run it again: {_again(place)}"):
        config = config_of_spec(spec, given, state)
        named = str(spec.network["name"]), spec.data.augment
        changes = config.check_given(given, state, *named)
        learner = Learner.__new__(Learner)
        learner._begin(config, device, at, events, verbose)
        learner._accept(changes)
        learner._continue_from(state, _stored(state, at, place))
        learner._measured = _measured(result)
    return learner


def _measured(result: RunResult) -> tuple[Measured, ...]:
    """The rows of the matrix that counts."""
    rows, begins = result.counted.tolist(), learned_after(result.counted)
    shares = [[None if math.isnan(share) else share for share in row] for row in rows]
    counts = [sum(begin <= number for begin in begins) for number in range(len(rows))]
    return tuple(
        Measured("test images of the run", tuple(row[:count]))
        for row, count in zip(shares, counts, strict=True)
    )


def _stored(state: FinalState, root: Path, place: Path) -> dict[str, StageResult]:
    """The entries of a state.

    Raises:
        StoreError: One of them is missing or damaged.
    """
    store, problems = Store(root, lambda message: None), []
    found: dict[str, StageResult] = {}
    for part, key in state.keys.items():
        entry = store.load(key)
        if entry is None:
            problems.append(f"{part} ({key[:12]}, {'damaged' if store.has(key) else 'missing'})")
        else:
            found[part] = entry
    if problems:
        raise StoreError(
            f"The store {root} does not hold what {place} left behind: {', '.join(problems)}. Give "
            f"another directory with store=, or compute it again: {_again(place)} --store {root}"
        )
    return found


def _again(place: Path) -> str:
    """The command that completes a run's results and its store."""
    return f"ancl run --config {place / 'spec.yaml'} --runs {place.parent}"
