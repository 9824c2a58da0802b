"""Forgetting, renaming, merging: exact where it can be, and gone from every byte on the disk."""

import gzip
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import ancl
from ancl import (
    Events,
    Learner,
    Memory,
    ScenarioError,
    SpecError,
    StoreError,
    forget,
    merge_classes,
    rename,
)
from tests.lab import (
    Note,
    Samples,
    Statistics,
    claimed,
    list_caches,
    patch_part,
    read_versions,
    save_version,
    strip_prefix,
)
from tests.saved_learners import write_header

VECTORS = torch.randn(240, 12, generator=torch.Generator().manual_seed(3))
LABELS = [f"class {number % 6}" for number in range(240)]
for _place in range(240):
    VECTORS[_place, _place % 6] += 3
MONTHS = (range(0, 100), range(100, 170), range(170, 240))
COMPUTED = ("auto", "ncm", "slda", "ridge", "logistic", "knn", "ranpac")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def taught(
    method: str = "auto",
    without: Sequence[int] = (),
    merged: dict[str, str] | None = None,
    **given: Any,
) -> Learner:
    """A learner of three months: two of the classes come later, and others come again."""
    made = Learner(method, "features", grid=11, **given)
    for number, month in enumerate(MONTHS):
        chosen = [n for n in month if n not in without and (number or n % 6 < 4)]
        names = [LABELS[n] for n in chosen]
        names = [(merged or {}).get(name, name) for name in names]
        if chosen:
            made.learn(VECTORS[chosen], names, ids=[f"photo {n}.jpg" for n in chosen])
    return made


def assert_same(one: Learner, other: Learner) -> None:
    """The same state to the bit, the same tasks, and the same answers with probabilities."""
    first, second = one._entries(), other._entries()
    assert first.keys() == second.keys()
    for part in first:
        assert first[part].tensors.keys() == second[part].tensors.keys()
        for name, tensor in first[part].tensors.items():
            assert torch.equal(tensor, second[part].tensors[name]), f"{part}/{name}"
    assert (one.classes, one.tasks, one.returning) == (other.classes, other.tasks, other.returning)
    facts = [[(t.sizes, t.counts, t.present) for t in each._tasks] for each in (one, other)]
    assert facts[0] == facts[1]
    assert one.choice == other.choice
    assert one.calibration() == other.calibration()
    assert torch.equal(one.predict_proba(VECTORS), other.predict_proba(VECTORS))
    assert [(i.id, i.sha256, i.task, i.label) for i in one.images] == [
        (i.id, i.sha256, i.task, i.label) for i in other.images
    ]


# -- exact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", COMPUTED)
def test_images_are_forgotten_to_the_bit(method: str) -> None:
    made, out = taught(method), [0, 1, 50, 99, 120, 200]

    report = made.forget(VECTORS[out[:5]])
    made.forget(ids=["photo 200.jpg"])

    assert (report.images, report.exact, report.classes) == (5, True, ())
    assert_same(made, taught(method, out))


@pytest.mark.parametrize("method", COMPUTED)
def test_a_class_is_forgotten_to_the_bit(method: str) -> None:
    made = taught(method)

    report = made.forget(classes=["class 1"])

    assert report.classes == ("class 1",)
    assert_same(made, taught(method, [n for n in range(240) if n % 6 == 1]))


@pytest.mark.parametrize("method", COMPUTED)
def test_merged_classes_are_those_learned_so_from_the_start(method: str) -> None:
    made = taught(method)

    made.merge_classes(["class 1", "class 4"], into="a new name")

    merged = dict.fromkeys(["class 1", "class 4"], "a new name")
    assert_same(made, taught(method, merged=merged))


@pytest.mark.parametrize("method", ["auto", "knn", "lwf"])
def test_renamed_classes_have_the_same_answers(method: str) -> None:
    made = taught(method) if method != "lwf" else trained("lwf")
    images = VECTORS if method != "lwf" else PIXELS
    before, sure = made.predict(images), made.predict_proba(images)
    old, other = made.classes[1], made.classes[2]

    report = made.rename({old: other, other: old})

    swap = {old: other, other: old}
    assert made.predict(images) == [swap.get(label, label) for label in before]
    assert torch.equal(made.predict_proba(images), sure)
    assert report.classes == (old, other)


