"""Classifiers that grow by one block of classes per task."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.errors import MethodError, ScenarioError


class Head(nn.Module, ABC):
    """Features to logits of all classes so far, one block of classes for every task.

    A new block is drawn from PyTorch's global generator, on the CPU, so that it is the same
    on every device; the caller seeds that generator.

    Args:
        feature_size: The number of features the head reads.

    Attributes:
        scale: η, by which logits were multiplied; none where there is no such factor.
    """

    _like: Tensor
    scale: nn.Parameter | None

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.sizes: tuple[int, ...] = ()
        # An empty head has no parameter that could say to which device and dtype it was moved.
        self.register_buffer("_like", torch.empty(0), persistent=False)
        self.register_parameter("scale", None)

    def grow(self, classes: int, *, draw: bool = True) -> None:
        """Append a block; the logits of earlier blocks stay as they are.

        Args:
            classes: Of the block.
            draw: Whether it begins with random numbers; else with any, for stored values to come.
        """
        if classes < 1:
            raise ScenarioError(
                f"A head cannot grow by {classes} classes. Every task needs at least one class."
            )
        self._append(classes, draw)
        self.sizes = (*self.sizes, classes)

    def reset(self) -> None:
        """Draw every block anew; what belongs to no block stays."""
        for name, child in list(self.named_children()):
            if isinstance(child, nn.ParameterList):
                setattr(self, name, nn.ParameterList())
        for classes in self.sizes:
            self._append(classes, draw=True)

    def widen(self, columns: int) -> None:
        """Read more features; the logits of earlier blocks stay as they are, whatever these are.

        Raises:
            MethodError: This kind of head cannot.
        """
        raise MethodError(
            f"A {type(self).__name__} cannot read more features than it began with. Use "
            f"head='linear' or 'unbiased' with a backbone whose features grow."
        )

    @abstractmethod
    def _append(self, classes: int, draw: bool) -> None:
        """Make the parameters of one more block, on the device and in the dtype of ``_like``."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Logits of shape (B, sum of the sizes), the blocks side by side in order."""

    @abstractmethod
    def block(self, index: int) -> list[nn.Parameter]:
        """The parameters of one block, for example to freeze it."""

    def shared(self) -> list[nn.Parameter]:
        """The parameters that belong to no block."""
        return []

    def row_blocks(self) -> list[Tensor]:
        """The class weights of every block, where there is one row per class."""
        return []

    def rows(self) -> Tensor | None:
        """The class weights (C, D), where there is one row per class."""
        blocks = self.row_blocks()
        return torch.cat(blocks) if blocks else None

    def imprint(self, block: int, features: Tensor, labels: Tensor) -> None:
        """Start a block from its classes' features instead of from random numbers.

        Args:
            block: The block's index.
            features: Of the block's training images, by the network before it learns them.
            labels: Their class positions in global order.

        Raises:
            MethodError: This kind of head cannot.
        """
        raise MethodError(
            f"A {type(self).__name__} cannot start from features. Use head='cosine' or 'proxies'."
        )


def listed(blocks: nn.ParameterList) -> list[Tensor]:
    """The parameters of all blocks, in order.

    To iterate over the list itself looks every one up by the text of its number: with hundreds of
    blocks that takes longer than all the rest of a step.
    """
    return [parameter for parameter in blocks._parameters.values() if parameter is not None]


class LinearHead(Head):
    """Weights times features plus bias, initialised as ``nn.Linear`` is."""

    def __init__(self, feature_size: int) -> None:
        super().__init__(feature_size)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()

    def _append(self, classes: int, draw: bool) -> None:
        for part, rows in zip((self.weights, self.biases), self._layer(classes, draw), strict=True):
            part.append(rows)

    def _layer(self, classes: int, draw: bool, bias: bool = True) -> list[nn.Parameter]:
        """The parameters of one linear layer, drawn as PyTorch draws them."""
        if draw:
            dtype = self._like.dtype
            layer = nn.Linear(self._reads, classes, bias=bias, device="cpu", dtype=dtype)
            return list(layer.to(self._like.device).parameters())
        shapes = [(classes, self._reads), (classes,)][: 1 + bias]
        return [nn.Parameter(self._like.new_empty(shape)) for shape in shapes]

    @property
    def _reads(self) -> int:
        """The number of features that a new block reads."""
        return self.feature_size

    def widen(self, columns: int) -> None:
        """Weights of 0 for the new features."""
        self.feature_size += columns
        for index, rows in enumerate(self.weights):
            wider = torch.cat([rows.detach(), rows.new_zeros(len(rows), columns)], dim=1)
            self.weights[index] = nn.Parameter(wider)

    def forward(self, features: Tensor) -> Tensor:
        """One product with all blocks at once; no columns before the first block."""
        if not self.sizes:
            return features[:, :0]
        return F.linear(features, torch.cat(listed(self.weights)), torch.cat(listed(self.biases)))

    def block(self, index: int) -> list[nn.Parameter]:
        """Weight and bias of one block."""
        return [self.weights[index], self.biases[index]]

    def row_blocks(self) -> list[Tensor]:
        """The weights of every block, without biases."""
        return [*listed(self.weights)]


