"""Images that stay in their files: the same rows as decoded at once, by any number of processes."""

import gc
import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from ancl import ScenarioError, SpecError, specs
from tests.lab import (
    Batches,
    EncodedStorage,
    ImageView,
    Normalization,
    Samples,
    cache_checksum,
    decode_picture,
    draw_boxes,
    from_arrays,
    generator,
    imagenet_folder,
    list_caches,
    load_source,
    patch_part,
    resize_boxes,
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


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files that have the size of a row."""
    folder, draw = tmp_path_factory.mktemp("squares"), np.random.default_rng(1)
    for number in range(27):
        picture = Image.fromarray(draw.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8))
        picture.save(folder / f"{number}.{'png' if number % 2 else 'jpg'}")
    return sorted(map(str, folder.glob("*.*")))


@pytest.mark.parametrize("augment", ["none", "crop", "resized"])
def test_batches_of_files_and_a_memory_are_those_of_tensors(augment, place, squares) -> None:
    use_workers(2)
    storage = EncodedStorage(squares if augment == "resized" else files(place), SIZE)
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


def boxes_by_hand(sizes: list[tuple[int, int]], randomness: torch.Generator) -> list[Any]:
    """Torchvision's ``RandomResizedCrop.get_params`` and a flip, image by image."""
    n = len(sizes)
    area, shape = torch.rand(2, n, 10, generator=randomness, dtype=torch.float64).tolist()
    down, across = torch.rand(2, n, generator=randomness, dtype=torch.float64).tolist()
    mirrored = torch.randint(0, 2, (n,), generator=randomness).tolist()
    boxes = []
    for i, (height, width) in enumerate(sizes):
        for share, aspect in zip(area[i], shape[i], strict=True):
            wanted = height * width * (0.08 + 0.92 * share)
            ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * aspect)
            w, h = round(math.sqrt(wanted * ratio)), round(math.sqrt(wanted / ratio))
            if 0 < w <= width and 0 < h <= height:
                top, left = int(down[i] * (height - h + 1)), int(across[i] * (width - w + 1))
                break
        else:
            h, w = height, width
            if width / height < 3 / 4:
                h = round(width / (3 / 4))
            elif width / height > 4 / 3:
                w = round(height * (4 / 3))
            top, left = (height - h) // 2, (width - w) // 2
        boxes.append((top, left, h, w, bool(mirrored[i])))
    return boxes


def resized_by_hand(part: Any, size: int) -> Any:
    """Pillow's bilinear filter with floats, pixel by pixel and axis by axis."""
    for _ in range(2):
        length = len(part)
        scale = length / size
        reach = max(scale, 1.0)
        rows = []
        for wanted in range(size):
            centre = (wanted + 0.5) * scale
            weights = np.array([max(0.0, 1 - abs(k + 0.5 - centre) / reach) for k in range(length)])
            rows.append(np.tensordot(weights / weights.sum(), part, 1))
        part = np.stack(rows).transpose(1, 0, 2)
    return part


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("shared", [2**27, 9 * SIZE * SIZE * 3])
def test_random_parts_are_cut_out_of_whole_files(workers, shared, place, monkeypatch) -> None:
    """Whatever the number of processes and the room: those of a slow loop, to a grey level."""
    patch_part(monkeypatch, "SHARED_BYTES", shared)
    use_workers(workers)
    names = files(place)
    pictures = [np.asarray(Image.open(name).convert("RGB")).astype(float) for name in names]
    assert max(min(picture.shape[:2]) for picture in pictures) < 8 * SIZE
    samples = Samples(ImageView.of(EncodedStorage(names, SIZE)), torch.arange(len(names)))
    none = Normalization((0.0,) * 3, (1.0,) * 3)
    draws, gaps = generator(0, 1), []
    order = torch.randperm(len(names), generator=draws).tolist()

    for batch in Batches(samples, 7, none, "resized").shuffled(generator(0, 1)):
        chosen = batch.y.tolist()
        assert chosen == order[: len(chosen)]
        del order[: len(chosen)]
        boxes = boxes_by_hand([pictures[n].shape[:2] for n in chosen], draws)
        for n, x, (top, left, h, w, mirrored) in zip(chosen, batch.x, boxes, strict=True):
            wanted = resized_by_hand(pictures[n][top : top + h, left : left + w], SIZE)
            wanted = wanted[:, ::-1] if mirrored else wanted
            gap = np.abs(255 * x.permute(1, 2, 0).numpy() - wanted)
            if names[n].endswith("png") or min(h, w) < 2 * SIZE:  # all others at a smaller scale
                gaps.append(gap.max())
    assert not order
    assert len(gaps) > 15
    assert max(gaps) < 1.6  # Pillow rounds twice


