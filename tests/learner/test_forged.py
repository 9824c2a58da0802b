"""A forged learner with the right checksums is refused, or answers as before: never a traceback."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import AnclError, Events, Learner, Memory, ScenarioError, Training
from tests.lab import Samples, StageResult, digits, patch_part
from tests.saved_learners import read_saved, write_saved

SHORT = Training(epochs=1, batch_size=32, lr=0.05)
METHODS = ("icarl", "bic", "rwalk")
"""Between them every part of a state: a memory, a correction, importance of several kinds."""
FORGERIES: dict[str, Callable[[Tensor], Tensor]] = {
    "shortened": lambda t: t[:-1] if t.dim() else t.new_zeros(2),
    "one": lambda t: t[:1] if t.dim() else t.new_zeros(1),
    "longer": lambda t: torch.cat([t, t]) if t.dim() else t.new_zeros(3),
    "emptied": lambda t: t.new_zeros(0),
    "no rows": lambda t: t[:0] if t.dim() else t.new_zeros(0),
    "nan": lambda t: t * float("nan") if t.is_floating_point() else t.float() * float("nan"),
    "infinite": lambda t: t + float("inf"),
    "bytes": lambda t: t.to(torch.uint8),
    "whole": lambda t: t.to(torch.long),
    "double": lambda t: t.double(),
    "half": lambda t: t.half(),
    "complex": lambda t: t.to(torch.complex64),
    "negative": lambda t: -1 - t if t.dtype == torch.long else t.to(torch.int8),
    "large": lambda t: t + 1000 if t.dtype == torch.long else t.unsqueeze(0),
}


def part(*classes: int, per_class: int = 8) -> Samples:
    samples = digits().train
    return samples.take(torch.cat([samples.of_class(n)[:per_class] for n in classes]))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def place(method: str) -> Path:
        memory = Memory(per_class=3) if method in ("icarl", "bic") else None
        options: Any = {"training": SHORT, "network_options": {"hidden": (8,)}, "memory": memory}
        learner = Learner(method, "mlp", **options, val_fraction=0.25, events=Events())
        for samples in (part(0, 1), part(2, 3)):
            learner.learn(samples.x, samples.y)
        directory = tmp_path_factory.mktemp("saved") / method
        learner.save(directory)
        return directory

    return place


def forgeries(place: Path, kinds: Sequence[str]) -> Iterator[tuple[str, StageResult]]:
    entry = read_saved(place)
    for name, tensor in entry.tensors.items():
        for kind in kinds:
            changed = FORGERIES[kind](tensor)
            alike = changed.shape == tensor.shape and changed.dtype == tensor.dtype
            if alike and torch.equal(changed, tensor):
                continue
            yield f"{name}, {kind}", StageResult({**entry.tensors, name: changed}, entry.meta)


def used(place: Path) -> tuple[Any, ...]:
    """Everything that a learner answers; and it learns on."""
    learner, test = Learner.load(place, events=Events()), part(0, 1, 2, 3, per_class=4)
    answers = (
        learner.predict(test.x),
        learner.evaluate(test.x, test.y),
        str(learner.report()),
        learner.top_k(test.x, 2),
    )
    more = part(4, 5, per_class=4)
    learner.learn(more.x, more.y)
    learner.predict(test.x)
    return answers


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("icarl", ("shortened", "emptied", "nan", "double")),
        ("rwalk", ("shortened", "nan", "complex")),
        *(pytest.param(m, tuple(FORGERIES), marks=pytest.mark.slow) for m in METHODS),
    ],
)
def test_every_tensor_that_is_forged_is_refused_or_changes_no_answer(
    method: str,
    kinds: tuple[str, ...],
    saved: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_part(monkeypatch, "fsync", lambda descriptor: None)
    expected, refused, tried = used(saved(method)), 0, 0
    for name, entry in forgeries(saved(method), kinds):
        tried += 1
        write_saved(tmp_path / "forged", entry)
        try:
            answers = used(tmp_path / "forged")
        except AnclError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        else:
            # A tensor of importance decides how the next task is learned, and no answer.
            assert answers == expected, name
    assert refused > 0.6 * tried > 10


def test_scores_that_are_no_numbers_are_no_answer(saved: Callable[[str], Path]) -> None:
    learner = Learner.load(saved("icarl"), events=Events())
    test = part(0, 1)
    learner._scorer = lambda x: torch.full((len(x), 4), float("nan"))
    asked: list[Callable[[], object]] = [
        lambda: learner.predict(test.x),
        lambda: learner.predict_proba(test.x),
        lambda: learner.evaluate(test.x, test.y),
        lambda: learner.report(test.x, test.y),
        lambda: learner.report(),
        lambda: learner.calibration(task_known=True),
        lambda: learner.export("never-written.pt2"),
    ]

    for ask in asked:
        with pytest.raises(ScenarioError, match="scores are not finite numbers"):
            ask()

    assert not Path("never-written.pt2").exists()
