"""Networks by name that may begin with pretrained weights: where these are, and what they expect.

Nothing is fetched. Weights come from a file, or from a place where the user has put them before.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from ancl.data.samples import Normalization
from ancl.errors import SpecError, printable
from ancl.networks.identity import WeightFile, read_weights, weight_file
from ancl.networks.learnable import embeds_patches
from ancl.seeding import seeded

RANDOM = "random"
"""What ``weights`` may be instead of a file: new ones, drawn from the run's seed."""
_DIGEST = re.compile("sha256:([0-9a-f]{64})")


class PretrainableBackbone(ABC):
    """A named backbone whose weights may be pretrained.

    Attributes:
        name: As in ``timm:resnet18``.
        version: What else decides the networks it makes: the library and its version.
        default_weights: What ``weights`` means where it is left out.
        stock_weights: The word for the model's own pretrained weights, as a value of ``weights``.
        make: From the shape of a sample, and options by keyword, to a backbone.
    """

    name: str
    version: str
    default_weights: str = RANDOM
    stock_weights: str
    make: Callable[..., nn.Module]

    def __init__(self) -> None:
        self._files: dict[str, WeightFile] = {}

    @abstractmethod
    def normalization(self) -> Normalization:
        """What its pretrained weights expect."""

    @abstractmethod
    def size(self) -> int:
        """Height and width of the images that its pretrained weights have seen."""

    @cached_property
    def embeds_patches(self) -> bool:
        """Whether its networks begin with a patch embedding, as transformers do."""
        with seeded(0, "fresh"):
            return embeds_patches(self.make((3, self.size(), self.size()), weights=RANDOM))

    @abstractmethod
    def _stock_file(self) -> Path:
        """The file of the model's own pretrained weights.

        Raises:
            SpecError: It is not there.
        """

    def starts_random(self, weights: str | None) -> bool:
        """Whether a setting asks for new weights."""
        return (weights or self.default_weights) == RANDOM

    def located(self, weights: str | None) -> WeightFile | None:
        """The file of weights that a setting names, as it is the first time it is asked for.

        Keys hold that hash, so every later network must begin with these very bytes.

        Raises:
            SpecError: It is not there.
        """
        if self.starts_random(weights):
            return None
        named = weights or self.default_weights
        if known := _DIGEST.fullmatch(named):
            return WeightFile(known[1])
        if named not in self._files:
            stock = named == self.stock_weights
            file = self._stock_file() if stock else Path(named).expanduser()
            self._files[named] = weight_file(file)
        return self._files[named]

    def moments(self, channels: int) -> Normalization:
        """The normalization for images of this number of channels: grey ones get the mean."""
        expected = self.normalization()
        if len(expected.mean) == channels:
            return expected
        mean, std = (sum(values) / len(values) for values in (expected.mean, expected.std))
        return Normalization((mean,) * channels, (std,) * channels)

    def notes(self, shape: Sequence[int]) -> tuple[str, ...]:
        """What a user should know before pretrained weights are used for such images."""
        if tuple(shape[1:]) == (self.size(), self.size()):
            return ()
        return (
            f"The weights of {self.name} were trained on images of {self.size()}x{self.size()} "
            f"pixels, and yours have {shape[2]}x{shape[1]}. Features may be poor: have the images "
            f"resized, --set data.size={self.size()} (a learner: size={self.size()}).",
        )

    def tensors(self, weights: str | None) -> dict[str, Tensor] | None:
        """The weights to begin with; None for new ones.

        Raises:
            SpecError: The file is not there or cannot be read.
        """
        pretrained = self.located(weights)
        if pretrained is None:
            return None
        if pretrained.file is None:
            pretrained = self._same_as_stock(pretrained)
        if pretrained.file is None:
            raise SpecError(
                f"A new {self.name} is to begin with pretrained weights (sha256 "
                f"{pretrained.digest[:12]}), whose file is not known any more: a saved learner "
                f"keeps what was learned alone. Learn all tasks without saving in between, or use "
                f"a method that continues from the old network."
            )
        return read_weights(pretrained)

    def _same_as_stock(self, wanted: WeightFile) -> WeightFile:
        """The model's own pretrained weights, where they are here and have the hash asked for."""
        try:
            stock = weight_file(self._stock_file())
        except SpecError:
            return wanted
        return stock if stock.digest == wanted.digest else wanted

    def _image(self, shape: Sequence[int]) -> tuple[int, int, int]:
        if len(shape) != 3:
            raise SpecError(
                f"{self.name} reads images (channels, height, width), but the samples have shape "
                f"{tuple(shape)}. For vectors of another model use features; else mlp, or your own "
                f"module."
            )
        return shape[0], shape[1], shape[2]

    def _misfit(self, reason: object) -> SpecError:
        shown = printable(" ".join(str(reason).split()).rstrip("."), 300)
        return SpecError(
            f"The file for network.weights does not fit {self.name}: {shown}. Give weights of this "
            f"very model."
        )
