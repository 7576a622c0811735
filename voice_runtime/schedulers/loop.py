"""The thread that every scheduler has: opens, steps until the inbox closes, and leaves no request without an end."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.messages import Aborted, Ended, Failed, describe
from voice_runtime.schedulers.outbox import Outbox

logger = logging.getLogger(__name__)


class Loop:
    """Runs a scheduler's `step` again and again on one thread.

    step: one round; blocks on the inbox while there is nothing to do.
    end: the scheduler's one way out for a request.
    open: what must be loaded on the thread that steps.
    drain: brings what is live to its end when the scheduler stops; by default it is aborted.
    """

    def __init__(
        self,
        name: str,
        ways: tuple[Inbox[Any], Outbox[Any]],
        step: Callable[[], None],
        end: Callable[[Ended[Any]], None],
        open: Callable[[], None] | None = None,
        drain: Callable[[], None] | None = None,
    ) -> None:
        self._inbox, self._outbox = ways
        self._step = step
        self._end = end
        self._open = open or (lambda: None)
        self._drain = drain or self._abort_all
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread and return when it is open.

        Raises:
            RuntimeError: it could not be opened; the cause is attached.
        """
        self._thread.start()
        self._opened.wait()
        if self._failure is not None:
            raise RuntimeError(f"{self._thread.name} could not be opened") from self._failure

    def stop(self) -> None:
        """End the thread after its current step; what is live is drained and the outbox closed."""
        self._inbox.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._abort_all()  # what was put before the thread had opened, or after it had failed
        self._outbox.close()

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._opened.set()
        try:
            while not self._inbox.closed:
                self._step()
            self._drain()
        except BaseException as error:
            # Work that fails is caught where it runs: this is our own fault, or an engine's whose state is unknown
            # now. Every request fails, the closed outbox ends the worker, and its supervisor starts a fresh one.
            logger.exception("%s failed", self._thread.name)
            self._fail_all(describe(error))

    def _abort_all(self) -> None:
        for request_id in self._inbox.live_requests():
            self._end(Aborted(request_id))

    def _fail_all(self, error: str) -> None:
        self._inbox.close()
        for request_id in self._inbox.live_requests():
            try:
                self._end(Failed(request_id, error))
            except Exception:
                logger.exception("request %s may get no end", request_id)
        self._outbox.close()
