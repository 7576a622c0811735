"""Causal layers whose past is explicit: each takes and returns its state, and reads nothing else of the past.

A state of zeros means that nothing came before. Its size is fixed, so the work for a frame is the same in minute five
as in second one. All are laid out (rows, positions, width).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

AttentionState = tuple[Tensor, Tensor]


class CausalConv(nn.Module):
    """Depthwise convolution over the last `kernel` positions. State: (rows, kernel - 1, width)."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.past = kernel - 1
        self.width = width
        self.conv = nn.Conv1d(width, width, kernel, groups=width)

    def init_state(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.past, self.width)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen = torch.cat([state.to(x.dtype), x], 1)
        return self.conv(seen.mT).mT, seen[:, -self.past :]


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, norm, a network three times as wide, scaled by gamma. State: its convolution's.

    Source: Liu et al., "A ConvNet for the 2020s"; the shapes are those of Hibari's decoder, whose weights fit in.
    """

    def __init__(self, width: int, kernel: int, scale: float = 1.0) -> None:
        super().__init__()
        self.conv = CausalConv(width, kernel)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), scale))

    def init_state(self, rows: int) -> Tensor:
        return self.conv.init_state(rows)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, state = self.conv(x, state)
        return x + self.gamma * self.down(functional.gelu(self.up(self.norm(hidden)))), state


class WindowAttention(nn.Module):
    """Each position attends to itself and the window - 1 before it, with a learnt bias for each distance and head.

    State: keys and values (rows, window - 1, width) each. What came before the stream are zeros that can be attended to
    like anything else: nothing depends on an absolute position.
    """

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.past, self.width = heads, window - 1, width
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(heads, window))

    def init_state(self, rows: int) -> AttentionState:
        return torch.zeros(rows, self.past, self.width), torch.zeros(rows, self.past, self.width)

    def forward(self, x: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        q, k, v = self.qkv(x).chunk(3, -1)
        k = torch.cat([state[0].to(k.dtype), k], 1)
        v = torch.cat([state[1].to(v.dtype), v], 1)
        bias = self._band(x.shape[1]).to(q.dtype)
        attended = functional.scaled_dot_product_attention(self._split(q), self._split(k), self._split(v), bias)
        return self.out(attended.transpose(1, 2).flatten(2)), (k[:, -self.past :], v[:, -self.past :])

    def _band(self, count: int) -> Tensor:
        """Added to the scores of `count` positions: (heads, count, past + count), minus infinity outside the window."""
        back = torch.arange(count)[:, None] + self.past - torch.arange(self.past + count)
        outside = (back < 0) | (back > self.past)
        return self.bias[:, back.clamp(0, self.past)].masked_fill(outside, float("-inf"))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class WindowLayer(nn.Module):
    """Pre-norm transformer layer on `WindowAttention`. State: its attention's."""

    def __init__(self, width: int, heads: int, window: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window)
        self.feed_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def init_state(self, rows: int) -> AttentionState:
        return self.attention.init_state(rows)

    def forward(self, x: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        attended, state = self.attention(self.attention_norm(x), state)
        x = x + attended
        return x + self.down(functional.gelu(self.up(self.feed_norm(x)))), state
