"""Backbones of timm and torchvision: ``timm:NAME`` and ``torchvision:NAME``.

A name is one of the library's own list, never an address. Nothing is fetched: pretrained
weights come from a file, or from the cache where the library itself has put them.
"""

import importlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor, nn

from ancl.data.samples import Normalization
from ancl.errors import SpecError, did_you_mean, printable
from ancl.networks.pretrainable import PretrainableBackbone
from ancl.outside import LIBRARIES, in_library
from ancl.seeding import seeded

FORMS = tuple(f"{library}:NAME" for library in LIBRARIES)
"""How to name a network of another library."""
CACHED = "cached"
"""What ``weights`` may be instead of a file: the library's own pretrained ones, if it has them."""


class LibraryBackbone(PretrainableBackbone):
    """A backbone of another library.

    Args:
        name: As in ``timm:resnet18``.

    Raises:
        SpecError: The library is not installed, or does not list this name.
    """

    listing: str
    """The call that shows all names."""
    fetching: str
    """The library's own call that fills its cache, with the model's name to be put in."""
    stock_weights = CACHED

    def __init__(self, name: str) -> None:
        super().__init__()
        library, _, self.model = name.partition(":")
        self.name, self.library = name, _imported(library)
        self.version = f"{library} {self.library.__version__}"
        if self.model not in (names := self.names()):
            raise SpecError(
                f"{library} lists no model {printable(self.model, 100)!r}."
                f"{did_you_mean(self.model, names)} {self.listing} shows all {len(names):,}. "
                f"Addresses of a hub are not read: give a file with network.weights=FILE."
            )

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The library's own list."""

    @abstractmethod
    def _places(self) -> Iterator[Path]:
        """Where the library keeps the pretrained weights, if it has them."""

    def _stock_file(self) -> Path:
        searched = list(self._places())
        for path in searched:
            if path.is_file():
                return path
        where = ", ".join(str(path) for path in searched) or "no place is known"
        raise SpecError(
            f"The pretrained weights of {self.name} are not in your cache ({where}), and nothing "
            f"is fetched unasked. {self.fetching.format(self.model)} in Python fetches them. Or "
            f"give a file: network.weights=FILE."
        )


