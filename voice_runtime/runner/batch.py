"""What a runner sees of a batch: rows of requests, and one forward pass that can be asked for. No engine is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from voice_runtime.runner.generate import Generate


@dataclass(slots=True)
class Request:
    """All that a runner keeps of one request, from its admission to its end.

    sampled: tokens drawn so far. made: what the model has made of each, when that is more than the token.
    """

    request_id: str
    generate: Generate
    sampled: list[int] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Positions whose token is known: prompt and answer so far."""
        return len(self.generate.ids) + len(self.sampled)


@dataclass(frozen=True, slots=True)
class Row:
    """The positions [start, end) of one request that this forward pass computes.

    After a retraction or for a long prompt they are many; in plain decoding one.
    """

    request: Request
    start: int
    end: int

    @property
    def draws(self) -> bool:
        """Whether the token drawn after this row is the request's next; a middle chunk's is thrown away."""
        return self.end == self.request.known


class ForwardPass(Protocol):
    """One forward pass over the rows of a batch, prepared by the engine."""

    def run(self) -> torch.Tensor:
        """The standard forward pass. Returns the last position's logits, float, shape (rows, vocabulary)."""

    def draw(self) -> torch.Tensor:
        """The engine's own drawing from the logits that `run` gave. Returns token ids, shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are computed together. is_prefill: at least one row may have more than one position."""

    rows: Sequence[Row]
    is_prefill: bool
    forward_pass: ForwardPass
