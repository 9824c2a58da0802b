"""Images that stay in their files: the same rows as decoded at once, by any number of processes."""

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ancl import ScenarioError
from tests.lab import (
    Batches,
    EncodedStorage,
    ImageView,
    Samples,
    decode_picture,
    from_arrays,
    generator,
    imagenet_folder,
    patch_part,
    use_workers,
)

SIZE = 16


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of pictures of several sizes and modes, in the form of ImageNet."""
    root = tmp_path_factory.mktemp("encoded")
    draw = np.random.default_rng(0)
    for part, count in (("train", 9), ("val", 3)):
        for number in range(count * 3):
            folder = root / "imagenet" / part / f"n{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            height, width = draw.integers(20, 90, 2)
            pixels = draw.integers(0, 256, (height, width, 3)).astype(np.uint8)
            picture = Image.fromarray(pixels)
            if number % 5 == 0:
                picture = picture.convert("L")
            picture.save(folder / f"{number}.{'png' if number % 4 == 0 else 'jpg'}")
    return root


@pytest.fixture(autouse=True)
def _workers() -> Any:
    yield
    use_workers(None)


def files(place: Path) -> list[str]:
    return sorted(str(file) for file in (place / "imagenet" / "train").rglob("*.*"))


def test_a_row_is_the_middle_as_the_field_evaluates(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (60, 100, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")

    # The shorter side to 256/224 of the size, the other in proportion; then the middle.
    whole = Image.fromarray(pixels).resize((62, 37), Image.Resampling.BILINEAR)
    wanted = np.asarray(whole)[2:34, 15:47]
    assert np.array_equal(decode_picture(str(tmp_path / "a.png"), 32), wanted)


def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(tmp_path: Path) -> None:
    coarse = np.random.default_rng(2).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    large = Image.fromarray(coarse).resize((960, 720), Image.Resampling.BICUBIC)
    large.save(tmp_path / "a.jpg", quality=95)
    large.save(tmp_path / "a.png")

    by_draft, whole = (
        decode_picture(str(tmp_path / f"a.{kind}"), 32).astype(int) for kind in ("jpg", "png")
    )
    assert abs(by_draft - whole).mean() < 2


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shared", [2**27, 9 * SIZE * SIZE * 3])
def test_rows_are_the_same_for_any_number_of_processes_and_any_room(
    workers, shared, place, monkeypatch
) -> None:
    patch_part(monkeypatch, "SHARED_BYTES", shared)
    use_workers(workers)
    names = files(place)
    storage = EncodedStorage(names, SIZE)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(0))
    wanted = torch.stack([torch.from_numpy(decode_picture(f, SIZE).copy()) for f in names])

    assert torch.equal(storage.rows(order), wanted[order])
    storage.announce(order[:5])  # never asked for
    storage.announce(order[5:9])
    assert torch.equal(storage.rows(order[5:9]), wanted[order[5:9]])
    assert torch.equal(storage.rows(torch.tensor([3, 3, 0])), wanted[[3, 3, 0]])
    assert storage.rows(order[:0]).shape == (0, SIZE, SIZE, 3)
    assert np.array_equal(storage.digests(order), ImageView.of(wanted).digests()[order.numpy()])


@pytest.mark.parametrize("augment", ["none", "crop", "resized"])
def test_batches_of_files_and_a_memory_are_those_of_tensors(augment, place) -> None:
    use_workers(2)
    storage = EncodedStorage(files(place), SIZE)
    dense = storage.rows(torch.arange(len(storage)))
    y = torch.arange(len(storage)) % 3
    memory = Samples(255 - dense[:4], y[:4])
    both = [Samples.concatenate([Samples(x, y), memory]) for x in (ImageView.of(storage), dense)]
    normalization = from_arrays(dense.numpy(), y.numpy()).normalization

    for epoch in range(2):
        streams = [
            Batches(samples, 8, normalization, augment, exemplars=4).shuffled(generator(0, epoch))
            for samples in both
        ]
        for one, other in zip(*streams, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    ordered = [Batches(samples, 8, normalization).in_order() for samples in both]
    assert all(torch.equal(a.x, b.x) for a, b in zip(*ordered, strict=True))


def test_the_source_is_that_of_arrays_and_is_hashed_once(place, monkeypatch) -> None:
    use_workers(2)
    first = imagenet_folder(place, SIZE)
    arrays = [s.x.dense().numpy() for s in (first.train, first.test)]
    labels = [[first.classes[n] for n in s.y.tolist()] for s in (first.train, first.test)]
    same = from_arrays(
        arrays[0][::-1], labels[0][::-1], arrays[1], labels[1], normalization=first.normalization
    )
    decoded: list[int] = []
    rows = EncodedStorage.rows

    def counted(self: Any, index: Any) -> Any:
        decoded.append(len(index))
        return rows(self, index)

    monkeypatch.setattr(EncodedStorage, "rows", counted)
    again = imagenet_folder(place, SIZE)

    assert first.classes == ("n0", "n1", "n2")
    assert first.fingerprint == same.fingerprint == again.fingerprint
    assert sum(decoded) <= 9  # of 36: some are hashed again, as a file is never taken for true
    (cache,) = (place / "imagenet").glob(".ancl-hashes-*.npy")
    forged = np.load(cache)
    forged[:] = 1
    np.save(cache, forged)
    assert imagenet_folder(place, SIZE).fingerprint == first.fingerprint


def test_a_file_of_classes_chooses_and_orders_them(place) -> None:
    use_workers(0)
    names = place / "imagenet" / "classes.txt"
    try:
        names.write_text("# two of three\nn2\n\nn0\n")
        source = imagenet_folder(place, SIZE)
        assert source.classes == ("n2", "n0")
        assert len(source.train) == 18
        for text, message in (
            ("n2\nn9\n", "'n9', which is no folder of train"),
            ("n2\nn2\n", "'n2', more than once"),
            ("n2\n", "less than two names"),
        ):
            names.write_text(text)
            with pytest.raises(ScenarioError, match=message):
                imagenet_folder(place, SIZE)
    finally:
        names.unlink()
    with pytest.raises(ScenarioError, match=r"no folder .*/train.* Put your ImageNet there"):
        imagenet_folder(place / "nothing", SIZE)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_are_no_images_are_named(workers, place, tmp_path) -> None:
    use_workers(workers)
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff no picture")
    (tmp_path / "empty.png").write_bytes(b"")
    storage = EncodedStorage([*files(place), *map(str, sorted(tmp_path.glob("*.*")))], SIZE)
    count = len(storage)

    with pytest.raises(ScenarioError, match=r"(?s)bad\.jpg is not an image.*empty\.png is not"):
        storage.rows(torch.arange(count))
    assert len(storage.rows(torch.arange(count - 2))) == count - 2  # and it goes on


def decoders() -> set[int]:
    """The processes of this one that decode."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {
        int(child)
        for child in children
        if b"ancl.decoder" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


def test_processes_end_with_their_storage_and_a_killed_one_is_said(place) -> None:
    gc.collect()
    before = decoders()
    use_workers(2)
    storage = EncodedStorage(files(place), SIZE)
    storage.rows(torch.arange(3))
    (first, second) = decoders() - before
    os.kill(first, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(ScenarioError, match=r"has ended .*data\.workers=1"):
        storage.rows(torch.arange(20))
    del storage
    gc.collect()
    assert not decoders() & {first, second}
