"""Images that stay in their files until they are asked for: processes decode them ahead of time.

To read a row costs a file and a decoder, and what is in memory is bounded, whatever the number of
images. The same rows in memory or memory-mapped give the same bits. Images keep their size in
their files: a random part of one is cut out of all of it, and not of its row. Only where a file
has the size of a row are these the same, to the bit.
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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ancl.data.random_resized_crop import Boxes, whole_boxes
from ancl.data.storage import Digests, Storage
from ancl.decoder import (
    UNREADABLE,
    Asked,
    Box,
    Known,
    fill,
    look_at,
    usual_short_side,
)
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
        short_side: What the shorter side of a file is resized to before the middle is cut out;
            256 for rows of 224, and as much in proportion, if left out.
    """

    early = 4
    larger = True

    def __init__(self, files: Sequence[str], size: int, short_side: int | None = None) -> None:
        super().__init__((len(files), size, size, 3), torch.uint8)
        self._files, self._size = tuple(files), size
        self._short_side = usual_short_side(size) if short_side is None else short_side
        self._known = np.zeros((len(files), 3), np.uint64)  # zeros where nothing is known
        self._decoders: Decoders | None = None
        self._begun: dict[bytes, Job] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_decoders": None, "_begun": {}}

    def announce(self, index: Tensor, boxes: Boxes | None = None) -> None:
        """Begin to decode what is asked for soon, as long as there is room for it."""
        decoders = self._crew()
        for start in range(0, len(index), decoders.most):
            rows, parts = _piece(index, boxes, start, decoders.most)
            key = _key(rows, parts)
            if key not in self._begun:
                if decoders.room < len(rows):
                    return
                self._begun[key] = decoders.begin(self._asked(rows, parts))

    def rows(self, index: Tensor) -> Tensor:
        """Those that were announced as they come, then all others.

        Raises:
            ScenarioError: A file cannot be read as an image.
        """
        return self._read(index, None)

    def cut(self, index: Tensor, boxes: Boxes) -> tuple[Tensor, Boxes | None]:
        """Parts of files; of files that have the size of a row, the whole with its part."""
        same = (self.sizes(index) == self._size).all(1)
        rows = self._read(index, boxes)
        if not same.any():
            return rows, None
        whole = whole_boxes(len(index), self._size, self._size)
        pairs = zip(boxes, whole, strict=True)
        return rows, Boxes(*(torch.where(same, part, all_of_it) for part, all_of_it in pairs))

    def sizes(self, index: Tensor) -> Tensor:
        """Height and width of each file.

        Raises:
            ScenarioError: A file cannot be read as an image.
        """
        return torch.from_numpy(self.known(index)[:, :2].astype(np.int64))

    def contents(self, index: Tensor) -> NDArray[np.uint64]:
        """A hash of the content of each file; 0 where all of it is the row."""
        known = self.known(index)
        return np.where((known[:, :2] == self._size).all(1), np.uint64(0), known[:, 2])

    def known(self, index: Tensor) -> NDArray[np.uint64]:
        """Height, width and the hash of the content of each file (B, 3).

        Raises:
            ScenarioError: A file cannot be read as an image.
        """
        wanted = index.numpy()
        bad: dict[str, str] = {}
        for row in np.unique(wanted[self._known[wanted, 0] == 0]).tolist():
            try:
                self._known[row] = look_at(self._files[row])
            except UNREADABLE as error:
                bad[self._files[row]] = str(error).partition(" <")[0]
        _refuse(bad)
        known: NDArray[np.uint64] = self._known[wanted]
        return known

    def remember(self, digests: Digests, known: NDArray[np.uint64]) -> None:
        """Take the hashes of all rows and what is known of all files from who has read them."""
        self._digests, self._hashed = np.array(digests), np.ones(len(self), bool)
        self._known = np.array(known)

    def _read(self, index: Tensor, boxes: Boxes | None) -> Tensor:
        if not len(index):
            return torch.empty((0, *self.shape[1:]), dtype=self.dtype)
        decoders, pixels = self._crew(), []
        for start in range(0, len(index), decoders.most):
            piece = _piece(index, boxes, start, decoders.most)
            self._make_room(*piece)
            self.announce(*_piece(index, boxes, start, len(index)))
            job = self._begun.pop(_key(*piece))
            pixels.append(decoders.finish(job))
            if boxes is None:
                self._known[piece[0].numpy()] = [job.known[row] for row in job.rows]
        return torch.cat(pixels) if len(pixels) > 1 else pixels[0]

    def _asked(self, index: Tensor, boxes: Boxes | None) -> list[tuple[str, Box | None]]:
        """Files, each with the part of it; the middle where it has the size of a row."""
        files = [self._files[row] for row in index.tolist()]
        if boxes is None:
            return [(file, None) for file in files]
        same = (self.sizes(index) == self._size).all(1).tolist()
        parts = zip(*(values.long().tolist() for values in boxes), strict=True)
        return [
            (file, None if whole else (top, left, height, width, bool(mirrored)))
            for file, whole, (top, left, height, width, mirrored) in zip(
                files, same, parts, strict=True
            )
        ]

    def _make_room(self, rows: Tensor, boxes: Boxes | None) -> None:
        """Give up what was announced and never asked for, the oldest first, for a piece."""
        decoders, key = self._crew(), _key(rows, boxes)
        while key not in self._begun and decoders.room < len(rows):
            decoders.finish(self._begun.pop(next(iter(self._begun))))

    def _crew(self) -> Decoders:
        if self._decoders is None:
            count = (os.cpu_count() or 1) if _workers is None else _workers
            self._decoders = Decoders(count, self._size, self._short_side)
        return self._decoders


