"""ModelRunner: from a batch to its next tokens, with a hook for each place where models differ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from voice_runtime.runner import seeds
from voice_runtime.runner.batch import Batch, EmbeddingSizes, Request

if TYPE_CHECKING:
    from voice_runtime.runner.generate import Generate


class ModelRunner:
    """Runs batches of one model: before -> forward -> post -> sample -> record.

    A model fills only the hooks that it needs; batch, penalties, seeds, drawing and what is kept of each request are
    the base's. One thread calls everything.
    """

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}

    def attach(self, model: Any) -> None:
        """The loaded model, before the first batch. Raises ConfigError when it is none that this runner can run."""

    def attach_sizes(self, sizes: EmbeddingSizes | None) -> None:
        """What the model takes in place of token embeddings, after `attach`; None: it takes token ids alone."""

    def check(self, generate: Generate) -> None:
        """Raises RequestError when the model cannot serve this generation."""

    def begin(self, key: str, request_id: str, generate: Generate) -> None:
        """A request is admitted. key: what `request` will be asked for, unlike the id never reused within a run."""
        self._requests[key] = Request(key, request_id, generate)

    def request(self, key: str) -> Request:
        return self._requests[key]

    def end(self, key: str) -> None:
        """Forget the request."""
        self._requests.pop(key, None)

    @property
    def live(self) -> int:
        """Requests that have begun and not ended."""
        return len(self._requests)

    def reads_history(self, request: Request) -> bool:
        """Whether drawing the request's next token reads the answer so far: it cannot begin before that is known."""
        return request.generate.repetition_penalty != 1

    def outputs(self, request: Request, start: int, ids: Sequence[int]) -> Sequence[Any]:
        """What goes out for `ids`, which were drawn from the `start`-th on."""
        return ids

    def before_prefill(self, batch: Batch) -> None:
        """Before the forward pass of a batch with prompts; rows that decode may ride along."""

    def before_decode(self, batch: Batch) -> None:
        """Before the forward pass of a batch in which every row decodes one token."""

    def custom_prefill_forward(self, batch: Batch) -> torch.Tensor | None:
        """A forward pass of the model's own, giving logits as ForwardPass.run; None: the standard one."""
        return None

    def custom_decode_forward(self, batch: Batch) -> torch.Tensor | None:
        """As custom_prefill_forward, while decoding."""
        return None

    def post_prefill(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """After the forward pass. May call `sample` and return the ids; the base then does not draw again."""
        return None

    def post_decode(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor | None:
        """As post_prefill, while decoding."""
        return None

    def run(self, batch: Batch) -> torch.Tensor:
        """The next token of each row: int64, shape (rows,)."""
        began_s = time.perf_counter()
        if batch.is_prefill:
            hooks = self.before_prefill, self.custom_prefill_forward, self.post_prefill
        else:
            hooks = self.before_decode, self.custom_decode_forward, self.post_decode
        before, forward, post = hooks
        before(batch)
        logits = forward(batch)
        if logits is None:
            logits = batch.forward_pass.run()
        ids = post(batch, logits)
        if ids is None:
            ids = self.sample(batch, logits)
        tokens = ids.tolist()
        took_s = time.perf_counter() - began_s
        for row, token in zip(batch.rows, tokens, strict=True):
            row.request.compute_s += took_s
            if row.request.cached is None:
                row.request.cached = row.start
            if row.draws:
                row.request.draw(token)
        return ids

    def sample(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Draw a token for each row, penalties and seeds applied. Returns int64, shape (rows,).

        logits: as ForwardPass.run; changed in place.
        """
        self._apply_repetition_penalty(batch, logits)
        seeded = self._install_sampling_seeds(batch)
        if seeded is None:
            return batch.forward_pass.draw(logits)
        positions = torch.tensor([row.end for row in batch.rows])
        return seeds.draw(logits, [row.request.generate for row in batch.rows], seeded, positions)

    def _apply_repetition_penalty(self, batch: Batch, logits: torch.Tensor) -> None:
        """Make what a row's prompt or answer has already less likely.

        Taken from the request's own history and not accumulated step by step, so that it is the same after a
        retraction. Source: Keskar et al., "CTRL", 2019, section 4.1; as in transformers'
        RepetitionPenaltyLogitsProcessor.
        """
        for at, row in enumerate(batch.rows):
            penalty = row.request.generate.repetition_penalty
            if penalty != 1:
                seen = torch.tensor([*row.request.generate.ids, *row.request.sampled], device=logits.device)
                scores = logits[at, seen]
                logits[at, seen] = torch.where(scores < 0, scores * penalty, scores / penalty)

    def _install_sampling_seeds(self, batch: Batch) -> torch.Tensor | None:
        """A seed for each row, int64, shape (rows,); None when no row asks for one: nothing at all happens then."""
        given = [row.request.generate.seed for row in batch.rows]
        if all(seed is None for seed in given):
            return None
        return torch.tensor(
            [
                seeds.fallback_seed(row.request.request_id) if seed is None else seed
                for row, seed in zip(batch.rows, given, strict=True)
            ]
        )