def test_a_class_that_came_again_is_new_where_it_is_left() -> None:
    # Its images of the first month are forgotten: it comes with the second month then.
    made, out = taught("slda"), [n for n in range(100) if n % 6 == 0]

    made.forget(VECTORS[out])

    assert "class 0" in made.tasks[1]
    assert_same(made, taught("slda", out))


def test_a_month_whose_images_are_all_forgotten_is_gone() -> None:
    made = taught("ridge")

    made.forget(VECTORS[100:170])

    assert len(made.tasks) == 2
    assert_same(made, taught("ridge", range(100, 170)))


@settings(max_examples=12, deadline=None)
@given(st.sets(st.integers(0, 239), min_size=1, max_size=60), st.randoms())
def test_any_images_in_any_order_leave_the_same_bits(out: set[int], random: Any) -> None:
    shown = {n for n in out if n >= 100 or n % 6 < 4}
    made, order = taught("slda"), sorted(shown)
    random.shuffle(order)

    for part in (order[::2], order[1::2]):
        if part:
            made.forget(VECTORS[part])

    assert_same(made, taught("slda", sorted(shown)))


@pytest.mark.parametrize("scenario", ["til", "dil"])
def test_in_other_scenarios_too(scenario: Any) -> None:
    def make(out: Sequence[int]) -> Learner:
        made = Learner("slda", "features", grid=11, scenario=scenario)
        for number, month in enumerate((range(0, 120), range(120, 240))):
            own = (0, 1, 2) if scenario == "dil" or number == 0 else (3, 4, 5)
            chosen = [n for n in month if n % 6 in own and n not in out]
            made.learn(VECTORS[chosen], [LABELS[n] for n in chosen])
        return made

    made, out = make([]), [0, 1, 6, 123, 129, 126]
    shown = [n for n in out if n < 120 or scenario == "dil" or n % 6 > 2]
    made.forget(VECTORS[[n for n in shown if n < 120 or n % 6 in (0, 1, 2, 3, 4, 5)]])
    never, known = make(out), made._entries()

    for part, entry in never._entries().items():
        assert all(torch.equal(t, known[part].tensors[n]) for n, t in entry.tensors.items())


def test_sums_need_the_images_again() -> None:
    made, out = taught("ridge", keep="sums"), [0, 1, 120]

    with pytest.raises(ScenarioError, match=r"keeps sums of features alone \(keep=sums\)"):
        made.forget(ids=["photo 0.jpg", "photo 1.jpg", "photo 120.jpg"])
    made.forget(VECTORS[out])

    assert_same(made, taught("ridge", out, keep="sums"))


def test_sums_count_an_image_as_often_as_it_came() -> None:
    made = taught("ridge", keep="sums")
    made.learn(VECTORS[[0, 1, 2, 3]], [LABELS[n] for n in (0, 1, 2, 3)])
    never = taught("ridge", [0], keep="sums")
    never.learn(VECTORS[[1, 2, 3]], [LABELS[n] for n in (1, 2, 3)])

    made.forget(VECTORS[:1])

    assert torch.equal(known(made).sums.gram, known(never).sums.gram)


def known(learner: Learner) -> Any:
    tensors = learner._entries()["statistics"].tensors
    return Statistics.read(strip_prefix("statistics", tensors))


# -- trained networks ------------------------------------------------------------------------------

PIXELS = torch.randint(0, 256, (160, 6, 6, 1), generator=torch.Generator().manual_seed(5))
PIXELS = PIXELS.to(torch.uint8)
NAMES = [f"kind {n % 4}" for n in range(160)]
for _n in range(160):
    PIXELS[_n, (_n % 4) : (_n % 4) + 2] //= 4


def trained(method: str = "icarl", **given: Any) -> Learner:
    settings = {"training": {"epochs": 2, "batch_size": 16}, "network_options": {"hidden": [16]}}
    if method in ("icarl", "gdumb", "bic", "der++"):
        given.setdefault("memory", Memory(per_class=6))
    made = Learner(method, "mlp", **settings, **given)
    for own in ((0, 1), (2, 3)):
        chosen = [n for n in range(160) if n % 4 in own]
        ids = [f"shot {n}.png" for n in chosen]
        made.learn(PIXELS[chosen], [NAMES[n] for n in chosen], ids=ids)
    return made


