"""What a runner sees of a batch: rows of requests, and one forward pass that can be asked for. No engine is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from voice_runtime.runner.generate import Generate

TIMED_TOKENS = 32  # of a request; the first sound of a reply waits for fewer


@dataclass(slots=True)
class Request:
    """All that a runner keeps of one request, from its admission to its end.

    key: the engine's own name for it. sampled: tokens drawn so far. made: what the model has made of each, when that
    is more than the token. cached: positions that the radix cache had when it began, None: it has not begun.
    compute_s: seconds of the steps that it took part in. drawn_s: what they were when each of `sampled` was drawn.
    """

    key: str
    request_id: str
    generate: Generate
    sampled: list[int] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    cached: int | None = None
    compute_s: float = 0.0
    drawn_s: list[float] = field(default_factory=list)

    def draw(self, token: int) -> None:
        """Its next token, drawn in a step that `compute_s` has."""
        self.sampled.append(token)
        self.drawn_s.append(self.compute_s)

    def compute_ms(self) -> dict[str, float]:
        """`first_compute_ms` until its first token, `compute_N_ms` until its N-th."""
        names = ("first_compute_ms", *(f"compute_{number}_ms" for number in range(2, TIMED_TOKENS + 1)))
        return {name: seconds * 1000 for name, seconds in zip(names, self.drawn_s, strict=False)}

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


@dataclass(frozen=True, slots=True)
class EmbeddingSizes:
    """What a model takes in place of its token embeddings.

    hidden: width of an embedding. deepstack_layers: first layers that add an embedding of their own to their output.
    positions: rotary positions that it knows, from 0.
    """

    hidden: int
    deepstack_layers: int
    positions: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """Embeddings for some positions of a forward pass, counted over the rows of the batch in order.

    at: int64, shape (n,). embeds: float, shape (n, hidden).
    deepstack: float, shape (layers, n, hidden); None: nothing is added.
    """

    at: torch.Tensor
    embeds: torch.Tensor
    deepstack: torch.Tensor | None


class ForwardPass(Protocol):
    """One forward pass over the rows of a batch, prepared by the engine."""

    def place(self, positions: torch.Tensor) -> None:
        """Set the rotary positions, int64, shape (3, positions of all rows); else a token's index is its position."""

    def run(self) -> torch.Tensor:
        """The standard forward pass. Returns the last position's logits, float, shape (rows, vocabulary)."""

    def run_embedded(self, replacement: Replacement) -> torch.Tensor:
        """As `run`, with other embeddings than those of the token ids."""

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """The engine's own drawing from logits as `run` gives them. Returns token ids, shape (rows,)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are computed together. is_prefill: at least one row may have more than one position."""

    rows: Sequence[Row]
    is_prefill: bool
    forward_pass: ForwardPass
