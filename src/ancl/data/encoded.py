"""Images that stay in their files until they are asked for: processes decode them ahead of time.

To read a row costs a file and a decoder, and what is in memory is bounded, whatever the number of
images. The same rows in memory or memory-mapped give the same bits.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ancl.data.storage import Digests, Storage
from ancl.decoder import fill
from ancl.errors import ScenarioError

SHARED_BYTES = 2**27
"""What decoded rows may take that were not asked for yet."""
_PIECES = 8
"""The shared memory in pieces: the largest job is one."""
_SHOWN = 20
_workers: int | None = None


def use_workers(count: int | None) -> None:
    """Let this many processes decode for storages that begin to from now on.

    Args:
        count: 0 decodes in this process; if left out, one process for each CPU.
    """
    global _workers
    _workers = count


class EncodedStorage(Storage):
    """Image files of any size, each a row of one shape: the middle of it, see ``ancl.decoder``.

    Args:
        files: Their paths.
        size: Height and width of a row.
    """

    early = 4

    def __init__(self, files: Sequence[str], size: int) -> None:
        super().__init__((len(files), size, size, 3), torch.uint8)
        self._files, self._size = tuple(files), size
        self._decoders: Decoders | None = None
        self._begun: dict[bytes, Job] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_decoders": None, "_begun": {}}

    def announce(self, index: Tensor) -> None:
        """Begin to decode rows that are asked for soon, as long as there is room for them."""
        decoders = self._crew()
        for piece in torch.split(index, decoders.most):
            key = piece.numpy().tobytes()
            if key not in self._begun:
                if decoders.room < len(piece):
                    return
                self._begun[key] = decoders.begin([self._files[row] for row in piece.tolist()])

    def rows(self, index: Tensor) -> Tensor:
        """Those that were announced as they come, then all others.

        Raises:
            ScenarioError: A file cannot be read as an image.
        """
        if not len(index):
            return torch.empty((0, *self.shape[1:]), dtype=self.dtype)
        decoders, parts = self._crew(), []
        for start in range(0, len(index), decoders.most):
            self._make_room(index[start:])
            self.announce(index[start:])
            piece = index[start : start + decoders.most]
            parts.append(decoders.finish(self._begun.pop(piece.numpy().tobytes())))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def known_digests(self, digests: Digests) -> None:
        """Take the hashes of all rows from someone who has read them."""
        self._digests, self._hashed = np.array(digests), np.ones(len(self), bool)

    def _make_room(self, index: Tensor) -> None:
        """Give up what was announced and never asked for, the oldest first, for the next piece."""
        decoders = self._crew()
        wanted = index[: decoders.most].numpy().tobytes()
        while wanted not in self._begun and decoders.room < min(len(index), decoders.most):
            decoders.finish(self._begun.pop(next(iter(self._begun))))

    def _crew(self) -> Decoders:
        if self._decoders is None:
            count = (os.cpu_count() or 1) if _workers is None else _workers
            self._decoders = Decoders(count, self._size)
        return self._decoders


@dataclass(eq=False)
class Job:
    """Rows of the shared memory that are being filled, and what was wrong, by path."""

    rows: list[int]
    bad: dict[str, str] = field(default_factory=dict)


class Decoders:
    """Processes that decode image files into memory that they share with this one.

    Args:
        count: How many; with 0 this process decodes.
        size: Height and width of a row.
    """

    def __init__(self, count: int, size: int) -> None:
        self._size, row = size, size * size * 3
        rows = max(_PIECES, SHARED_BYTES // row)
        self.most = rows // _PIECES
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        # A file without a name: it is gone with the last process that has it, also after a kill.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(rows * row)
            shared = mmap.mmap(file.fileno(), rows * row)
            self._crew = [_Decoder(file.fileno(), rows, size) for _ in range(count)]
        self._array = np.frombuffer(shared, np.uint8).reshape(rows, size, size, 3)
        self._pixels = torch.from_numpy(self._array)
        self._free = deque(range(rows))

    @property
    def room(self) -> int:
        """How many rows are free."""
        return len(self._free)

    def begin(self, files: Sequence[str]) -> Job:
        """Share files out to the processes."""
        job = Job([self._free.popleft() for _ in files])
        named = list(zip(job.rows, files, strict=True))
        if not self._crew:
            job.bad = fill(self._array, named, self._size)
        for number, decoder in enumerate(self._crew):
            part = named[number :: len(self._crew)]
            if part:
                decoder.give(job, part)
        return job

    def finish(self, job: Job) -> Tensor:
        """Wait for a job: a copy of its rows, which are free then.

        Raises:
            ScenarioError: A file cannot be read as an image, or a process has ended.
        """
        for decoder in self._crew:
            while job in decoder.jobs:
                decoder.take()
        pixels = self._pixels[torch.tensor(job.rows, dtype=torch.long)]
        self._free.extend(job.rows)
        if job.bad:
            lines = [f"{path} is not an image ({why})." for path, why in sorted(job.bad.items())]
            raise ScenarioError("\n".join([*lines[:_SHOWN], "Remove or replace such files."]))
        return pixels


class _Decoder:
    """One process, and the jobs whose parts it decodes, in their order."""

    def __init__(self, descriptor: int, rows: int, size: int) -> None:
        self.jobs: deque[Job] = deque()
        command = [sys.executable, "-P", "-m", "ancl.decoder"]
        self._process = subprocess.Popen(
            [*command, str(descriptor), str(rows), str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            start_new_session=True,  # Ctrl-C is for the command, whose end is theirs
        )
        weakref.finalize(self, _end, self._process)

    def give(self, job: Job, part: list[tuple[int, str]]) -> None:
        """Files to decode, each with its row."""
        assert self._process.stdin is not None
        self.jobs.append(job)
        try:
            self._process.stdin.write(json.dumps(part).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def take(self) -> None:
        """Wait for the answer to the oldest job."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        job = self.jobs.popleft()
        job.bad |= json.loads(line)

    def _ended(self) -> ScenarioError:
        code = self._process.wait()
        return ScenarioError(
            f"A process that decodes images has ended (exit code {code}), perhaps for lack of "
            f"memory. Start again with fewer: --set data.workers=1; data.workers=0 uses none."
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, which has nothing to lose.

    To close its input is not enough: a process that was forked meanwhile may hold it open, too.
    """
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()
