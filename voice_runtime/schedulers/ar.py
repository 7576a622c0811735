"""ArScheduler: autoregressive computation. Feeds an engine from the inbox and steps it while it has work."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, assert_never

from voice_runtime.errors import RequestError
from voice_runtime.schedulers.engine import Engine, Tokens
from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Ended,
    Failed,
    Finished,
    Inbound,
    Inquire,
    Ledger,
    NewRequest,
    StreamChunk,
    StreamDone,
    describe,
)
from voice_runtime.schedulers.outbox import Outbox

logger = logging.getLogger(__name__)
P = TypeVar("P")
R = TypeVar("R")


class ArScheduler(Generic[P, R]):
    """Decodes many requests at once, token by token, on one thread.

    While the engine has work, messages are taken between two steps; while it has none, the thread sleeps on the inbox.

    engine: does the batching and the forward passes, see `schedulers.engine`.
    result: new token ids -> what goes out as a chunk.
    limit: most messages in the inbox.
    """

    def __init__(self, engine: Engine[P], result: Callable[[list[int]], R], limit: int = 10_000) -> None:
        self.inbox: Inbox[P] = Inbox(limit)
        self.outbox: Outbox[R] = Outbox()
        self._engine = engine
        self._result = result
        self._running: set[str] = set()
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ar-scheduler", daemon=True)

    def start(self) -> None:
        """Load the engine on the scheduler's thread and return when it is ready.

        Raises:
            RuntimeError: the engine could not be opened; the cause is attached.
        """
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise RuntimeError("the engine could not be opened") from self._failure

    def stop(self) -> None:
        self.inbox.close()
        if self._thread.is_alive():
            self._thread.join()
        self.outbox.close()

    def abort(self, request_id: str) -> None:
        self.inbox.abort(request_id)

    def _run(self) -> None:
        try:
            self._engine.open()
        except BaseException as error:
            self._failure = error
            self._opened.set()
            return
        self._opened.set()
        try:
            while not self.inbox.closed:
                self._round()
            self._drain()
        except BaseException as error:
            # The engine's state is unknown after this: every request fails, the closed outbox ends the worker, and its
            # supervisor starts a fresh one.
            logger.exception("the engine failed")
            for request_id in self.inbox.live_requests():
                self._end(Failed(request_id, describe(error)))
            self.outbox.close()

    def _round(self) -> None:
        message = self.inbox.take(timeout_s=None if self._engine.is_idle() else 0)
        while message is not None:
            self._handle(message[0])
            message = self.inbox.take(timeout_s=0)
        self._deliver(self._engine.step())

    def _drain(self) -> None:
        """Abort what is live when the scheduler stops, so that the engine gives everything back."""
        for request_id in self.inbox.live_requests():
            if request_id in self._running:
                self._engine.abort(request_id)
            else:
                self._end(Aborted(request_id))
        while self._running:
            self._deliver(self._engine.step())

    def _handle(self, message: Inbound[P]) -> None:
        match message:
            case NewRequest(request_id, payload):
                self._begin(request_id, payload)
            case StreamChunk(request_id) | StreamDone(request_id):
                if request_id in self._running:
                    self._engine.abort(request_id)
                    self._running.discard(request_id)
                    error = RequestError(f"{type(message).__name__} came, expected a request with its whole prompt")
                    self._end(Failed(request_id, describe(error)))
            case Abort(request_id):
                if request_id in self._running:
                    self._engine.abort(request_id)
                else:
                    self._end(Aborted(request_id))
            case Inquire(request_id):
                self.outbox.put(Ledger(request_id, {**self.inbox.held(), **self._engine.held()}))
            case _:
                assert_never(message)

    def _begin(self, request_id: str, payload: P) -> None:
        try:
            self._engine.add(request_id, payload)
        except RequestError as error:
            self._end(Failed(request_id, describe(error)))
        else:
            self._running.add(request_id)

    def _deliver(self, outputs: Iterable[Tokens]) -> None:
        for output in outputs:
            if output.request_id not in self._running:
                continue
            if output.ids and output.finish_reason not in ("abort", "error"):
                self.outbox.put(Chunk(output.request_id, self._result(list(output.ids))))
            match output.finish_reason:
                case None:
                    pass
                case "abort":
                    self._end(Aborted(output.request_id))
                case "error":
                    self._end(Failed(output.request_id, output.error))
                case _:
                    self._end(Finished(output.request_id, metrics=dict(output.metrics)))

    def _end(self, ended: Ended[R]) -> None:
        """The one way out for a request: finished, failed and aborted all pass here."""
        self._running.discard(ended.request_id)
        self.inbox.settle(ended.request_id)
        self.outbox.put(ended)