class UnbiasedHead(LinearHead):
    """Weights times features: only its row decides how large a class's logits are."""

    def _append(self, classes: int, draw: bool) -> None:
        self.weights.extend(self._layer(classes, draw, bias=False))

    def forward(self, features: Tensor) -> Tensor:
        """One product with all blocks at once."""
        return (
            F.linear(features, torch.cat(listed(self.weights))) if self.sizes else features[:, :0]
        )

    def block(self, index: int) -> list[nn.Parameter]:
        """The weight of one block."""
        return [self.weights[index]]


class PathHead(LinearHead):
    """Weights times features plus bias, each block from its own task's features.

    A backbone with a path for every task gives all paths' features side by side.

    Args:
        feature_size: The number of features of one path.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__(feature_size)
        self._path = feature_size

    def widen(self, columns: int) -> None:
        """Earlier blocks never read another path's features."""
        self.feature_size += columns

    @property
    def _reads(self) -> int:
        return self._path

    def forward(self, features: Tensor) -> Tensor:
        """Every block's logits of its own path, side by side."""
        if not self.sizes:
            return features[:, :0]
        paths = torch.split(features, self._path, dim=1)
        blocks = zip(paths, listed(self.weights), listed(self.biases), strict=True)
        return torch.cat([F.linear(path, rows, bias) for path, rows, bias in blocks], dim=1)


class DirectionHead(Head):
    """Rows compared with features by direction alone, times one learnable η; no bias.

    As long as η is positive, as at the start, it does not change the order of classes: the largest
    logit is the largest similarity.

    Args:
        feature_size: The number of features the head reads.
        per_class: How many rows every class has.
    """

    scale: nn.Parameter

    def __init__(self, feature_size: int, per_class: int = 1) -> None:
        super().__init__(feature_size)
        self.per_class = per_class
        self.weights = nn.ParameterList()
        self.scale = nn.Parameter(torch.ones(()))

    @abstractmethod
    def _draw(self, rows: Tensor) -> None:
        """Fill fresh rows in place."""

    @abstractmethod
    def _similarities(self, cosines: Tensor) -> Tensor:
        """One number per class from the cosines of all rows."""

    @abstractmethod
    def _prototypes(self, unit: Tensor) -> Tensor:
        """At most ``per_class`` rows that stand for one class's features of length 1."""

    def _append(self, classes: int, draw: bool) -> None:
        shape = (classes * self.per_class, self.feature_size)
        rows = torch.empty(shape, device="cpu", dtype=self._like.dtype)
        if draw:
            self._draw(rows)
        self.weights.append(nn.Parameter(rows.to(self._like.device)))

    def forward(self, features: Tensor) -> Tensor:
        """η times the similarities."""
        if not self.sizes:
            return features[:, :0]
        rows = F.normalize(torch.cat(listed(self.weights)), dim=1)
        return self.scale * self._similarities(F.linear(F.normalize(features, dim=1), rows))

    def block(self, index: int) -> list[nn.Parameter]:
        """The rows of one block."""
        return [self.weights[index]]

    def shared(self) -> list[nn.Parameter]:
        """η."""
        return [self.scale]

    @torch.no_grad()
    def imprint(self, block: int, features: Tensor, labels: Tensor) -> None:
        """Prototypes of each class's directions, as long as earlier blocks' rows are on average."""
        assert block > 0, "the first block has no earlier rows whose length it could take"
        length = torch.cat(listed(self.weights)[:block]).norm(dim=1).mean()
        unit = F.normalize(features.to(self._like), dim=1)
        first = sum(self.sizes[:block])
        for index in range(self.sizes[block]):
            of_class = unit[labels == first + index]
            if not len(of_class):
                raise ScenarioError(
                    f"Class {first + index} has no images from which its row of the head could "
                    "start. Give every class of a task at least one training image."
                )
            rows, start = self._prototypes(of_class) * length, index * self.per_class
            self.weights[block][start : start + len(rows)].copy_(rows)


