"""A learner with ``size``: images of any size are brought to it, in every month, by one rule."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ancl import Learner, ScenarioError, Training, load_run, run, spec, teach
from tests.lab import ImageView, labelled_part, pixels_of, predict_files, resized

RANDOM = np.random.default_rng(3)
SMALL = RANDOM.integers(0, 256, (24, 6, 6, 3), np.uint8)
LARGE = RANDOM.integers(0, 256, (24, 15, 9, 3), np.uint8)


def at(images: np.ndarray, size: int) -> np.ndarray:
    return resized(ImageView.of(torch.from_numpy(images)), size).dense().numpy()


def learner(size: int | None = 8, **more: object) -> Learner:
    return Learner(
        *("icarl", "mlp"),
        training=Training(epochs=1, batch_size=8),
        network_options={"hidden": (4,)},
        memory=2,
        size=size,
        verbose=False,
        **more,  # type: ignore[arg-type]
    )


def weights(own: Learner) -> list[torch.Tensor]:
    return list(own.module.network.state_dict().values())


def test_months_of_several_sizes_are_learned_as_if_they_had_been_resized_before() -> None:
    own, other = learner(), learner(None)
    own.learn(SMALL, [0, 1] * 12)
    own.learn(LARGE, [2, 3] * 12)
    other.learn(at(SMALL, 8), [0, 1] * 12)
    other.learn(at(LARGE, 8), [2, 3] * 12)

    assert own.input_shape == (3, 8, 8)
    assert all(torch.equal(a, b) for a, b in zip(weights(own), weights(other), strict=True))
    assert torch.equal(own.scores(LARGE), other.scores(at(LARGE, 8)))


def test_every_form_of_an_image_gets_the_same_answer(tmp_path: Path) -> None:
    own = learner()
    own.learn(SMALL, [0, 1] * 12)
    image = LARGE[0]
    Image.fromarray(image).save(tmp_path / "photo.png")
    expected = own.scores(at(LARGE[:1], 8))

    forms = {
        "array": image,
        "batch": LARGE[:1],
        "channels first": torch.from_numpy(image).permute(2, 0, 1),
        "shares": image.astype(np.float32) / 255,
        "file": tmp_path / "photo.png",
        "picture": Image.fromarray(image),
        "view": ImageView.of(torch.from_numpy(LARGE[:1].copy())),
        "resized": at(LARGE[:1], 8),
    }
    for name, form in forms.items():
        assert torch.equal(own.scores(form), expected), name


def test_files_of_several_sizes_begin_a_learner(tmp_path: Path) -> None:
    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(LARGE[number, : 7 + number]).save(files[-1])
    own = learner()
    own.learn(files, [0, 1] * 4)
    other = learner()
    other.learn([Image.open(file) for file in files], [0, 1] * 4)
    assert all(torch.equal(a, b) for a, b in zip(weights(own), weights(other), strict=True))


def test_grey_images_one_or_many() -> None:
    own, grey = learner(), SMALL[:, :, :, 0]
    own.learn(grey, [0, 1] * 12)
    expected = own.scores(grey[:2])
    single = own.scores(grey[:1])
    assert torch.equal(own.scores(grey[0]), single)
    assert torch.equal(own.scores(grey[0][:, :, None]), single)
    assert torch.equal(own.scores(grey[:2, :, :, None]), expected)


def test_a_saved_learner_keeps_its_rule(tmp_path: Path) -> None:
    own = learner()
    own.learn(SMALL, [0, 1] * 12)
    own.save(tmp_path / "saved")

    opened = Learner.load(tmp_path / "saved")
    assert opened.resizes_to == 8
    assert torch.equal(opened.scores(LARGE), own.scores(LARGE))
    opened.learn(LARGE, [2, 3] * 12)
    own.learn(LARGE, [2, 3] * 12)
    assert torch.equal(opened.scores(SMALL), own.scores(SMALL))


def test_a_run_with_a_size_is_opened_with_it(tmp_path: Path) -> None:
    settings = {"data.size": 10, "training.epochs": 1, "network.name": "mlp"}
    run(spec("finetune", "digits/5", settings=settings), runs=tmp_path / "runs")
    (directory,) = (file.parent for file in (tmp_path / "runs").glob("*/result.json"))
    opened = load_run(directory)
    grey = RANDOM.integers(0, 17, (2, 8, 8), np.uint8)
    assert torch.equal(opened.scores(grey), opened.scores(at(grey[..., None], 10)))


def test_folders_teach_by_the_same_rule_and_are_known_again(tmp_path: Path) -> None:
    for month, images in (("one", SMALL), ("two", LARGE)):
        for number, image in enumerate(images[:8]):
            place = tmp_path / month / f"{month}{number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")
    begin = {"data.size": 8, "training.epochs": 1, "memory.per_class": 2}
    directory = tmp_path / "birds"
    teach(directory, f"folder:{tmp_path / 'one'}", method="icarl", network="mlp", settings=begin)
    with pytest.raises(ScenarioError, match=r"two@8 asks for images of 8x8 pixels, and"):
        teach(directory, f"folder:{tmp_path / 'two'}@8")
    second = teach(directory, f"folder:{tmp_path / 'two'}")
    again = teach(directory, f"folder:{tmp_path / 'two'}")

    own = learner()
    own.learn(SMALL[:8], ["one0", "one1"] * 4)
    own.learn(LARGE[:8], ["two0", "two1"] * 4)
    assert not second.found
    assert again.found
    assert second.learner.tasks == own.tasks
    assert second.learner.input_shape == (3, 8, 8)


def test_what_cannot_be_resized_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"data.size=8 resizes images of bytes"):
        learner().learn(SMALL.astype(np.float32).transpose(0, 3, 1, 2) / 255, [0, 1] * 12)
    own = learner()
    own.learn(SMALL, [0, 1] * 12)
    with pytest.raises(ScenarioError, match="resizes images of any size, with 3 channels"):
        own.predict(SMALL[:2, :, :, 0])


@pytest.mark.parametrize(
    "chosen", [{}, {"resize": "crop"}, {"resize": "fit", "background": "#203040"}]
)
def test_every_form_of_an_image_comes_by_the_rule_that_was_chosen(
    tmp_path: Path, chosen: dict[str, str]
) -> None:
    """Arrays, files, their contents, pictures and folders: also in the month of another size."""
    own = learner(**chosen)
    own.learn(SMALL, [0, 1] * 12)
    own.learn(LARGE, [2, 3] * 12)
    rule = own.picture_rule
    assert rule.filter == "bicubic"

    image = Image.fromarray(LARGE[0])
    (tmp_path / "photos" / "one").mkdir(parents=True)
    file = tmp_path / "photos" / "one" / "photo.png"
    image.save(file)
    expected = own.scores(pixels_of(image, "x", rule, (8, 8))[0])
    form = {"shape": own.input_shape, "size": own.resizes_to, "rule": rule}
    folder, _ = labelled_part(f"folder:{tmp_path / 'photos'}", "train", **form)
    np.savez(tmp_path / "a.npz", x=LARGE[:1], y=["one"])
    arrays, _ = labelled_part(f"arrays:{tmp_path / 'a.npz'}", "train", **form)
    forms = {
        "array": LARGE[0],
        "batch": LARGE[:1],
        "list": [LARGE[0]],
        "shares": LARGE[:1].astype(np.float32) / 255,
        "file": file,
        "contents": file.read_bytes(),
        "picture": image,
        "opaque": np.concatenate([LARGE[:1], np.full((1, 15, 9, 1), 255, np.uint8)], axis=3),
        "folder": folder,
        "arrays": arrays,
    }
    for name, form_of_it in forms.items():
        assert torch.equal(own.scores(form_of_it), expected), name
    ((_, labels, *_),) = predict_files(own, [file], 4)
    assert labels == own.top_k(LARGE[:1], 4)[0]

    own.save(tmp_path / "saved")
    opened = Learner.load(tmp_path / "saved")
    assert opened.picture_rule == rule
    assert torch.equal(opened.scores(file), expected)
    assert f"`{rule.resize}`, filter `{rule.filter}`" in opened.card()


def test_a_fourth_channel_is_a_channel_of_its_own_in_files_and_in_arrays(tmp_path: Path) -> None:
    four = RANDOM.integers(0, 256, (8, 6, 9, 4), np.uint8)
    own = learner(resize="fit", background="red")
    own.learn(four, [0, 1] * 4)
    assert own.input_shape == (4, 8, 8)
    Image.fromarray(four[0]).save(tmp_path / "photo.png")
    assert torch.equal(own.scores(tmp_path / "photo.png"), own.scores(four[:1]))
