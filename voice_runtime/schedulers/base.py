"""The one interface of every scheduler: a stage never asks which kind it has."""

from typing import Protocol, TypeVar

from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.outbox import Outbox

P = TypeVar("P")
R = TypeVar("R")


class Scheduler(Protocol[P, R]):
    """Runs the requests of one stage on a thread of its own.

    Every request that enters the inbox ends with exactly one Finished, Failed or Aborted, and nothing of it comes out
    afterwards. All state of a request lives on the scheduler's thread; other threads only put and abort.
    """

    @property
    def inbox(self) -> Inbox[P]: ...

    @property
    def outbox(self) -> Outbox[R]: ...

    def start(self) -> None:
        """Start the thread. What the model needs is loaded and warm when this returns."""

    def stop(self) -> None:
        """End the thread after its current step; live requests are aborted and the outbox is closed."""

    def abort(self, request_id: str) -> None:
        """Ask for the end of one request from any thread; unknown and ended ids are ignored."""
