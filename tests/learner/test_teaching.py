"""Teaching a learner on disk: begun, stopped, resumed, finished twice, and never lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ancl
from ancl import AnclError, Events, Learner, SpecError, StoreError
from tests.lab import digits, labelled_part

SETTINGS = {
    "training.epochs": 3,
    "training.batch_size": 32,
    "network.hidden": [16],
    "memory.per_class": 4,
}


@pytest.fixture
def photos(tmp_path: Path, write_digits: Callable[..., str]) -> tuple[str, str]:
    first = {"zero": 0, "one": 1, "two": 2}
    return write_digits(tmp_path / "photos", first), write_digits(tmp_path / "new", {"three": 3})


def begin(place: Path, data: str, **options: Any) -> ancl.LearnOutcome:
    given = {"method": "icarl", "network": "mlp", "settings": SETTINGS, "events": Events()}
    return ancl.teach(place, data, **{**given, **options})


def scores(place: Path) -> torch.Tensor:
    return Learner.load(place, events=Events()).scores(digits().test.x)


class Stop(Events):
    """Stops at an epoch, counted over all trainings."""

    def __init__(self, at: int) -> None:
        self.left = at

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_what_was_stopped_is_resumed_to_the_same_bits(
    photos: tuple[str, str], tmp_path: Path
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    begin(whole, photos[0])
    ancl.teach(whole, photos[1], events=Events())

    with pytest.raises(KeyboardInterrupt):
        begin(stopped, photos[0], events=Stop(2))
    assert not stopped.exists()
    assert (tmp_path / ".stopped.learning").is_dir()
    begin(stopped, photos[0])
    before = scores(stopped)
    with pytest.raises(KeyboardInterrupt):
        ancl.teach(stopped, photos[1], events=Stop(2))
    assert torch.equal(scores(stopped), before)
    resumed = Count()
    ancl.teach(stopped, photos[1], events=resumed)

    assert resumed.epochs == 2  # of three: the first one was stored
    assert torch.equal(scores(stopped), scores(whole))
    assert Learner.load(stopped).tasks == [["one", "two", "zero"], ["three"]]
    assert not (tmp_path / ".stopped.learning").exists()


class Count(Events):
    """Counts the epochs."""

    epochs = 0

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1


def test_what_was_finished_is_not_done_again(photos: tuple[str, str], tmp_path: Path) -> None:
    place = tmp_path / "mine"
    assert not begin(place, photos[0]).found
    counted = Count()

    assert begin(place, photos[0], events=counted).found
    ancl.teach(place, photos[1], output=tmp_path / "later", events=Events())
    assert ancl.teach(place, photos[1], output=tmp_path / "later", events=counted).found

    assert counted.epochs == 0
    assert Learner.load(place).tasks == [["one", "two", "zero"]]
    assert Learner.load(tmp_path / "later").classes == ["one", "two", "zero", "three"]


def test_a_run_learns_on_elsewhere_and_stays_as_it_is(
    photos: tuple[str, str], tmp_path: Path
) -> None:
    settings = {"data.tasks": 1, "data.source": photos[0], "data.scenario": "cil", **SETTINGS}
    spec = ancl.spec("icarl", settings={**settings, "network.name": "mlp", "threads": 1})
    ancl.run(spec, runs=tmp_path / "runs")
    (run,) = (tmp_path / "runs").glob("folder*")
    files = {path: path.read_bytes() for path in run.iterdir()}

    with pytest.raises(StoreError, match="is a run, which stays as it is"):
        ancl.teach(run, photos[1])
    taught = ancl.teach(run, photos[1], output=tmp_path / "on", events=Events())

    expected = ancl.load_run(run, events=Events())
    x, y = labelled_part(photos[1], "train")
    expected.learn(x, y)
    assert torch.equal(scores(tmp_path / "on"), expected.scores(digits().test.x))
    assert taught.learner.tasks == [["one", "two", "zero"], ["three"]]
    assert {path: path.read_bytes() for path in run.iterdir()} == files


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        (lambda at, data: ancl.teach(at / "none", data, method=""), SpecError, "no method ''"),
        (
            lambda at, data: begin(at / "none", data, method="icral"),
            SpecError,
            "Did you mean 'icarl'",
        ),
        (
            lambda at, data: begin(at / "none", data, settings={"training.epoch": 3}),
            SpecError,
            "Did you mean 'epochs'",
        ),
        (
            lambda at, data: begin(at / "none", data, settings={"data.tasks": 3}),
            SpecError,
            "data.tasks: a learner learns all images",
        ),
        (
            lambda at, data: ancl.teach(at / "mine", data, settings={"training.epochs": 3}),
            SpecError,
            "training.epochs: .*mine keeps the settings",
        ),
        (lambda at, data: ancl.teach(at / "photos", data), StoreError, "neither a saved learner"),
        (
            lambda at, data: ancl.teach(at / "mine", "folder:nowhere"),
            AnclError,
            "There is no folder nowhere",
        ),
        (
            lambda at, data: begin(at / "x", data, output=at / "mine"),
            StoreError,
            "holds another learner",
        ),
    ],
)
def test_what_cannot_be_is_said_before_training(
    wrong: Callable[[Path, str], object],
    kind: type[AnclError],
    said: str,
    photos: tuple[str, str],
    tmp_path: Path,
) -> None:
    begin(tmp_path / "mine", photos[0])
    before = sorted(path.name for path in tmp_path.iterdir())

    with pytest.raises(kind, match=said):
        wrong(tmp_path, photos[1])

    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_domains_are_learned_from_folders_too(
    photos: tuple[str, str], tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    again = write_digits(tmp_path / "again", {"zero": 0, "one": 1, "two": 2}, part="test")
    settings = {**SETTINGS, "data.scenario": "dil"}
    del settings["memory.per_class"]

    begin(tmp_path / "mine", photos[0], method="lwf", settings=settings)
    taught = ancl.teach(tmp_path / "mine", again, events=Events())

    assert taught.learner.scenario == "dil"
    assert taught.learner.tasks == [["one", "two", "zero"]] * 2


def test_a_store_that_is_named_is_kept(photos: tuple[str, str], tmp_path: Path) -> None:
    begin(tmp_path / "mine", photos[0], store=tmp_path / "store")

    assert {info.stage for info in ancl.Store(tmp_path / "store").entries()} >= {"main", "memory"}
    assert not (tmp_path / ".mine.learning").exists()


def test_a_strangers_file_beside_the_learner_is_not_removed(
    photos: tuple[str, str], tmp_path: Path
) -> None:
    stranger = tmp_path / ".mine.learning" / "entries" / "notes.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")

    begin(tmp_path / "mine", photos[0])

    assert stranger.read_text() == "mine"
    assert not (tmp_path / ".mine.learning" / "locks").exists()