def in_memory(learner: Learner) -> list[int]:
    rows = {row.numpy().tobytes() for row in learner._exemplars().samples.x.dense()}
    return [n for n in range(160) if PIXELS[n].numpy().tobytes() in rows]


def test_every_kept_image_has_a_name_a_hash_and_a_month() -> None:
    made = trained()

    kept = [image for image in made.images if image.kept]

    assert {place for image in kept for place in image.kept} == {"memory", "held"}
    assert all(len(image.sha256) == 64 and image.id.startswith("shot ") for image in kept)
    assert {(image.label, image.task) for image in kept} == {
        *(("kind 0", 1), ("kind 1", 1), ("kind 2", 2), ("kind 3", 2))
    }
    assert {int(image.id[5:-4]) for image in kept if "memory" in image.kept} == {*in_memory(made)}


def test_a_trained_network_says_what_it_forgets_and_stores_it_no_more() -> None:
    made = trained()
    network, out = made._state["network"], in_memory(made)[0]

    report = made.forget(PIXELS[[out]])

    assert not report.exact
    assert "no longer stored; the network has learned from them" in report.meaning
    assert "--retrain" in report.meaning
    assert out not in in_memory(made)
    assert made._state["network"] == network
    assert f"shot {out}.png" not in {image.id for image in made.images}


def test_held_images_are_forgotten_too() -> None:
    made = trained("lwf")
    held = next(image for image in made.images if "held" in image.kept)

    made.forget(ids=[held.sha256[:12]])

    assert held.sha256 not in {image.sha256 for image in made.images}
    assert made.report().images == 15


