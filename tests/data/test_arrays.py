from pathlib import Path

import numpy as np
import pytest

from ancl import ScenarioError
from tests.lab import known_source, make_source

X = np.random.RandomState(0).randint(0, 256, (30, 4, 4, 3)).astype(np.uint8)
Y = np.array(["b", "a", "c"])[np.arange(30) % 3]


def test_images_and_labels_in_one_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    known = known_source(f"arrays:{tmp_path}/mine.npz")
    source = known.load()
    assert (known.classes, source.classes, source.name) == (3, ("a", "b", "c"), "mine")
    assert source.fingerprint == make_source("same", X, Y).fingerprint


def test_training_and_test_images_in_one_file(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mine.npz", x_train=X, y_train=Y, x_test=X[:3] ^ 1, y_test=Y[:3])
    source = known_source(f"arrays:{tmp_path}/mine.npz").load()
    assert (len(source.train), len(source.test)) == (30, 3)
    assert np.array_equal(source.test.x.dense().numpy(), (X[:3] ^ 1)[[1, 0, 2]])


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    with pytest.raises(ScenarioError, match=r"There is no file .*mine.npz"):
        known_source(f"arrays:{file}")
    file.write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(ScenarioError, match="not a file of plain arrays"):
        known_source(f"arrays:{file}")
    np.savez(file, images=X, y=Y)
    with pytest.raises(ScenarioError, match=r"holds images, y. It should hold x and y"):
        known_source(f"arrays:{file}")
    np.savez(file, x=X, y=np.array([object()] * 30))
    with pytest.raises(ScenarioError, match=r"not a file of plain arrays.*of the type object"):
        known_source(f"arrays:{file}")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ScenarioError, match="not a file of plain arrays"):
        known_source(f"arrays:{tmp_path}/one.npy")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ScenarioError, match=r"Did you mean 'cifar100'\?.*tinyimagenet64.*folder:"):
        known_source("cifar-100")
