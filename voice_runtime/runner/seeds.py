"""Drawing tokens by seed: a pure function of logits, settings, seed and position, so alone and batched are equal."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from voice_runtime.runner.generate import Generate

_MASK = 0x7FFF_FFFF_FFFF_FFFF


def fallback_seed(request_id: str) -> int:
    """The seed of a row without one in a batch that has some: every process derives the same from the id."""
    return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest()) & _MASK


def draw(
    logits: torch.Tensor, generates: Sequence[Generate], seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """One token for each row.

    logits: float, shape (rows, vocabulary). generates: settings of each row. seeds, positions: int64, shape (rows,).
    Returns int64, shape (rows,).

    A row's draw is the argmax of its log-probabilities plus Gumbel noise that depends on nothing but seed, position
    and token id.
    Source: Gumbel-max trick, e.g. Maddison et al., "A* Sampling", 2014, section 2.
    """
    ids = logits.argmax(dim=-1)
    for row, generate in enumerate(generates):
        if generate.temperature > 0:
            kept = _log_probabilities(logits[row], generate)
            ids[row] = (kept + _gumbel(int(seeds[row]), int(positions[row]), len(kept), logits.device)).argmax()
    return ids


def _log_probabilities(logits: torch.Tensor, generate: Generate) -> torch.Tensor:
    """Log-probabilities of one row in float64, -inf for what top_k and top_p leave out. Shape (vocabulary,)."""
    scores = torch.log_softmax(logits.double() / generate.temperature, dim=-1)
    if generate.top_k is None and generate.top_p >= 1:
        return scores
    ranked, order = scores.sort(descending=True, stable=True)
    before = ranked.exp().cumsum(-1) - ranked.exp()  # probability of all that is likelier
    left_out = before > generate.top_p
    if generate.top_k is not None:
        left_out[generate.top_k :] = True
    scores[order[left_out]] = -torch.inf
    return scores


def _gumbel(seed: int, position: int, size: int, device: torch.device) -> torch.Tensor:
    """Gumbel noise in float64, shape (size,)."""
    bits = torch.arange(size, dtype=torch.int64, device=device)
    bits = _mix(bits + _signed(_mix_int(seed ^ _mix_int(position + 1))))
    uniform = ((bits >> 11) & ((1 << 52) - 1)).double().add_(0.5).div_(1 << 52)
    return -torch.log(-torch.log(uniform))


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64 on int64 tensors, whose arithmetic wraps around.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
    """
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _mix_int(x: int) -> int:
    full = (1 << 64) - 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & full
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & full
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x