def test_retraining_learns_from_what_is_kept_alone() -> None:
    made = trained()
    out = in_memory(made)[0]
    held = {image.sha256 for image in made.images if "held" in image.kept}

    report = made.forget(PIXELS[[out]], retrain=True)

    kept = {image.sha256: image for image in made.images}
    assert "trained again, from its beginning" in report.meaning
    assert {image.use for s, image in kept.items() if s in held} == {"validate"}
    assert len(kept) == 24 + 16 - 1
    again = trained()
    again.forget(PIXELS[[out]], retrain=True)
    assert torch.equal(made.scores(PIXELS), again.scores(PIXELS))
    assert made.predict(PIXELS)  # and it learns on
    made.learn(PIXELS[:20] // 2, ["kind 9", "kind 8"] * 10)


def test_a_saved_learner_finds_its_pretrained_weights_to_begin_anew(tmp_path: Path) -> None:
    made = Learner(
        "icarl",
        "efficientnet_lite0",
        size=32,
        network_options={"trains": "head"},
        training={"epochs": 1, "batch_size": 8, "schedule": "cosine"},
        memory=3,
        val_fraction=0,
        events=Events(),
    )
    made.learn(PIXELS[:16].repeat(1, 2, 2, 3), [NAMES[n][:5] + str(n % 2) for n in range(16)])
    made.save(tmp_path / "L")
    again = Learner.load(tmp_path / "L", events=Events())
    kept = next(image for image in again.images if image.kept)

    again.forget(ids=[kept.sha256], retrain=True)

    assert len(again.images) == 5
    assert again._final_state().pretrained == made._final_state().pretrained


def test_a_class_of_a_trained_network_needs_training() -> None:
    made = trained()

    with pytest.raises(ScenarioError, match="has trained an output for it"):
        made.forget(classes=["kind 1"])
    with pytest.raises(ScenarioError, match="cannot become one without training"):
        made.merge_classes(["kind 1", "kind 2"])
    made.forget(classes=["kind 3"], retrain=True)
    made.merge_classes(["kind 1", "kind 2"], into="both", retrain=True)

    assert made.classes == ["both", "kind 0"]
    assert set(made.predict(PIXELS)) <= {"both", "kind 0"}


def test_without_kept_images_nothing_is_trained_again() -> None:
    made = trained("lwf")
    before = made.scores(PIXELS)

    with pytest.raises(ScenarioError, match="keeps no images to train on"):
        made.forget(PIXELS[:1], retrain=True)

    assert torch.equal(made.scores(PIXELS), before)


def test_the_last_exemplar_of_a_class_is_not_taken_away() -> None:
    made = trained(memory=Memory(per_class=1))
    out = in_memory(made)[0]

    with pytest.raises(ScenarioError, match="The memory has no other images of"):
        made.forget(PIXELS[[out]])


def test_a_backbone_that_moved_forgets_approximately_and_says_so() -> None:
    made = trained("finetune", classifier="slda")
    report = made.forget(PIXELS[:1])

    assert not report.exact
    assert report.meaning.startswith("Approximate: ")
    assert known(made).moves == 1
    assert made.ledger
    assert all(entry.ids != ("shot 0.png",) for entry in made.ledger)


# -- what is refused -------------------------------------------------------------------------------


def test_what_was_forgotten_is_refused_until_it_is_allowed() -> None:
    made = taught()
    made.forget(ids=["photo 7.jpg"])

    with pytest.raises(ScenarioError, match=r"told to forget 1 image of these.*\nagain.jpg\n"):
        made.learn(VECTORS[6:9], LABELS[6:9], ids=["x", "again.jpg", "y"])
    again = made.forget(VECTORS[7:8])
    allowed = made.forget(VECTORS[7:8], allow_again=True)
    made.learn(VECTORS[6:9], LABELS[6:9])

    assert (again.images, allowed.images) == (0, 0)
    assert "may be learned again" in allowed.meaning


def test_a_wrong_label_is_repaired() -> None:
    made = taught()

    with pytest.raises(ScenarioError, match="forget the image"):
        made.learn(VECTORS[:2], ["class 5", "class 1"])
    made.forget(VECTORS[:1], allow_again=True)
    made.learn(VECTORS[:2], ["class 5", "class 1"])

    assert {e.label for e in made.ledger if "0" in e.ids} == {"class 5"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Say what is to be forgotten"),
        ({"classes": ["clas 1"]}, r"'clas 1' was never learned. Did you mean 'class \d'"),
        (
            {"ids": ["photo 7.jpeg"]},
            r"is called photo 7.jpeg. Did you mean 'photo",
        ),
        ({"images": VECTORS[:1] + 1}, "None of these images was learned"),
        ({"classes": [f"class {n}" for n in range(6)]}, "nothing would be left"),
        ({"classes": [f"class {n}" for n in range(5)]}, "Only the class 'class 5' would be left"),
    ],
)
def test_what_cannot_be_forgotten_changes_nothing(given: dict[str, Any], message: str) -> None:
    made, before = taught("ncm"), taught("ncm")

    with pytest.raises((ScenarioError, SpecError), match=message):
        made.forget(**given)

    assert_same(made, before)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"class 9": "x"}, "never learned"),
        ({"class 1": "class 2"}, "merge-classes"),
        ({"class 1": "class 1"}, "is the old one"),
        ({"class 1": " "}, "no name of a class"),
    ],
)
def test_names_that_cannot_be(names: dict[str, str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        taught("ncm").rename(names)


def test_classes_that_cannot_be_merged() -> None:
    made = taught("ncm")
    for classes, into, message in (
        (["class 1", "class 1"], None, "at least two"),
        (["class 1", "class 2"], "class 3", "is another class"),
        (made.classes, "one", "all classes"),
    ):
        with pytest.raises(ScenarioError, match=message):
            made.merge_classes(classes, into=into)


def test_a_site_that_forgot_takes_nothing_back_by_a_merge() -> None:
    one, other = taught("slda"), taught("slda")
    one.forget(ids=["photo 3.jpg"])

    with pytest.raises(ScenarioError, match="told to forget 1 image"):
        one.merge(other)
    other.forget(ids=["photo 3.jpg"])
    one.merge(other)

    with pytest.raises(ScenarioError, match="told to forget 1 image"):
        one.learn(VECTORS[3:4], LABELS[3:4])


# -- on disk: every byte ---------------------------------------------------------------------------


def bytes_below(*places: Path) -> Iterator[tuple[str, bytes]]:
    """The content of every file, unpacked where its form packs it; and its name."""
    for place in places:
        for file in sorted(place.rglob("*")):
            yield str(file), file.name.encode()
            if file.is_file():
                data = file.read_bytes()
                yield str(file), data
                if zipfile.is_zipfile(file):
                    with zipfile.ZipFile(file) as packed:
                        for name in packed.namelist():
                            yield f"{file}/{name}", packed.read(name)
                if data[:2] == b"\x1f\x8b":
                    yield str(file), gzip.decompress(data)


def found(needles: dict[str, bytes], *places: Path) -> set[str]:
    """Which of some byte strings are anywhere, or their texts in JSON."""
    return {
        name
        for _, content in bytes_below(*places)
        for name, needle in needles.items()
        if needle in content or json.dumps(needle.decode(errors="replace")).encode() in content
    }


FROZEN = """import torch
from torch import nn


def frozen(shape) -> nn.Module:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.ReLU())
    with torch.no_grad():
        layers[1].weight.copy_(torch.arange(720.0).reshape(20, 36).sin())
        layers[1].bias.zero_()
    return layers.requires_grad_(False)
"""


@pytest.fixture
def photos(tmp_path: Path) -> Callable[[str, int, Sequence[str]], str]:
    def write(name: str, start: int, classes: Sequence[str]) -> str:
        for number, label in enumerate(classes):
            folder = tmp_path / name / label
            folder.mkdir(parents=True)
            for count in range(14):
                index = (start + 14 * number + count) % 160
                pixels = PIXELS[index].squeeze(2).numpy().copy()
                Image.fromarray(pixels).save(folder / f"{label}-{start}-{count:02}.png")
        return f"folder:{tmp_path / name}"

    return write


@pytest.mark.parametrize("method", ["ncm", "icarl"])
def test_nothing_of_it_is_in_any_byte(
    method: str,
    tmp_path: Path,
    photos: Callable[[str, int, Sequence[str]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_part(monkeypatch, "WORTH_KEEPING", 1)
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path / "cache"))
    place, store = tmp_path / "L", tmp_path / "store"
    (tmp_path / "network.py").write_text(FROZEN, encoding="utf-8")
    network = f"{tmp_path / 'network.py'}:frozen"  # its features are stored by themselves
    begin = {"training.epochs": 1, "memory.per_class": 14} if method == "icarl" else {}
    first = photos("first", 0, ["anna", "berta"])
    common: dict[str, Any] = {"store": store, "network": network, "events": Events()}
    ancl.teach(place, first, method=method, settings=begin, **common)
    ancl.teach(place, photos("second", 40, ["clara", "dora"]), **common)
    test = photos("test", 100, ["anna", "clara"])
    third = photos("third", 84, ["anna"])
    refused = ancl.teach(place, third, test=test, min_accuracy=1, **common).refused
    assert refused
    learner = Learner.load(place, version=1, network=network)
    person = next(
        image for image in learner.images if image.label == "anna" and "held" not in image.kept
    )
    needles = search_for(learner, person, method)
    own = (place, store, tmp_path / "cache")
    assert found(needles, *own) == {*needles}  # the search finds what is there
    assert list_caches()

    outcome = forget(place, images=[person.id], network=network, keep_networks=True)

    needles["hash"] = person.sha256.encode()
    assert found(needles, *own) == {"class"}
    assert outcome.report.entries > 0
    assert outcome.report.caches > 0
    assert (outcome.changed, outcome.dropped) == ((1, 2, 3), ())
    if method == "ncm":
        named = forget(place, classes=["anna"], network=network)
        assert named.report.classes == ("anna",)
        shutil.rmtree(tmp_path / "test")  # never learned: its cache goes with the photos
        assert {Path(cache.place).name for cache in list_caches()} <= {"second"}
        assert found(needles | {"names": b"anna-"}, *own) == set()
    assert Path(person.id).is_file()  # a photo of the user's stays


class StopsAtTheClassifier(Events):
    def stage_begins(self, stage: Any) -> None:
        if stage.name == "classifier":
            raise KeyboardInterrupt


def test_a_month_that_was_stopped_keeps_nothing_of_it(
    tmp_path: Path, photos: Callable[[str, int, Sequence[str]], str]
) -> None:
    place = tmp_path / "L"
    (tmp_path / "network.py").write_text(FROZEN, encoding="utf-8")
    network = f"{tmp_path / 'network.py'}:frozen"
    first = photos("first", 0, ["anna", "berta"])
    ancl.teach(place, first, method="ncm", network=network, events=Events())
    second = photos("second", 40, ["clara", "dora"])
    with pytest.raises(KeyboardInterrupt):
        ancl.teach(place, second, network=network, events=StopsAtTheClassifier())
    learner = Learner.load(place, network=network)
    person = next(image for image in learner.images if "held" not in image.kept)
    needles = search_for(learner, person, "ncm")
    feature = {"int16 feature": needles["int16 feature"]}
    stopped = [beside for beside in tmp_path.iterdir() if beside.name.startswith(".L")]
    assert found(feature, *stopped) == {*feature}  # in the statistics of the stopped month

    forget(place, images=[person.id], network=network)

    beside = [path for path in tmp_path.iterdir() if path.name.startswith((".L", "L"))]
    assert found({n: v for n, v in needles.items() if n != "class"}, *beside) == set()


def search_for(learner: Learner, person: Any, method: str) -> dict[str, bytes]:
    """What the image is on the disk, in every form that is written."""
    pixels = torch.from_numpy(np.asarray(Image.open(person.id)).copy())
    setting, (network, _) = learner._setting, learner._built()
    assert setting is not None
    alone = Samples(pixels.reshape(1, 6, 6, 1), torch.zeros(1).long())
    row = setting.images.exactly(network, setting.device)(alone)
    words = np.frombuffer(bytes.fromhex(person.sha256), ">u8").astype("<u8")
    needles = {
        "pixels": pixels.numpy().tobytes(),  # in the memory, or in the cache
        "name": Path(person.id).name.encode(),
        "class": b"anna",
        "hash as numbers": words.tobytes(),
        "float feature": row.numpy().astype("<f4").tobytes(),
    }
    if method == "ncm":
        needles["int16 feature"] = known(learner).grid.put(row).rows.numpy().tobytes()
    return needles


# -- on disk: versions -----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = Learner("slda", "features", grid=11)
    for month in MONTHS:
        names = [LABELS[n] for n in month]
        made.learn(VECTORS[[*month]], names, ids=[f"photo {n}.jpg" for n in month])
        made.save(tmp_path / "L")
    return tmp_path / "L"


def test_the_versions_say_what_made_them(place: Path) -> None:
    rename(place, {"class 1": "robin"})
    merge_classes(place, ["class 2", "class 3"], into="both")
    forget(place, ids=["photo 120.jpg"])

    kept = ancl.versions(place)

    assert [version.kind for version in kept] == [
        *("learn", "learn", "learn", "rename", "merge-classes", "forget")
    ]
    assert [version.data for version in kept[3:]] == [
        *("class 1 → robin", "class 2, class 3 → both", "1 image")
    ]
    assert [version.marks for version in kept] == [
        (),
        *(("without images that were forgotten later",),) * 4,
        (),
    ]
    assert [v.number for v in kept] == [1, 2, 3, 4, 5, 6]
    assert kept[0].images != kept[1].images


def test_every_version_is_as_if_it_had_never_seen_it(place: Path) -> None:
    forget(place, ids=["photo 3.jpg"])

    for number, until in ((1, 1), (2, 2), (3, 3), (4, 3)):
        never = Learner("slda", "features", grid=11)
        for month in MONTHS[:until]:
            chosen = [n for n in month if n != 3]
            ids = [f"photo {n}.jpg" for n in chosen]
            never.learn(VECTORS[chosen], [LABELS[n] for n in chosen], ids=ids)
        assert_same(Learner.load(place, version=number), never)


def test_nobody_goes_back_before_a_forget(place: Path) -> None:
    rename(place, {"class 1": "robin"})
    ancl.undo(place)
    forget(place, ids=["photo 3.jpg"])

    for number in (None, 1, 3, 4):
        with pytest.raises(StoreError, match="version 5 forgot images, and what was forgotten"):
            ancl.undo(place, number)
    rename(place, {"class 1": "robin"})
    assert ancl.undo(place).number == 5


def test_a_rename_can_be_undone(place: Path) -> None:
    rename(place, {"class 1": "robin"})

    assert ancl.undo(place).number == 3
    assert "class 1" in Learner.load(place).classes


def test_what_is_forgotten_in_python_leaves_the_versions_when_it_is_saved(place: Path) -> None:
    learner = Learner.load(place)
    learner.forget(ids=["photo 3.jpg"])

    learner.save(place)
    learner.save(place)  # which changes nothing

    assert [v.number for v in ancl.versions(place)] == [1, 2, 3, 4]
    for number in (1, 2, 3, 4):
        ids = {image.id for image in Learner.load(place, version=number).images}
        assert "photo 3.jpg" not in ids
    with pytest.raises(ScenarioError, match="told to forget"):
        Learner.load(place, version=1).learn(VECTORS[3:4], LABELS[3:4])


def test_versions_whose_network_learned_from_it_are_dropped_or_marked(tmp_path: Path) -> None:
    for keep in (False, True):
        place, made = tmp_path / str(keep), trained()
        made.save(place)
        made.learn(PIXELS[:20] // 2, ["kind 9", "kind 8"] * 10)
        made.save(place)

        outcome = forget(place, ids=["shot 0.png"], keep_networks=keep)

        mark = "its network learned from images that were forgotten later"
        kept = {version.number: version.marks for version in ancl.versions(place)}
        assert kept == {1: (mark,), 2: (mark,), 3: (mark,)} if keep else {3: (mark,)}
        assert outcome.dropped == (() if keep else (1, 2))
        with pytest.raises(StoreError, match="version 3 forgot images, and what was forgotten"):
            ancl.undo(place)
        again = forget(place, ids=["shot 1.png"], retrain=True)
        assert again.version.marks == ()


def test_what_a_refused_month_alone_has_is_forgotten_too(place: Path) -> None:
    learner = Learner.load(place)
    extra = VECTORS[:4] + 0.25
    told = learner.learn(extra, LABELS[:4], ids=["a", "b", "c", "d"], accept=lambda new: False)
    candidate = told["candidate"]
    ledger = add_candidate(candidate, place)
    assert "a" in {image.id for image in ledger}

    outcome = forget(place, ids=["a"])

    assert (outcome.version.number, outcome.changed) == (3, (4,))
    assert "a" not in {image.id for image in Learner.load(place, version=4).images}
    with pytest.raises(ScenarioError, match="told to forget"):
        Learner.load(place).learn(extra, LABELS[:4])
    forget(place, classes=["class 1"])
    assert "b" not in {image.id for image in Learner.load(place, version=4).images}


def test_a_class_that_a_refused_month_alone_has_is_forgotten_too(place: Path) -> None:
    learner = Learner.load(place)
    extra, labels = VECTORS[:4] + 0.25, ["typo", "typo", "class 1", "class 2"]
    told = learner.learn(extra, labels, accept=lambda new: False)
    add_candidate(told["candidate"], place)

    forget(place, classes=["typo"])

    assert "typo" not in Learner.load(place, version=4).classes
    assert not [
        file for file in place.rglob("*") if file.is_file() and b"typo" in file.read_bytes()
    ]


def add_candidate(candidate: Learner, place: Path) -> Any:
    """Keep a learner as a version that was refused."""
    with claimed(place, print):
        number = save_version(candidate, place, overwrite=False, note=Note("", ("no",))).number
    assert read_versions(place).current != number
    return Learner.load(place, version=number).images


def test_another_learner_is_not_changed(place: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a saved learner"):
        forget(tmp_path / "none", ids=["x"])
    assert not (tmp_path / ".none.learning").exists()
    before = read_versions(place)
    with pytest.raises(ScenarioError, match="No learned image"):
        forget(place, ids=["x"])
    assert read_versions(place) == before


def test_forged_lists_of_what_was_forgotten_are_refused(place: Path) -> None:
    forget(place, ids=["photo 3.jpg"])
    for name, value in (
        ("forgotten", [[["no salt", ["00"]]]]),
        ("forgotten", "x"),
        ("floor", -1),
        ("stored", {"/": ["../../x"]}),
    ):
        with pytest.raises(StoreError, match="list of versions"):
            write_header(place, {name: value})


def test_a_learner_of_before_is_still_opened(place: Path) -> None:
    assert write_header(place, dict.fromkeys(("forgotten", "floor", "stored"), ...))


def test_every_method_says_what_forgetting_means() -> None:
    for method in ("auto", "ncm", "knn", "acil"):
        assert taught(method).forget(VECTORS[:1]).exact
    for method in ("finetune", "lwf", "icarl"):
        report = trained(method).forget(PIXELS[:1])
        assert not report.exact
        assert "the network has learned from them" in report.meaning
