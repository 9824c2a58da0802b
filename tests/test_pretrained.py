"""The script behind docs/evidence/pretrained.md follows the protocol of its page."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(name="script")
def _script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    for name in ("pretrained", "pretrained_tables"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("pretrained")


@pytest.fixture(name="photos")
def _photos(tmp_path: Path) -> Path:
    """Twenty classes of ten training and two test images, without pixels."""
    place = tmp_path / "tiny-imagenet-200"
    (place / "val" / "images").mkdir(parents=True)
    names = [f"n{number:02}" for number in range(20)]
    (place / "wnids.txt").write_text("\n".join(names))
    for name in names:
        (place / "train" / name / "images").mkdir(parents=True)
        for number in range(10):
            (place / "train" / name / "images" / f"{name}_{number}.JPEG").touch()
    lines = [f"v_{name}_{number}.JPEG\t{name}\t0" for name in names for number in range(2)]
    (place / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return tmp_path


def test_months_bring_new_classes_and_two_known_ones_once_more(script, photos) -> None:
    months, test = script.draw_months(photos, 0)

    seen: set[str] = set()
    new = []
    for month in months:
        new.append(len(set(month.labels) - seen))
        seen |= set(month.labels)
    assert new == [8, 4, 4]
    assert [len(month.files) for month in months] == [6 * 10 + 2 * 5, 4 * 10 + 2 * 5, 4 * 10]
    assert len(set(months[1].labels) & set(months[0].labels)) == 2
    every = [file for month in months for file in month.files]
    assert len(set(every)) == len(every) == 160  # no image twice
    for month in months:
        assert [file.parent.parent.name for file in month.files] == month.labels
    assert set(test.labels) == seen
    assert len(test.files) == 32


def test_the_seed_decides_which_classes_and_images_come(script, photos) -> None:
    first, again, other = (script.draw_months(photos, seed) for seed in (0, 0, 1))
    assert first == again
    assert first[0] != other[0]


def test_every_row_has_a_file_of_its_own_and_all_are_in_the_queue(script) -> None:
    tasks = list(script.all_tasks())
    assert len({task.file for task in tasks}) == len(set(tasks))
    for row in (*script.PHOTOS, *script.VECTORS):
        assert {task.seed for task in tasks if (task.part, task.row) == ("months", row)} == {
            0,
            1,
            2,
        }


def result(row: str, seed: int, accuracy: float) -> dict[str, object]:
    stages = [{"features": 9.0, "statistics": 0.1, "classifier": 0.2}, {"classifier": 0.7}]
    costs = {"disk_bytes": 3e6, "images_kept": 0, "peak_bytes": 5e8}
    found = {"part": "months", "row": row, "seed": seed, "accuracy": accuracy}
    return {**found, "stages": stages, "seconds": [1.0], **costs}


def test_tables_pair_by_seed_and_leave_out_the_time_of_features(script) -> None:
    tables = sys.modules["pretrained_tables"]
    results = [result("auto", seed, share) for seed, share in enumerate((0.90, 0.80, 0.85))]
    results += [result("sklearn", seed, share) for seed, share in enumerate((0.91, 0.78, 0.85))]

    lines = list(tables.TABLES["months"][1](results))

    # (90 + 80 + 85) / 3 = 85; std = 5, 5 / √3 = 2.89; differences -1, 2, 0: mean 0.33, error 0.88
    assert "| `auto` | 3 | 85.0 ± 2.9 | none | 0.7 | 3 | 0.50 |" in lines
    assert "| `auto` | 3 | 0.33 ± 0.88 | -1.0, +2.0, +0.0 |" in lines


def test_the_tables_of_all_pages_are_those_of_the_results(script, tmp_path: Path) -> None:
    copies = [tmp_path / page.name for page in script.PAGES]
    for page, copy in zip(script.PAGES, copies, strict=True):
        copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
        lines = page.read_text(encoding="utf-8").splitlines()
        marks = [at for at, line in enumerate(lines) if line.startswith("<!-- table: ")]
        assert marks
        assert all(lines[at + 1].startswith("| ") for at in marks), f"{page}: a table is empty"

    sys.modules["pretrained_tables"].write_tables(script.FOLDER, copies)

    told = "run: python scripts/pretrained.py --tables"
    for page, copy in zip(script.PAGES, copies, strict=True):
        assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8"), told
