"""What a learner is given: read in every form alike, converted where certain, else refused."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ancl import Learner, Memory, ScenarioError, SpecError, Training
from tests.lab import Form, PictureRule, digits, labelled_part, read_images

TRAINING = Training(epochs=4, batch_size=32, lr=0.05, lr_first=0.05, schedule="cosine")


def part(*classes: int, test: bool = False) -> tuple[Tensor, list[int]]:
    samples = digits().test if test else digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


def taught(x: Any, y: Any, **options: Any) -> Learner:
    made = Learner("wa", "mlp", training=TRAINING, memory=Memory(per_class=5), **options)
    made.learn(x, y)
    return made


@pytest.fixture(scope="module")
def bytes_taught() -> Learner:
    return taught(*part(0, 1, 2))


@pytest.fixture(scope="module")
def shares_taught() -> Learner:
    x, y = part(0, 1, 2)
    return taught(x.permute(0, 3, 1, 2).float() / 255, y, normalization="none")


class Images(Dataset[Any]):
    """Items as they are."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


def first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


PICTURES: dict[str, Callable[[Tensor], Any]] = {
    "bytes": lambda x: x,
    "an array": lambda x: x.numpy(),
    "grey without channels": lambda x: x.squeeze(3).numpy(),
    "bytes, channels first": first,
    "shares, channels first": lambda x: first(x).float() / 255,
    "shares, channels last": lambda x: x.numpy() / 255,
    "shares, grey": lambda x: x.squeeze(3).double() / 255,
    "whole floats": lambda x: first(x).float(),
    "arrays": lambda x: list(x.numpy()),
    "tensors, channels first": lambda x: list(first(x)),
    "Pillow images": lambda x: [Image.fromarray(each.squeeze(2).numpy()) for each in x],
    "Pillow images in colour": lambda x: [
        Image.fromarray(each.squeeze(2).numpy()).convert("RGB") for each in x
    ],
    "a dataset": lambda x: TensorDataset(first(x).float() / 255, torch.zeros(len(x)).long()),
    "a dataset of images": lambda x: Images(list(x.numpy())),
    "a loader": lambda x: DataLoader(Images(list(first(x))), batch_size=7),
}


@pytest.mark.parametrize("form", PICTURES)
@pytest.mark.parametrize("kind", ["bytes_taught", "shares_taught"])
def test_the_same_images_in_any_form_get_the_same_scores(
    form: str, kind: str, request: pytest.FixtureRequest
) -> None:
    learner, x = request.getfixturevalue(kind), part(0, 1, 2, test=True)[0]
    expected = learner.scores(x)

    scores = learner.scores(PICTURES[form](x))

    # Bytes are restored exactly; a share of a float64 is rounded to a float32 once more.
    assert torch.equal(scores, expected)
    assert len(learner.predict(PICTURES[form](x))) == len(x)


def test_floats_are_normalized_as_bytes_are(bytes_taught: Learner) -> None:
    x, y = part(0, 1, 2, test=True)
    exact = bytes_taught.evaluate(x, y)

    assert exact > 0.95
    assert bytes_taught.evaluate(first(x).float() / 255, y) == exact


@pytest.mark.parametrize("form", ["shares, channels last", "Pillow images"])
def test_a_form_learns_what_bytes_learn(form: str, bytes_taught: Learner) -> None:
    """The second task may come in another form than the first."""
    x, y = part(3, 4)
    one, other = taught(*part(0, 1, 2)), taught(*part(0, 1, 2))
    one.learn(x, y)
    other.learn(PICTURES[form](x), y)

    test = digits().test.x
    assert torch.equal(other.scores(test), one.scores(test))


def test_a_loader_and_a_dataset_of_pairs_are_learned_and_evaluated() -> None:
    x, y = part(0, 1)
    pairs = TensorDataset(first(x).float() / 255, torch.tensor(y))
    expected = taught(first(x).float() / 255, y, normalization="none")
    for data in (pairs, DataLoader(pairs, batch_size=16, shuffle=True)):
        made = taught(data, None, normalization="none")
        assert torch.equal(made.scores(x), expected.scores(x))
        assert made.evaluate(data) == expected.evaluate(x, y)


def test_labels_come_once(bytes_taught: Learner) -> None:
    x, y = part(0, 1)
    with pytest.raises(ScenarioError, match="yields labels, and others are given too"):
        bytes_taught.evaluate(DataLoader(TensorDataset(x, torch.tensor(y))), y)