def test_parts_are_the_same_bits_for_any_number_of_processes_beside_a_memory(place) -> None:
    streams = []
    for workers in (0, 2):
        use_workers(workers)
        storage = EncodedStorage(files(place), SIZE)
        y = torch.arange(len(storage)) % 3
        memory = Samples(255 - storage.rows(torch.arange(4)), y[:4])
        both = Samples.concatenate([Samples(ImageView.of(storage), y), memory])
        batches = Batches(both, 8, None, "resized", exemplars=4)
        streams.append([*batches.shuffled(generator(0)), batches.drawn(generator(1))[0]])
    for one, other in zip(*streams, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    # Exemplars are rows, and their parts are those of images in memory.
    draws = generator(0)
    index = torch.randperm(len(both), generator=draws)[:8]
    boxes = draw_boxes(8, *both.x.sizes(index).unbind(1), draws)
    where = (index >= len(storage)).nonzero().squeeze(1)
    assert len(where)
    rows = memory.x.dense()[index[where] - len(storage)]
    wanted = resize_boxes(rows, boxes.at(where), 0).permute(0, 3, 1, 2) / 255
    assert (streams[0][0].x[where] - wanted).abs().max() < 1.5 / 255


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(15, 20, 1), (31, 40, 1), (32, 32, 2), (63, 90, 2), (64, 64, 4), (127, 150, 4), (130, 128, 8)],
)
def test_a_jpeg_is_decoded_at_the_smallest_scale_that_leaves_the_part_large_enough(
    height, width, scale, tmp_path, monkeypatch
) -> None:
    coarse = np.random.default_rng(3).integers(0, 256, (5, 5, 3)).astype(np.uint8)
    whole = Image.fromarray(coarse).resize((203, 157), Image.Resampling.BICUBIC)
    whole.save(tmp_path / "a.jpg", quality=95)
    scales, draft = [], JpegImageFile.draft

    def spied(self: Any, mode: str, size: Any) -> Any:
        before = self.width
        answer = draft(self, mode, size)
        scales.append(round(before / self.width))
        return answer

    monkeypatch.setattr(JpegImageFile, "draft", spied)
    for top, left in ((0, 0), (7, 13), (157 - height, 203 - width)):
        pixels = decode_picture(str(tmp_path / "a.jpg"), SIZE, (top, left, height, width, False))
        part = np.asarray(whole)[top : top + height, left : left + width].astype(float)
        gap = np.abs(pixels - resized_by_hand(part, SIZE))
        assert scales.pop() == scale
        assert gap.mean() < 2.5
        assert gap.max() < 25


