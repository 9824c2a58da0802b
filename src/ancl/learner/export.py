"""A learner as one module, and as one file that answers without this library."""

from __future__ import annotations

import json
import logging
import os
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ancl.data import ImageView, Normalization
from ancl.errors import ExportError, SpecError, StoreError, printable, unknown
from ancl.files import MARK, carries_mark, check_place, read_plain, replace_text
from ancl.inference import Infer
from ancl.learner.lock import check_outside_learners
from ancl.networks import Network, frozen, merge_adapters
from ancl.types import Params

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

IMAGES = 100
"""How many images a file answers before it is reported done."""
BATCHES = (1, 3, 17)
"""The sizes of the first batches among them; the last batch has the rest."""
ABSOLUTE, RELATIVE = 1e-4, 1e-5
_MOST = 4 << 30

AnswerFunction = Callable[[Tensor], Tensor]
"""Images -> the scores that a file gives them."""


class ImageClassifier(nn.Module):
    """From images to the scores of all classes, with everything inside that decides them.

    Images are uint8 of the shape (B, H, W, C), as files are decoded; a learner that was taught
    floats takes float32 in the shape it was taught. Scores are (B, classes), the larger the better,
    in the order of ``Learner.classes``.

    Args:
        network: The network; a copy of it is kept, for inference, on the CPU.
        infer: How a class is chosen.
        fixed: What ``infer`` computes scores from, besides the network's output.
        normalization: Of uint8 images, or of floats; none where floats are read as they are.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self, network: Network, infer: Infer, fixed: Params, normalization: Normalization | None
    ) -> None:
        super().__init__()
        self.network, self._infer = frozen(merge_adapters(network)).cpu(), infer
        self._fixed = {name: f"fixed_{name}" for name in fixed}
        for name, tensor in fixed.items():
            self.register_buffer(self._fixed[name], tensor.detach().cpu().clone())
        for part in ("mean", "std"):
            moments = getattr(normalization, part) if normalization else None
            self.register_buffer(part, None if moments is None else torch.tensor(moments))
        self._floats = normalization is not None and normalization.floats
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Scores (B, classes)."""
        if self.mean is not None and self.std is not None and self._floats:
            mean, std = (
                moment.view(-1, *[1] * (images.ndim - 2)) for moment in (self.mean, self.std)
            )
            images = (images - mean) / std
        elif self.mean is not None and self.std is not None:
            images = ((images.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)
        fixed = {name: self.get_buffer(buffer) for name, buffer in self._fixed.items()}
        return self._infer.scores(self.network(images), fixed)


def module_of(learner: Learner) -> ImageClassifier:
    """See ``Learner.module``."""
    network, inputs = learner._built()
    infer = learner.method.infer
    return ImageClassifier(network, infer, infer.fixed(inputs), learner._learned().normalization)


class Exported(NamedTuple):
    """A file that was written, and how well it agrees with the learner.

    Args:
        path: The file.
        card: The model card beside it.
        images: How many images both answered.
        difference: The largest difference of a score.
    """

    path: Path
    card: Path
    images: int
    difference: float


def export_learner(learner: Learner, path: Path, format: str | None, overwrite: bool) -> Exported:
    """See ``Learner.export``."""
    if why := learner.method.infer.bound_to_ancl:
        raise ExportError(
            f"{learner.method.name} cannot be exported: {why}. Learn the same images with ridge, "
            f"logistic or auto, which are one linear layer."
        )
    setting, memory, warmth = learner._learned(), learner._exemplars(), learner.calibration()
    name, uint8 = export_format(path, format), learner._final_state().pixels
    channels, *size = shape = setting.architecture.input_shape
    images = examples(shape, uint8=uint8, kept=memory.samples.x if memory else None)
    facts = {
        "labels": learner.classes,
        "tasks": learner.tasks,
        "scenario": learner.scenario,
        "input": [*size, channels] if uint8 else list(shape),
        "temperature": warmth.temperature,
        "temperature_basis": warmth.basis,
        "resize": asdict(learner.picture_rule),
    }
    texts = {f"ancl.{part}": json.dumps(fact) for part, fact in facts.items()}
    expected = learner._score(images)
    return write_export(
        learner.module, images, expected, texts, path, name, learner.card, overwrite=overwrite
    )


def export_format(path: Path, given: str | None) -> str:
    """The format given, or the one that the name of a file ends with.

    Raises:
        SpecError: There is no such format, or the name of the file ends with another one.
    """
    named = path.suffix.lstrip(".")
    if given is None and named not in _FORMATS:
        raise SpecError(
            f"{path} does not end with the name of a format. Possible: "
            f"{', '.join(f'.{name}' for name in _FORMATS)}. Rename it, or give the format."
        )
    name = given or named
    if name not in _FORMATS:
        raise SpecError(unknown("format", name, _FORMATS))
    if named in _FORMATS and named != name:
        raise SpecError(
            f"{path} ends with .{named}, and the format given is {name}: programs would take the "
            f"file for another. Name it {path.with_suffix(f'.{name}')}, or leave out the format."
        )
    _FORMATS[name].check()
    return name


def examples(shape: tuple[int, ...], *, uint8: bool, kept: ImageView | None) -> Tensor:
    """Images to compare answers on: half from the memory where there is one, the rest noise.

    Args:
        shape: Of one sample, channels first.
        uint8: Whether they are images; otherwise floats.
        kept: The images of the memory, as it stores them.
    """
    draw = torch.Generator().manual_seed(0)
    if uint8:
        channels, *size = shape
        noise = torch.randint(0, 256, (IMAGES, *size, channels), generator=draw).to(torch.uint8)
    else:
        noise = torch.randn(IMAGES, *shape, generator=draw)
    if kept is None or not len(kept):
        return noise
    count = min(len(kept), IMAGES // 2)
    spread = torch.linspace(0, len(kept) - 1, count).round().long()
    return torch.cat([kept[spread], noise[count:]])


def write_export(
    module: ImageClassifier,
    images: Tensor,
    expected: Tensor,
    metadata: Mapping[str, str],
    path: Path,
    name: str,
    card: Callable[[str], str],
    *,
    overwrite: bool = False,
) -> Exported:
    """Write a file, have it answer, compare, and only then put it in its place.

    Args:
        module: What is exported.
        images: What the file is to answer.
        expected: The learner's own scores for them.
        metadata: Texts that go into the file.
        path: The file.
        name: The format.
        card: Makes the model card from lines on the file.
        overwrite: Whether a file is replaced that an export did not write.

    Raises:
        ExportError: The network cannot be exported, or the file answers otherwise.
        StoreError: The file cannot be written, or another is there.
    """
    beside = path.with_name(f"{path.name}.md")
    check_outside_learners(path)
    _claim(check_place(path, "an exported file"), beside, overwrite)
    form = _FORMATS[name]
    new = path.with_name(f".{uuid.uuid4().hex}.{name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _quiet(), _explained(name):
            form.write(module, images[:2], metadata, new)
            difference = _compared(form.open(new), images, expected)
        digest = sha256(read_plain(new, _MOST)).hexdigest()
        new.replace(path)
        replace_text(beside, card(_about(path, digest, len(images), difference)))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}). Give a file that can be written."
        ) from error
    finally:
        new.unlink(missing_ok=True)
    return Exported(path, beside, len(images), difference)


