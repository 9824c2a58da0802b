"""A later month keeps the settings of a learner: each that is given otherwise is refused."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ancl import AnclError, Learner, load_run, teach
from tests.lab import MethodRef, Recipe, Start, TaskSpec, Weights, fields_for, learn

BEGIN = (
    *("--method", "icarl", "--network", "mlp", "--epochs", "1", "--memory-per-class", "3"),
    *("--set", "network.hidden=[8]", "--threads", "1", "--quiet"),
)
SETTINGS = [*fields_for(MethodRef("icarl"), "mlp")]
MAY_CHANGE = {
    *("learner", "data", "skip_bad_images", "output", "accept_changed", "device", "threads"),
    *("data_root", "store", "overwrite", "wait", "as_json", "quiet", "test", "min_accuracy"),
    *("max_drop", "min_recall", "keep_versions", "export"),
}
"""Flags that say which images, where they go and what is shown: no settings of a learner."""
OTHER = {"method": "wa", "network": "resnet8", "augment": "flip", "setting": "seed=3"}


@pytest.fixture
def months(tmp_path: Path, write_digits: Callable[..., str], ancl: Any) -> dict[str, bytes]:
    """A learner that began, images of a later month, and no way to train."""
    write_digits(tmp_path / "m1", {"a": 0, "b": 1}, each=10)
    write_digits(tmp_path / "m2", {"c": 2, "d": 3}, each=10)
    assert ancl("learn", "L", "--data", "folder:m1", *BEGIN).code == 0
    return contents()


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*_: Any, **__: Any) -> None:
        raise AssertionError("it began to train")

    monkeypatch.setattr(Learner, "learn", trained)


def contents() -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path("L").rglob("*") if file.is_file()}


def test_every_flag_that_gives_another_value_is_refused(
    ancl: Any, months: dict[str, bytes], no_training: None
) -> None:
    settings = {field.name for group in (Start, Weights) for field in dataclasses.fields(group)}
    given = {*inspect.signature(learn).parameters} - MAY_CHANGE
    assert given == settings | {"method", "network", "augment"}
    for name in sorted(given):
        flag = "--set" if name == "setting" else f"--{name.replace('_', '-')}"

        ended = ancl("learn", "L", "--data", "folder:m2", flag, OTHER.get(name, "7"))

        assert ended.code == 2, flag
        assert any(word in ended.err for word in ("L keeps the settings", "one that L was trained"))
        assert contents() == months


def test_every_setting_that_is_given_is_refused(
    months: dict[str, bytes], no_training: None
) -> None:
    assert {"data.augment", "training.epochs", "seed", "memory.total"} < {*SETTINGS}
    for key in SETTINGS:
        with pytest.raises(AnclError, match="L keeps the settings that it began with") as error:
            teach("L", "folder:m2", settings={key: 7})
        assert key in str(error.value)
    assert contents() == months


def test_every_part_that_a_recipe_has_is_kept_or_compared(
    months: dict[str, bytes], no_training: None
) -> None:
    """A field that is added to the recipe is either not given again, or compared."""
    parts = {*Recipe.model_fields, *(field.name for field in dataclasses.fields(TaskSpec))}
    given_again = {*inspect.signature(Learner.load).parameters} & parts
    assert given_again == {"method", "network", "augment"}
    for part in given_again:
        with pytest.raises(AnclError):
            Learner.load("L", **{part: OTHER[part]})


def test_another_augmentation_is_refused_or_accepted_and_saved(
    ancl: Any, months: dict[str, bytes], write: Any
) -> None:
    code = "import torch\nN = [1]\ndef j(x, generator):\n    return x\n"
    own = f"{write('code', {'aug.py': code}) / 'aug.py'}:j"
    for other in ("flip", own):
        refused = ancl("learn", "L", "--data", "folder:m2", "--augment", other, "--threads", "1")
        assert refused.code == 2
        assert "L was trained with (none): its name or its code differs" in refused.err
        assert contents() == months

    same = ancl("predict", "L", "m1", "--augment", "none")
    taken = ancl(
        *("learn", "L", "--data", "folder:m2", "--augment", "flip", "--accept-changed"),
        *("--threads", "1"),
    )

    assert (same.code, taken.code) == (0, 0), taken.err
    assert "Accepted, although its code has changed: augmentation, trained as none" in taken.err
    learner = Learner.load("L")
    assert learner._recipe.data.augment == "flip"
    assert learner.accepted_changes == ("augmentation, trained as none",)


def test_a_run_is_not_opened_with_another_augmentation(finished: Path) -> None:
    (run,) = finished.glob("digits-5_lwf_*")

    with pytest.raises(AnclError, match=r"trained with \(none\)"):
        load_run(run, augment="flip")

    assert load_run(run, augment="none").tasks


def test_other_settings_are_refused_where_the_images_were_learned_before(
    ancl: Any, months: dict[str, bytes], no_training: None
) -> None:
    same = ancl("learn", "L", "--data", "folder:m1", *BEGIN)
    assert (same.code, "nothing was done" in same.out) == (0, True)
    for flags in (("--seed", "4"), ("--epochs", "7"), ("--memory-per-class", "9")):
        other = ancl("learn", "L", "--data", "folder:m1", "--method", "icarl", *flags)

        assert other.code == 2
        assert f"{flags[0]}: L keeps the settings that it began with" in other.err
    assert contents() == months
