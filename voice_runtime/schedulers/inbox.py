"""The way into a scheduler: a bounded queue that knows which requests are live, so that an abort needs no tombstone."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.messages import Abort, Inbound, Inquire, NewRequest

P = TypeVar("P")


class Inbox(Generic[P]):
    """Messages for one scheduler. Any thread puts and aborts; the scheduler's thread alone takes and settles.

    A request is live from its `NewRequest` until `settle`. What is put for a request that is not live is dropped: it
    raced with the request's end. An abort removes what is still queued for the request, so it acts on the next take.

    limit: most messages that may wait.
    clock: seconds; the arrival time that `take` returns.
    """

    def __init__(self, limit: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._queue: deque[tuple[Inbound[P], float]] = deque()
        self._aborting: dict[str, bool] = {}  # one entry per live request: has its abort been asked for?
        self._changed = threading.Condition()
        self._closed = False

    def put(self, message: Inbound[P]) -> None:
        """Queue `message`. Never blocks.

        Raises:
            QueueFullError: `limit` messages wait already, or the scheduler has stopped.
            ValueError: a `NewRequest` has the id of a live request.
        """
        with self._changed:
            if self._closed:
                raise QueueFullError("the inbox is closed, expected a scheduler that runs")
            match message:
                case Abort(request_id):
                    self._abort(request_id)
                    return
                case NewRequest(request_id):
                    if request_id in self._aborting:
                        raise ValueError(f"request {request_id} is live already, expected an id that was never used")
                    self._check_room()
                    self._aborting[request_id] = False
                case Inquire():
                    self._check_room()
                case _:
                    if self._aborting.get(message.request_id) is not False:
                        return
                    self._check_room()
            self._queue.append((message, self._clock()))
            self._changed.notify()

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
            self._aborting.pop(request_id, None)

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
            return {"inbox_messages": len(self._queue), "live_requests": len(self._aborting)}

    def live_requests(self) -> list[str]:
        with self._changed:
            return list(self._aborting)

    def _abort(self, request_id: str) -> None:
        if self._aborting.get(request_id) is not False:
            return
        self._aborting[request_id] = True
        kept = [entry for entry in self._queue if entry[0].request_id != request_id]
        self._queue.clear()
        self._queue.append((Abort(request_id), self._clock()))
        self._queue.extend(kept)
        self._changed.notify()

    def _has_message(self) -> bool:
        """Whether there is something to take, once what outlived its request is dropped from the head.

        That is chunks of a request that has failed, and an abort that was asked for while the request's end was made.
        """
        while self._queue and not self._is_wanted(self._queue[0][0]):
            self._queue.popleft()
        return bool(self._queue)

    def _is_wanted(self, message: Inbound[P]) -> bool:
        return isinstance(message, Inquire) or message.request_id in self._aborting

    def _check_room(self) -> None:
        if len(self._queue) >= self._limit:
            raise QueueFullError(f"{len(self._queue)} messages wait in the inbox, limit {self._limit}")
