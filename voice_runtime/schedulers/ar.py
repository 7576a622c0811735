"""ArScheduler: autoregressive computation. Feeds an engine from the inbox and steps it while it has work."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, assert_never

from voice_runtime.errors import RequestError
from voice_runtime.schedulers.engine import Engine, Tokens
from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.loop import Loop
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
    Reject,
    StreamChunk,
    StreamDone,
    describe,
)
from voice_runtime.schedulers.outbox import Outbox

logger = logging.getLogger(__name__)
G = TypeVar("G")
P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
G_co = TypeVar("G_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Generations(Protocol[P_contra, G_co, R_co]):
    """What one request has the engine generate: one generation after another. The scheduler's thread calls it."""

    @property
    def closed(self) -> bool:
        """True once no more items are expected: the request then ends with its last generation."""

    def push(self, item: P_contra) -> None:
        """One more item of the request."""

    def close(self) -> None:
        """No more items will come."""

    def next(self) -> G_co | None:
        """What to generate next, asked while nothing is being generated; None: nothing, until more items come."""

    def result(self, items: Sequence[Any]) -> R_co:
        """What goes out for what a step has generated."""


class WholePrompt(Generic[G, R]):
    """A request whose one payload says all that there is to generate."""

    closed = True

    def __init__(self, generate: G, result: Callable[[list[Any]], R]) -> None:
        self._generate: G | None = generate
        self._result = result

    def push(self, item: object) -> None:
        raise RequestError("a chunk came, expected a request with its whole prompt")

    def close(self) -> None:
        pass

    def next(self) -> G | None:
        generate, self._generate = self._generate, None
        return generate

    def result(self, items: Sequence[Any]) -> R:
        return self._result(list(items))


@dataclass(slots=True)
class _Request(Generic[P, G, R]):
    """generating: the engine has a generation of it. metrics: counts of all of them, and the first one's times."""

    generations: Generations[P, G, R]
    generating: bool = False
    metrics: dict[str, float] = field(default_factory=dict)

    def note(self, metrics: Mapping[str, float]) -> None:
        """One more generation has ended."""
        is_first = not self.metrics
        for name, value in metrics.items():
            if is_first or not name.endswith("_ms"):
                self.metrics[name] = self.metrics.get(name, 0) + value


class ArScheduler(Generic[P, G, R]):
    """Decodes many requests at once, token by token, on one thread.

    While the engine has work, messages are taken between two steps; while it has none, the thread sleeps on the inbox.

    engine: does the batching and the forward passes, see `schedulers.engine`.
    open_fn: payload -> Generations; its state is the request's state.
    limit: most messages in the inbox.
    """

    def __init__(self, engine: Engine[G], open_fn: Callable[[Any], Generations[P, G, R]], limit: int = 10_000) -> None:
        self.inbox: Inbox[P] = Inbox(limit)
        self.outbox: Outbox[R] = Outbox()
        self._engine = engine
        self._open_fn = open_fn
        self._requests: dict[str, _Request[P, G, R]] = {}
        ways = (self.inbox, self.outbox)
        self._loop = Loop("ar-scheduler", ways, self._round, self._end, open=engine.open, drain=self._drain)

    def start(self) -> None:
        """Load the engine on the scheduler's thread and return when it is ready.

        Raises:
            RuntimeError: the engine could not be opened; the cause is attached.
        """
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def abort(self, request_id: str) -> None:
        self.inbox.abort(request_id)

    def _round(self) -> None:
        message = self.inbox.take(timeout_s=None if self._engine.is_idle() else 0)
        while message is not None:
            self._handle(message[0])
            message = self.inbox.take(timeout_s=0)
        for tokens in self._engine.step():
            self._deliver(tokens)

    def _drain(self) -> None:
        """Abort what is live when the scheduler stops, so that the engine gives everything back."""
        for request_id in self.inbox.live_requests():
            self._abort(request_id)
        while not self._engine.is_idle():
            for tokens in self._engine.step():
                self._deliver(tokens)

    def _handle(self, message: Inbound[P]) -> None:
        match message:
            case NewRequest(request_id, payload):
                self._guard(request_id, lambda: self._begin(request_id, payload))
            case StreamChunk(request_id, item):
                self._guard(request_id, lambda: self._requests[request_id].generations.push(item))
            case StreamDone(request_id):
                self._guard(request_id, lambda: self._requests[request_id].generations.close())
            case Abort(request_id):
                self._abort(request_id)
            case Reject(request_id, error):
                self._end(Failed(request_id, error))
            case Inquire(request_id):
                self.outbox.put(Ledger(request_id, {**self.inbox.held(), **self._engine.held()}))
            case _:
                assert_never(message)

    def _guard(self, request_id: str, act: Callable[[], object]) -> None:
        """Do what a message of one request asks, and generate what that allows; a fault costs that request alone."""
        try:
            act()
            self._advance(request_id)
        except RequestError as error:
            self._fail(request_id, describe(error))
        except Exception as error:
            logger.exception("request %s cannot be served", request_id)
            self._fail(request_id, describe(error))

    def _begin(self, request_id: str, payload: Any) -> None:
        self._requests[request_id] = _Request(self._open_fn(payload))

    def _advance(self, request_id: str) -> None:
        """Start the request's next generation, or end it when there will be none."""
        request = self._requests[request_id]
        if request.generating:
            return
        if (generate := request.generations.next()) is not None:
            self._engine.add(request_id, generate)
            request.generating = True
        elif request.generations.closed:
            self._end(Finished(request_id, metrics=request.metrics))

    def _abort(self, request_id: str) -> None:
        """The request ends once the engine has given back what it held."""
        request = self._requests.get(request_id)
        if request is not None and request.generating:
            self._engine.abort(request_id)
        else:
            self._end(Aborted(request_id))

    def _fail(self, request_id: str, error: str) -> None:
        request = self._requests.get(request_id)
        if request is not None and request.generating:
            self._engine.abort(request_id)
        self._end(Failed(request_id, error))

    def _deliver(self, tokens: Tokens) -> None:
        request_id = tokens.request_id
        request = self._requests.get(request_id)
        if request is None:  # it has failed, and the engine says that its pages are back
            return
        match tokens.finish_reason:
            case "abort":
                self._end(Aborted(request_id))
            case "error":
                self._end(Failed(request_id, tokens.error))
            case reason:
                self._guard(request_id, lambda: self._take(request_id, request, tokens, ended=reason is not None))

    def _take(self, request_id: str, request: _Request[P, G, R], tokens: Tokens, ended: bool) -> None:
        if ended:
            request.generating = False
            request.note(tokens.metrics)
        if tokens.items:
            self.outbox.put(Chunk(request_id, request.generations.result(tokens.items)))

    def _end(self, ended: Ended[R]) -> None:
        """The one way out for a request: finished, failed and aborted all pass here."""
        self._requests.pop(ended.request_id, None)
        self.inbox.settle(ended.request_id)
        self.outbox.put(ended)