class _Timm(LibraryBackbone):
    """A backbone of timm, without its classifier; vision transformers get the images' size."""

    listing = "timm.list_models()"
    fetching = "timm.create_model({!r}, pretrained=True)"

    def make(
        self,
        shape: Sequence[int],
        *,
        weights: str | None = None,
        frozen: bool = False,
        patch_size: Annotated[int, Ge(1)] | None = None,
    ) -> nn.Module:
        """A new one, or with the weights of a file, which timm fits to size and channels."""
        channels, height, width = self._image(shape)
        options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
        if self._card().fixed_input_size:
            options["img_size"] = (height, width)
        if patch_size is not None:
            options["patch_size"] = patch_size
        tensors = self.tensors(weights)
        module = self._loaded(options, tensors) if tensors else self._made(options)
        return module.requires_grad_(not frozen)

    def names(self) -> Sequence[str]:
        """Architectures, and those with the tag of their pretrained weights."""
        return [*self.library.list_models(), *self.library.list_models(pretrained=True)]

    def normalization(self) -> Normalization:
        """As timm notes it."""
        card = self._card()
        return Normalization(tuple(card.mean), tuple(card.std))

    def size(self) -> int:
        """As timm notes it."""
        return int(self._card().input_size[1])

    def _card(self) -> Any:
        return self.library.get_pretrained_cfg(self.model)

    def _made(self, options: Mapping[str, Any]) -> nn.Module:
        try:
            module: nn.Module = self.library.create_model(self.model, pretrained=False, **options)
        except (TypeError, ValueError, RuntimeError, AssertionError, ArithmeticError) as error:
            given = ", ".join(f"{name}={value}" for name, value in options.items())
            why = printable(" ".join(str(error).split()).rstrip("."), 300)
            raise SpecError(
                f"timm cannot make {self.name} with {given} ({type(error).__name__}: {why}). Leave "
                f"out options that it does not have, such as network.patch_size, give images of "
                f"another size, or take another model."
            ) from error
        return module

    def _loaded(self, options: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
        """With these weights; timm itself would continue where some are missing."""
        with seeded(0, "fresh"):
            fresh = self._made(options).state_dict()
        overlay = {"state_dict": dict(tensors), "source": None}
        try:
            with seeded(0, "fresh"):
                module: nn.Module = self.library.create_model(
                    self.model, pretrained=True, pretrained_cfg_overlay=overlay, **options
                )
        except (RuntimeError, KeyError, ValueError, AttributeError) as error:
            raise self._misfit(error) from error
        loaded = module.state_dict()
        # What is random still was not in the file.
        absent = [
            name
            for name, value in loaded.items()
            if value.is_floating_point() and _varies(value) and torch.equal(value, fresh[name])
        ]
        if absent:
            raise self._misfit(f"it lacks {', '.join(absent[:3])}")
        # A classifier is left out, and perhaps a layer before it; a larger model is another one.
        more = (
            [name for name in tensors if name not in loaded]
            if loaded.keys() <= tensors.keys()
            else []
        )
        if len(more) > max(8, len(loaded) // 10):
            raise self._misfit(f"it has {len(more)} tensors more, such as {', '.join(more[:3])}")
        card = getattr(module, "pretrained_cfg", None)
        if isinstance(card, dict):
            card.pop("state_dict", None)  # else every copy of the network would copy the file
        return module

    def _places(self) -> Iterator[Path]:
        card = self._card()
        if card.hf_hub_id:
            named = [card.hf_hub_filename] if card.hf_hub_filename else []
            for name in (*named, "model.safetensors", "pytorch_model.bin"):
                with suppress(ImportError):  # timm brings it, but may be installed without
                    hub = importlib.import_module("huggingface_hub")
                    cached = hub.try_to_load_from_cache(repo_id=card.hf_hub_id, filename=name)
                    if isinstance(cached, str):
                        yield Path(cached)
        if card.url and not card.url.endswith(".npz"):
            yield _downloaded(card.url)


class _Torchvision(LibraryBackbone):
    """A classifier of torchvision whose last linear layer passes its input on."""

    listing = "torchvision.models.list_models(module=torchvision.models)"
    fetching = "torchvision.models.get_model({!r}, weights='DEFAULT')"

    def make(
        self, shape: Sequence[int], *, weights: str | None = None, frozen: bool = False
    ) -> nn.Module:
        """A new one, or with the weights of a file."""
        channels, height, width = self._image(shape)
        if channels != 3:
            raise SpecError(
                f"{self.name} reads images of 3 channels, and yours have {channels}. Use "
                f"timm:NAME, which fits any number, or give images in colour."
            )
        options: dict[str, Any] = {}
        if self.model.startswith("vit_"):
            if height != width:
                raise SpecError(f"{self.name} reads square images, not {width}x{height}.")
            options["image_size"] = height
        if self.model.startswith("maxvit"):
            options["input_size"] = (height, width)
        module: nn.Module = self.library.models.get_model(self.model, weights=None, **options)
        head = self._headless(module)
        tensors = self.tensors(weights)
        if tensors:
            backbone = {n: t for n, t in tensors.items() if not n.startswith(f"{head}.")}
            try:
                module.load_state_dict(backbone)
            except RuntimeError as error:
                raise self._misfit(error) from error
        return module.requires_grad_(not frozen)

    def names(self) -> Sequence[str]:
        """Classifiers; detection, segmentation and video have no such list here."""
        models = self.library.models
        plain = models.list_models(module=models)
        # Without one plain last layer, or with several answers while they train.
        odd = ("squeezenet", "googlenet", "inception")
        return [name for name in plain if not name.startswith(odd)]

    def normalization(self) -> Normalization:
        """As the transforms of its weights have it."""
        transforms = self._weights().transforms()
        return Normalization(tuple(transforms.mean), tuple(transforms.std))

    def size(self) -> int:
        """As the transforms of its weights have it."""
        return int(self._weights().transforms().crop_size[0])

    def _weights(self) -> Any:
        return self.library.models.get_model_weights(self.model).DEFAULT

    def _headless(self, made: nn.Module) -> str:
        """Take the classifier off, and say which layer it was."""
        linear: list[str] = [
            path for path, part in made.named_modules() if isinstance(part, nn.Linear)
        ]
        parent, _, child = linear[-1].rpartition(".")
        setattr(made.get_submodule(parent), child, nn.Identity())
        return linear[-1]

    def _places(self) -> Iterator[Path]:
        yield _downloaded(self._weights().url)


def library_backbone(name: str) -> LibraryBackbone:
    """The backbone that a name stands for; see ``LibraryBackbone``."""
    assert in_library(name)
    return _Timm(name) if name.startswith("timm:") else _Torchvision(name)


def _imported(library: str) -> ModuleType:
    try:
        module = importlib.import_module(library)
        if library == "torchvision":
            importlib.import_module("torchvision.models")
    except Exception as error:  # a torchvision that does not fit torch stops with several kinds
        raise _not_imported(library, error) from error
    return module


def _not_imported(library: str, error: Exception) -> SpecError:
    """What is wrong and what to do: not installed, in want of a package, or beside a wrong torch.

    timm imports torchvision. Where that stops, timm has no fault, and installing it again changes
    nothing: torchvision is to be named.
    """
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if absent == library:
        return SpecError(
            f"{library}:NAME needs the package {library}, which is not installed. Install it: pip "
            f"install 'ancl[{library}]' {_torch_pin()}: without torch and its index pip may take "
            f"another torch, or a torchvision that does not fit yours."
        )
    if absent == "torchvision":
        return SpecError(
            f"{library} is installed, but it imports torchvision, which is not. Install the one "
            f"that belongs to your torch: pip install torchvision {_torch_pin()}."
        )
    if absent:
        return SpecError(
            f"{library} is installed, but it imports the package {absent}, which is not. Install "
            f"it: pip install {absent.partition('.')[0]}."
        )
    if library == "timm":
        try:
            importlib.import_module("torchvision")
        except Exception as cause:  # as above
            return _unfit_torchvision("timm imports torchvision, and ", cause)
    if library == "torchvision":
        return _unfit_torchvision("", error)
    return SpecError(
        f"{library} {_version(library)} cannot be imported ({_told(error)}). Install another "
        f"version of it: pip install --upgrade --no-deps {library}."
    )


def _unfit_torchvision(begin: str, error: Exception) -> SpecError:
    return SpecError(
        f"{begin}torchvision {_version('torchvision')} cannot be imported beside torch "
        f"{torch.__version__} ({_told(error)}). Both must be for the CPU, or both for CUDA. "
        f"Replace torchvision: pip uninstall torchvision, then pip install torchvision "
        f"{_torch_pin()}."
    )


def _torch_pin() -> str:
    """What keeps pip from replacing the torch that is installed."""
    if torch.version.cuda is not None:
        return f"torch=={torch.__version__.partition('+')[0]}"
    return f"torch=={torch.__version__} --extra-index-url https://download.pytorch.org/whl/cpu"


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "of an unknown version"


def _told(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {' '.join(str(error).split())}", 300)


def _downloaded(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def _varies(values: Tensor) -> bool:
    return values.numel() > 1 and bool((values != values.flatten()[0]).any())