def is_export(path: Path) -> bool:
    """Whether a file, or what is left of it, is as an export wrote it: its model card tells."""
    card = path.with_name(f"{path.name}.md")
    with suppress(OSError):
        ours = not os.path.lexists(path) or (
            sha256(read_plain(path, _MOST)).hexdigest().encode() in read_plain(card)
        )
        return ours and carries_mark(card)
    return False


def _claim(path: Path, card: Path, overwrite: bool) -> None:
    """Refuse to replace a file that an export did not write, or that was changed since."""
    if overwrite or not (os.path.lexists(path) or os.path.lexists(card)) or is_export(path):
        return
    raise StoreError(
        f"{path} or {card.name} exists, and no export wrote it as it is, so it is not replaced. "
        f"Give another name, or allow it: overwrite=True (--overwrite)."
    )


def _compared(answers: AnswerFunction, images: Tensor, expected: Tensor) -> float:
    """The largest difference to the expected scores, in batches of several sizes.

    Raises:
        ExportError: It is too large.
    """
    sizes = [*BATCHES, len(images) - sum(BATCHES)]
    scores = torch.cat([answers(part) for part in torch.split(images, sizes)])
    gaps = (scores - expected).abs()
    if not bool((gaps <= ABSOLUTE + RELATIVE * expected.abs().amax(dim=1, keepdim=True)).all()):
        raise ExportError(
            f"The exported file does not answer as the learner does: on {len(images)} images the "
            f"scores differ by up to {gaps.max().item():.2g}. It was not kept. Does the network "
            f"decide by values of its input, or draw random numbers, when it is in eval mode?"
        )
    return gaps.max().item()


