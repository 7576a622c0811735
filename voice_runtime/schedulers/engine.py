"""The port between ArScheduler and an autoregressive engine: what the loop needs, and nothing of who provides it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

G = TypeVar("G", contravariant=True)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one step brought for one request.

    items: what was generated, in order: token ids, or what the model makes of each (a codec model: a frame of codes).
        A stop token is not among them.
    finish_reason: None while the generation goes on, else "stop", "length", "abort" (as was asked) or "error".
    error: what went wrong, with "error".
    metrics: what is known at the end: counts (prompt_tokens, cached_tokens, completion_tokens, retractions) and the
        model's own computing, without what is around it: the steps that the request took part in until its first item
        (`first_compute_ms`) and until its N-th (`compute_N_ms`), as far as that is of interest.
    """

    request_id: str
    items: Sequence[Any]
    finish_reason: str | None = None
    error: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol, Generic[G]):
    """An engine that decodes many requests step by step. One thread calls everything."""

    def open(self) -> None:
        """Load what is needed, on the thread that will step."""

    def add(self, request_id: str, generate: G) -> None:
        """Take a generation; a request has one at a time.

        Raises:
            RequestError: it cannot be served; nothing of it is kept.
        """

    def abort(self, request_id: str) -> None:
        """Drop a request's generation; its end comes out of a later `step` with finish_reason "abort"."""

    def step(self) -> Iterator[Tokens]:
        """Run one batch (or housekeeping when there is none) and give what it brought."""

    def is_idle(self) -> bool:
        """True when a further step would only be housekeeping."""

    def held(self) -> Mapping[str, int]:
        """Counts for the ledger: pages, slots, running and waiting requests."""