def _piece(
    index: Tensor, boxes: Boxes | None, start: int, count: int
) -> tuple[Tensor, Boxes | None]:
    """Some of what is asked for, from a position on."""
    chosen = slice(start, start + count)
    return index[chosen], None if boxes is None else boxes.at(chosen)


def _key(index: Tensor, boxes: Boxes | None) -> bytes:
    """What tells two jobs apart."""
    return b"".join(values.numpy().tobytes() for values in (index, *(boxes or ())))


@dataclass(eq=False)
class Job:
    """Rows of the shared memory that are being filled.

    Attributes:
        rows: Which, in their order.
        bad: What was wrong, by path.
        known: What is known of the file of each row of which the middle was decoded.
    """

    rows: list[int]
    bad: dict[str, str] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)

    def take(self, bad: dict[str, str], known: Iterable[tuple[int, Known]]) -> None:
        """What a decoder answers."""
        self.bad |= bad
        self.known |= dict(known)


class Decoders:
    """Processes that decode image files into memory that they share with this one.

    Args:
        count: How many; with 0 this process decodes.
        size: Height and width of a row.
        short_side: The shorter side of a file before its middle is cut out.
    """

    def __init__(self, count: int, size: int, short_side: int) -> None:
        self._form, row = (size, short_side), size * size * 3
        rows = max(_PIECES, SHARED_BYTES // row)
        self.most = rows // _PIECES
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        # A file without a name: it is gone with the last process that has it, also after a kill.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(rows * row)
            shared = mmap.mmap(file.fileno(), rows * row)
            self._crew = [_Decoder(file.fileno(), rows, *self._form) for _ in range(count)]
        self._array = np.frombuffer(shared, np.uint8).reshape(rows, size, size, 3)
        self._pixels = torch.from_numpy(self._array)
        self._free = deque(range(rows))

    @property
    def room(self) -> int:
        """How many rows are free."""
        return len(self._free)

    def begin(self, files: Sequence[tuple[str, Box | None]]) -> Job:
        """Share files out to the processes."""
        job = Job([self._free.popleft() for _ in files])
        requests: list[Asked] = [(row, *file) for row, file in zip(job.rows, files, strict=True)]
        if not self._crew:
            job.take(*fill(self._array, requests, *self._form))
        for number, decoder in enumerate(self._crew):
            share = requests[number :: len(self._crew)]
            if share:
                decoder.give(job, share)
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
        _refuse(job.bad)
        return pixels


def _refuse(bad: dict[str, str]) -> None:
    """Name files that are not images, if there are some."""
    if bad:
        lines = [f"{path} is not an image ({why})." for path, why in sorted(bad.items())]
        raise ScenarioError("\n".join([*lines[:_SHOWN], "Remove or replace such files."]))


class _Decoder:
    """One process, and the jobs whose parts it decodes, in their order."""

    def __init__(self, descriptor: int, rows: int, size: int, short_side: int) -> None:
        self.jobs: deque[Job] = deque()
        command = [sys.executable, "-P", "-m", "ancl.decoder"]
        self._process = subprocess.Popen(
            [*command, *map(str, (descriptor, rows, size, short_side))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            start_new_session=True,  # Ctrl-C is for the command, whose end is theirs
        )
        weakref.finalize(self, _end, self._process)

    def give(self, job: Job, share: list[Asked]) -> None:
        """Files to decode, each with its row."""
        assert self._process.stdin is not None
        self.jobs.append(job)
        try:
            self._process.stdin.write(json.dumps(share).encode() + b"\n")
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
        job.take(*json.loads(line))

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
