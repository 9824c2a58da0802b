"""A method that trains nothing, and keeps a piece of state of its own, from one file outside."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ancl
from ancl import Learner, MethodError, load_run, make_method
from tests.lab import digits

FILE = f"{Path(__file__).parents[2] / 'examples/streaming_lda.py'}:slda"
SHRINKAGE = 1e-3
TINY: dict[str, Any] = {
    "network": {"name": "mlp", "hidden": [16]},
    "data": {"scenario": "cil", "per_class": 20, "test_per_class": 10},
    "threads": 1,
}


def slow_answers(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """LDA with one shrunk covariance, written from its definition, one image at a time."""
    means = {label: x[y == label].mean(axis=0) for label in sorted(set(y))}
    covariance = np.zeros((x.shape[1], x.shape[1]))
    for image, label in zip(x, y, strict=True):
        covariance += np.outer(image - means[label], image - means[label]) / len(x)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.eye(x.shape[1])
    inverse = np.linalg.inv(shrunk)
    scores = [test @ inverse @ m - 0.5 * m @ inverse @ m for m in means.values()]
    return np.array(list(means))[np.argmax(scores, axis=0)]


def parts(*classes: int) -> tuple[torch.Tensor, list[int]]:
    train = digits().train
    index = torch.cat([train.of_class(number)[:30] for number in classes])
    return train.x[index], train.y[index].tolist()


@pytest.mark.parametrize("months", [[(0, 1, 2, 3, 4)], [(0, 1), (2, 0), (3, 4)]])
def test_it_is_linear_discriminant_analysis(months: list[tuple[int, ...]]) -> None:
    learner = Learner(
        make_method(FILE, shrinkage=SHRINKAGE), nn.Flatten(), val_fraction=0, normalization="none"
    )
    images, labels = [], []
    for classes in months:
        x, y = parts(*classes)
        learner.learn(x, y)
        images.append(x)
        labels += y
    test = digits().test
    chosen = torch.cat([test.of_class(number) for number in range(5)])

    flat = torch.cat(images).flatten(1).double().numpy() / 255
    expected = slow_answers(flat, np.array(labels), test.x[chosen].flatten(1).numpy() / 255)

    assert learner.predict(test.x[chosen]) == expected.tolist()
    assert (expected == test.y[chosen].numpy()).mean() > 0.9


def test_a_run_trains_nothing_resumes_and_learns_on(tmp_path: Path) -> None:
    result = ancl.run(FILE, "digits/5", runs=tmp_path, **TINY)
    again = ancl.run(FILE, "digits/5", runs=tmp_path, **TINY)
    alone = ancl.run(FILE, "digits/5", runs=None, **TINY)

    assert result.log == ()
    assert result.metrics["aiac"] > 0.5
    assert again.metrics == result.metrics == alone.metrics
    directory = next(tmp_path.glob("digits*"))
    learner = load_run(directory, method=FILE)
    saved = tmp_path / "saved"
    learner.save(saved)
    x = digits().test.x[:40]
    assert Learner.load(saved, method=FILE).predict(x) == learner.predict(x)


def test_there_is_no_variant() -> None:
    with pytest.raises(MethodError, match="nothing is trained"):
        make_method(f"a-{FILE}")
