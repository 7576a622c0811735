"""The one set of SGLang server arguments that we run with, and why. Source: sglang 0.5.15.post1, srt/server_args.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sglang.srt.models.registry import ModelRegistry
from sglang.srt.server_args import ServerArgs

if TYPE_CHECKING:
    from voice_runtime.sglang_backend.engine import EngineSettings


def server_args(settings: EngineSettings) -> ServerArgs:
    """Arguments for a scheduler in our own thread: no tokenizer, no overlap, no watchdog, no graphs without a GPU."""
    on_gpu = torch.cuda.is_available()
    args = ServerArgs(
        model_path=str(settings.model),
        dtype=settings.dtype,
        device="cuda" if on_gpu else "cpu",
        attention_backend=None if on_gpu else "torch_native",
        sampling_backend=None if on_gpu else "pytorch",
        grammar_backend="none",
        disable_cuda_graph=not on_gpu,
        disable_overlap_schedule=True,
        skip_tokenizer_init=True,
        page_size=1,
        tp_size=settings.ranks.count,
        disable_radix_cache=not settings.radix_cache,
        context_length=settings.context_tokens,
        max_total_tokens=settings.kv_tokens,
        max_running_requests=settings.max_running,
        chunked_prefill_size=settings.chunked_prefill_tokens,
        # Decodes ride along with prefill chunks: a new caller's long prompt does not silence those who are answered.
        enable_mixed_chunk=True,
        # Upstream's watchdog signals the parent process, which is our supervisor.
        watchdog_timeout=1e8,
        log_level="warning",
    )
    return args


def register_models(settings: EngineSettings) -> None:
    """Let upstream find the settings' own model classes by the architecture that a folder's config.json names."""
    if settings.models is not None:
        ModelRegistry.register(settings.models, overwrite=True, strict=True)
