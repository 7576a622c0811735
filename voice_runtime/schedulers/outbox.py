"""The way out of a scheduler: a counted queue between its thread and whoever delivers the results."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.messages import Outbound

R = TypeVar("R")


class Outbox(Generic[R]):
    """Results of one scheduler, in order. The scheduler puts, one other thread iterates.

    limit: most results that may wait; at the limit `put` raises, since losing one silently would be worse.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._queue: deque[Outbound[R]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, message: Outbound[R]) -> None:
        """Queue a result. Never blocks.

        Raises:
            QueueFullError: `limit` results wait already.
        """
        with self._changed:
            if len(self._queue) >= self._limit:
                raise QueueFullError(f"{len(self._queue)} results wait in the outbox, limit {self._limit}")
            self._queue.append(message)
            self._changed.notify()

    def take(self, timeout_s: float | None = None) -> Outbound[R] | None:
        """The next result, waiting at most `timeout_s` (None: for ever); None when time is up or nothing will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed, timeout_s)
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """No more results will be put; those that wait are still delivered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Outbound[R]]:
        while (message := self.take()) is not None:
            yield message

    def __len__(self) -> int:
        return len(self._queue)
