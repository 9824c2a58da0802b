"""An exported learner: pictures in, labels with their probabilities out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Len
from numpy.typing import NDArray

from ancl.checks import checked
from ancl.errors import AnclError, ScenarioError, SpecError, StoreError, printable
from ancl.files import read_plain
from ancl.picture import PictureRule, Pixels, decode, mode_of

Label = int | str
Scores = NDArray[np.float32]
INSTALL = "pip install 'ancl[serve]'"
_MOST_BYTES = 4 << 30
_Labels = Annotated[list[Label], Len(1)]
_Sides = tuple[Annotated[int, Ge(1)], Annotated[int, Ge(1)], Annotated[int, Ge(1)]]


@dataclass(frozen=True, eq=False)
class Model:
    """What an exported file answers with; see ``open_model``.

    Args:
        session: ONNX Runtime's.
        labels: In the order of scores.
        tasks: The labels that each task brought.
        scenario: That of the learner.
        temperature: Probabilities are softmax(scores / temperature).
        shape: Height, width and channels of images.
        rule: How pictures become such images.
        digest: The hash of the file.
    """

    session: Any
    labels: list[Label]
    tasks: list[list[Label]]
    scenario: str
    temperature: float
    shape: tuple[int, int, int]
    rule: PictureRule
    digest: str

    def read(self, data: bytes, most_pixels: int) -> Pixels:
        """The content of an image file as the learner reads it.

        Raises:
            ScenarioError: It is not an image, or has too many pixels.
        """
        height, width, channels = self.shape
        mode = mode_of(channels)
        pixels, _ = decode(data, "The image", self.rule, (height, width), mode, most_pixels)
        return pixels.reshape(self.shape)

    def scores(self, images: Sequence[Pixels]) -> Scores:
        """The scores of all classes for some images, computed at once."""
        (scores,) = self.session.run(["scores"], {"images": np.stack(images)})
        return np.asarray(scores, np.float32)

    def answer(self, scores: Scores, k: int, task: int | None) -> list[tuple[Label, float]]:
        """The most probable labels of an image, best first.

        Args:
            scores: Its scores.
            k: How many.
            task: The task whose classes are possible, from 0; all if left out.
        """
        possible = set(self.labels if task is None else self.tasks[task])
        chosen = np.array([at for at, label in enumerate(self.labels) if label in possible])
        scaled = scores[chosen].astype(np.float64) / self.temperature
        odds = np.exp(scaled - scaled.max())
        best = np.argsort(-odds, kind="stable")[:k]
        return [(self.labels[chosen[at]], float(odds[at] / odds.sum())) for at in best]


def open_model(path: Path, threads: int) -> Model:
    """The learner that an export wrote to a file; it has answered an image before it is returned.

    Args:
        path: The file.
        threads: The number of threads that compute an answer.

    Raises:
        StoreError: There is no such file, or no export of a classifier of images wrote it.
    """
    try:
        content = read_plain(path, _MOST_BYTES)
        model = _read(content, threads)
        answered = model.scores([np.zeros(model.shape, np.uint8)] * 2)
    except AnclError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror or error}).") from error
    except Exception as error:  # a damaged file may fail in any way
        why = printable(next(iter(str(error).splitlines()), type(error).__name__), 300)
        raise StoreError(
            f"{path} is not a file that ancl export wrote for images ({why}). Write it again: "
            f"ancl export LEARNER."
        ) from error
    if answered.shape != (2, len(model.labels)) or not np.isfinite(answered).all():
        raise StoreError(f"{path} does not answer with one score for each of its labels.")
    return model


def _read(content: bytes, threads: int) -> Model:
    """A model from the content of a file.

    Raises:
        Exception: It is none.
    """
    try:
        runtime: Any = import_module("onnxruntime")
    except ImportError as error:
        raise SpecError(f"Serving needs onnxruntime. Install it: {INSTALL}.") from error
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # an error comes as an exception too
    options.intra_op_num_threads = threads
    # Threads that spin while they wait would take the cores that decode pictures.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    if given.type != "tensor(uint8)":
        raise ValueError(f"it takes {given.type} and not uint8 images: only these are served")
    facts = {
        name.removeprefix("ancl."): json.loads(text)
        for name, text in session.get_modelmeta().custom_metadata_map.items()
        if name.startswith("ancl.")
    }
    temperature = checked(Annotated[float, Gt(0)], facts["temperature"])
    if not math.isfinite(temperature):
        raise ValueError("its temperature is not finite")
    return Model(
        session,
        checked(_Labels, facts["labels"]),
        checked(list[list[Label]], facts["tasks"]),
        checked(str, facts["scenario"]),
        temperature,
        checked(_Sides, facts["input"]),
        PictureRule(**checked(dict[str, str], facts.get("resize", {}))),
        sha256(content).hexdigest(),
    )


def find_export(name: Path) -> Path:
    """The exported file of a name: itself, or that of a learner, here or beside it.

    Raises:
        StoreError: There is none.
    """
    if name.is_file():
        return name
    file = f"{name.absolute().name.removesuffix('.onnx')}.onnx"
    for path in (Path(file), name.absolute().parent / file):
        if path.is_file():
            return path
    learner = name if name.is_dir() else "LEARNER"
    raise StoreError(
        f"There is no {file}, neither here nor beside {name}. Write it: ancl export {learner}. A "
        f"learner whose method or network cannot be exported cannot be served."
    )


def check_task(model: Model, task: int) -> None:
    """Refuse a task that brought no classes.

    Raises:
        ScenarioError: There is no such task.
    """
    if not 0 <= task < len(model.tasks) or not model.tasks[task]:
        count = len(model.tasks)
        raise ScenarioError(
            f"There is no task {task + 1} with classes. The tasks are 1 to {count}."
        )
