"""SGLang as an engine of ArScheduler: KV pages, radix tree and continuous batching are upstream's own."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from voice_runtime.errors import ConfigError, RequestError, UnsupportedError
from voice_runtime.schedulers.engine import Tokens
from voice_runtime.sglang_backend import cpu_compat

logger = logging.getLogger(__name__)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What may be chosen about the engine.

    model: a Hugging Face folder of an architecture that SGLang serves.
    dtype: "bfloat16" or "float32".
    kv_tokens: tokens of key/value cache in all. context_tokens: longest prompt and answer together.
    max_running: most requests that are decoded together. max_waiting: most that may wait for that.
    chunked_prefill_tokens: most prompt tokens of one step; a longer prompt takes several.
    overlap: upstream's overlap scheduling; refused.
    """

    model: Path
    dtype: str = "bfloat16"
    kv_tokens: int = 16_384
    context_tokens: int = 2_048
    max_running: int = 8
    max_waiting: int = 64
    chunked_prefill_tokens: int = 512
    overlap: bool = False

    def __post_init__(self) -> None:
        if self.overlap:
            raise UnsupportedError(
                "overlap scheduling is on, expected off: upstream decrements Req.inflight_middle_chunks one round late "
                "there, so the last prefill chunk still reads as a middle chunk and the output is silently wrong"
            )
        if self.dtype not in ("bfloat16", "float32"):
            raise ConfigError(f"dtype is {self.dtype!r}, expected bfloat16 or float32")
        for name in ("kv_tokens", "context_tokens", "max_running", "max_waiting", "chunked_prefill_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")

    @property
    def room_tokens(self) -> int:
        """Longest prompt and answer together.

        Source: sglang 0.5.15.post1 keeps 7 back of a prompt and 2 in all, srt/managers/tp_worker.py.
        """
        return min(self.context_tokens, self.kv_tokens) - 7


@dataclass(frozen=True, slots=True)
class Generate:
    """One generation, in the engine's terms.

    ids: prompt token ids. stop_ids: token ids that end the answer and are not part of it.
    temperature: 0 is greedy.
    """

    ids: Sequence[int]
    max_new_tokens: int
    stop_ids: Sequence[int]
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


class SglangEngine(Generic[P]):
    """One SGLang scheduler on one model; one per process, since upstream keeps process-wide state.

    build: payload -> Generate; may raise RequestError. Runs on the scheduler's thread.
    """

    def __init__(self, settings: EngineSettings, build: Callable[[P], Generate]) -> None:
        self._settings = settings
        self._build = build
        self._inputs: list[object] = []
        self._live: dict[str, _Live] = {}
        self._scheduler: Any = None

    def open(self) -> None:
        """Load the weights.

        Raises:
            ConfigError: the folder is not there.
        """
        if not self._settings.model.is_dir():
            raise ConfigError(f"model folder {self._settings.model} is not there, expected a Hugging Face folder")
        cpu_compat.prepare()
        cpu_compat.one_process_group()
        from voice_runtime.sglang_backend.scheduler import QueueScheduler
        from voice_runtime.sglang_backend.server_args import server_args

        self._scheduler = QueueScheduler(server_args(self._settings))

    def add(self, request_id: str, payload: P) -> None:
        from voice_runtime.sglang_backend.convert import to_upstream

        try:
            generate = self._build(payload)
            self._check(generate)
            request = to_upstream(request_id, generate)
        except RequestError:
            raise
        except Exception as error:
            logger.exception("request %s: its prompt cannot be built", request_id)
            raise RequestError("the conversation does not suit the model's template or tokenizer") from error
        self._inputs.append(request)
        self._live[request_id] = _Live(frozenset(generate.stop_ids))

    def abort(self, request_id: str) -> None:
        from voice_runtime.sglang_backend.convert import abort_of

        if (live := self._live.get(request_id)) is not None:
            live.abort_asked = True
            self._inputs.append(abort_of(request_id))

    def step(self) -> Iterator[Tokens]:
        import torch

        received, self._inputs = self._inputs, []
        with torch.no_grad():
            outputs = self._scheduler.round(received)
        for output in outputs:
            if output.request_id in self._live:
                yield self._in_our_terms(output)
        if not self._inputs and self._scheduler.cur_batch is None and self._scheduler.is_fully_idle():
            yield from self._lost()

    def is_idle(self) -> bool:
        return not self._inputs and not self._live and self._scheduler.cur_batch is None

    def held(self) -> dict[str, int]:
        scheduler = self._scheduler
        return {
            "kv_total": scheduler.max_total_num_tokens,
            "kv_available": scheduler.token_to_kv_pool_allocator.available_size(),
            "kv_evictable": scheduler.tree_cache.evictable_size(),
            "kv_protected": scheduler.tree_cache.protected_size(),
            "slots_total": scheduler.req_to_token_pool.size,
            "slots_available": scheduler.req_to_token_pool.available_size(),
            "running_requests": len(scheduler.running_batch.reqs),
            "waiting_requests": len(scheduler.waiting_queue),
        }

    def _check(self, generate: Generate) -> None:
        asked, room = len(generate.ids) + generate.max_new_tokens, self._settings.room_tokens
        if not generate.ids or asked > room:
            raise RequestError(
                f"prompt has {len(generate.ids)} tokens and may bring {generate.max_new_tokens} more, "
                f"expected 1 or more and at most {room} in all"
            )
        limit = self._settings.max_running + self._settings.max_waiting
        if len(self._live) >= limit:
            raise RequestError(f"{len(self._live)} requests are running or waiting, limit {limit}")

    def _in_our_terms(self, output: Tokens) -> Tokens:
        """Without the stop token; an abort that nobody asked for is upstream's refusal."""
        if output.finish_reason is None:
            return output
        live = self._live.pop(output.request_id)
        if output.finish_reason == "abort" and not live.abort_asked:
            return Tokens(output.request_id, (), "error", f"refused by the engine: {output.error or 'no reason given'}")
        ids = output.ids[:-1] if output.ids and output.ids[-1] in live.stop_ids else output.ids
        return Tokens(output.request_id, ids, output.finish_reason, metrics=output.metrics)

    def _lost(self) -> Iterator[Tokens]:
        """End what we still wait for while upstream has nothing left: it would be waited for without end."""
        lost, self._live = self._live, {}
        for request_id in lost:
            logger.error("request %s: the engine has lost it", request_id)
            yield Tokens(request_id, (), "error", "the engine has lost the request")


@dataclass(slots=True)
class _Live:
    """What is kept of a request that upstream has. stop_ids: as in Generate."""

    stop_ids: frozenset[int]
    abort_asked: bool = False
