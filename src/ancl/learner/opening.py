"""A learner opened again: a saved one, or a finished run."""

import math
from functools import partial
from pathlib import Path

import torch

from ancl.data import Augment
from ancl.errors import StoreError
from ancl.experiments.read_results import read_run
from ancl.experiments.results import Places, RunResult
from ancl.files import STAGES
from ancl.learner.card import Measured
from ancl.learner.form import Form
from ancl.learner.learner import Learner
from ancl.learner.loading import Learned, explained, restored
from ancl.learner.lock import is_saved, tidy
from ancl.learner.moves import moves_of_run
from ancl.learner.supplied_code import SuppliedCode
from ancl.memory import Memory, RunMemory
from ancl.methods.method import Method
from ancl.metrics import learned_after
from ancl.recipe.build import affordable, make_setting
from ancl.recipe.recipe import GENERAL, Recipe
from ancl.stages.events import Events
from ancl.stages.final_state import FinalState
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
    version: int | None = None,
) -> Learner:
    """Open a saved learner or a finished run: see ``Learner.load`` and ``load_run``.

    Raises:
        StoreError: The directory is neither.
    """
    path = Path(directory)
    if not is_run(path) and not is_saved(path):
        there = (
            "is neither a finished run nor a saved learner" if path.exists() else "does not exist"
        )
        raise StoreError(
            f"{path} {there}. Give the directory of a run (ancl run), or of a learner "
            f"(ancl learn, Learner.save)."
        )
    if not is_run(path):
        tidy(path, (events or Events()).say)
    if is_run(path) and version is not None:
        raise StoreError(f"{path} is a run, which has no versions. Leave out the version.")
    opened = load_run if is_run(path) else partial(Learner.load, version=version)
    return opened(
        path,
        method=method,
        network=network,
        augment=augment,
        accept_changed=accept_changed,
        store=store,
        device=device,
        events=events,
    )


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
    path = Path(directory)
    result = read_run(path)
    spec, state = result.spec, result.state
    if state is None:
        raise StoreError(
            f"{path} cannot be opened: its result.json does not say what was learned. Its stages "
            f"were not stored, or an earlier version wrote it. Run it again: {_again(path)}"
        )
    at = Places.of(path.absolute().parent, store).store
    supplied = SuppliedCode(path, "ancl.load_run", method, network, augment, accept_changed)
    remedy = f"Run it again: {_again(path)}"
    with explained(path, remedy):
        recipe, changes = supplied.recipe(spec.shared(), state)
        recipe = _with_memory(recipe, spec.memory, state)
        entries, measured = _stored(state, at, path), _measured(result)
        moves = moves_of_run(result.drifts) if result.drifts else ()
        learned = Learned(recipe, state, entries, measured, changes, moves=moves, remedy=remedy)
    return restored(Learner, learned, path, device=device, store=at, verbose=verbose, events=events)


def _with_memory(recipe: Recipe, memory: RunMemory, state: FinalState) -> Recipe:
    """A run's recipe with the memory that it had in the end, where weights took room from it."""
    if not memory.fair:
        return recipe
    device = torch.device("cpu")
    setting = make_setting(recipe, recipe.make_method(), state.input_shape, None, device)
    sizes = [len(task.names) for task in state.tasks]
    image_bytes = Form(state.input_shape, state.pixels).image_bytes
    left = affordable(memory, setting.architecture, sizes, image_bytes)
    fields = ("per_class", "total", "selection", "batch")
    plain = Memory(*(getattr(left, name) for name in fields)) if left else Memory()
    return recipe.model_copy(update={"memory": plain})


def _measured(result: RunResult) -> tuple[Measured, ...]:
    """The rows of the matrix that counts."""
    rows, begins = result.counted.tolist(), learned_after(result.counted)
    shares = [[None if math.isnan(share) else share for share in row] for row in rows]
    counts = [sum(begin <= number for begin in begins) for number in range(len(rows))]
    return tuple(
        Measured("test images of the run", tuple(row[:count]))
        for row, count in zip(shares, counts, strict=True)
    )


def _stored(state: FinalState, root: Path, path: Path) -> dict[str, StageResult]:
    """The entries of a state.

    Raises:
        StoreError: One of them is missing or damaged.
    """
    store, problems = Store(root, lambda message: None), []
    entries: dict[str, StageResult] = {}
    for part, key in state.keys.items():
        entry = store.load(key)
        if entry is None:
            problems.append(f"{part} ({key[:12]}, {'damaged' if store.has(key) else 'missing'})")
        else:
            entries[part] = entry
    if problems:
        raise StoreError(
            f"The store {root} does not hold what {path} left behind: {', '.join(problems)}. Give "
            f"another directory with store=, or compute it again: {_again(path)} --store {root}"
        )
    return entries


def _again(path: Path) -> str:
    """The command that completes a run's results and its store."""
    return f"ancl run --config {path / 'spec.yaml'} --runs {path.parent}"
