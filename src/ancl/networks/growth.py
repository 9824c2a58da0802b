"""Networks that change from task to task: how a method makes such a backbone of the run's own."""

from abc import ABC, abstractmethod

from torch import nn


class Growth(ABC):
    """How a method changes the backbone from task to task.

    Make it a frozen dataclass: its fields are part of the keys of all stages with a network.
    """

    @abstractmethod
    def around(self, backbone: nn.Module, feature_size: int) -> nn.Module:
        """A backbone with a method ``add_task(classes)``, made of the run's own.

        It is called once for every task, the first one included, in order, and decides the shape
        of every tensor: a stored network is made again by the same calls, then its values are
        loaded. What must not learn any more is frozen there with ``requires_grad_(False)``; such
        parts then stay in eval mode, too. New values come from PyTorch's global generators, or
        from the parts before, as they are.

        Args:
            backbone: A fresh backbone of the run's network.
            feature_size: The number of features it yields.

        Raises:
            SpecError: The method cannot use this backbone.
        """

    def told(self, task_aware: bool) -> "Growth":
        """The same where the task of an image is known or not; by default no difference."""
        return self
