"""A stage: one model behind one scheduler, with the adapters between them and the wire's payloads."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.base import Scheduler
from voice_runtime.schedulers.messages import Aborted, Failed, Finished, NewRequest, Outbound, Reject, Sent, describe
from voice_runtime.stages.payloads import Payload

logger = logging.getLogger(__name__)

# Part of a socket's path, of log lines and of metrics.
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,32}$")]


class StageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    """What every stage's table in a pipeline file may say.

    worker: name of the process that runs the stage; stages of one name share it.
    next: the stage that takes this one's results; without it they go to the session.
    """

    worker: Name
    next: Name | None = None


class BuildCount:
    """How many requests a stage has accepted that are not in its scheduler's inbox yet. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def __call__(self) -> int:
        with self._lock:
            return self._count

    def accept(self) -> None:
        """One more is being built."""
        with self._lock:
            self._count += 1

    @contextlib.contextmanager
    def done(self) -> Iterator[None]:
        """It is put, or given up, in here: nobody sees it in the inbox and still counted, as company for itself."""
        with self._lock:
            try:
                yield
            finally:
                self._count -= 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One scheduler in its worker, fed with payloads from the wire.

    scheduler: of any kind; the stage never asks which.
    prepare: payload -> what the scheduler takes; runs on a thread of its own, in order, and is counted in `building`
        from the moment the stage accepts a request until it is in the inbox or has failed.
    warm_up: messages of one request that bring the model to speed before the stage says that it is ready.
    """

    scheduler: Scheduler[Any, Any]
    warm_up: Sequence[Sent[Any]] = ()
    prepare: Callable[[Any], Any] | None = None
    building: BuildCount = field(default_factory=BuildCount)
    _preparer: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")
    )

    def start(self) -> None:
        """Load and warm up; returns when a request would be served at full speed.

        Raises:
            RuntimeError: the warm-up request failed.
        """
        self.scheduler.start()
        for message in self.warm_up:
            self.receive(message)
        if self.warm_up:
            self._await_warm_up()

    def receive(self, message: Sent[Payload]) -> None:
        """Accept a message from the wire. Never blocks on the model."""
        if self.prepare is None:
            self._put(message)
            return
        if not isinstance(message, NewRequest):
            self._put(message)
            return
        try:
            # Live from now on: an abort ends it before its payload is made, and chunks may come first.
            self.scheduler.inbox.expect(message.request_id)
        except QueueFullError as error:
            self._refuse(message, error)
            return
        self.building.accept()
        self._preparer.submit(self._put_prepared, message).add_done_callback(_check)

    def results(self) -> Iterator[Outbound[Payload]]:
        """What goes back to the wire, until the scheduler has stopped."""
        while (message := self.scheduler.outbox.take()) is not None:
            yield message

    def stop(self) -> None:
        self._preparer.shutdown(wait=True)
        self.scheduler.stop()

    def _put_prepared(self, message: NewRequest[Payload]) -> None:
        assert self.prepare is not None
        prepared: NewRequest[Any] | Reject
        try:
            prepared = NewRequest(message.request_id, self.prepare(message.payload))
        except Exception as error:
            prepared = Reject(message.request_id, describe(error))
        with self.building.done():
            self.scheduler.inbox.fulfil(prepared)

    def _put(self, message: Sent[Any]) -> None:
        """Into the inbox; when that is full, the request ends."""
        try:
            self.scheduler.inbox.put(message)
        except QueueFullError as error:
            if isinstance(message, NewRequest):
                self._refuse(message, error)
            else:
                logger.warning("request %s: %s", message.request_id, error)
                self.scheduler.abort(message.request_id)

    def _refuse(self, message: NewRequest[Any], error: QueueFullError) -> None:
        logger.warning("request %s: %s", message.request_id, error)
        self.scheduler.outbox.put(Failed(message.request_id, describe(error)))

    def _await_warm_up(self) -> None:
        for message in self.results():
            match message:
                case Finished():
                    return
                case Failed(_, error):
                    raise RuntimeError(f"warm-up failed: {error}")
                case Aborted():
                    raise RuntimeError("warm-up was aborted, expected to finish")
        raise RuntimeError("the scheduler ended during warm-up")


def _check(done: Future[None]) -> None:
    """Preparation handles what a request can do wrong; anything else is our fault, and the worker starts anew."""
    if (error := done.exception()) is not None:
        logger.critical("preparing a request failed", exc_info=error)
        os._exit(1)
