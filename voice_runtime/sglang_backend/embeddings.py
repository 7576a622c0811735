"""Embeddings into upstream's multimodal models, past their own encoders. Imports nothing of upstream.

Source: sglang 0.5.15.post1, srt/models/qwen3_vl_moe.py, Qwen3MoeLLMModel.forward and srt/managers/mm_utils.py,
general_mm_embed_routine, which calls it by keywords.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from voice_runtime.errors import UnsupportedError
from voice_runtime.runner.batch import EmbeddingSizes, Replacement


class LanguageModelInputs:
    """What the language model inside a multimodal model is called with.

    Upstream's forward pass stays as it is: a hook of torch's own changes the keywords of that one call.
    """

    def __init__(self, language_model: Any) -> None:
        self._language_model = language_model
        config = language_model.config
        layers = len(language_model.deepstack_embed_to_decoder_layer)
        self.sizes = EmbeddingSizes(config.hidden_size, layers, config.max_position_embeddings)

    @contextmanager
    def replaced(self, replacement: Replacement) -> Iterator[None]:
        """Within it, the next forward pass of the model reads `replacement`.

        Raises:
            UnsupportedError: the pass went by without calling the language model, as a captured graph does.
        """
        calls = 0

        def replace(
            _: object, args: tuple[Any, ...], keywords: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            nonlocal calls
            calls += 1
            return args, {**keywords, **_replaced(keywords["input_embeds"], replacement)}

        handle = self._language_model.register_forward_pre_hook(replace, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
        if calls != 1:
            raise UnsupportedError(f"the forward pass called the language model {calls} times, expected once")


def find_inputs(model: Any) -> LanguageModelInputs | None:
    """The inputs of an upstream model of the Qwen3-VL and Qwen3-Omni kind; None when it is of another kind."""
    for module in model.modules():
        if hasattr(module, "deepstack_embed_to_decoder_layer"):
            return LanguageModelInputs(module)
    return None


def _replaced(input_embeds: torch.Tensor, replacement: Replacement) -> dict[str, torch.Tensor]:
    """The keywords to change. input_embeds: of the token ids, shape (positions, hidden); changed in place."""
    at = replacement.at.to(input_embeds.device)
    input_embeds[at] = replacement.embeds.to(input_embeds)
    if replacement.deepstack is None:
        return {"input_embeds": input_embeds}
    side_by_side = replacement.deepstack.movedim(0, 1).flatten(1).to(input_embeds)
    deepstack = input_embeds.new_zeros(len(input_embeds), side_by_side.shape[1])
    deepstack[at] = side_by_side
    return {"input_embeds": input_embeds, "input_deepstack_embeds": deepstack}
