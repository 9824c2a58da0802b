"""The network that reads vectors of another model as they are."""

from pathlib import Path

import pytest
import torch

from ancl import Learner, ScenarioError, SpecError, Training
from ancl.extend import architecture


def test_vectors_are_their_own_features() -> None:
    made = architecture("features", (5,))
    network, x = made.build([2, 3]), torch.randn(4, 5)
    output = network(x)

    assert made.feature_size == 5
    assert not made.learns
    assert torch.equal(output.features, x)
    assert output.logits.shape == (4, 5)
    assert not list(network.backbone.parameters())


@pytest.mark.parametrize("shape", [(3, 8, 8), (4, 4)])
def test_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=r"features reads vectors .*For images use efficientnet"):
        architecture("features", shape)


def test_a_learner_learns_vectors_and_refuses_images(tmp_path: Path) -> None:
    torch.manual_seed(0)
    centres = torch.eye(4, 6) * 4
    x, names = centres.repeat(20, 1) + 0.1 * torch.randn(80, 6), ["a", "b", "c", "d"] * 20
    first = torch.tensor([name in "ab" for name in names])
    learner = Learner("lwf", "features", scenario="til", training=Training(epochs=20, lr=0.1))
    learner.learn(x[first], [name for name in names if name in "ab"])
    learner.learn(x[~first], [name for name in names if name in "cd"])
    learner.save(tmp_path / "learner")
    again = Learner.load(tmp_path / "learner")

    assert list(again.predict(centres[2:], task=1)) == ["c", "d"]
    fresh = Learner("lwf", "features", scenario="til", training=Training(epochs=1))
    images = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).expand(8, 8, 8, 3)
    with pytest.raises(SpecError, match="features reads vectors"):
        fresh.learn(images, ["a", "b"] * 4)
    with pytest.raises(ScenarioError, match="give other data as float32"):
        fresh.learn(torch.zeros(8, 6, dtype=torch.uint8), ["a", "b"] * 4)
