from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ancl import ScenarioError
from tests.lab import as_images, as_labels, from_arrays, from_dataset, read_dataset

PIXELS = np.random.RandomState(0).randint(0, 256, (20, 6, 5, 3)).astype(np.uint8)
LABELS = [number % 2 for number in range(20)]


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items, self.reads = items, 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        self.reads += 1
        return self.items[position]


def test_images_without_channels_get_one() -> None:
    assert as_images(PIXELS[..., 0]).shape == (20, 6, 5, 1)
    assert as_images(PIXELS).dtype == torch.uint8


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4"])
def test_all_floats_become_float32(dtype: str) -> None:
    result = as_images(np.array([[0.5, -2.0]]).astype(dtype))
    assert result.dtype == torch.float32
    assert result.tolist() == [[0.5, -2.0]]


def test_images_do_not_share_memory_with_a_read_only_or_reversed_array() -> None:
    frozen = PIXELS[::-1]
    frozen.flags.writeable = False
    assert np.array_equal(as_images(frozen).numpy(), frozen)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((0, 4, 4)), "There are no images"),
        (np.zeros((4, 4, 4), dtype=np.int64), "type int64 cannot be used"),
        (torch.zeros(4, 4, dtype=torch.bool), "type torch.bool cannot be used"),
        (np.array([None, "a"], dtype=object), "type object cannot be used"),
        (np.zeros((4, 9), dtype=np.uint8), r"not \(4, 9\)"),
        (np.zeros((4, 3, 8, 8), dtype=np.uint8), "channels first"),
        (np.zeros((4, 8, 8, 3)), r"float images .*channels last.*moveaxis\(x, 3, 1\)"),
        (np.zeros(4), r"reshape\(-1, 1\)"),
        (np.array([[0.0], [np.nan], [np.inf]]), "2 of 3 samples .* the first is number 1"),
        (np.array([[1e300]]), "1 of 1 samples"),
    ],
)
def test_images_that_cannot_be_used_are_refused(x: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        as_images(x)


def test_labels_become_plain_ints_or_strings() -> None:
    given: list[Any] = [
        np.array([3, 1], dtype=np.uint8),
        torch.tensor([3, 1]),
        [np.int64(3), torch.tensor(1)],
    ]
    for labels in given:
        assert as_labels(labels) == [3, 1]
        assert {type(label) for label in as_labels(labels)} == {int}
    assert as_labels(np.array(["b", "a"])) == ["b", "a"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.5]), "0.5 .float."),
        (np.eye(2, dtype=int), r"\[1, 0\] .list."),
        ([True], "True .bool."),
        ([1, "a"], "both was given"),
    ],
)
def test_other_labels_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        as_labels(y)


def channels_first(image: np.ndarray) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


@pytest.mark.parametrize("form", [Image.fromarray, np.array, torch.from_numpy, channels_first])
def test_a_dataset_gives_the_source_of_its_arrays(form: Any) -> None:
    dataset = Items([(form(image), label) for image, label in zip(PIXELS, LABELS, strict=True)])
    source, expected = from_dataset(dataset), from_arrays(PIXELS, LABELS)
    assert source.fingerprint == expected.fingerprint
    assert torch.equal(source.train.x.dense(), expected.train.x.dense())
    assert source.name == "dataset"


def test_a_test_dataset_is_used_as_it_is() -> None:
    train = Items([(torch.full((4,), float(i)), "ab"[i % 2]) for i in range(6)])
    test = Items([(torch.full((4,), -float(i)), "ab"[i % 2]) for i in range(2)])
    source = from_dataset(train, test, "mine")
    assert (len(source.train), len(source.test), source.classes) == (6, 2, ("a", "b"))
    assert source.test.x.dense()[:, 0].tolist() == [0.0, -1.0]


def test_palette_images_are_read_as_colours() -> None:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    x, _ = read_dataset(Items([(image, 0)]))
    assert x[0, 0, 0].tolist() == [10, 20, 30]


def test_random_transforms_are_refused_with_the_way_out() -> None:
    class Flipping(Items):
        def __getitem__(self, position: int) -> Any:
            image, label = super().__getitem__(position)
            return (image[:, ::-1] if self.reads % 2 else image), label

    dataset = Flipping(list(zip(PIXELS, LABELS, strict=True)))
    with pytest.raises(ScenarioError, match=r"frozen at their first draw.*data.augment=crop"):
        from_dataset(dataset)


def test_images_of_two_sizes_are_refused_by_name() -> None:
    items = [(np.zeros((4, 4)), 0), (np.zeros((4, 5)), 1)]
    with pytest.raises(ScenarioError, match=r"\(4, 4\) float32 and item 1 is \(4, 5\) .*resize"):
        from_dataset(Items(items))


def test_datasets_that_cannot_be_read_are_refused() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(zip(PIXELS, LABELS, strict=True))

    with pytest.raises(ScenarioError, match=r"Endless cannot be read by position.*map-style"):
        from_dataset(Endless())
    with pytest.raises(ScenarioError, match="Items is empty"):
        from_dataset(Items([]))
    with pytest.raises(ScenarioError, match="Item 0 of Items is not a pair: ndarray"):
        from_dataset(Items([PIXELS[0]]))