def test_answers_of_a_shuffling_loader_are_refused(bytes_taught: Learner) -> None:
    loader = DataLoader(Images(list(part(0)[0])), shuffle=True)
    with pytest.raises(ScenarioError, match="which answer belongs to which image"):
        bytes_taught.predict(loader)


def test_random_transforms_in_a_loader_are_refused(bytes_taught: Learner) -> None:
    class Noisy(Images):
        def __getitem__(self, position: int) -> Any:
            return torch.rand(1, 8, 8), 0

    with pytest.raises(ScenarioError, match="differs each time it is read"):
        bytes_taught.evaluate(DataLoader(Noisy([0] * 9)))


@pytest.mark.parametrize(
    "form",
    [
        lambda image: image,
        lambda image: image.squeeze(2).numpy(),
        lambda image: image.permute(2, 0, 1).float() / 255,
        lambda image: Image.fromarray(image.squeeze(2).numpy()),
    ],
)
def test_a_single_image_is_one_image(form: Callable[[Tensor], Any], bytes_taught: Learner) -> None:
    x = part(0, 1, 2, test=True)[0]
    expected = bytes_taught.predict(x)

    assert [bytes_taught.predict(form(image))[0] for image in x[:5]] == expected[:5]
    assert bytes_taught.evaluate(form(x[0]), expected[0]) == 1.0


