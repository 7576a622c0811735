"""What goes into a scheduler and what comes out. Plain values: no scheduler, model or socket is known here.

Request ids are chosen by the sender and never reused.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

P = TypeVar("P")
R = TypeVar("R")


class NewRequest(msgspec.Struct, Generic[P], frozen=True, tag=True):
    """Begin a request. For a streamed request the payload opens it and the items follow as chunks."""

    request_id: str
    payload: P


class StreamChunk(msgspec.Struct, Generic[P], frozen=True, tag=True):
    """One more item of a streamed request, in order."""

    request_id: str
    item: P


class StreamDone(msgspec.Struct, frozen=True, tag=True):
    """No more items will come for this request."""

    request_id: str


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Drop the request: answered by `Aborted` once everything it held is free again."""

    request_id: str


class Reject(msgspec.Struct, frozen=True, tag=True):
    """The payload that a request was waiting for cannot be made: answered by `Failed` with this error."""

    request_id: str
    error: str


class Inquire(msgspec.Struct, frozen=True, tag=True):
    """Ask what the scheduler holds: answered by `Ledger`, taken between two steps of the scheduler's own thread."""

    request_id: str


class Chunk(msgspec.Struct, Generic[R], frozen=True, tag=True):
    """One result of a request that goes on."""

    request_id: str
    item: R


class Finished(msgspec.Struct, Generic[R], frozen=True, tag=True):
    """The request ended well; a one-shot request has its result here, a streamed one None."""

    request_id: str
    result: R | None = None
    metrics: Mapping[str, float] = msgspec.field(default_factory=dict)


def until_first(items: int, compute_s: float) -> dict[str, float]:
    """Metrics of a request's end: what it took, and what the model computed for it, until it first gave something."""
    return {"first_items": items, "first_compute_ms": compute_s * 1000}


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request ended with an error. error: the class name of the error and its message."""

    request_id: str
    error: str


class Aborted(msgspec.Struct, frozen=True, tag=True):
    """The request was aborted and holds nothing any more."""

    request_id: str


class Ledger(msgspec.Struct, frozen=True, tag=True):
    """What the scheduler holds, by name; all are counts that return to their idle value when no request is live."""

    request_id: str
    held: Mapping[str, int]


Sent = NewRequest[P] | StreamChunk[P] | StreamDone | Abort | Inquire
Inbound = Sent[P] | Reject
Outbound = Chunk[R] | Finished[R] | Failed | Aborted | Ledger
Ended = Finished[R] | Failed | Aborted


def describe(error: BaseException) -> str:
    """The text of a `Failed`: class name and message, never a traceback."""
    return f"{type(error).__name__}: {error}"
