"""The network of a codec language model: frames of codes, one position a frame. Its attention is brought by the user.

Training and the plain loop bring attention over what they have at hand, the engine attention over KV pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

NO_CODE = -1

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v (..., positions, heads, head width) -> as q


@dataclass(frozen=True, slots=True)
class CodecLMConfig:
    """Sizes. hidden: of the gated feed-forward parts. codes: of each book."""

    width: int = 256
    heads: int = 4
    layers: int = 5
    hidden: int = 512
    books: int = 4
    codes: int = 1024
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each position attends to itself and all before it."""
    attended = functional.scaled_dot_product_attention(
        q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2), is_causal=True
    )
    return attended.transpose(-3, -2)


class KvCache:
    """Keys and values of one layer so far; empty at first. Takes many positions when empty, then one by one."""

    def __init__(self) -> None:
        self._kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self._kept is None:
            self._kept = (k, v)
            return causal(q, k, v)
        k, v = torch.cat([self._kept[0], k], -3), torch.cat([self._kept[1], v], -3)
        self._kept = (k, v)
        attended = functional.scaled_dot_product_attention(
            q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2)
        )
        return attended.transpose(-3, -2)


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Rotary positions as in Llama: the two halves of a head are rotated."""

    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k = nn.Linear(config.width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.width, bias=False)
        self.o = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)) for layer in (self.q, self.k, self.v))
        return self.o(attend(rotated(q, turn), rotated(k, turn), v).flatten(-2))  # type: ignore[no-any-return]


def rotation(positions: Tensor, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 (positions, 1, width / 2), of int64 positions."""
    frequency = theta ** (-torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width)
    angle = positions.float()[:, None, None] * frequency
    return angle.cos(), angle.sin()


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (part.to(x.dtype) for part in turn)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config)
        self.feed_norm = RMSNorm(config.width, config.norm_eps)
        self.feed = FeedForward(config.width, config.hidden)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turn, attend)
        return x + self.feed(self.feed_norm(x))  # type: ignore[no-any-return]


class LaterBook(nn.Module):
    """What is known of a frame once its first books are: the state and their codes' embeddings, mixed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(2 * width, width + width // 2)
        self.down = nn.Linear(width + width // 2, width)

    def forward(self, state: Tensor, known: Tensor) -> Tensor:
        mixed = functional.silu(self.up(torch.cat([state, known], -1)))
        return state + self.down(mixed)  # type: ignore[no-any-return]


class CodecLM(nn.Module):
    """Causal transformer over frames. Position t takes its conditioning and the codes of frame t - 1."""

    def __init__(self, config: CodecLMConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.books * config.codes, config.width)
        self.start = nn.Parameter(torch.zeros(config.width))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.later = nn.ModuleList(LaterBook(config.width) for _ in range(config.books - 1))
        self.heads = nn.ModuleList(nn.Linear(config.width, config.codes) for _ in range(config.books))

    def code_vectors(self, codes: Tensor) -> Tensor:
        """int64 (..., n), n <= books, in [0, codes) to (..., n, width)."""
        offsets = self.config.codes * torch.arange(codes.shape[-1], device=codes.device)
        return self.embedding(codes + offsets)  # type: ignore[no-any-return]

    def inputs(self, conditioning: Tensor, previous: Tensor) -> Tensor:
        """conditioning: (..., width); previous: int64 (..., books), NO_CODE where no frame came before."""
        none = previous[..., :1] == NO_CODE
        known = self.code_vectors(previous.clamp(min=0)).sum(-2)
        return conditioning + torch.where(none, self.start, known)

    def states(
        self, inputs: Tensor, positions: Tensor | None = None, attends: Sequence[Attend] | None = None
    ) -> Tensor:
        """inputs: (..., positions, width). Returns the normed states, same shape.

        positions: int64 (positions,), by default 0, 1, ... attends: attention of each layer, by default `causal`.
        """
        if positions is None:
            positions = torch.arange(inputs.shape[-2], device=inputs.device)
        turn = rotation(positions, self.config.head_width, self.config.rope_theta)
        x = inputs
        for layer, attend in zip(self.layers, attends or [causal] * len(self.layers), strict=True):
            x = layer(x, turn, attend)
        return self.norm(x)  # type: ignore[no-any-return]

    def book_logits(self, state: Tensor, known: Tensor) -> Tensor:
        """Logits (..., codes) of the next book. known: int64 (..., n), the frame's first n codes, 0 <= n < books."""
        book = known.shape[-1]
        if book == 0:
            return self.heads[0](state)  # type: ignore[no-any-return]
        mixed = self.later[book - 1](state, self.code_vectors(known).sum(-2))
        return self.heads[book](mixed)  # type: ignore[no-any-return]

    def complete(self, state: Tensor, first: Tensor) -> Tensor:
        """Whole frames from their first codes, the later books' likeliest: (n, width), int64 (n,) to (n, books)."""
        codes = first[:, None]
        for _ in range(1, self.config.books):
            codes = torch.cat([codes, self.book_logits(state, codes).argmax(-1, keepdim=True)], -1)
        return codes
