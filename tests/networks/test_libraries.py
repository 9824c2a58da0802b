"""Networks of timm by name: their list alone, weights from files alone, made again anywhere."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import ancl
from ancl import Events, Learner, Memory, SpecError, Training
from ancl import spec as make_spec
from ancl.extend import architecture
from tests.lab import (
    Normalization,
    StageResult,
    digits,
    is_outside,
    network_options,
    seeded,
)
from tests.saved_learners import read_saved, write_saved

SHAPE = (1, 8, 8)
SHORT = Training(epochs=1, batch_size=32, lr=0.05)


@pytest.fixture
def weights(timm: Any, tmp_path: Path) -> Path:
    """Weights of the whole model, with the classifier that it was trained with."""
    with seeded(5, "weights"):
        tensors = timm.TinyNet(1, 10).state_dict()
    save_file(tensors, tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


# -- names ---------------------------------------------------------------------------------------


def test_a_name_of_the_list_makes_a_backbone_whose_features_are_counted(timm: Any) -> None:
    made = architecture("timm:tinynet", SHAPE)

    assert made.feature_size == 6  # the model itself says 4
    assert made.build([3])(torch.zeros(2, *SHAPE)).logits.shape == (2, 3)
    assert made.learns
    assert not is_outside("timm:tinynet")
    assert list(network_options("timm:tinynet")) == [
        *("weights", "frozen", "patch_size", "trains", "rank", "norms")
    ]


@pytest.mark.parametrize(
    "name",
    ["hf-hub:somebody/model", "local-dir:/tmp/x", "tinynett", "", "../tinynet", "tinynet.b2"],
)
def test_only_names_of_the_list_are_taken(timm: Any, name: str) -> None:
    with pytest.raises(SpecError, match=r"timm lists no model .*Addresses of a hub are not read"):
        architecture(f"timm:{name}", SHAPE)


def test_a_near_miss_is_named(timm: Any) -> None:
    with pytest.raises(SpecError, match="Did you mean 'tinynet'"):
        architecture("timm:tinynett", SHAPE)


def test_a_library_that_is_not_there_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(SpecError, match=r"not installed. Install it: pip install 'ancl\[timm\]'"):
        architecture("timm:resnet18", SHAPE)


def stops(monkeypatch: pytest.MonkeyPatch, **errors: Exception) -> None:
    """Have these packages stop with an error when they are imported."""

    class Broken:
        def find_spec(self, name: str, *given: Any) -> None:
            if name in errors:
                raise errors[name]

    for name in errors:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])


NMS = RuntimeError("operator torchvision::nms does not exist")


def test_a_torchvision_that_does_not_fit_torch_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops(monkeypatch, torchvision=NMS)
    with pytest.raises(SpecError) as caught:
        architecture("torchvision:resnet18", (3, 8, 8))

    said = str(caught.value)
    assert said.startswith("torchvision ")
    assert f"cannot be imported beside torch {torch.__version__} (RuntimeError: operator" in said
    assert "pip uninstall torchvision, then pip install torchvision torch==" in said


def test_timm_has_no_fault_where_torchvision_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    stops(monkeypatch, torchvision=NMS, timm=AttributeError("partially initialized module"))
    with pytest.raises(SpecError) as caught:
        architecture("timm:resnet18", SHAPE)

    said = str(caught.value)
    assert said.startswith("timm imports torchvision, and torchvision ")
    assert "nms does not exist" in said
    assert "partially initialized" not in said
    assert "ancl[timm]" not in said  # it is installed


@pytest.mark.parametrize(
    ("package", "remedy"),
    [
        ("torchvision", "belongs to your torch: pip install torchvision torch=="),
        ("huggingface_hub.utils", r"Install it: pip install huggingface_hub\."),
    ],
)
def test_a_package_that_timm_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, remedy: str
) -> None:
    stops(monkeypatch, timm=ModuleNotFoundError("none", name=package))
    with pytest.raises(SpecError, match=rf"timm is installed, but it imports .*{remedy}"):
        architecture("timm:resnet18", SHAPE)


def test_a_fault_of_timm_itself_is_told(monkeypatch: pytest.MonkeyPatch, timm: Any) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    stops(monkeypatch, timm=SyntaxError("for a newer Python"))
    with pytest.raises(SpecError, match=r"timm .* cannot be imported \(SyntaxError: for a newer"):
        architecture("timm:resnet18", SHAPE)


# -- size ----------------------------------------------------------------------------------------


def test_a_transformer_gets_the_size_of_the_images(timm: Any) -> None:
    made = architecture("timm:tinyvit_patch4", (3, 12, 16), patch_size=2)

    network = made.build([2])
    assert network.backbone.size == (12, 16)
    assert network.backbone.patch_embed.kernel_size == (2, 2)


def test_images_that_are_too_small_are_refused_before_training(timm: Any) -> None:
    with pytest.raises(
        SpecError, match=r"tinyvit_patch4 does not fit samples of shape \(3, 2, 2\)"
    ):
        architecture("timm:tinyvit_patch4", (3, 2, 2))
    with pytest.raises(SpecError, match=r"reads images .*shape \(5,\)"):
        architecture("timm:tinynet", (5,))


# -- weights -------------------------------------------------------------------------------------


def test_weights_of_a_file_are_the_initial_ones(weights: Path, timm: Any) -> None:
    made = architecture("timm:tinynet", SHAPE, weights=str(weights))
    torch.save({"state_dict": timm.TinyNet(1, 0).state_dict()}, weights.with_suffix(".pth"))

    backbone = made.build([2]).backbone
    expected = {n: t for n, t in _read(weights).items() if "classifier" not in n}
    assert same(dict(backbone.state_dict()), expected)
    assert "state_dict" not in backbone.pretrained_cfg
    other = architecture("timm:tinynet", SHAPE, weights=str(weights.with_suffix(".pth")))
    assert other.pretrained != made.pretrained
    assert other.notes == made.notes == ()  # 8x8, as the weights have seen


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def test_the_key_has_the_hash_of_the_file_and_not_its_place(weights: Path) -> None:
    def identity(path: Path, **options: Any) -> str:
        made = architecture("timm:tinynet", SHAPE, weights=str(path), **options)
        return json.dumps(made.identity(), sort_keys=True)

    copy = weights.with_name("copy.safetensors")
    copy.write_bytes(weights.read_bytes())
    first = identity(weights)

    assert identity(copy) == first
    assert str(weights.parent) not in first
    assert '"library": "timm 9.9"' in first
    assert identity(weights, frozen=True) != first
    save_file({n: t + 1 for n, t in _read(weights).items()}, copy)
    assert identity(copy) != first
    plain = architecture("timm:tinynet", SHAPE).identity()
    assert (plain["pretrained"], plain["stored"]) == (None, True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no weights", "holds no weights that can be read"),
        ({"a": 1}, "a is not a tensor"),
        ([torch.ones(1)], "holds a list"),
        (Path("x"), "Weights only load failed"),
        (None, "No such file"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    timm: Any, tmp_path: Path, content: Any, reason: str
) -> None:
    file = tmp_path / "w.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    with pytest.raises(SpecError, match=reason):
        architecture("timm:tinynet", SHAPE, weights=str(file))


def test_weights_of_another_model_are_refused_although_timm_takes_them(weights: Path) -> None:
    some = {n: t for n, t in _read(weights).items() if n != "conv_head.weight"}
    save_file(some, weights)
    with pytest.raises(SpecError, match=r"does not fit timm:tinynet: it lacks conv_head.weight"):
        architecture("timm:tinynet", SHAPE, weights=str(weights))
    with pytest.raises(SpecError, match=r"does not fit timm:tinynet.*size mismatch"):
        architecture("timm:tinynet", (3, 8, 8), weights=str(weights))


def test_cached_weights_are_found_and_never_fetched(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = ModuleType("huggingface_hub")
    found: dict[str, str] = {}
    hub.try_to_load_from_cache = lambda repo_id, filename: found.get(  # type: ignore[attr-defined]
        f"{repo_id} {filename}"
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    with pytest.raises(
        SpecError, match=r"not in your cache \(.*tinynet-12345678.pth\), and nothing"
    ) as caught:
        architecture("timm:tinynet", SHAPE, weights="cached")
    assert "timm.create_model('tinynet', pretrained=True) in Python fetches" in str(caught.value)
    expected = architecture("timm:tinynet", SHAPE, weights=str(weights)).pretrained
    found["timm/tinynet.a1 model.safetensors"] = str(weights)
    assert architecture("timm:tinynet", SHAPE, weights="cached").pretrained == expected
    found.clear()
    place = tmp_path / "hub" / "checkpoints" / "tinynet-12345678.pth"
    place.parent.mkdir(parents=True)
    torch.save(_read(weights), place)
    assert architecture("timm:tinynet", SHAPE, weights="cached").pretrained not in (None, expected)


def test_random_weights_cannot_be_frozen(timm: Any) -> None:
    with pytest.raises(SpecError, match=r"freezes weights that never learned.*weights=cached"):
        architecture("timm:tinynet", SHAPE, frozen=True)


def test_frozen_weights_do_not_learn(weights: Path) -> None:
    made = architecture("timm:tinynet", SHAPE, weights=str(weights), frozen=True)

    assert (made.learns, made.fixed) == (False, True)
    assert not any(p.requires_grad for p in made.build([2]).backbone.parameters())


# -- normalization -------------------------------------------------------------------------------


def test_pretrained_weights_bring_their_normalization(weights: Path) -> None:
    own = Normalization((0.1,), (0.9,))
    made = architecture("timm:tinynet", SHAPE, weights=str(weights))

    grey = made.moments(own)
    assert grey is not None
    assert (grey.mean, grey.std) == (pytest.approx((0.4,)), pytest.approx((0.3,)))
    assert made.moments(None) is None
    assert architecture("timm:tinynet", SHAPE).moments(own) == own


def test_a_size_that_the_weights_have_not_seen_is_said(weights: Path) -> None:
    made = architecture("timm:tinynet", (1, 8, 10), weights=str(weights))

    assert made.notes == (
        "The weights of timm:tinynet were trained on images of 8x8 pixels, and yours have 10x8. "
        "Features may be poor: have the images resized, --set data.size=8 (a learner: size=8).",
    )


# -- runs and learners -------------------------------------------------------------------------


def part(*classes: int) -> tuple[Tensor, list[int]]:
    samples = digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


def taught(weights: Path | None, said: list[str] | None = None, **options: Any) -> Learner:
    events = Events()
    if said is not None:
        events.say = said.append  # type: ignore[method-assign]
    given = {} if weights is None else {"weights": str(weights), **options}
    made = Learner(
        "a-lwf",
        "timm:tinynet",
        network_options=given,
        training=SHORT,
        memory=Memory(per_class=5),
        events=events,
    )
    made.learn(*part(0, 1))
    return made


@pytest.mark.parametrize("frozen", [True, False])
def test_a_learner_is_made_again_without_its_network_and_without_its_weights(
    weights: Path, tmp_path: Path, frozen: bool
) -> None:
    learner = taught(weights, frozen=frozen)
    learner.save(tmp_path / "learner")
    weights.unlink()
    again = Learner.load(tmp_path / "learner")
    test = digits().test.x

    assert torch.equal(learner.scores(test), again.scores(test))
    again.learn(*part(2, 3))
    again.save(tmp_path / "more")
    third = Learner.load(tmp_path / "more", network="timm:tinynet")
    assert torch.equal(third.scores(test), again.scores(test))
    weights.write_bytes(b"")  # what is there now is not read
    assert torch.equal(Learner.load(tmp_path / "more").scores(test), again.scores(test))


def test_learning_on_after_loading_equals_learning_on(weights: Path, tmp_path: Path) -> None:
    learner = taught(weights)
    learner.save(tmp_path / "learner")
    again = Learner.load(tmp_path / "learner")
    for each in (learner, again):
        each.learn(*part(2, 3))

    assert torch.equal(learner.scores(digits().test.x), again.scores(digits().test.x))


def test_a_fresh_start_after_loading_is_refused(weights: Path, tmp_path: Path) -> None:
    learner = Learner(
        "dmc",
        "timm:tinynet",
        scenario="til",
        network_options={"weights": str(weights)},
        training=SHORT,
        events=Events(),
    )
    learner.learn(*part(0, 1))
    learner.save(tmp_path / "learner")

    with pytest.raises(SpecError, match="whose file is not known any more"):
        Learner.load(tmp_path / "learner").learn(*part(2, 3))


def test_a_forged_directory_names_no_network_of_another_kind_and_reads_no_file(
    weights: Path, tmp_path: Path
) -> None:
    taught(weights).save(tmp_path / "learner")
    entry = read_saved(tmp_path / "learner")
    recipe = entry.meta["recipe"]

    def forged(**changes: Any) -> Path:
        write_saved(tmp_path / "forged", StageResult(entry.tensors, {**entry.meta, **changes}))
        return tmp_path / "forged"

    with pytest.raises(SpecError, match="timm lists no model 'hf-hub:x/y'"):
        Learner.load(forged(recipe={**recipe, "network": {"name": "timm:hf-hub:x/y"}}))
    bare = {**entry.meta["state"], "pretrained": None}
    with pytest.raises(ancl.StoreError, match="weights whose hash is not there"):
        Learner.load(forged(state=bare))
    network = {**recipe["network"], "weights": "/dev/zero"}
    Learner.load(forged(recipe={**recipe, "network": network}))  # by its hash alone


def test_another_network_given_again_is_refused(weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "learner")
    for other in ("timm:tinyvit_patch4", "mlp"):
        with pytest.raises(SpecError, match="is not the one that"):
            Learner.load(tmp_path / "learner", network=other)


def test_a_run_by_name_is_opened_without_its_weights(weights: Path, tmp_path: Path) -> None:
    settings = {"network.name": "timm:tinynet", "network.weights": str(weights)}
    made = make_spec("lwf", "digits/5", quick=True, settings=settings)
    ancl.run(made, runs=tmp_path / "runs")
    assert made.network["frozen"] is False
    weights.unlink()

    [directory] = (tmp_path / "runs").glob("*lwf*")
    learner = ancl.load_run(directory)

    assert len(learner.classes) == 10
    mean = learner._learned().normalization
    assert mean is not None
    assert mean.mean == pytest.approx((0.4,))


def test_wrong_options_are_found_with_all_other_mistakes(timm: Any) -> None:
    with pytest.raises(SpecError) as caught:
        make_spec(
            "lwf",
            "digits/5",
            settings={
                "network.name": "timm:tinynet",
                "network.patch_size": 0,
                "network.wieghts": "x",
                "training.epochs": 0,
            },
        )
    assert "network.patch_size is 0" in str(caught.value)
    assert "Did you mean 'weights'" in str(caught.value)
    assert "training.epochs is 0" in str(caught.value)
