"""Stages computed once: found in the store, resumed from a checkpoint, or started."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from ancl.data import Split, Task
from ancl.methods.parts import StageContext
from ancl.stages.events import Events
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult
from ancl.training.loop import Drive, Saved, Trainer, epoch_record

CHECKPOINT_SECONDS = 5.0
_SHARED: dict[str, StageResult] = {}
"""The last result that stages of this process share, by its key."""


class StageStorage(Protocol):
    """Where results of stages are kept."""

    def has(self, key: str) -> bool: ...  # noqa: D102
    def load(self, key: str) -> StageResult | None: ...  # noqa: D102
    def save(self, key: str, entry: StageResult) -> None: ...  # noqa: D102
    def load_checkpoint(self, key: str) -> StageResult | None: ...  # noqa: D102
    def save_checkpoint(self, key: str, entry: StageResult) -> None: ...  # noqa: D102
    def drop_checkpoint(self, key: str) -> None: ...  # noqa: D102
    def lock(self, key: str) -> AbstractContextManager[None]: ...  # noqa: D102


class MemoryStore:
    """A store in memory, for code without a source file and for trials."""

    def __init__(self) -> None:
        self._entries: dict[str, StageResult] = {}

    def has(self, key: str) -> bool:
        """Whether it was computed."""
        return key in self._entries

    def load(self, key: str) -> StageResult | None:
        """The entry of a key, if it was computed."""
        return self._entries.get(key)

    def save(self, key: str, entry: StageResult) -> None:
        """Keep an entry."""
        self._entries[key] = entry

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all other entries."""
        wanted = set(keys)
        self._entries = {key: entry for key, entry in self._entries.items() if key in wanted}

    def load_checkpoint(self, key: str) -> StageResult | None:
        """Always None: nothing is checkpointed in memory."""
        return None

    def save_checkpoint(self, key: str, entry: StageResult) -> None:
        """No-op."""

    def drop_checkpoint(self, key: str) -> None:
        """No-op."""

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """No-op: there is only one process."""
        yield


class Layered:
    """What is in memory already, else the store behind it, which keeps what is computed."""

    def __init__(self, memory: MemoryStore, behind: StageStorage) -> None:
        self._memory, self._behind = memory, behind
        self.save, self.lock = behind.save, behind.lock
        self.load_checkpoint, self.save_checkpoint = behind.load_checkpoint, behind.save_checkpoint
        self.drop_checkpoint = behind.drop_checkpoint

    def has(self, key: str) -> bool:
        """Whether there is an entry of a key anywhere."""
        return self._memory.has(key) or self._behind.has(key)

    def load(self, key: str) -> StageResult | None:
        """The entry of a key, wherever it is."""
        return self._memory.load(key) or self._behind.load(key)


class Runner:
    """Gets the results of a plan's stages, each from the store or by computing it once.

    Args:
        stages: The plan.
        tasks: Where stages find their images, by key.
        device: Where to compute.
        store: Where results are kept. Stages of code without a source file stay in memory.
        reporter: Receives what happens.
    """

    def __init__(
        self,
        stages: Iterable[Stage],
        tasks: Iterable[Task],
        device: torch.device,
        store: StageStorage,
        reporter: Events,
    ) -> None:
        self._stages = {stage.key: stage for stage in stages}
        self._images = image_loader(tasks)
        self._device, self._store, self._reporter = device, store, reporter
        self._memory = MemoryStore()

    def obtain(self, key: str) -> StageResult:
        """The result of one stage; what it reads is obtained first, if it must be computed."""
        stage = self._stages.get(key)
        store: StageStorage = self._memory if stage and stage.unstored else self._store
        shared = stage is not None and stage.shared
        entry = _SHARED[key] if shared and key in _SHARED and store.has(key) else store.load(key)
        if stage is None:
            assert entry is not None, "an input that no stage of the plan yields is in the store"
            return entry
        computed: list[StageResult] = []
        if entry is None:
            # Before the lock is taken: computing an input takes its own lock.
            inputs = {part: self.obtain(of) for part, of in stage.inputs.items()}

            def compute() -> StageResult:
                computed.append(self._compute(stage, store, inputs))
                return computed[0]

            entry = obtained(store, key, compute)
        if shared and key not in _SHARED:
            _SHARED.clear()
            _SHARED[key] = entry
        seconds = computed[0].meta["seconds"] if computed else 0.0
        self._reporter.stage_ends(stage, found=not computed, seconds=seconds)
        return entry

    def _compute(
        self, stage: Stage, store: StageStorage, inputs: dict[str, StageResult]
    ) -> StageResult:
        began = monotonic()
        self._reporter.stage_begins(stage)
        drive = self._drive(stage, store)
        context = StageContext(self._device, drive, self._reporter.say, self._images)
        entry = stage.run(inputs, context)
        meta = {
            **entry.meta,
            "stage": stage.name,
            "task": stage.task,
            "inputs": dict(stage.inputs),
            "seconds": monotonic() - began,
        }
        return StageResult(entry.tensors, meta)

    def _drive(self, stage: Stage, store: StageStorage) -> Drive:
        def drive(trainer: Trainer) -> list[dict[str, Any]]:
            log: list[dict[str, Any]] = []
            found = store.load_checkpoint(stage.key)
            if found:
                log = found.meta["log"]
                trainer.restore(Saved(found.tensors, found.meta["state"]))
            with CheckpointWriter(store, stage.key) as checkpoint:
                for epoch in trainer:
                    log.append(epoch_record(epoch))
                    self._reporter.epoch_ends(stage, epoch)
                    if trainer.settled:
                        tensors, meta = trainer.state()
                        checkpoint.offer(StageResult(tensors, {"state": meta, "log": list(log)}))
            return log

        return drive


def image_loader(tasks: Iterable[Task]) -> Callable[[str], Split]:
    """A function from the key of a task's images, or of its test images, to its images."""
    by_key = {key: task for task in tasks for key in (task.test_key, task.key)}
    return lambda key: by_key[key].load()


def obtained(store: StageStorage, key: str, compute: Callable[[], StageResult]) -> StageResult:
    """A result from the store; a missing one is computed under the lock of its key and saved."""
    entry = store.load(key)
    if entry is None:
        with store.lock(key):
            entry = store.load(key)  # another process may have finished it meanwhile
            if entry is None:
                entry = compute()
                store.save(key, entry)
                store.drop_checkpoint(key)
    return entry


class CheckpointWriter:
    """Saves the newest state of a long computation, at most every few seconds.

    Used in a ``with`` block; an interrupt saves the newest state first.

    Args:
        store: Where to save it.
        key: The key of what is computed.
    """

    _newest: StageResult | None

    def __init__(self, store: StageStorage, key: str) -> None:
        self._store, self._key, self._newest, self._written = store, key, None, monotonic()

    def __enter__(self) -> Self:
        return self

    def offer(self, entry: StageResult) -> None:
        """Take the state as it is now."""
        self._newest = entry
        if monotonic() - self._written >= CHECKPOINT_SECONDS:
            self._write()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._write()

    def _write(self) -> None:
        if self._newest:
            self._store.save_checkpoint(self._key, self._newest)
            self._newest, self._written = None, monotonic()
