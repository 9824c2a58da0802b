"""One file that answers as the learner does: every classifier, every size of batch, no surprise."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ancl import ExportError, Learner, Memory, ScenarioError, SpecError, StoreError, Training
from ancl.extend import architecture
from tests.lab import (
    Argmax,
    Corrected,
    ImageClassifier,
    Infer,
    NearestMean,
    Normalization,
    Params,
    digits,
    examples,
    hard_digits,
    write_export,
)

SHAPE, CLASSES = (3, 8, 8), [3, 2]
MOMENTS = Normalization((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
WITH_METHODS = ["lwf", "lucir", "podnet", "icarl", "bic", "wa", "der", "connector"]
WITH_METHODS += ["aanets-lucir", "aanets-podnet", "ccgn"]


def classifier(head: str, infer: Infer, fixed: Params) -> ImageClassifier:
    """A classifier as drawn, with batch norms that have something to do."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    network = architecture(nn.Sequential(*layers, nn.Flatten()), SHAPE, head=head).build(CLASSES)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.5, 0.5)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return ImageClassifier(network.eval(), infer, fixed, MOMENTS)


def means(size: int = 32) -> Tensor:
    return nn.functional.normalize(torch.randn(5, size, generator=torch.manual_seed(1)), dim=1)


KINDS: dict[str, Callable[[], ImageClassifier]] = {
    "linear": lambda: classifier("linear", Argmax(), {}),
    "corrected": lambda: classifier(
        "linear",
        Corrected(),
        {"scale": torch.tensor([1.0, 1, 1, 0.5]), "shift": torch.tensor([0.0, 0, 0, -2])},
    ),
    "unbiased": lambda: classifier("unbiased", Argmax(), {}),
    "cosine": lambda: classifier("cosine", Argmax(), {}),
    "proxies": lambda: classifier("proxies", Argmax(), {}),
    "nearest mean": lambda: classifier("linear", NearestMean(), {"means": means()}),
}


def written(module: ImageClassifier, path: Path, form: str) -> Any:
    images = examples(SHAPE, uint8=True, kept=None)
    with torch.no_grad():
        expected = module(images)
    return write_export(
        module, images, expected, {"ancl.x": "1"}, path, form, "written by ancl ".__add__
    )


def by_hand(kind: str, module: ImageClassifier, images: Tensor) -> Tensor:
    """The scores, image by image and class by class, from the network's features."""
    found = []
    for image in images:
        pixels = image.permute(2, 0, 1).double() / 255
        x = torch.stack(
            [(p - m) / s for p, m, s in zip(pixels, MOMENTS.mean, MOMENTS.std, strict=True)]
        )
        feature = module.network.backbone(x.float().unsqueeze(0))[0]
        weights = module.network.head.state_dict()
        rows = torch.cat([value for name, value in weights.items() if name.startswith("weights")])
        if kind in ("linear", "corrected"):
            bias = torch.cat(
                [value for name, value in weights.items() if name.startswith("biases")]
            )
            scores = [float(row @ feature + b) for row, b in zip(rows, bias, strict=True)]
        elif kind == "unbiased":
            scores = [float(row @ feature) for row in rows]
        elif kind == "nearest mean":
            unit = feature / feature.norm()
            scores = [-float((unit - mean).square().sum()) for mean in means()]
        else:
            cosines = [float(row @ feature / row.norm() / feature.norm()) for row in rows]
            scores = (
                cosines
                if kind == "cosine"
                else [soft(2 * np.array(cosines[10 * c : 10 * c + 10]) - 2) for c in range(5)]
            )
        if kind == "corrected":
            scores[3] = 0.5 * scores[3] - 2
        found.append(scores)
    return torch.tensor(found)


def soft(near: Any) -> float:
    return float((np.exp(near) / np.exp(near).sum()) @ near)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_module_gives_the_scores_of_its_formula(kind: str) -> None:
    module, images = KINDS[kind](), examples(SHAPE, uint8=True, kept=None)[:4]

    torch.testing.assert_close(module(images), by_hand(kind, module, images), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["corrected", "proxies", "nearest mean"])
def test_an_onnx_file_answers_batches_of_every_size(kind: str, tmp_path: Path) -> None:
    module = KINDS[kind]()

    found = written(module, tmp_path / "m.onnx", "onnx")

    check_batches(module, onnx_answers(tmp_path / "m.onnx"))
    assert found.difference < 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.md"]


def test_a_pt2_file_answers_batches_of_every_size(tmp_path: Path) -> None:
    module = KINDS["proxies"]()

    found = written(module, tmp_path / "m.pt2", "pt2")

    check_batches(module, torch.export.load(tmp_path / "m.pt2").module())
    assert found.difference < 1e-5


def onnx_answers(path: Path) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


@torch.no_grad()
def check_batches(module: ImageClassifier, answers: Callable[[Tensor], Tensor]) -> None:
    for size in (1, 2, 40):
        images = torch.randint(0, 256, (size, 8, 8, 3)).to(torch.uint8)
        torch.testing.assert_close(answers(images), module(images), atol=1e-5, rtol=1e-5)


