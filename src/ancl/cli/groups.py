"""Flags that go together, declared once, and commands that take them as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ancl.cli import options

if TYPE_CHECKING:
    from ancl.executors import ExecutorChoice
    from ancl.experiments.results import Places


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What the terms of the loss are multiplied by."""

    lamb: options.Lamb = None
    lamb_a: options.AuxiliaryLamb = None


@dataclass(frozen=True, kw_only=True)
class Seeding:
    """One run or several."""

    seed: options.Seed = None
    seeds: options.Seeds = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is learned, from how many images, and for how long."""

    scenario: options.Scenario = None
    tasks: options.Tasks = None
    classes: options.Classes = None
    first: options.First = None
    order: options.Order = None
    data: options.Data = None
    data_root: options.DataRoot = None
    memory_per_class: options.MemoryPerClass = None
    memory: options.Memory = None
    memory_selection: options.MemorySelection = None
    epochs: options.Epochs = None
    setting: options.Set = None
    config: options.Config = None


@dataclass(frozen=True, kw_only=True)
class PresetSettings(Settings):
    """The same, over a choice of what they are laid on."""

    preset: options.Preset = "paper"
    quick: options.Quick = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What computes."""

    device: options.Device = None
    threads: options.Threads = None


@dataclass(frozen=True, kw_only=True)
class Machines(Machine):
    """The same, for stages that may be computed side by side."""

    executor: options.Executor = None
    workers: options.Workers = None
    address: options.Address = None

    def choose(self) -> ExecutorChoice:
        """The executor that the flags ask for."""
        from ancl.errors import SpecError
        from ancl.executors import choose_executor

        if self.workers is not None and not (self.workers.isdecimal() and int(self.workers)):
            raise SpecError(
                f"--workers: {self.workers!r} is no number of workers. Write 1 or more."
            )
        workers = int(self.workers) if self.workers else None
        # A mistake in --threads is told together with those of the other settings.
        threads = int(self.threads) if self.threads and self.threads.isdecimal() else None
        return choose_executor(self.executor, workers, self.address, threads)

    def with_threads(self, threads: int | None) -> Self:
        """The same with the executor's number of threads, unless the flag was given."""
        return self if self.threads or threads is None else replace(self, threads=str(threads))


@dataclass(frozen=True, kw_only=True)
class Results:
    """Where results go and what is shown of them."""

    runs: options.Runs = options.RUNS
    store: options.Store = None
    dry_run: options.DryRun = False
    as_json: options.Json = False
    quiet: options.Quiet = False

    def places(self, data_root: Path | None) -> Places:
        """Every directory, with that of the data."""
        from ancl.experiments.results import Places

        return Places.of(self.runs, self.store, data_root)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a group spread out into the group's flags.

    Typer reads flags off a signature, so the flat one is written onto the wrapper.
    """
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    flat: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            flat += inspect.signature(kind, eval_str=True).parameters.values()
        else:
            flat.append(parameter)

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    wrapper.__dict__["__signature__"] = own.replace(parameters=flat)
    return wrapper
