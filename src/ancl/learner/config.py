"""What a learner is made of: decided when it is made, checked, and saved with it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ancl.data import SCENARIOS, Normalization, Task
from ancl.errors import MethodError, SpecError, unknown
from ancl.hashing import describe, digest
from ancl.memory import Memory
from ancl.methods.defaults import method_defaults, section_of
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.task_history import check_exemplars
from ancl.networks import architecture, network_maker, network_options
from ancl.stages.plan import Setting
from ancl.training.config import Training


@dataclass(frozen=True, eq=False)
class LearnerConfig:
    """All that decides what a learner learns from its tasks; see ``Learner`` for the values.

    Args:
        method: The method itself.
        method_name: What it is made again from; nothing for one of the user's own.
        settings: The same.
    """

    method: Method
    method_name: str | None
    settings: Mapping[str, Any]
    network: str | nn.Module
    network_options: Mapping[str, Any]
    memory: Memory
    scenario: str
    seed: int
    training: Training
    auxiliary: Training
    val_fraction: float
    augment: str

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise SpecError(unknown("scenario", self.scenario, SCENARIOS))
        problems = self.training.problems() + self.auxiliary.problems()
        problems += self.method.training_problems(self.training)
        if self.training.schedule == "patience" and self.val_fraction == 0:
            problems.append("schedule=patience needs val_fraction above 0, or use cosine.")
        # What one class alone would already rule out, more classes do too.
        problems += self._memory_problems(1)
        if problems:
            raise SpecError("\n".join(problems))

    def setting(
        self,
        input_shape: Sequence[int],
        normalization: Normalization | None,
        device: torch.device,
    ) -> Setting:
        """What stages are planned from, for images of this shape."""
        return Setting(
            architecture=architecture(
                self.network,
                input_shape,
                head=self.method.head,
                head_options=self.method.head_options,
                **self._all_network_options(),
            ),
            training=self.training,
            auxiliary=self.auxiliary,
            normalization=normalization,
            augment=self.augment,
            memory=self.memory if self.memory.size else None,
            task_aware=self.scenario == "til",
            seed=self.seed,
            device=device,
        )

    def check_tasks(self, tasks: Sequence[Task], setting: Setting) -> None:
        """Refuse tasks whose images the memory cannot be shared by.

        Raises:
            SpecError: It is too small for so many classes (and domains).
            ScenarioError: A class has fewer images than are to be kept.
        """
        problems = self._memory_problems(sum(len(task.names) for task in tasks))
        if problems:
            raise SpecError("\n".join(problems))
        if self.method.data == "current":
            check_exemplars(setting.memory, self.method.hold_out, tasks)

    def meta(self) -> dict[str, Any]:
        """Everything as JSON; a method or network of the user's own is left out."""
        return {
            "method": self.method_name,
            "settings": dict(self.settings),
            "method_digest": self._digest(),
            "network": self.network if isinstance(self.network, str) else None,
            "network_source": self._network_source(),
            "network_options": dict(self.network_options),
            "memory": dataclasses.asdict(self.memory),
            "scenario": self.scenario,
            "seed": self.seed,
            "training": dataclasses.asdict(self.training),
            "auxiliary": dataclasses.asdict(self.auxiliary),
            "val_fraction": self.val_fraction,
            "augment": self.augment,
        }

    def check_method(self, saved: str, path: str | Path) -> None:
        """Refuse another method than the one that a digest was saved of."""
        if self._digest() != saved:
            raise MethodError(
                f"The method given to load is not the one {path} was saved with. Give the same "
                f"parts and values."
            )

    def check_network(self, saved: str | None, path: str | Path) -> None:
        """Refuse a network from a file or module whose code is not that it was saved with."""
        if self._network_source() != saved:
            raise SpecError(
                f"The code of {self.network} is not that which {path} was saved with. Put the "
                f"earlier version back, or train a new learner."
            )

    def _network_source(self) -> str | None:
        """The hash of the code of a network from outside, None for any other."""
        code = network_maker(self.network).code if isinstance(self.network, str) else None
        return code.sources.digest if code else None

    def _digest(self) -> str:
        return digest(describe(self.method))

    def _memory_problems(self, groups: int) -> list[str]:
        kept = self.memory if self.memory.size else None
        return self.memory.problems(groups, self.scenario) or self.method.problems(
            self.scenario, kept, groups
        )

    def _all_network_options(self) -> dict[str, Any]:
        """The options given, and what the method decides of them."""
        given = dict(self.network_options)
        if not isinstance(self.network, str):
            return given
        decided = section_of(method_defaults(self.method), "network")
        possible = network_options(self.network)
        return {name: value for name, value in decided.items() if name in possible} | given


def decided_memory(method: Method) -> Memory:
    """What a method keeps of earlier tasks' images where nobody else says it."""
    return Memory(**section_of(method_defaults(method), "memory"))


def decided_trainings(
    method: Method, training: Training | None, auxiliary: Training | None
) -> tuple[Training, Training]:
    """Both networks' trainings with what the method decides where nobody else does."""
    defaults, training = method_defaults(method), training or Training()
    if auxiliary is None:
        auxiliary = replace(training, **section_of(defaults, "auxiliary"))
    if training.select_by is None:
        training = replace(training, **section_of(defaults, "training"))
    return training, auxiliary


def named_method(method: str | Method, settings: Mapping[str, Any]) -> tuple[str | None, Method]:
    """A method with its settings, and its name where it can be made again from it."""
    if isinstance(method, Method):
        if settings:
            raise SpecError(
                f"{', '.join(settings)}: a Method has its settings already. Set them where it is "
                f"made, or give the method's name."
            )
        return None, method
    ref = MethodRef(method)
    return ref.name, ref.make(ref.check(dict(settings)))
