"""CCGN's network: one path of gates for every task through shared convolutions.  Equation: [ccgn].

What an earlier task's path reads never changes: its gates, batch norms and classifier rest, and so
do the kernels that it uses.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ancl.errors import SpecError
from ancl.networks import Backbone, Growth
from ancl.networks.backbones import Block, ResNet, draw_kernels
from ancl.types import Params

TEMPERATURE = 2 / 3
OPEN = 2.0
"""What a gate's logits begin around: most channels are open until the sparsity loss closes them.
Around 0, half of them would be shut at random in every layer, and few epochs learn nothing."""
HIDDEN_TASKS = 64
"""Hidden units of the task classifier."""


def relaxed(logits: Tensor, noise: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """σ((l + log u − log(1 − u)) / τ) with u uniform in (0, 1): above ½ with probability σ(l)."""
    return torch.sigmoid((logits + noise.log() - (1 - noise).log()) / temperature)


class _Hard(torch.autograd.Function):
    """1 above ½ and 0 elsewhere, with the gradient of what it was made of."""

    @staticmethod
    def forward(ctx: Any, soft: Tensor) -> Tensor:
        return (soft > 0.5).to(soft.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def straight_through(soft: Tensor) -> Tensor:
    """Exactly 0 or 1; the gradient is that of the soft value."""
    hard: Tensor = _Hard.apply(soft)  # type: ignore[no-untyped-call]
    return hard


class Gate(nn.Module):
    """Which channels of a layer one task opens for an image: 0 or 1 for each.

    Drawn while it learns; afterwards a channel is open where its logit is above 0, and only if
    the task was found to use it.

    Args:
        inputs: Channels that the layer reads.
        outputs: Channels that it yields.
        hidden: Units in between.
    """

    relevant: Tensor

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, outputs)
        nn.init.constant_(self.last.bias, OPEN)
        self.register_buffer("relevant", torch.ones(outputs, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """Gates (B, outputs) for the layer's input (B, inputs, height, width)."""
        pooled = F.adaptive_avg_pool2d(x, 1).flatten(1)
        logits: Tensor = self.last(F.relu(self.norm(self.first(pooled))))
        if not self.training:
            return ((logits > 0) & self.relevant).to(logits.dtype)
        edge = torch.finfo(logits.dtype).tiny
        return straight_through(relaxed(logits, torch.rand_like(logits).clamp(min=edge)))