def _about(path: Path, digest: str, images: int, difference: float) -> str:
    return (
        f"- file: `{path.name}`, sha256 `{digest}`\n"
        f"- agreement with the learner: on {images} images, in batches of "
        f"{', '.join(map(str, BATCHES))} and more, no score differs by more than {difference:.1e}\n"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks, which are about its own parts."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Whatever an exporter raises, as an error a user understands."""
    try:
        yield
    except (ExportError, OSError):
        raise
    except Exception as error:  # exporters raise errors of many kinds
        why = _first_cause(error)
        other = next(candidate for candidate in _FORMATS if candidate != name)
        raise ExportError(
            f"The network cannot be exported to {name} ({why}). Does it "
            f"use len(x), or a number of images that is fixed? Use x.shape[0], or reshape(-1, …). "
            f"Or try the format {other}."
        ) from error


def _first_cause(error: BaseException) -> str:
    """What went wrong first, in a line: exporters wrap it several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = next(iter(str(error).strip().splitlines()), "")
    return printable(f"{type(error).__name__}: {line}", 300)


# -- formats ---------------------------------------------------------------------------------


class _Format(NamedTuple):
    """How a file is written and opened; ``check`` refuses where a package is missing."""

    check: Callable[[], None]
    write: Callable[[nn.Module, Tensor, Mapping[str, str], Path], None]
    open: Callable[[Path], AnswerFunction]


_BATCH = {"images": {0: torch.export.Dim("batch")}}
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def _check_onnx() -> None:
    try:
        for package in _PACKAGES:
            import_module(package)
    except ImportError as error:
        raise SpecError(
            "An export to ONNX needs packages that are not installed. Install them: "
            "pip install 'ancl[onnx]'. Or use the format pt2, which needs torch alone."
        ) from error


def _write_onnx(module: nn.Module, two: Tensor, metadata: Mapping[str, str], path: Path) -> None:
    program: Any = torch.onnx.export(
        module,
        (two,),
        dynamo=True,
        input_names=["images"],
        output_names=["scores"],
        dynamic_shapes=_BATCH,
        verbose=False,
    )
    program.model.doc_string = f"A classifier, {MARK}"
    program.model.metadata_props.update(metadata)
    program.save(path, external_data=False)


def _open_onnx(path: Path) -> AnswerFunction:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # an error comes as an exception too
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def answers(images: Tensor) -> Tensor:
        (scores,) = session.run(["scores"], {"images": images.numpy()})
        return torch.from_numpy(scores)

    return answers


def _write_pt2(module: nn.Module, two: Tensor, metadata: Mapping[str, str], path: Path) -> None:
    program = torch.export.export(module, (two,), dynamic_shapes=_BATCH)
    torch.export.save(program, path, extra_files=dict(metadata))


def _open_pt2(path: Path) -> AnswerFunction:
    module = torch.export.load(path).module()

    @torch.no_grad()
    def answers(images: Tensor) -> Tensor:
        scores: Tensor = module(images)
        return scores

    return answers


_FORMATS = {
    "onnx": _Format(_check_onnx, _write_onnx, _open_onnx),
    "pt2": _Format(lambda: None, _write_pt2, _open_pt2),
}
