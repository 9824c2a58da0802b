"""Floats are read as they are, which is said once, unless ``normalization`` says otherwise."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import ancl
from ancl import Learner, SpecError, Training
from tests.lab import (
    ImageView,
    Layer,
    Normalization,
    as_input,
    build,
    chosen_normalization,
    describe,
    resolve,
    spec_hash,
)

CPU = torch.device("cpu")
BYTES = torch.randint(0, 256, (24, 5, 6, 3), dtype=torch.uint8)
SHARES = BYTES.permute(0, 3, 1, 2).float() / 255
LABELS = [0, 1] * 12
SAID = "are floats from .* and are read as they are"


def learner(normalization: object = None) -> Learner:
    made = Learner(
        *("finetune", "mlp"),
        scenario="til",
        training=Training(epochs=1, batch_size=8),
        network_options={"hidden": (4,)},
        normalization=normalization,  # type: ignore[arg-type]
        verbose=False,
    )
    return made


def test_floats_of_a_learner_are_said_to_be_read_as_they_are_once() -> None:
    own = learner()
    with pytest.warns(UserWarning, match=SAID):
        own.learn(SHARES, LABELS)
    own.learn(SHARES.flip(2), [2, 3] * 12)  # a second warning would be an error
    assert own._learned().normalization is None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner("none").learn(SHARES, LABELS)
        learner().learn(BYTES.numpy(), LABELS)
        learner().learn(SHARES * 4 - 2, LABELS)


@pytest.mark.parametrize("setting", ["moments", "none", "0.5,0.25", (0.1, 0.2, 0.2, 0.3, 0.4, 0.4)])
@pytest.mark.parametrize("images", [BYTES, SHARES], ids=["bytes", "floats"])
def test_a_setting_is_what_the_network_reads(setting: object, images: torch.Tensor) -> None:
    usual = Normalization((0.9, 0.9), (0.9, 0.9)) if images is BYTES else None

    found = as_input(images, chosen_normalization(setting, ImageView.of(images), usual), CPU)  # type: ignore[arg-type]

    mean = {
        "none": [0, 0, 0],
        "0.5,0.25": [0.5, 0.5, 0.5],
        "moments": SHARES.mean((0, 2, 3)).tolist(),
    }
    std = {"none": [1, 1, 1], "0.5,0.25": [0.25, 0.25, 0.25]}
    std["moments"] = SHARES.std((0, 2, 3), correction=0).tolist()
    means, stds = ((0.1, 0.2, 0.2), (0.3, 0.4, 0.4))
    if isinstance(setting, str):
        means, stds = mean[setting], std[setting]  # type: ignore[assignment]
    expected = (SHARES - torch.tensor(means).view(3, 1, 1)) / torch.tensor(stds).view(3, 1, 1)
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize("images", [BYTES, SHARES], ids=["bytes", "floats"])
def test_it_is_saved_and_exported(images: torch.Tensor, tmp_path: Path) -> None:
    own = learner("0.1,0.2,0.2,0.3,0.4,0.4")
    own.learn(images.numpy(), LABELS)
    own.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")

    assert again._learned().normalization == own._learned().normalization
    assert again._learned().normalization == Normalization(
        (0.1, 0.2, 0.2), (0.3, 0.4, 0.4), floats=images is SHARES
    )
    scores = own._score(images)
    assert again._score(images).equal(scores)
    torch.testing.assert_close(own.module(images), scores)
    # The export compares its answers with the learner's.
    assert own.export(tmp_path / "own.pt2").difference < 1e-4
    assert ("uint8" in again.card(), "normalised inside" in again.card()) == (images is BYTES, True)
    again.learn(images.flip(2).numpy(), [2, 3] * 12)
    assert again._learned().normalization == own._learned().normalization


@pytest.mark.parametrize("setting", ["mean", "0.5", "0.5,0", "1,2,3", "nan,1", (0.5,), "", 3])
def test_what_is_no_normalization_is_refused_before_training(setting: object) -> None:
    with pytest.raises(SpecError, match=r"normalization.*(Possible: moments, none|should|must)"):
        learner(setting)
    with pytest.raises(SpecError, match=r"normalization"):
        resolve("lwf", "digits/5", [Layer("--set", {"data.normalization": setting})])


def test_the_number_of_channels_is_checked() -> None:
    with pytest.raises(SpecError, match="4 numbers, and the images have 3 channels"):
        learner("1,2,3,4").learn(SHARES, LABELS)


def test_a_run_takes_it_and_without_it_nothing_changes(tmp_path: Path) -> None:
    np.savez(tmp_path / "floats.npz", x=SHARES.numpy(), y=LABELS)
    given = {"data.source": f"arrays:{tmp_path}/floats.npz", "data.tasks": 1, "threads": 1}
    given |= {"network.name": "mlp", "training.epochs": 1}
    plain, none, moments = (
        resolve("finetune", None, [Layer("test", given | more)]).spec
        for more in ({}, {"data.normalization": "none"}, {"data.normalization": "moments"})
    )
    assert "normalization" not in plain.plain()["data"]
    assert len({spec_hash(spec) for spec in (plain, none, moments)}) == 3
    built = [build(spec) for spec in (plain, none, moments)]
    notes = [[n for n in each.warnings if "read as they are" in n] for each in built]
    assert list(map(len, notes)) == [1, 0, 0]
    keys = [[stage.key for stage in each.stages] for each in built]
    assert keys[0] == keys[1] != keys[2]
    assert describe(Normalization((0.5,), (0.25,))) == {
        **{"is": "Normalization", "mean": [0.5], "std": [0.25]}
    }

    run = ancl.run(moments, runs=tmp_path / "runs")
    assert run.state is not None
    assert (run.state.pixels, run.state.floats) == (False, True)
    opened = ancl.load_run(next((tmp_path / "runs").glob("*_finetune_*")))
    assert opened._learned().normalization == built[2].setting.normalization
    assert len(opened.predict(SHARES, task=0)) == 24
