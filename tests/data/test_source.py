from typing import Any

import numpy as np
import pytest
import torch

from ancl import ScenarioError
from tests.lab import Normalization, from_arrays, make_source

RANDOM = np.random.RandomState(0)
X = RANDOM.randint(0, 256, (30, 4, 4, 3)).astype(np.uint8)
Y = np.arange(30) % 3


def test_the_order_of_the_images_changes_no_bit() -> None:
    order = np.random.RandomState(1).permutation(30)
    one, other = make_source("one", X, Y), make_source("other", X[order], Y[order])
    assert one.fingerprint == other.fingerprint
    for a, b in ((one.train, other.train), (one.test, other.test)):
        assert torch.equal(a.x.dense(), b.x.dense())
        assert torch.equal(a.y, b.y)


def test_names_do_not_enter_the_fingerprint_and_pixels_do() -> None:
    plain = make_source("a", X, Y)
    named = make_source("b", X, Y, classes=["cat", "dog", "cow"])
    changed = X.copy()
    changed[7, 0, 0, 0] ^= 1
    assert named.classes == ("cat", "dog", "cow")
    assert named.fingerprint == plain.fingerprint
    assert make_source("a", changed, Y).fingerprint != plain.fingerprint


def test_labels_count_along_sorted_classes() -> None:
    source = from_arrays(X, Y * 10 - 10, X[:3], [-10, 0, 10])
    assert source.classes == (-10, 0, 10)
    assert source.train.y.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    words = np.array(["b", "c", "a"])[Y]
    assert from_arrays(X, words).classes == ("a", "b", "c")


def test_given_classes_decide_the_numbers() -> None:
    words = np.array(["b", "c", "a"])[Y]
    source = from_arrays(X, words, X[:3], words[:3], classes=["c", "a", "b"])
    assert source.classes == ("c", "a", "b")
    # The test images are X[0] "b", X[1] "c", X[2] "a": in class order X[1], X[2], X[0].
    assert np.array_equal(source.test.x.dense().numpy(), X[[1, 2, 0]])


def test_the_cut_takes_a_part_of_each_class_and_nothing_twice() -> None:
    source = make_source("cut", X, Y, test_fraction=0.3)
    assert source.train.y.bincount().tolist() == [7, 7, 7]
    assert source.test.y.bincount().tolist() == [3, 3, 3]
    together = {bytes(image.numpy()) for part in (source.train, source.test) for image in part.x}
    assert together == {image.tobytes() for image in X}


def test_normalization_is_the_moments_of_the_training_pixels() -> None:
    source = make_source("moments", X, Y)
    pixels = source.train.x.dense().double().numpy() / 255
    assert source.normalization == Normalization(
        tuple(np.round(pixels.mean((0, 1, 2)), 4).tolist()),
        tuple(np.round(pixels.std((0, 1, 2)), 4).tolist()),
    )
    black = make_source("black", np.zeros((4, 2, 2), dtype=np.uint8), [0, 0, 1, 1])
    assert black.normalization == Normalization((0.0,), (0.001,))


def test_given_normalization_is_kept_and_floats_have_none() -> None:
    given = Normalization((0.5,) * 3, (0.25,) * 3)
    assert make_source("given", X, Y, normalization=given).normalization == given
    assert make_source("floats", X / 255, Y).normalization is None


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, Y[:29]), {}, "30 training images came with 29 labels"),
        ((X, Y, X[:3], Y[:2]), {}, "3 test images came with 2 labels"),
        ((X, Y, X[:3]), {}, "give both or neither"),
        ((X, np.zeros(30, dtype=int)), {}, "nothing to learn: 1 class"),
        ((X, Y, X[:4], [0, 1, 2, 7]), {}, "test labels include 7, .* classes: 0, 1, 2"),
        ((X, Y, X[:3], ["0", "1", "2"]), {}, "test labels include '0'"),
        ((X, Y, X[:2], [0, 1]), {}, "no test images of 2"),
        ((X, Y, X[:3, :3], [0, 1, 2]), {}, r"\(4, 4, 3\) .* \(3, 4, 3\)"),
        ((X, Y, X[:3] / 255, [0, 1, 2]), {}, "torch.uint8 and test images .* torch.float32"),
        ((X, Y), {"classes": [0, 1]}, "training labels include 2"),
        ((X, Y), {"classes": [0, 1, 2, 3]}, "no training images of 3"),
        ((X, Y), {"classes": [0, 1, 1]}, "1 more than once"),
        ((X, Y), {"test_fraction": 1.0}, "test_fraction is 1.0"),
        ((X[:4], [0, 0, 0, 1]), {}, "Class 1 has 1 images, too few"),
        ((X, Y), {"normalization": Normalization((0.5,), (0.5,))}, "images of 3 channels"),
        ((X / 255, Y), {"normalization": Normalization((0.5,), (0.5,))}, "for uint8 images"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        make_source("wrong", *arguments, **options)
