"""A tiny Llama with random weights, as a folder that the engine serves, and an engine on it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.ar import Ar
from voice_runtime.runner.generate import Generate
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.sglang_backend import cpu_compat
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine

VOCABULARY = 120


def tiny_llama(folder: Path) -> Any:
    """Write the folder and return transformers' model, float32."""
    cpu_compat.prepare()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.4,  # wide, so that greedy choices are clear
        eos_token_id=None,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(str(folder))
    return model


def prompt(seed: int, tokens: int) -> list[int]:
    return [random.Random(seed).randrange(VOCABULARY) for _ in range(tokens)]


def greedy_answer(model: Any, generate: Generate) -> list[int]:
    """transformers' greedy answer, with its own repetition penalty, cut before a stop token."""
    import torch

    ids = torch.tensor([generate.ids])
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=generate.max_new_tokens,
            do_sample=False,
            repetition_penalty=generate.repetition_penalty,
            pad_token_id=0,
        )
    answer: list[int] = out[0, ids.shape[1] :].tolist()
    ends = [answer.index(stop) for stop in generate.stop_ids if stop in answer]
    return answer[: min(ends)] if ends else answer


def tiny_scheduler(
    folder: Path, make_runner: Callable[[], ModelRunner] | None = None, kv_tokens: int = 400, **more: Any
) -> Ar:
    """Not started. A pool of `kv_tokens`, prefill in chunks of 32."""
    settings = EngineSettings(
        model=folder, dtype="float32", kv_tokens=kv_tokens, context_tokens=300, chunked_prefill_tokens=32, **more
    )
    return ArScheduler(SglangEngine(settings, make_runner), lambda generate: WholePrompt(generate, list))
