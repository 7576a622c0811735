"""SGLang as an engine of ArScheduler: KV pages, radix tree and continuous batching are upstream's own."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voice_runtime.errors import ConfigError, RequestError, UnsupportedError
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.engine import Tokens
from voice_runtime.schedulers.messages import describe
from voice_runtime.sglang_backend import cpu_compat, model_folder

if TYPE_CHECKING:  # a process without an engine loads no torch
    from voice_runtime.runner.runner import ModelRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Tensor parallelism: which part of the model this process holds.

    All ranks must be given the same requests in the same order between the same two steps: one that goes alone, or
    fails alone, ends the others' processes. No stage offers it yet; two ranks on two cores brought no speed.

    store: a file on which the ranks meet, not there yet; None for a single one.
    """

    count: int = 1
    rank: int = 0
    store: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.count:
            raise ConfigError(f"rank is {self.rank}, expected 0 to {self.count - 1}")
        if (self.store is None) != (self.count == 1):
            raise ConfigError(f"store is {self.store} for {self.count} ranks, expected a file for more than one")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What may be chosen about the engine.

    model: a Hugging Face folder of an architecture that SGLang serves.
    dtype: "bfloat16" or "float32".
    kv_tokens: tokens of key/value cache in all. context_tokens: longest prompt and answer together.
    max_running: most requests that are decoded together. max_waiting: most that may wait for that.
    chunked_prefill_tokens: most prompt tokens of one step; a longer prompt takes several.
    radix_cache: keep pages of what has ended, for prompts that begin alike.
    models: a package whose modules name model classes of their own as `EntryClass`.
    ranks: tensor parallelism, see Ranks.
    look_ahead: launch a decoding step before the result of the last is processed. Off, since there is nothing to hide
        on a CPU: processing is 0.2 to 0.3 % of a step (SmolLM2-135M, batch 1 to 8), and each token comes a step later.
    overlap: upstream's overlap scheduling; refused.
    """

    model: Path
    dtype: str = "bfloat16"
    kv_tokens: int = 16_384
    context_tokens: int = 2_048
    max_running: int = 8
    max_waiting: int = 64
    chunked_prefill_tokens: int = 512
    radix_cache: bool = True
    models: str | None = None
    ranks: Ranks = Ranks()
    look_ahead: bool = False
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


class SglangEngine:
    """One SGLang scheduler on one model; one per process, since upstream keeps process-wide state.

    Keys of its own name the requests to upstream: all of one length and never reused, whatever the ids are.

    make_runner: makes what runs the batches; the base runner suits a plain language model.
    """

    def __init__(self, settings: EngineSettings, make_runner: Callable[[], ModelRunner] | None = None) -> None:
        self._settings = settings
        self._make_runner = make_runner
        self._runner: Any = None
        self._inputs: list[object] = []
        self._live: dict[str, _Live] = {}
        self._keys: dict[str, str] = {}
        self._numbers = itertools.count()
        self._scheduler: Any = None
        self._totals = (0, 0)

    def open(self) -> None:
        """Load the weights.

        Raises:
            ConfigError, UnsupportedError: as in `model_folder.read`.
        """
        self._folder = model_folder.read(self._settings.model)
        cpu_compat.prepare()
        ranks = self._settings.ranks
        cpu_compat.process_group(ranks.count, ranks.rank, ranks.store)
        from voice_runtime.runner.runner import ModelRunner
        from voice_runtime.sglang_backend.look_ahead import LookAheadScheduler
        from voice_runtime.sglang_backend.scheduler import QueueScheduler
        from voice_runtime.sglang_backend.server_args import register_models, server_args

        register_models(self._settings)
        self._runner = (self._make_runner or ModelRunner)()
        scheduler = LookAheadScheduler if self._settings.look_ahead else QueueScheduler
        arguments = server_args(self._settings)
        self._scheduler = scheduler(arguments, self._runner, self._note_failure, self._settings.ranks.rank)
        pages, slots = self._scheduler.token_to_kv_pool_allocator, self._scheduler.req_to_token_pool
        self._totals = pages.available_size(), slots.available_size()

    def add(self, request_id: str, generate: Generate) -> None:
        from voice_runtime.sglang_backend.convert import to_upstream

        self._check(generate)
        key = f"{next(self._numbers):016x}"
        self._inputs.append(to_upstream(key, generate))
        self._runner.begin(key, request_id, generate)
        self._live[key] = _Live(request_id, generate)
        self._keys[request_id] = key

    def abort(self, request_id: str) -> None:
        from voice_runtime.sglang_backend.convert import abort_of

        if (key := self._keys.get(request_id)) is not None:
            self._live[key].abort_asked = True
            self._inputs.append(abort_of(key))

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
            "kv_total": self._totals[0],
            "kv_available": scheduler.token_to_kv_pool_allocator.available_size(),
            "kv_evictable": scheduler.tree_cache.evictable_size(),
            "kv_protected": scheduler.tree_cache.protected_size(),
            "slots_total": self._totals[1],
            "slots_available": scheduler.req_to_token_pool.available_size(),
            "generations": len(self._live),
        }

    def _check(self, generate: Generate) -> None:
        asked, room = len(generate.ids) + generate.max_new_tokens, self._settings.room_tokens
        if not generate.ids or generate.max_new_tokens < 1 or asked > room:
            raise RequestError(
                f"prompt has {len(generate.ids)} tokens and may bring {generate.max_new_tokens} more, "
                f"expected 1 or more of each and at most {room} in all"
            )
        largest = max(generate.ids)
        if self._folder.vocabulary is not None and not 0 <= min(generate.ids) <= largest < self._folder.vocabulary:
            raise RequestError(
                f"token ids go from {min(generate.ids)} to {largest}, expected 0 to {self._folder.vocabulary - 1}"
            )
        limit = self._settings.max_running + self._settings.max_waiting
        if len(self._live) >= limit:
            raise RequestError(f"{len(self._live)} requests are running or waiting, limit {limit}")
        self._runner.check(generate)

    def _note_failure(self, key: str, error: Exception) -> None:
        if (live := self._live.get(key)) is not None:
            live.error = describe(error)

    def _in_our_terms(self, output: Tokens) -> Tokens:
        """Under the request's own id, in the runner's terms and without the stop token.

        An abort that nobody asked for is a failed batch, or upstream's refusal.
        """
        key, ids = output.request_id, output.items
        live = self._live[key]
        request = self._runner.request(key)
        start, live.taken = live.taken, live.taken + len(ids)
        if output.finish_reason is None:
            return Tokens(live.request_id, self._runner.outputs(request, start, ids))
        self._forget(key)
        if live.error or (output.finish_reason == "abort" and not live.abort_asked):
            error = live.error or f"refused by the engine: {output.error or 'no reason given'}"
            return Tokens(live.request_id, (), "error", error)
        items = self._runner.outputs(request, start, ids)
        # Upstream's reason is "length" when the last token there may be is a stop token.
        if output.finish_reason == "stop" or (ids and ids[-1] in live.generate.stop_ids):
            items = items[:-1]
        metrics = {
            "prompt_tokens": len(live.generate.ids),
            "cached_tokens": request.cached or 0,
            "completion_tokens": live.taken,
            **output.metrics,
            **request.compute_ms(),
        }
        return Tokens(live.request_id, items, output.finish_reason, metrics=metrics)

    def _forget(self, key: str) -> None:
        """The one way out for a request."""
        request_id = self._live.pop(key).request_id
        self._runner.end(key)
        if self._keys.get(request_id) == key:
            del self._keys[request_id]

    def _lost(self) -> Iterator[Tokens]:
        """End what we still wait for while upstream has nothing left: it would be waited for without end."""
        for key in list(self._live):
            request_id = self._live[key].request_id
            self._forget(key)
            logger.error("request %s: the engine has lost it", request_id)
            yield Tokens(request_id, (), "error", "the engine has lost the request")


@dataclass(slots=True)
class _Live:
    """What is kept of a request that upstream has. taken: tokens that came out. error: why its batch could not run."""

    request_id: str
    generate: Generate
    taken: int = 0
    abort_asked: bool = False
    error: str = ""