class CosineHead(DirectionHead):
    """η cos(w, f), one row per class.  Equation: [cosine-head]."""

    def _draw(self, rows: Tensor) -> None:
        bound = self.feature_size**-0.5
        rows.uniform_(-bound, bound)

    def _similarities(self, cosines: Tensor) -> Tensor:
        return cosines

    def _prototypes(self, unit: Tensor) -> Tensor:
        """The direction of the mean."""
        return F.normalize(unit.mean(dim=0, keepdim=True), dim=1)

    def row_blocks(self) -> list[Tensor]:
        """The rows as they are, of any length."""
        return [*listed(self.weights)]


class ProxyHead(DirectionHead):
    """η Σ_k softmax_k(γs) s over the similarities s to a class's proxies.  Equation: [lsc].

    Args:
        feature_size: The number of features the head reads.
        proxies: The number per class.
        gamma: γ, how much the most similar proxy outweighs the others.
        similarity: −‖f − w‖² = 2 cos − 2 (``official`` code), or the ``cosine`` itself.
    """

    def __init__(
        self,
        feature_size: int,
        proxies: int = 10,
        gamma: float = 1.0,
        similarity: Literal["official", "cosine"] = "official",
    ) -> None:
        super().__init__(feature_size, per_class=proxies)
        self.gamma, self.similarity = gamma, similarity

    def _draw(self, rows: Tensor) -> None:
        nn.init.kaiming_normal_(rows, nonlinearity="linear")

    def _similarities(self, cosines: Tensor) -> Tensor:
        # Not by len(cosines): an exported network would be bound to that number of images.
        near = cosines.reshape(-1, cosines.shape[1] // self.per_class, self.per_class)
        if self.similarity == "official":
            near = 2 * near - 2
        shares = (self.gamma * near).softmax(dim=2)
        return (shares * near).sum(dim=2)

    def _prototypes(self, unit: Tensor) -> Tensor:
        """Centres of the features; with fewer features than proxies the rest stay as drawn."""
        return centres(unit, min(self.per_class, len(unit)))


class IdentityHead(Head):
    """A head whose features are the logits already."""

    def _append(self, classes: int, draw: bool) -> None:
        """No-op: it has no parameters."""

    def forward(self, features: Tensor) -> Tensor:
        """The features themselves."""
        return features

    def block(self, index: int) -> list[nn.Parameter]:
        """It has no parameters."""
        return []


class NoHead(IdentityHead):
    """For methods that compute their classifier from features: logits of 0, and no parameters."""

    def forward(self, features: Tensor) -> Tensor:
        """A column of zeros for each class."""
        return features.new_zeros(features.shape[0], sum(self.sizes))


def centres(points: Tensor, count: int, rounds: int = 30) -> Tensor:
    """k-means: each centre is the mean of the points that are nearest to it.

    Starts from points drawn far apart (k-means++) with PyTorch's global generator, and computes
    on the CPU in double precision, so that the same seed gives the same centres everywhere.
    """
    given = points.double().cpu()
    chosen = [int(torch.randint(len(given), ()))]
    while len(chosen) < count:
        gaps = torch.cdist(given, given[chosen]).amin(dim=1).square()
        gaps[chosen] = 0
        # Where all points are doubles of chosen ones, any of the others will do.
        odds = (
            gaps if gaps.sum() > 0 else torch.ones_like(gaps).index_fill(0, torch.tensor(chosen), 0)
        )
        chosen.append(int(torch.multinomial(odds, 1)))
    centroids = given[chosen]
    for _ in range(rounds):
        nearest = torch.cdist(given, centroids).argmin(dim=1)
        sizes = torch.bincount(nearest, minlength=count).unsqueeze(1)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, given)
        moved = torch.where(sizes > 0, sums / sizes.clamp(min=1), centroids)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids.to(points)


HEADS: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    "unbiased": UnbiasedHead,
    "paths": PathHead,
    "cosine": CosineHead,
    "proxies": ProxyHead,
    "none": NoHead,
}