def test_files_larger_than_their_rows_have_a_fingerprint_of_their_own(tmp_path, squares) -> None:
    """Parts are cut out of all of a file, so what is beside its middle counts, too."""
    use_workers(0)
    y = [0, 1] * 13
    middle = from_arrays(EncodedStorage(squares[:26], SIZE).rows(torch.arange(26)).numpy(), y)
    same = from_arrays(ImageView.of(EncodedStorage(squares[:26], SIZE)), y)
    assert same.fingerprint == middle.fingerprint

    prints = []
    for border in (0, 200):
        folder = tmp_path / str(border)
        folder.mkdir()
        for number, square in enumerate(squares[:26]):
            large = Image.new("RGB", (SIZE + 40, SIZE), (border,) * 3)
            large.paste(Image.open(square), (20, 0))
            large.save(folder / f"{number:02}.png")
        names = sorted(map(str, folder.glob("*.png")))
        storage = EncodedStorage(names, SIZE, SIZE)
        source = from_arrays(ImageView.of(storage), y)
        prints.append(source.fingerprint)
        dense = from_arrays(storage.rows(torch.arange(26)).numpy(), y)
        assert torch.equal(source.train.x.dense(), dense.train.x.dense())  # in the same order
        prints.append(dense.fingerprint)
    assert len(set(prints)) == 3  # the rows are the same with both borders


def test_the_source_is_that_of_arrays_and_is_hashed_once(place, monkeypatch, tmp_path) -> None:
    use_workers(2)
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path))
    before = set(place.rglob("*"))
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
    assert first.fingerprint == again.fingerprint
    for part, other in ((first.train, same.train), (first.test, same.test)):
        assert torch.equal(part.x.dense(), other.x.dense())
    assert sum(decoded) <= 9 + 36  # some are hashed again, as a file is never taken for true
    assert set(place.rglob("*")) == before  # nothing lies beside the images
    (entry,) = list_caches()
    assert (entry.place, entry.images) == (str(place / "imagenet"), 36)


@pytest.mark.parametrize("damage", ["a byte", "forged"])
def test_hashes_that_are_not_so_are_computed_again(damage, place, monkeypatch, tmp_path) -> None:
    use_workers(0)
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path))
    first = imagenet_folder(place, SIZE)
    file = list_caches()[0].path / "hashes.npy"
    numbers = np.load(file)
    numbers[0 if damage == "a byte" else slice(None), 0] ^= np.uint64(1)
    np.save(file, numbers)
    if damage == "forged":
        origin = json.loads((file.parent / "origin.json").read_text())
        origin["checksum"] = cache_checksum(numbers)
        (file.parent / "origin.json").write_text(json.dumps(origin))

    again = imagenet_folder(place, SIZE)

    assert again.fingerprint == first.fingerprint
    said = [note for note in again.notes if "damaged" in note]
    assert len(said) == (damage == "a byte")
    assert [note for note in imagenet_folder(place, SIZE).notes if "damaged" in note] == []
    assert np.load(file)[0, 0] == numbers[0, 0] ^ np.uint64(1)


def test_the_shorter_side_before_the_middle_is_cut_out_is_a_setting(place, tmp_path) -> None:
    use_workers(0)
    pixels = np.random.default_rng(1).integers(0, 256, (60, 100, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    row = EncodedStorage([str(tmp_path / "a.png")], 32, 48).rows(torch.tensor([0]))[0].numpy()
    whole = Image.fromarray(pixels).resize((80, 48), Image.Resampling.BILINEAR)
    assert np.array_equal(row, np.asarray(whole)[8:40, 24:56])

    data = {"data.source": "imagenet-folder", "data.tasks": 3, "data.size": 16}
    plain = specs(["finetune"], settings=data)[0]
    larger = specs(["finetune"], settings={**data, "data.short_side": 40})[0]
    prints = [
        load_source(s.data.source, place, 16, None, s.data.short_side) for s in (plain, larger)
    ]
    assert prints[0].fingerprint == imagenet_folder(place, 16, 18).fingerprint
    assert prints[0].fingerprint != prints[1].fingerprint
    with pytest.raises(SpecError, match=r"short_side is 15, .*16x16 pixels. Give at least 16"):
        specs(["finetune"], settings={**data, "data.short_side": 15})
    with pytest.raises(SpecError, match=r"short_side is for imagenet-folder, .* digits"):
        specs(["finetune"], "digits/5", settings={"data.short_side": 15})


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
