"""The way into a scheduler: a bounded queue that knows which requests are live, so that an abort needs no tombstone."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.messages import Abort, Inbound, Inquire, NewRequest, Reject

P = TypeVar("P")


class _Stage(Enum):
    """How far a live request is: its payload is being made, is here, or its abort has been asked for."""

    EXPECTED = auto()
    OPEN = auto()
    ABORTING = auto()


@dataclass(slots=True)
class _Live(Generic[P]):
    """early: what came for the request before its payload; it is taken right after it."""

    stage: _Stage
    early: list[Inbound[P]] = field(default_factory=list)


class Inbox(Generic[P]):
    """Messages for one scheduler. Any thread puts and aborts; the scheduler's thread alone takes and settles.

    A request is live from `expect` or its `NewRequest` until `settle`. What is put for a request that is not live is
    dropped: it raced with the request's end. An abort removes what is still queued for the request, so it acts on the
    next take.

    limit: most messages that may wait.
    clock: seconds; the arrival time that `take` returns.
    """

    def __init__(self, limit: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._queue: deque[tuple[Inbound[P], float]] = deque()
        self._live: dict[str, _Live[P]] = {}
        self._kept = 0  # places of payloads that are expected, and of what came early for them
        self._changed = threading.Condition()
        self._closed = False

    def expect(self, request_id: str) -> None:
        """A request begins whose payload is still being made; a place is kept for it. Chunks may come, an abort too.

        Raises:
            QueueFullError, ValueError: as in `put`.
        """
        with self._changed:
            self._check_open()
            self._check_new(request_id)
            self._check_room()
            self._live[request_id] = _Live(_Stage.EXPECTED)
            self._kept += 1

    def fulfil(self, message: NewRequest[P] | Reject) -> None:
        """Queue what became of an expected payload, and behind it what came for it early. Never blocks.

        A request that has ended meanwhile wants none any more: it is dropped.
        """
        with self._changed:
            live = self._live.get(message.request_id)
            if live is None or live.stage is not _Stage.EXPECTED:
                return
            early = self._release(live)
            live.stage = _Stage.OPEN
            self._append(message)
            for follower in early:
                self._append(follower)

    def put(self, message: Inbound[P]) -> None:
        """Queue `message`. Never blocks.

        Raises:
            QueueFullError: `limit` messages wait already, or the scheduler has stopped.
            ValueError: a `NewRequest` has the id of a live request.
        """
        with self._changed:
            self._check_open()
            match message:
                case Abort(request_id):
                    self._abort(request_id)
                    return
                case NewRequest(request_id):
                    self._check_new(request_id)
                    self._check_room()
                    self._live[request_id] = _Live(_Stage.OPEN)
                case Inquire():
                    self._check_room()
                case _:
                    if not self._is_open(message):
                        return
            self._append(message)

    def abort(self, request_id: str) -> None:
        """Ask for the end of a request; a request that is not live is none of our business any more."""
        with self._changed:
            self._abort(request_id)

    def take(self, timeout_s: float | None = None) -> tuple[Inbound[P], float] | None:
        """The next message and its arrival time, waiting for one at most `timeout_s` (None: for ever).

        Returns None when the time is up or the inbox is closed: `closed` tells which.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_message() or self._closed, timeout_s)
            return self._queue.popleft() if self._queue and not self._closed else None

    def settle(self, request_id: str) -> None:
        """The request has ended: forget it."""
        with self._changed:
            if (live := self._live.pop(request_id, None)) is not None:
                self._release(live)

    def close(self) -> None:
        """Wake the scheduler's thread for the last time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def held(self) -> dict[str, int]:
        """Counts for the ledger."""
        with self._changed:
            return {"inbox_messages": len(self._queue) + self._kept, "live_requests": len(self._live)}

    def live_requests(self) -> list[str]:
        with self._changed:
            return list(self._live)

    def _is_open(self, message: Inbound[P]) -> bool:
        """Whether an item, end or rejection can be queued now; what comes before its request's payload is kept."""
        live = self._live.get(message.request_id)
        if live is None or live.stage is _Stage.ABORTING:
            return False
        self._check_room()
        if live.stage is _Stage.EXPECTED:
            live.early.append(message)
            self._kept += 1
        return live.stage is _Stage.OPEN

    def _append(self, message: Inbound[P]) -> None:
        self._queue.append((message, self._clock()))
        self._changed.notify()

    def _abort(self, request_id: str) -> None:
        live = self._live.get(request_id)
        if live is None or live.stage is _Stage.ABORTING:
            return
        self._release(live)
        live.stage = _Stage.ABORTING
        kept = [entry for entry in self._queue if entry[0].request_id != request_id]
        self._queue.clear()
        self._queue.append((Abort(request_id), self._clock()))
        self._queue.extend(kept)
        self._changed.notify()

    def _release(self, live: _Live[P]) -> list[Inbound[P]]:
        """Give up the places that are kept for a request; returns what came early."""
        early, live.early = live.early, []
        self._kept -= len(early) + (live.stage is _Stage.EXPECTED)
        return early

    def _has_message(self) -> bool:
        """Whether there is something to take, once what outlived its request is dropped from the head.

        That is chunks of a request that has failed, and an abort that was asked for while the request's end was made.
        """
        while self._queue and not self._is_wanted(self._queue[0][0]):
            self._queue.popleft()
        return bool(self._queue)

    def _is_wanted(self, message: Inbound[P]) -> bool:
        return isinstance(message, Inquire) or message.request_id in self._live

    def _check_open(self) -> None:
        if self._closed:
            raise QueueFullError("the inbox is closed, expected a scheduler that runs")

    def _check_new(self, request_id: str) -> None:
        if request_id in self._live:
            raise ValueError(f"request {request_id} is live already, expected an id that was never used")

    def _check_room(self) -> None:
        waiting = len(self._queue) + self._kept
        if waiting >= self._limit:
            raise QueueFullError(f"{waiting} messages wait in the inbox, limit {self._limit}")
