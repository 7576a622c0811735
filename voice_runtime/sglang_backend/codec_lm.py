"""A codec language model as SGLang serves it: the network of runner.codec_lm with attention over upstream's KV pages.

See codec_folder for where its weights and sizes come from.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.layers.radix_attention import RadixAttention
from torch import Tensor, nn

from voice_runtime.runner.codec_lm import CodecLM, CodecLMConfig
from voice_runtime.sglang_backend.codec_folder import MOST_POSITIONS, WEIGHTS


class CodecLanguageModel(nn.Module):
    """Implements runner.feedback.CodecModel. Upstream constructs it, loads it and calls `forward`.

    config: the folder's config.json as transformers reads it.
    """

    def __init__(self, config: Any, quant_config: None = None, prefix: str = "") -> None:
        super().__init__()
        sizes = CodecLMConfig(**config.codec)
        self.books = sizes.books
        self.codes = sizes.codes
        self.hidden_size = sizes.width
        self.lm = CodecLM(sizes)
        self.attention = nn.ModuleList(
            RadixAttention(sizes.heads, sizes.head_width, sizes.head_width**-0.5, sizes.heads, layer_id=at)
            for at in range(sizes.layers)
        )
        self.feedback: Tensor
        self.register_buffer("feedback", torch.zeros(MOST_POSITIONS, sizes.width), persistent=False)
        self.last = torch.zeros(0, dtype=torch.int64)
        self.hidden = torch.zeros(0, sizes.width)

    def embed(self, frames: Tensor, previous: Tensor) -> Tensor:
        return self.lm.inputs(frames.to(self.feedback.dtype), previous)

    def complete(self, hidden: Tensor, first: Tensor) -> Tensor:
        return self.lm.complete(hidden, first)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, positions: Tensor, forward_batch: Any) -> LogitsProcessorOutput:
        """Called by upstream. input_ids: stand-ins; the inputs are in `feedback`. positions: int64, of all rows."""
        attends = [partial(_attend, layer, forward_batch) for layer in self.attention]
        states = self.lm.states(self.feedback[: len(positions)], positions, attends)
        self.hidden = states[self.last]
        none = self.hidden.new_empty((len(self.hidden), 0), dtype=torch.int64)
        return LogitsProcessorOutput(next_token_logits=self.lm.book_logits(self.hidden, none))

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Called by upstream."""
        ours = {name.removeprefix(WEIGHTS): tensor for name, tensor in weights if name.startswith(WEIGHTS)}
        self.lm.load_state_dict(ours)


def _attend(layer: Any, forward_batch: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q, k, v: (positions, heads, head width)."""
    attended: Tensor = layer(q.flatten(-2), k.flatten(-2), v.flatten(-2), forward_batch)
    return attended.view(q.shape)


EntryClass = CodecLanguageModel