class KeptRows(nn.Module):
    """A convolution some of whose kernels never change again, whatever an optimizer does.

    Args:
        conv: The convolution; no kernel is kept yet.
    """

    kept: Tensor
    rows: Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.register_buffer("kept", torch.zeros_like(conv.weight))
        self.register_buffer("rows", torch.zeros(conv.out_channels, dtype=torch.bool))

    def kernels(self) -> Tensor:
        """Kernels as they are used: kept ones have no gradient."""
        return torch.where(self.rows.view(-1, 1, 1, 1), self.kept, self.conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution."""
        out: Tensor = functional_call(self.conv, {"weight": self.kernels()}, (x,))
        return out

    @torch.no_grad()
    def keep(self, relevant: Tensor) -> None:
        """Keep these kernels too, as they are now, and draw all that are free anew."""
        new = relevant & ~self.rows
        self.kept[new] = self.conv.weight[new]
        self.rows |= relevant
        draw_kernels(self.conv)
        self.conv.weight.copy_(self.kernels())

    @torch.no_grad()
    def plain(self) -> nn.Conv2d:
        """An ordinary convolution that gives the same."""
        twin = copy.deepcopy(self.conv)
        twin.weight.copy_(self.kernels())
        return twin


class TaskPath(nn.Module):
    """One task's way through the shared convolutions: its gates and batch norms.

    Args:
        layers: The shared 3x3 convolutions: the stem, then two of every block.
        shortcuts: A 1x1 convolution for every block, or an identity.
        hidden: Hidden units of a gate.
    """

    def __init__(self, layers: nn.ModuleList, shortcuts: nn.ModuleList, hidden: int) -> None:
        super().__init__()
        convs = [layer.conv for layer in layers if isinstance(layer, KeptRows)]
        self.gates = nn.ModuleList(Gate(c.in_channels, c.out_channels, hidden) for c in convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(conv.out_channels) for conv in convs)
        self.shortcuts = nn.ModuleList(
            nn.BatchNorm2d(way.conv.out_channels) if isinstance(way, KeptRows) else nn.Identity()
            for way in shortcuts
        )

    def through(
        self, layers: Sequence[nn.Module], shortcuts: Sequence[nn.Module], x: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Pooled features (B, D), and the gates (B, channels) of every layer."""
        gates: list[Tensor] = []

        def gated(layer: int, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
            gates.append(self.gates[layer](x))
            out: Tensor = self.norms[layer](layers[layer](x))
            out = F.relu(out if shortcut is None else out + shortcut)
            return out * gates[-1][:, :, None, None]

        x = gated(0, x)
        for block, shortcut in enumerate(shortcuts):
            around = self.shortcuts[block](shortcut(x))
            x = gated(2 * block + 2, gated(2 * block + 1, x), around)
        return F.adaptive_avg_pool2d(x, 1).flatten(1), gates


class TaskClassifier(nn.Module):
    """All paths' features to one logit for every task; it gains a path with every task.

    Args:
        features: The number of features of one path.
    """

    first: nn.Linear | None
    last: nn.Linear | None

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first, self.last, self._features = None, None, features

    @torch.no_grad()
    def widen(self, tasks: int) -> None:
        """Read one more path, and predict one more task; what was there stays."""
        before = (self.first, self.last)
        self.first = nn.Linear(tasks * self._features, HIDDEN_TASKS)
        self.last = nn.Linear(HIDDEN_TASKS, tasks)
        for old, new in zip(before, (self.first, self.last), strict=True):
            if old is not None:
                rows, columns = old.weight.shape
                new.weight[:rows, :columns] = old.weight
                new.bias[:rows] = old.bias

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, tasks)."""
        assert self.first is not None
        assert self.last is not None
        out: Tensor = self.last(F.relu(self.first(features)))
        return out


class Gated(Backbone):
    """A residual network as shared convolutions with one path for every task.

    Features are those of all paths side by side. A network that learns runs earlier tasks' paths
    only where a task classifier reads them; otherwise their features are zeros then.

    Args:
        backbone: The network whose convolutions are shared; its own batch norms are not used.
        hidden: Hidden units of a gate.
        classifier: Whether there is a task classifier.
    """

    class_tasks: Tensor

    def __init__(self, backbone: ResNet, hidden: int, classifier: bool) -> None:
        super().__init__()
        self.names = ["conv1"]
        self.layers = nn.ModuleList([KeptRows(backbone.conv1)])
        self.shortcuts = nn.ModuleList()
        for name, block in backbone.named_modules():
            if isinstance(block, Block):
                self.names += [f"{name}.conv1", f"{name}.conv2"]
                self.layers.extend([KeptRows(block.conv1), KeptRows(block.conv2)])
                self.shortcuts.append(_shared_shortcut(block))
        self.paths = nn.ModuleList()
        self.tasks = TaskClassifier(backbone.feature_size) if classifier else None
        self.feature_size = self._width = backbone.feature_size
        self._hidden = hidden
        self.register_buffer("class_tasks", torch.zeros(0, dtype=torch.long), persistent=False)

    def add_task(self, classes: int) -> None:
        """A path for the task; those before rest from now on."""
        self.paths.requires_grad_(False)
        device, task = self.class_tasks.device, len(self.paths)
        self.paths.append(TaskPath(self.layers, self.shortcuts, self._hidden).to(device))
        self.feature_size = self._width * len(self.paths)
        if self.tasks:
            self.tasks.widen(task + 1)
            self.tasks.to(device)
        numbers = torch.full((classes,), task, device=device)
        self.class_tasks = torch.cat([self.class_tasks, numbers])

    def train(self, mode: bool = True) -> "Gated":
        """Earlier tasks' paths stay in eval mode."""
        super().train(mode)
        for path in list(self.paths)[:-1]:
            path.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, tasks · D)."""
        return self.with_side(x)[0]

    def with_side(self, x: Tensor) -> tuple[Tensor, Params]:
        """Features, and what terms and inference read besides.

        ``gates`` (B, layers) is the share of open channels on the newest path; with a task
        classifier ``tasks`` (B, tasks) are its logits, and ``class_tasks`` (B, classes) says of
        which task a class is.
        """
        last, gates = self._through(-1, x)
        features = torch.cat([*self._earlier(x, last), last], dim=1)
        side = {"gates": torch.stack([gate.mean(dim=1) for gate in gates], dim=1)}
        if self.tasks:
            side["tasks"] = self.tasks(features)
            # Not len(x): an exported network would be bound to that number of images.
            side["class_tasks"] = self.class_tasks.expand(x.shape[0], -1)
        return features, side

    def _earlier(self, x: Tensor, last: Tensor) -> list[Tensor]:
        """Features of earlier tasks' paths, of which nothing learns."""
        number = len(self.paths) - 1
        if self.training and not self.tasks:
            return [torch.zeros_like(last)] * number
        with torch.no_grad():
            return [self._through(task, x)[0] for task in range(number)]

    def _through(self, task: int, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        path = self.paths[task]
        assert isinstance(path, TaskPath)
        return path.through(list(self.layers), list(self.shortcuts), x)

    def fired(self, x: Tensor) -> list[Tensor]:
        """Which channels (B, channels) of every layer the newest task opens."""
        return self._through(-1, x)[1]

    @torch.no_grad()
    def protect(self, relevant: Sequence[Tensor]) -> None:
        """Keep for ever the kernels that the newest task uses, and draw all others anew.

        The task's gates open nothing else from now on: also for an image that would have opened
        more, answers then depend on kept kernels alone.

        Args:
            relevant: For every layer, which channels the task uses.
        """
        path = self.paths[-1]
        assert isinstance(path, TaskPath)
        for index, used in enumerate(relevant):
            layer, gate = self.layers[index], path.gates[index]
            assert isinstance(layer, KeptRows)
            assert isinstance(gate, Gate)
            gate.relevant.copy_(used)
            layer.keep(used)
            # The second mask of a block cuts its shortcut, too.
            shortcut = self.shortcuts[index // 2 - 1] if index and index % 2 == 0 else None
            if isinstance(shortcut, KeptRows):
                shortcut.keep(used)

    def free(self) -> dict[str, int]:
        """The number of kernels of every 3x3 convolution that no task keeps."""
        named = zip(self.names, self.layers, strict=True)
        return {
            name: int((~layer.rows).sum()) for name, layer in named if isinstance(layer, KeptRows)
        }

    def last_layers(self) -> list[str]:
        """The shared convolutions of the last stage, which has the most channels."""
        return [
            f"layers.{index}"
            for index, layer in enumerate(self.layers)
            if isinstance(layer, KeptRows) and layer.conv.out_channels == self._width
        ]

    def folded(self) -> "Gated":
        """A copy for inference whose convolutions are ordinary ones."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        for part in (twin.layers, twin.shortcuts):
            for index, layer in enumerate(part):
                if isinstance(layer, KeptRows):
                    part[index] = layer.plain()
        return twin


def _shared_shortcut(block: Block) -> nn.Module:
    project = block.downsample[0] if isinstance(block.downsample, nn.Sequential) else None
    return KeptRows(project) if isinstance(project, nn.Conv2d) else nn.Identity()


@dataclass(frozen=True)
class Gates(Growth):
    """A path of gates for every task; see ``Gated``.

    Args:
        hidden: Hidden units of a gate.
        classifier: Whether there is a task classifier.
    """

    hidden: int = 16
    classifier: bool = True

    def around(self, backbone: nn.Module, feature_size: int) -> nn.Module:
        """The backbone's convolutions, shared by all tasks."""
        if not isinstance(backbone, ResNet):
            raise SpecError(
                f"CCGN gates the convolutions of our residual networks, and "
                f"{type(backbone).__name__} is not one of them. Use a resnet, such as "
                f"network.name=resnet8."
            )
        return Gated(backbone, self.hidden, self.classifier)

    def told(self, task_aware: bool) -> "Gates":
        """Where the task of an image is known, nothing needs to find it."""
        return replace(self, classifier=not task_aware)
