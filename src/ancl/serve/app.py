"""The paths of the server: ``/predict``, ``/model`` and ``/healthz``."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ancl.errors import AnclError, ScenarioError
from ancl.files import file_mark
from ancl.serve.batching import Batcher, Budget
from ancl.serve.model import Model, check_task, open_model

TOP_K = 5
"""How many labels an answer has where nothing is said."""
log = logging.getLogger("ancl.serve")
WATCH_SECONDS = 1.0
"""How often it is looked whether the file has changed."""
_BODIES = 25
"""How many bodies of the largest size are in memory at once; more wait."""


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    Args:
        bytes: Of its body.
        pixels: Of its picture.
        seconds: Until it is answered.
    """

    bytes: int = 20_000_000
    pixels: int = 25_000_000
    seconds: float = 30.0


class Refusal(Exception):  # noqa: N818 - it is an answer
    """An answer that is not a prediction: a status of HTTP and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """An exported file, watched for changes, behind an application.

    Args:
        path: The file.
        limits: What one request may take.
        token: What clients must send; everybody may ask if there is none.
        reject: Answers whose best label is less probable are marked as rejected.
        threads: The number of threads that decode, and that compute.

    Raises:
        StoreError: The file is not an exported learner.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits,
        token: str | None = None,
        reject: float | None = None,
        threads: int = 1,
    ) -> None:
        self._path, self._limits, self._token, self._reject = path, limits, token, reject
        self._threads, self._mark = threads, file_mark(str(path))
        self.model = open_model(path, threads)
        self._loaded, self._problem = time.time(), ""
        self._decoders = ThreadPoolExecutor(threads, "decode")
        self.batcher, self._budget = Batcher(), Budget(_BODIES * limits.bytes)

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/predict", self._guarded(self._predict), methods=["POST"]),
                Route("/model", self._guarded(self._describe), methods=["GET"]),
                Route("/healthz", self._health, methods=["GET"]),
            ],
            lifespan=self._watching,
            exception_handlers={HTTPException: _as_json},
        )

    # -- paths -------------------------------------------------------------------------------

    async def _predict(self, request: Request) -> Response:
        """The labels of the picture in the body."""
        model = self.model
        k, task, reject = self._asked(request, model)
        size = self._length(request)
        try:
            async with asyncio.timeout(self._limits.seconds):
                async with self._budget.taken(size):
                    data = await _body(request, size)
                    image = await asyncio.get_running_loop().run_in_executor(
                        self._decoders, model.read, data, self._limits.pixels
                    )
                    del data
                scores = await self.batcher.scores(model, image)
        except TimeoutError:
            seconds = f"{self._limits.seconds:g} seconds"
            raise Refusal(503, f"There was no answer within {seconds}. Try again.") from None
        labels = model.answer(scores, k, task)
        shown = [{"label": label, "probability": share} for label, share in labels]
        content = {"answers": shown, "model": model.digest[:12]}
        rejected = {} if reject is None else {"rejected": labels[0][1] < reject}
        return JSONResponse({**content, **rejected})

    async def _describe(self, request: Request) -> Response:
        """What is served."""
        model = self.model
        return JSONResponse(
            {
                "model": model.digest[:12],
                "labels": model.labels,
                "tasks": model.tasks,
                "scenario": model.scenario,
                "input": list(model.shape),
                "resize": asdict(model.rule),
            }
        )

    async def _health(self, request: Request) -> Response:
        """Whether it answers, since when with which file, and why not with a newer one."""
        return JSONResponse(
            {
                "status": "ok",
                "model": self.model.digest[:12],
                "loaded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._loaded)),
                "problem": self._problem or None,
            }
        )

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The path for those who have the token; a refusal is an answer, too."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_token(request)
                return await answer(request)
            except Refusal as refusal:
                headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
                return JSONResponse({"error": str(refusal)}, refusal.status, headers)
            except ScenarioError as error:
                return JSONResponse({"error": str(error)}, 400)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it

        return guarded

    # -- what a request says -----------------------------------------------------------------

    def _check_token(self, request: Request) -> None:
        if self._token is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._token.encode())
        if kind.lower() != "bearer" or not same:
            raise Refusal(401, "Send the server's token: Authorization: Bearer TOKEN.")

    def _length(self, request: Request) -> int:
        given, most = request.headers.get("content-length", ""), self._limits.bytes
        if not given:
            raise Refusal(411, "Send one image with its Content-Length.")
        if not given.isascii() or not given.isdigit() or int(given[:12]) > most or len(given) > 12:
            raise Refusal(413, f"Send one image of at most {most:,} bytes.")
        if int(given) == 0:
            raise Refusal(400, "The body is empty. Send one image file.")
        return int(given)

    def _asked(self, request: Request, model: Model) -> tuple[int, int | None, float | None]:
        """How many labels, of which task from 0, and what is rejected."""
        known = {"top_k", "task", "reject"}
        if odd := sorted(set(request.query_params) - known):
            raise Refusal(400, f"{odd[0]!r} is not known. Possible: {', '.join(sorted(known))}.")
        given = request.query_params
        task = _whole("task", given["task"]) - 1 if "task" in given else None
        if task is not None:
            check_task(model, task)
        k = _whole("top_k", given["top_k"]) if "top_k" in given else TOP_K
        return k, task, _share(given["reject"]) if "reject" in given else self._reject

    # -- the file changes --------------------------------------------------------------------

    @asynccontextmanager
    async def _watching(self, app: Starlette) -> AsyncIterator[None]:
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        """Take a new file when it is there and answers; else go on with the one before."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                mark = file_mark(str(self._path))
            except OSError:
                self._note(f"{self._path} is gone.")
                continue
            if mark == self._mark:
                continue
            self._mark = mark
            try:
                model = await asyncio.to_thread(open_model, self._path, self._threads)
            except AnclError as error:
                self._note(str(error))
                continue
            self.model, self._loaded, self._problem = model, time.time(), ""
            log.warning("Loaded %s again: %d labels.", self._path, len(model.labels))

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("%s The file before it is still served.", problem)


async def _as_json(request: Request, error: Exception) -> Response:
    """A path or a verb that there is not."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: POST /predict, GET /model, GET /healthz."
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _body(request: Request, size: int) -> bytes:
    """The body of a request, whose length it has said.

    Raises:
        ClientDisconnect: The client left.
    """
    parts, received = [], 0
    async for part in request.stream():
        received += len(part)
        if received > size:
            raise Refusal(413, "The body is longer than its Content-Length.")
        parts.append(part)
    return b"".join(parts)


def _whole(name: str, text: str) -> int:
    """A whole number from 1 on."""
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text):
        return int(text)
    raise Refusal(400, f"{name} is a whole number, 1 or more.")


def _share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Refusal(400, "reject is a probability, from 0 to 1.")
    return share