def taught(method: str = "finetune", network: Any = "mlp", **options: Any) -> Learner:
    """Two tasks of digits, with whole numbers as labels."""
    short = Training(epochs=1, batch_size=64, lr=0.05)
    given = {"network_options": {"hidden": (16,)}} if network == "mlp" else {}
    learner = Learner(method, network, training=short, **given, **options)
    samples = (hard_digits() if network == "resnet8" else digits()).train
    for classes in ([7, 3], [5]):
        chosen = torch.isin(samples.y, torch.tensor(classes))
        learner.learn(samples.x[chosen], samples.y[chosen])
    return learner


@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
def test_the_file_holds_labels_as_they_are(tmp_path: Path) -> None:
    learner = taught(scenario="cil")

    found = learner.export(tmp_path / "m.pt2")
    facts = dict.fromkeys(("ancl.labels", "ancl.tasks", "ancl.input", "ancl.scenario"), "")
    program = torch.export.load(tmp_path / "m.pt2", extra_files=facts)

    read = {name: json.loads(text) for name, text in facts.items()}
    assert read["ancl.labels"] == [3, 7, 5]
    assert read["ancl.tasks"] == [[3, 7], [5]]
    assert read["ancl.input"] == [8, 8, 1]
    best = program.module()(digits().test.x[:50]).argmax(dim=1).tolist()
    assert [read["ancl.labels"][index] for index in best] == learner.predict(digits().test.x[:50])
    assert found.images == 100
    assert "`3`, `7`" in found.card.read_text()


@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
def test_floats_are_exported_as_they_were_taught(tmp_path: Path) -> None:
    learner = Learner("finetune", "mlp", training=Training(epochs=1, lr=0.05))
    x = torch.randn(60, 5, generator=torch.manual_seed(0))
    learner.learn(x, [n % 3 for n in range(60)])

    learner.export(tmp_path / "m.pt2")

    answers = torch.export.load(tmp_path / "m.pt2").module()
    torch.testing.assert_close(answers(x), learner.scores(x))


def test_half_of_the_images_come_from_the_memory() -> None:
    kept = torch.arange(70).view(70, 1, 1, 1).expand(70, 2, 2, 1).to(torch.uint8)

    found = examples((1, 2, 2), uint8=True, kept=kept)

    assert found.shape == (100, 2, 2, 1)
    assert found[0].unique().tolist() == [0]
    assert found[49].unique().tolist() == [69]
    assert len({image.numpy().tobytes() for image in found}) == 100


class Fixed(nn.Module):
    """A network bound to the number of images of its first batch when exported."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)


class Drawing(nn.Module):
    """A network whose answers are never the same twice."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) + torch.rand(64, device=x.device)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (Drawing(), "does not answer as the learner does"),
        (Fixed(), r"cannot be exported to pt2 .* Does it use len\(x\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
def test_a_file_that_answers_otherwise_is_not_kept(
    network: nn.Module, said: str, tmp_path: Path
) -> None:
    learner = taught(network=network)

    with pytest.raises(ExportError, match=said):
        learner.export(tmp_path / "m.pt2")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
def test_only_an_export_of_ours_is_replaced(tmp_path: Path) -> None:
    learner, path = taught(), tmp_path / "m.pt2"
    path.write_bytes(b"mine")

    with pytest.raises(StoreError, match="it is not replaced"):
        learner.export(path)
    assert path.read_bytes() == b"mine"
    learner.export(path, overwrite=True)
    learner.export(path)  # our own
    path.write_bytes(b"mine again")
    with pytest.raises(StoreError, match="it is not replaced"):
        learner.export(path)
    (tmp_path / "other.pt2.md").write_text("notes")
    with pytest.raises(StoreError, match="it is not replaced"):
        learner.export(tmp_path / "other.pt2")
    assert (tmp_path / "other.pt2.md").read_text() == "notes"


@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
def test_what_cannot_be_exported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = taught()

    with pytest.raises(SpecError, match=r"m.h5 does not end .* Possible: .onnx, .pt2"):
        learner.export(tmp_path / "m.h5")
    with pytest.raises(SpecError, match="no format 'tflite'"):
        learner.export(tmp_path / "m.onnx", format="tflite")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(SpecError, match=r"pip install 'ancl\[onnx\]'"):
        learner.export(tmp_path / "m.onnx")
    with pytest.raises(ScenarioError, match="has not learned anything yet"):
        Learner("finetune").export(tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "pt2"])
@pytest.mark.parametrize("method", WITH_METHODS)
@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
@pytest.mark.filterwarnings("ignore:.*keeps the last free kernels")
def test_every_method_is_exported_as_it_learned(method: str, form: str, tmp_path: Path) -> None:
    memory = {} if method in ("lwf", "connector") else {"memory": Memory(per_class=5)}
    learner = taught(method, "resnet8", **memory)

    found = learner.export(tmp_path / f"m.{form}")

    assert found.difference < 1e-5
