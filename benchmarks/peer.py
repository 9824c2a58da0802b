"""Avalanche's LwF and EWC on the work of ``step.py``; needs ``avalanche-lib``.

A second experience after a first one, so that there is something to remember; one head, no
evaluator, no workers, random crops and flips by torchvision: as it is used for CIFAR.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

KINDS = ("lwf", "ewc")


def available() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("avalanche") is not None


class Images(torch.utils.data.Dataset):
    """Images one by one through torchvision's crop, flip, ToTensor and Normalize; their classes."""

    def __init__(self, x: Tensor, y: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
        from torchvision import transforms

        self.x, self.targets = x.numpy(), y.tolist()
        self.change = transforms.Compose(
            [
                transforms.RandomCrop(x.shape[1], padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean, std),
            ]
        )

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.change(Image.fromarray(self.x[index])), self.targets[index]


def epoch(
    kind: str, backbone: nn.Module, x: Tensor, batch: int, lr: float, moments: Any
) -> Callable[[], object]:
    """One epoch of the second experience; the first was trained for one."""
    _make_torchvision_importable()
    from avalanche.benchmarks import nc_benchmark
    from avalanche.training import supervised

    labels = torch.cat([torch.randint(first, first + 10, (len(x),)) for first in (0, 10)])
    images = Images(torch.cat([x, x]), labels, moments.mean, moments.std)
    order = {"shuffle": False, "fixed_class_order": list(range(20))}
    stream = nc_benchmark(images, images, n_experiences=2, task_labels=False, **order).train_stream
    model = nn.Sequential(backbone, nn.LazyLinear(20))
    model(torch.zeros(2, 3, *x.shape[1:3]))
    own = {"alpha": 1.0, "temperature": 2.0} if kind == "lwf" else {"ewc_lambda": 1.0}
    strategy = getattr(supervised, {"lwf": "LwF", "ewc": "EWC"}[kind])(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=2e-4),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=batch,
        evaluator=None,
        **own,
    )
    strategy.train(stream[0], eval_streams=[])
    # What ``train`` does before its loop over epochs.
    strategy.is_training, strategy._stop_training = True, False
    model.train()
    strategy._before_training()
    strategy.experience = stream[1]
    strategy._before_training_exp()
    return strategy.training_epoch


def _make_torchvision_importable() -> None:
    """A torchvision built for CUDA lacks two operators on a CPU torch; nothing here calls them."""
    warnings.filterwarnings("ignore")
    try:
        import torchvision  # noqa: F401
    except RuntimeError as problem:
        if "torchvision::" not in str(problem):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", signature)
