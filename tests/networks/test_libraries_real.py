"""The real timm and torchvision, where they are installed: from names to learners and back."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ancl import Learner, Memory, SpecError, Training
from ancl.extend import architecture, frozen

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
OPERATORS: list[torch.library.Library] = []
"""They are there as long as this list is."""
SHORT = Training(epochs=2, batch_size=16, lr=0.01, schedule="cosine")


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    """Both libraries; torchvision for CUDA lacks two operators beside a torch for the CPU."""
    for name in ("timm", "torchvision"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            OPERATORS.append(torch.library.Library("torchvision", "FRAGMENT"))
            form = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            OPERATORS[-1].define(name + form)


@pytest.fixture(autouse=True)
def no_network(offline: None) -> None:
    pass


def images(*classes: int, each: int = 12, size: int = 64) -> tuple[np.ndarray, list[int]]:
    """Noisy coloured patterns, the same for every class."""
    patterns = np.random.default_rng(7).integers(0, 200, (8, 4, 4, 3))
    labels = np.repeat(classes, each)
    noise = np.random.default_rng(sum(classes)).integers(0, 56, (len(labels), size, size, 3))
    large = np.kron(patterns[labels], np.ones((1, size // 4, size // 4, 1), int))
    return (large + noise).astype(np.uint8), labels.tolist()


NAMES = ["timm:resnet18", "timm:vit_tiny_patch16_224", "torchvision:resnet18"]


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_is_saved_and_learns_on_by_its_name_alone(name: str, tmp_path: Path) -> None:
    learner = Learner("a-lwf", name, scenario="til", training=SHORT)
    learner.learn(*images(0, 1))
    learner.save(tmp_path / "learner")
    again = Learner.load(tmp_path / "learner")
    for each in (learner, again):
        each.learn(*images(2, 3))

    test, _ = images(0, 1, 2, 3, each=5)
    assert torch.equal(learner.scores(test), again.scores(test))
    own: Any = getattr(learner, "module", None)
    if own is not None:
        with torch.no_grad():
            assert own(torch.from_numpy(test)).shape == (20, 4)


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18", 512), ("vit_tiny_patch16_224", 192), ("mobilenetv3_small_050", 1024)],
)
def test_whole_files_of_timm_are_fitted_and_learn_frozen(
    name: str, width: int, tmp_path: Path
) -> None:
    import timm

    torch.manual_seed(3)
    whole = timm.create_model(name)  # 224 pixels, 1000 classes
    file = tmp_path / "w.safetensors"
    save_file(whole.state_dict(), file)
    made = architecture(f"timm:{name}", (3, 64, 64), weights=str(file), frozen=True)

    assert (made.feature_size, made.fixed) == (width, True)
    own = made.build([2]).backbone.state_dict()
    known = whole.state_dict()
    equal = [n for n, value in own.items() if n in known and torch.equal(value, known[n])]
    assert len(equal) >= len(own) - 1  # the place of patches is fitted to the size
    assert made.normalization is not None
    assert made.notes[0].startswith(f"The weights of timm:{name} were trained on images of 224")

    options = {"weights": str(file), "frozen": True}
    learner = Learner(
        "a-lwf",
        f"timm:{name}",
        network_options=options,
        memory=Memory(per_class=4),
        training=SHORT,
    )
    learner.learn(*images(0, 1))
    learner.learn(*images(2, 3))
    learner.save(tmp_path / "learner")
    file.unlink()
    again = Learner.load(tmp_path / "learner")
    test, _ = images(0, 1, 2, 3, each=5)
    assert torch.equal(learner.scores(test), again.scores(test))
    assert list(learner._obtain(learner._state["memory"]).tensors)
    assert learner._obtain(learner._state["memory"]).tensors["memory/features"].shape == (16, width)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    import timm
    import torchvision

    save_file(timm.create_model("resnet34").state_dict(), tmp_path / "34.safetensors")
    weights = str(tmp_path / "34.safetensors")
    for library in ("timm", "torchvision"):
        with pytest.raises(SpecError, match=f"does not fit {library}:resnet18"):
            architecture(f"{library}:resnet18", (3, 64, 64), weights=weights)
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "18.pth")
    made = architecture("torchvision:resnet18", (3, 64, 64), weights=str(tmp_path / "18.pth"))
    assert made.normalization is not None
    assert made.normalization.mean == pytest.approx((0.485, 0.456, 0.406))
    assert isinstance(made.build([2]).backbone.fc, nn.Identity)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_nothing_is_fetched(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(SpecError, match="not in your cache"):
        architecture(f"{library}:resnet18", (3, 64, 64), weights="cached")
    for name in ("hf-hub:timm/resnet18.a1_in1k", "local-dir:/tmp", "resnet18.nothing"):
        with pytest.raises(SpecError, match=f"{library} lists no model"):
            architecture(f"{library}:{name}", (3, 64, 64))


def test_sizes_are_said_before_training() -> None:
    swin = architecture("timm:swin_tiny_patch4_window7_224", (3, 64, 64))
    assert swin.feature_size == 768
    assert architecture("timm:vit_tiny_patch16_224", (1, 8, 8), patch_size=2).feature_size == 192
    with pytest.raises(SpecError, match=r"does not fit samples of shape \(3, 8, 8\)"):
        architecture("timm:vit_tiny_patch16_224", (3, 8, 8))
    with pytest.raises(SpecError, match="reads images of 3 channels, and yours have 1"):
        architecture("torchvision:resnet18", (1, 8, 8))


def test_the_body_of_a_real_transformer_is_all_but_its_embedding(tmp_path: Path) -> None:
    import timm

    file = tmp_path / "w.safetensors"
    save_file(timm.create_model("vit_tiny_patch16_224").state_dict(), file)
    learning = []
    for trains in ("body", "blocks,norm"):
        options = {"weights": str(file), "trains": trains}
        made = architecture("timm:vit_tiny_patch16_224", (3, 64, 64), **options).backbone()
        learning.append({n for n, weight in made.named_parameters() if weight.requires_grad})
    assert learning[0] == learning[1]
    assert len(learning[0]) > 100


def test_a_real_transformer_learns_by_adapters_and_three_networks_cost_one_base(
    tmp_path: Path,
) -> None:
    import timm

    name, file = "vit_tiny_patch16_224", tmp_path / "w.safetensors"
    torch.manual_seed(3)
    save_file(timm.create_model(name).state_dict(), file)
    options: dict[str, Any] = {"weights": str(file), "trains": "adapter"}
    made = architecture(f"timm:{name}", (3, 64, 64), **options)
    base = made.make_base()
    own = made.build([2], base).tensors()
    networks = [made.restore([2], own, base), *(frozen(made.build([2], base)) for _ in range(2))]
    held = [t for each in networks for t in (*each.parameters(), *each.buffers())]
    rooms = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    shared, alone = (sum(t.nbytes for t in each.values()) for each in (base, own))
    assert sum(rooms.values()) == shared + 3 * alone
    assert alone < 0.1 * shared

    learner = Learner(
        "a-lfl",
        f"timm:{name}",
        network_options=options,
        training=SHORT,
        classifier="slda",
        lamb=10,
        auxiliary_start="zero",
        auxiliary_trains="blocks.11",
    )
    learner.learn(*images(0, 1))
    learner.learn(*images(2, 3))
    tensors = learner._obtain(learner._state["network"]).tensors
    moved = {each: t for each, t in tensors.items() if "backbone" in each}
    assert all(each.endswith(".b") for each in moved)
    assert all(bool(weight.any()) for weight in moved.values())