def test_a_single_text_is_one_label() -> None:
    x, y = part(0, 1)
    made = taught(x, ["cat" if label else "dog" for label in y])
    assert made.evaluate(x[0], made.predict(x[0])[0]) == 1.0


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Twelve pictures of 8 by 8 pixels, of three classes."""
    x, _ = part(0, 1, 2, test=True)
    places = [tmp_path / f"{number:02}.png" for number in range(12)]
    for place, image in zip(places, x[::15], strict=True):
        Image.fromarray(image.squeeze(2).numpy()).save(place)
    return places


def test_files_are_read_and_resized_as_a_folder_is(
    bytes_taught: Learner, files: list[Path], tmp_path: Path
) -> None:
    x = part(0, 1, 2, test=True)[0][::15]
    assert torch.equal(bytes_taught.scores(files), bytes_taught.scores(x))
    assert torch.equal(bytes_taught.scores(str(files[3])), bytes_taught.scores(x[3]))

    large = tmp_path / "large.png"
    with Image.open(files[0]) as opened:
        opened.resize((40, 24)).convert("RGB").save(large)
        expected = opened.resize((40, 24)).convert("RGB").convert("L")
    expected = expected.resize((8, 8), Image.Resampling.BILINEAR)
    assert torch.equal(bytes_taught.scores(large), bytes_taught.scores(np.asarray(expected)))


def test_files_teach_the_first_task(files: list[Path]) -> None:
    x, y = part(0, 1, 2, test=True)
    one, other = taught(files, y[::15]), taught(x[::15], y[::15])
    assert torch.equal(one.scores(x), other.scores(x))


def test_files_that_cannot_be_read_are_all_named(
    bytes_taught: Learner, files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ScenarioError) as raised:
        bytes_taught.predict([files[0], tmp_path / "text.png", tmp_path / "gone.png", tmp_path])
    said = str(raised.value)
    assert "text.png is not an image that can be read" in said
    assert f"There is no file {tmp_path / 'gone.png'}" in said
    assert f"{tmp_path} is a folder" in said


def test_first_pictures_of_two_sizes_are_refused_with_the_way_out() -> None:
    pictures = [Image.new("L", (8, 8)), Image.new("L", (9, 8))]
    with pytest.raises(ScenarioError, match=r"image 0 is 8x8 and image 1 9x8 .*\n?.*resize"):
        taught(pictures, [0, 1])


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        (
            "bytes_taught",
            lambda x: (x - 0.5) / 0.25,
            r"floats from -2 to .* normalises them itself",
        ),
        ("bytes_taught", lambda x: x * 300, "normalises them itself"),
        (
            "shares_taught",
            lambda x: (x - 0.5) / 0.25,
            r"from -2 to .*learned from floats from 0 to",
        ),
        ("bytes_taught", lambda x: x[:, :, :7], r"shape \(1, 7, 8\).*began with \(1, 8, 8\)"),
        ("shares_taught", lambda x: x.expand(-1, 3, -1, -1), r"shape \(3, 8, 8\)"),
        ("bytes_taught", lambda x: x * float("nan"), "NaN"),
    ],
)
def test_what_is_not_certain_is_refused(
    kind: str, change: Callable[[Tensor], Tensor], said: str, request: pytest.FixtureRequest
) -> None:
    x = first(part(0, 1, 2, test=True)[0]).float() / 255
    with pytest.raises(ScenarioError, match=said):
        request.getfixturevalue(kind).predict(change(x))


def test_floats_on_another_scale_than_training_s_are_refused() -> None:
    x, y = part(0, 1, 2)
    shares = first(x).float() / 255
    normalized = (shares - 0.3) / 0.35
    made = taught(normalized, y)

    assert made.evaluate(normalized, y) > 0.95
    for other in (shares, shares * 255, x):
        with pytest.raises(ScenarioError, match=r"learned from floats from -0\.857143 to 1\."):
            made.predict(other)
    # Another normalized image is not refused, whatever its own range.
    assert len(made.predict(normalized[:1] * 0.3 + 0.1)) == 1


def test_dark_bytes_leave_it_open_what_one_stands_for() -> None:
    x, y = part(0, 1, 2)
    made = taught(x // 15, y)
    with pytest.raises(ScenarioError, match=r"bytes up to 16: what 1.0 stands for"):
        made.predict(first(x).float() / 255)
    assert made.evaluate(first(x // 15).float(), y) > 0.9


def test_vectors_on_another_scale_are_warned_of() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(40, 5, generator=draw)
    made = taught(x, [number % 2 for number in range(40)])
    with pytest.warns(UserWarning, match=r"learned from floats from 0\.0"):
        made.predict(x * 255)
    assert made.predict(x[0]) == made.predict(x)[:1]
    with pytest.raises(ScenarioError, match=r"bytes \(uint8\), but this learner learned"):
        made.predict((x * 255).to(torch.uint8))


def test_what_was_learned_from_is_known_after_loading(
    bytes_taught: Learner, shares_taught: Learner, tmp_path: Path
) -> None:
    x = part(0, 1, 2, test=True)[0]
    for name, made in (("bytes", bytes_taught), ("shares", shares_taught)):
        made.save(tmp_path / name)
        loaded = Learner.load(tmp_path / name)
        assert torch.equal(loaded.scores(first(x).float() / 255), made.scores(x))
        assert loaded._form == made._form
        assert loaded._form is not None


def test_a_square_of_three_has_its_channels_where_its_type_says() -> None:
    x = torch.arange(27).reshape(1, 3, 3, 3)
    form = Form((3, 3, 3), pixels=True)

    assert torch.equal(form.fit(x.to(torch.uint8), print), x.to(torch.uint8))
    assert torch.equal(form.fit(x.float(), print), x.permute(0, 2, 3, 1).to(torch.uint8))


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the list is empty"):
        read_images([], Form((1, 8, 8), pixels=True), print)


def test_a_label_of_another_type_is_not_taken_for_a_known_one(bytes_taught: Learner) -> None:
    with pytest.raises(
        ScenarioError, match=r"labels '0' were never learned\. Known labels: 0, 1, 2"
    ):
        bytes_taught.evaluate(part(0)[0], ["0"] * len(part(0)[1]))


# -- pictures as people have them ------------------------------------------------------------


def coloured(count: int = 12, size: tuple[int, int] = (8, 8)) -> list[Image.Image]:
    """Pictures of two classes: red and blue with some noise."""
    draw = np.random.default_rng(0)
    pictures = []
    for number in range(count):
        pixels = draw.integers(0, 60, (size[1], size[0], 3), dtype=np.uint8)
        pixels[:, :, 2 * (number % 2)] += 150
        pictures.append(Image.fromarray(pixels))
    return pictures


COLOURS = ["red", "blue"] * 6


@pytest.fixture(scope="module")
def colour_taught() -> Learner:
    return taught(coloured(), COLOURS)


def as_file(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def with_alpha(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def test_the_contents_of_files_are_pictures(colour_taught: Learner, tmp_path: Path) -> None:
    pictures = coloured()
    contents = [as_file(picture, "PNG") for picture in pictures]
    paths = [tmp_path / f"{number}.png" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    expected = colour_taught.scores(pictures)

    for given in (
        contents,
        paths,
        [bytearray(c) for c in contents],
        [memoryview(c) for c in contents],
    ):
        assert torch.equal(colour_taught.scores(given), expected)
    torch.testing.assert_close(colour_taught.scores(contents[3]), expected[3:4])
    assert colour_taught.evaluate(contents, COLOURS) == 1.0
    mixed = [paths[0], contents[1], pictures[2], np.asarray(pictures[3])]
    torch.testing.assert_close(colour_taught.scores(mixed), expected[:4])
    assert colour_taught.predict([as_file(pictures[0], "JPEG")]) == ["red"]


def test_contents_that_are_no_picture_are_named(colour_taught: Learner) -> None:
    good = as_file(coloured()[0], "PNG")
    with pytest.raises(ScenarioError, match=r"image 1 is not an image that can be read") as caught:
        colour_taught.predict([good, b"nothing", good, b""])
    assert "image 3" in str(caught.value)
    with pytest.raises(ScenarioError, match="a dict that is none"):
        colour_taught.predict([good, {}])


def test_a_first_task_of_several_sizes_is_resized_as_the_command_does(tmp_path: Path) -> None:
    pictures = [
        picture.resize((8 + number, 20 - number)) for number, picture in enumerate(coloured())
    ]
    for number, (picture, label) in enumerate(zip(pictures, COLOURS, strict=True)):
        (tmp_path / label).mkdir(exist_ok=True)
        picture.save(tmp_path / label / f"{number:02}.png")
    files = sorted(tmp_path.rglob("*.png"))
    labels = [file.parent.name for file in files]

    made = {
        "files": taught(files, labels, size=10, resize="crop"),
        "arrays": taught(
            [np.asarray(Image.open(f)) for f in files], labels, size=10, resize="crop"
        ),
        "command": taught(
            *labelled_part(f"folder:{tmp_path}@10", "train", rule=PictureRule("crop", "bicubic")),
            resize="crop",
            **{"data.filter": "bicubic"},
        ),
    }

    expected = made["files"].scores(files)
    for learner in made.values():
        assert learner.input_shape == (3, 10, 10)
        assert torch.equal(learner.scores(files), expected)
    with pytest.raises(ScenarioError, match=r"differ in size.*Learner\(…, size=32\)"):
        taught(files, labels)


@pytest.mark.filterwarnings("ignore:.*transparent pixels")
def test_grey_and_transparent_arrays_are_converted_as_pictures_are(colour_taught: Learner) -> None:
    pictures = coloured()
    grey, clear = [p.convert("L") for p in pictures], [with_alpha(p) for p in pictures]

    for images in (grey, clear):
        expected = colour_taught.scores(images)
        stack = np.stack([np.asarray(image) for image in images])
        for given in (stack, torch.from_numpy(stack), list(stack)):
            assert torch.equal(colour_taught.scores(given), expected)
        torch.testing.assert_close(colour_taught.scores(stack[4]), expected[4:5])
    unlike = [np.asarray(image) for image in (grey[0], pictures[1], clear[2])]
    expected = colour_taught.scores([grey[0], pictures[1], clear[2]])
    assert torch.equal(colour_taught.scores(unlike), expected)
    larger = np.asarray(pictures[0].resize((16, 16)))
    assert torch.equal(
        colour_taught.scores([larger]), colour_taught.scores([Image.fromarray(larger)])
    )


def test_colour_is_made_grey_for_a_learner_of_grey_images(bytes_taught: Learner) -> None:
    pictures = coloured()
    stack = np.stack([np.asarray(picture) for picture in pictures])
    assert torch.equal(bytes_taught.scores(stack), bytes_taught.scores(pictures))


def test_a_background_is_kept_with_the_learner(tmp_path: Path) -> None:
    clear = [with_alpha(picture) for picture in coloured()]
    with pytest.warns(UserWarning, match="12 of 12 images have transparent pixels.*on black"):
        learner = taught(clear, COLOURS, background="black", resize="fit")
    learner.save(tmp_path / "kept")

    again = Learner.load(tmp_path / "kept")

    solid = [Image.alpha_composite(Image.new("RGBA", p.size, "black"), p) for p in clear]
    with pytest.warns(UserWarning, match="on black"):
        assert torch.equal(again.scores(clear), learner.scores(solid))
    assert (
        "resized: `fit`, filter `bilinear`; transparent pixels are laid on `black`" in again.card()
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"background": "grass"}, "data.background.*must be a colour"),
        ({"resize": "squash"}, "data.resize"),
        ({"size": 0}, "data.size"),
    ],
)
def test_wrong_settings_of_pictures_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Learner("wa", "mlp", **wrong)
