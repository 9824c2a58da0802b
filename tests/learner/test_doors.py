"""A saved learner is data: nothing it names is executed, and saving deletes nobody's files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ancl import AnclError, Learner, StoreError, Training
from tests.lab import digits
from tests.saved_learners import read_saved, write_saved

SHORT = Training(epochs=1, batch_size=32, lr=0.05)
METHOD = "from ancl import make_method\ndef mine(): return make_method('finetune')"
Write = Callable[..., Path]


def taught(method: Any = "finetune", **options: Any) -> Learner:
    made = Learner(method, "mlp", scenario="til", training=SHORT, **options)
    samples = digits().train
    chosen = samples.y < 2
    made.learn(samples.x[chosen], samples.y[chosen].numpy())
    return made


@pytest.fixture(scope="module")
def learner() -> Learner:
    return taught()


def test_saving_leaves_a_folder_and_a_file_of_somebody_else_alone(
    learner: Learner, tmp_path: Path
) -> None:
    thesis, file = tmp_path / "thesis", tmp_path / "notes.txt"
    thesis.mkdir()
    (thesis / "chapter1.tex").write_text("three years of work")
    file.write_text("mine")

    for place in (thesis, file):
        with pytest.raises(StoreError, match="ancl did not write it"):
            learner.save(place)

    assert (thesis / "chapter1.tex").read_text() == "three years of work"
    assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "thesis"]


def test_saving_over_a_folder_with_files_of_our_names_is_refused(
    learner: Learner, tmp_path: Path
) -> None:
    other = tmp_path / "weights"
    other.mkdir()
    (other / "entry.json").write_text('{"format": "somebody else"}')
    (other / "tensors.safetensors").write_bytes(b"theirs")

    with pytest.raises(StoreError, match="ancl did not write it"):
        learner.save(other)

    assert (other / "tensors.safetensors").read_bytes() == b"theirs"


def test_a_saved_learner_with_a_file_of_somebody_else_in_it_is_not_replaced(
    learner: Learner, tmp_path: Path
) -> None:
    learner.save(tmp_path / "m")
    learner.save(tmp_path / "m")  # a learner replaces a learner
    (tmp_path / "m" / "notes.txt").write_text("mine")

    with pytest.raises(StoreError, match="ancl did not write it"):
        learner.save(tmp_path / "m")

    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"
    learner.save(tmp_path / "m", overwrite=True)
    assert not (tmp_path / "m" / "notes.txt").exists()


@pytest.mark.parametrize("path", ["", ".", "/", "x/.."])
def test_saving_to_no_place_of_its_own_is_refused(
    learner: Learner, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StoreError, match="is not a place for a learner"):
        learner.save(path, overwrite=True)

    assert (tmp_path / "precious.txt").read_text() == "mine"


def forge(learner: Learner, place: Path, **changes: Any) -> None:
    """A saved learner with other values, and the checksums that fit; a dot leads into a part."""
    learner.save(place)
    entry = read_saved(place)
    for key, value in changes.items():
        part = entry.meta
        *path, name = key.split(".")
        for step in path:
            part = part[step]
        part[name] = value
    write_saved(place, entry)


@pytest.mark.parametrize("part", ["method", "network.name", "data.augment"])
@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "FILE:evil"])
def test_loading_executes_nothing_that_the_directory_names(
    learner: Learner, part: str, name: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(ran)!r}, 'w')\ndef evil(*a, **k): open({str(ran)!r}, 'w')")
    forge(learner, tmp_path / "m", **{f"recipe.{part}": name.replace("FILE", str(evil))})

    with pytest.raises(AnclError, match="only where you name it yourself"):
        Learner.load(tmp_path / "m")

    assert not ran.exists()


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"recipe.data.val_fraction": 99}, "val_fraction is 99"),
        ({"recipe.data.val_fraction": "x"}, "number"),
        ({"recipe.data.tasks": 3}, "data.tasks: a learner learns all images"),
        ({"recipe.data": [1]}, "m cannot be opened"),
        ({"recipe": None}, "m cannot be opened"),
        ({"recipe.seed": "abc"}, "integer"),
        ({"recipe.seed": -1}, "seed is -1"),
        ({"held": -1}, "greater than or equal to 0"),
        ({"state": {}}, "keys"),
        ({"state": None}, "m cannot be opened"),
        ({"recipe.data.scenario": "x"}, "scenario is 'x'"),
        ({"recipe.data.scenario": "cir"}, "it must be 'til', 'cil' or 'dil'"),
        ({"recipe.training": {"epochs": 0}}, "greater than or equal to 1"),
        ({"recipe.training": {"nonsense": 1}}, "training has no setting 'nonsense'"),
        ({"recipe.memory": 3}, "m cannot be opened"),
        ({"recipe.data.augment": "x"}, "no augmentation"),
        ({"recipe.method": "no-such"}, "There is no method"),
        ({"recipe.network.name": "no-such"}, "network"),
        ({"recipe.network.hidden": [1]}, "do not fit the network"),
        ({"recipe.network.hidden": [10**7, 10**7]}, "GB"),
        ({"metas": {}}, "m cannot be opened"),
        ({"kind": "cake"}, "holds no learner"),
        ({"kind": "learner 5"}, "was saved by another version of ancl .learner 5; this one reads"),
        ({"accepted_changes": 3}, "m cannot be opened"),
    ],
)
def test_forged_fields_of_a_saved_learner_are_refused(
    learner: Learner, changes: dict[str, Any], phrase: str, tmp_path: Path
) -> None:
    forge(learner, tmp_path / "m", **changes)

    with pytest.raises(AnclError, match=phrase):
        Learner.load(tmp_path / "m")


def test_a_deviation_of_zero_is_refused(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path / "m")
    state = read_saved(tmp_path / "m").meta["state"]
    forge(learner, tmp_path / "m", state={**state, "normalization": {"mean": [0.0], "std": [0.0]}})

    with pytest.raises(StoreError, match="not above 0"):
        Learner.load(tmp_path / "m")


def test_changed_code_is_refused_unless_accepted_and_then_recorded(
    write: Write, tmp_path: Path
) -> None:
    file = write("code", {"m.py": METHOD}) / "m.py"
    taught(f"{file}:mine").save(tmp_path / "m")
    again = Learner.load(tmp_path / "m", method=f"{file}:mine")
    assert again.accepted_changes == ()
    file.write_text(METHOD.replace("'finetune'", "'lwf', lamb=3.0"))

    with pytest.raises(AnclError, match="is not the one"):
        Learner.load(tmp_path / "m", method=f"{file}:mine")
    with pytest.warns(UserWarning, match="Accepted, although its code has changed: method"):
        changed = Learner.load(tmp_path / "m", method=f"{file}:mine", accept_changed=True)
    changed.save(tmp_path / "n")

    assert changed.accepted_changes[0].startswith("method, trained as ")
    noted = read_saved(tmp_path / "n").meta["accepted_changes"]
    assert noted == list(changed.accepted_changes)
