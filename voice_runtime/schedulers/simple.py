"""SimpleScheduler: one-shot computation. Inbox, function, outbox; optionally in small batches behind a gate.

The metrics of an end say what the model computed until the request first gave something: `first_compute_ms`, and
`first_items`, how many items that took.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, assert_never

from voice_runtime.errors import RequestError
from voice_runtime.schedulers.gate import BatchGate
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
    until_first,
)
from voice_runtime.schedulers.outbox import Outbox

P = TypeVar("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
P_contra = TypeVar("P_contra", contravariant=True)


class ItemStream(Protocol[P_contra, R_co]):
    """One streamed request: each item is a one-shot computation of its own."""

    @property
    def ended(self) -> bool:
        """True when no further item is wanted: the request then finishes without waiting for `StreamDone`."""

    def push(self, item: P_contra) -> Iterable[R_co]:
        """Results that this item brings, in order; may be none."""

    def close(self) -> Iterable[R_co]:
        """Results that the end of the items brings."""


@dataclass(frozen=True, slots=True)
class OneShot(Generic[P, R]):
    """A request is one payload and gives one result.

    compute_fn: payload -> result.
    batch_compute_fn: payloads -> as many results in the same order; one that is an Exception fails its request alone.
        A list of another length fails the whole batch; an iterator's results go out one by one as they come.
        What was computed in a batch of n > 1 says so in its metrics: "batch": n.
    gate: when a batch waits for company; only used with batch_compute_fn.
    building: how many requests the stage has accepted that are not in the inbox yet.
    """

    compute_fn: Callable[[P], R]
    batch_compute_fn: Callable[[Sequence[P]], Iterable[R | Exception]] | None = None
    gate: BatchGate = field(default_factory=BatchGate)
    building: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class Streamed(Generic[P, R]):
    """A request is opened by a payload and continues item by item; `open_fn` makes its ItemStream."""

    open_fn: Callable[[Any], ItemStream[P, R]]


@dataclass(slots=True)
class _Open(Generic[P, R]):
    """A streamed request. items, compute_s: taken, and spent on them, until it first gave something.

    Its end counts as an item, when that is what it took.
    """

    stream: ItemStream[P, R]
    items: int = 0
    compute_s: float = 0.0
    has_given: bool = False

    def results(self, compute: Callable[[ItemStream[P, R]], Iterable[R]]) -> Iterator[R]:
        """What an item brings, as it comes."""
        began_s = time.perf_counter()
        self.items += not self.has_given
        for result in compute(self.stream):
            self._note(began_s)
            self.has_given = True
            yield result
        self._note(began_s)

    def metrics(self) -> dict[str, float]:
        return until_first(self.items, self.compute_s) if self.has_given else {}

    def _note(self, began_s: float) -> None:
        if not self.has_given:
            self.compute_s += time.perf_counter() - began_s


@dataclass(frozen=True, slots=True)
class _Broken:
    """Why a batch gives no more results."""

    error: str


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[P]):
    request_id: str
    payload: P
    arrived_s: float


class SimpleScheduler(Generic[P, R]):
    """Runs one-shot work, request by request or in small batches, on one thread.

    work: what a request is.
    limit: most messages in the inbox.
    clock: seconds, monotonic.
    """

    def __init__(
        self, work: OneShot[P, R] | Streamed[P, R], limit: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inbox: Inbox[P] = Inbox(limit, clock)
        self.outbox: Outbox[R] = Outbox()
        self._work = work
        self._clock = clock
        self._waiting: deque[_Waiting[P]] = deque()
        self._streams: dict[str, _Open[P, R]] = {}
        self._loop = Loop("simple-scheduler", (self.inbox, self.outbox), self.step, self._end)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def abort(self, request_id: str) -> None:
        self.inbox.abort(request_id)

    def step(self) -> None:
        """One round: take what has arrived, then run a batch unless the gate holds it.

        Blocks until there is something to do. Called by the scheduler's own thread (and by tests without one).
        """
        hold_s = self._hold_s()
        message = self.inbox.take(timeout_s=hold_s if self._waiting else None)
        while message is not None:
            self._handle(*message)
            message = self.inbox.take(timeout_s=0)
        if self._waiting and self._hold_s() <= 0:
            self._run_batch()

    def _handle(self, message: Inbound[P], arrived_s: float) -> None:
        match message:
            case NewRequest(request_id, payload):
                self._begin(request_id, payload, arrived_s)
            case StreamChunk(request_id, item):
                if self._emit(request_id, lambda stream: stream.push(item)):
                    self._finish(request_id)
            case StreamDone(request_id):
                self._finish(request_id)
            case Abort(request_id):
                self._end(Aborted(request_id))
            case Reject(request_id, error):
                self._end(Failed(request_id, error))
            case Inquire(request_id):
                self.outbox.put(Ledger(request_id, self._held()))
            case _:
                assert_never(message)

    def _begin(self, request_id: str, payload: P, arrived_s: float) -> None:
        if isinstance(self._work, OneShot):
            self._waiting.append(_Waiting(request_id, payload, arrived_s))
            return
        try:
            self._streams[request_id] = _Open(self._work.open_fn(payload))
        except Exception as error:
            self._end(Failed(request_id, describe(error)))

    def _emit(self, request_id: str, results: Callable[[ItemStream[P, R]], Iterable[R]]) -> bool | None:
        """Put what an item brings into the outbox. Returns whether the request wants no more; None: it has failed."""
        try:
            if isinstance(self._work, OneShot):
                raise RequestError("an item or its end came, expected a request of one payload")
            request = self._streams[request_id]
            for result in request.results(results):
                self.outbox.put(Chunk(request_id, result))
            return request.stream.ended
        except Exception as error:
            self._end(Failed(request_id, describe(error)))
            return None

    def _finish(self, request_id: str) -> None:
        if self._emit(request_id, lambda stream: stream.close()) is not None:
            self._end(Finished(request_id, metrics=self._streams[request_id].metrics()))

    def _hold_s(self) -> float:
        if not self._waiting or not isinstance(self._work, OneShot) or self._work.batch_compute_fn is None:
            return 0.0
        return self._work.gate.hold_s(
            waiting=len(self._waiting),
            building=self._work.building(),
            oldest_wait_s=self._clock() - self._waiting[0].arrived_s,
        )

    def _run_batch(self) -> None:
        assert isinstance(self._work, OneShot)
        size = self._work.gate.target if self._work.batch_compute_fn is not None else 1
        batch = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
        sizes = {"batch": len(batch)} if len(batch) > 1 else {}
        todo = deque(batch)
        began_s = time.perf_counter()
        for result in self._guarded([request.payload for request in batch]):
            if isinstance(result, _Broken):
                for request in todo:
                    self._end(Failed(request.request_id, result.error))
                return
            request_id = todo.popleft().request_id
            metrics = {**sizes, **until_first(1, time.perf_counter() - began_s)}
            self._end(
                Failed(request_id, describe(result))
                if isinstance(result, Exception)
                else Finished(request_id, result, metrics)
            )

    def _guarded(self, payloads: list[P]) -> Iterator[R | Exception | _Broken]:
        """The batch's results as they come; when there are no more of them, what broke it."""
        given = 0
        try:
            for result in self._results(payloads):
                given += 1
                yield result
            if given < len(payloads):
                raise ValueError(f"batch function gave {given} results for {len(payloads)} requests")
        except Exception as error:
            yield _Broken(describe(error))

    def _results(self, payloads: list[P]) -> Iterable[R | Exception]:
        assert isinstance(self._work, OneShot)
        if self._work.batch_compute_fn is None or len(payloads) == 1:
            return (self._work.compute_fn(payload) for payload in payloads)
        results = self._work.batch_compute_fn(payloads)
        if isinstance(results, Sized) and len(results) != len(payloads):
            raise ValueError(f"batch function gave {len(results)} results for {len(payloads)} requests")
        return islice(results, len(payloads))

    def _end(self, ended: Ended[R]) -> None:
        """The one way out for a request: finished, failed and aborted all pass here."""
        self._streams.pop(ended.request_id, None)
        if any(waiting.request_id == ended.request_id for waiting in self._waiting):
            self._waiting = deque(waiting for waiting in self._waiting if waiting.request_id != ended.request_id)
        self.inbox.settle(ended.request_id)
        self.outbox.put(ended)

    def _held(self) -> dict[str, int]:
        return {**self.inbox.held(), "waiting_requests": len(self._waiting), "open_streams": len(self._streams)}
