"""ThinkerModelRunner: language models that read audio and images as embeddings among those of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from voice_runtime.errors import ConfigError, RequestError
from voice_runtime.runner.batch import Batch, EmbeddingSizes, Replacement, Row
from voice_runtime.runner.runner import ModelRunner

if TYPE_CHECKING:
    from voice_runtime.runner.generate import Generate


@dataclass(frozen=True, slots=True)
class EmbeddedSpan:
    """What an encoder gave for consecutive positions of a prompt.

    start: the first position. embeds: float, shape (n, hidden).
    deepstack: what the first layers add to their outputs there, float, shape (layers, n, hidden); None: nothing.
    """

    start: int
    embeds: torch.Tensor
    deepstack: torch.Tensor | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.embeds)

    def within(self, start: int, end: int) -> EmbeddedSpan | None:
        """The part of it in [start, end), counted from `start`; None when there is none."""
        first, last = max(self.start, start), min(self.end, end)
        if first >= last:
            return None
        part = slice(first - self.start, last - self.start)
        deepstack = None if self.deepstack is None else self.deepstack[:, part]
        return EmbeddedSpan(first - start, self.embeds[part], deepstack)


@dataclass(frozen=True, slots=True)
class EmbeddedPrompt:
    """Conditioning of a generation whose prompt has audio or images.

    spans: in order, apart from each other; the ids there are placeholders.
    positions: rotary positions of the prompt (time, height, width), int64, shape (3, prompt positions).
    offset: what a token of the answer has to add to its index to get its rotary position.
    """

    spans: Sequence[EmbeddedSpan]
    positions: torch.Tensor
    offset: int


class ThinkerModelRunner(ModelRunner):
    """Before a forward pass the rotary positions are set; a pass over prompts reads their embeddings.

    Both are cut from the whole prompt for each row, so that a chunk may begin anywhere and a request that was
    retracted is read again as it was. Requests without conditioning are plain text.
    """

    def attach_sizes(self, sizes: EmbeddingSizes | None) -> None:
        if sizes is None:
            raise ConfigError("model takes token ids alone, expected one that takes embeddings")
        self._sizes = sizes

    def check(self, generate: Generate) -> None:
        prompt = generate.conditioning
        if prompt is None:
            return
        if not isinstance(prompt, EmbeddedPrompt):
            raise RequestError(f"conditioning is a {type(prompt).__name__}, expected an EmbeddedPrompt or None")
        _check_spans(prompt.spans, len(generate.ids), self._sizes)
        _check_positions(prompt, generate, self._sizes.positions)

    def before_prefill(self, batch: Batch) -> None:
        self._place(batch)

    def before_decode(self, batch: Batch) -> None:
        self._place(batch)

    def custom_prefill_forward(self, batch: Batch) -> torch.Tensor | None:
        spans = list(_spans(batch.rows))
        return batch.forward_pass.run_embedded(self._replacement(spans)) if spans else None

    def _place(self, batch: Batch) -> None:
        if any(row.request.generate.conditioning is not None for row in batch.rows):
            batch.forward_pass.place(torch.cat([_rotary_positions(row) for row in batch.rows], dim=1))

    def _replacement(self, spans: Sequence[EmbeddedSpan]) -> Replacement:
        at = torch.cat([torch.arange(span.start, span.end) for span in spans])
        deepstack = None
        if any(span.deepstack is not None for span in spans):
            deepstack = torch.cat([self._deepstack(span) for span in spans], dim=1)
        return Replacement(at, torch.cat([span.embeds for span in spans]), deepstack)

    def _deepstack(self, span: EmbeddedSpan) -> torch.Tensor:
        if span.deepstack is not None:
            return span.deepstack
        return span.embeds.new_zeros(self._sizes.deepstack_layers, *span.embeds.shape)


def _spans(rows: Sequence[Row]) -> Iterator[EmbeddedSpan]:
    """The embeddings in the rows of a batch; each starts where it does among the positions of all rows."""
    before = 0
    for row in rows:
        prompt: EmbeddedPrompt | None = row.request.generate.conditioning
        for span in prompt.spans if prompt is not None else ():
            if (part := span.within(row.start, row.end)) is not None:
                yield EmbeddedSpan(before + part.start, part.embeds, part.deepstack)
        before += row.end - row.start


def _rotary_positions(row: Row) -> torch.Tensor:
    """int64, shape (3, positions of the row)."""
    prompt: EmbeddedPrompt | None = row.request.generate.conditioning
    at = torch.arange(row.start, row.end)
    if prompt is None:
        return at.expand(3, -1)
    answer = at[at >= prompt.positions.shape[1]] + prompt.offset
    return torch.cat([prompt.positions[:, row.start : row.end], answer.expand(3, -1)], dim=1)


def _check_spans(spans: Sequence[EmbeddedSpan], positions: int, sizes: EmbeddingSizes) -> None:
    free = 0
    for at, span in enumerate(spans):
        shape, length = tuple(span.embeds.shape), len(span.embeds)
        if shape != (length, sizes.hidden) or length == 0:
            raise RequestError(f"embeds of span {at} have shape {shape}, expected (1 or more, {sizes.hidden})")
        deepstack = sizes.deepstack_layers, length, sizes.hidden
        if span.deepstack is not None and tuple(span.deepstack.shape) != deepstack:
            raise RequestError(f"deepstack of span {at} has shape {tuple(span.deepstack.shape)}, expected {deepstack}")
        if not free <= span.start <= span.end <= positions:
            raise RequestError(
                f"span {at} is at positions {span.start} to {span.end}, expected {free} to {positions} at most"
            )
        free = span.end


def _check_positions(prompt: EmbeddedPrompt, generate: Generate, limit: int) -> None:
    found, expected = tuple(prompt.positions.shape), (3, len(generate.ids))
    if found != expected or prompt.positions.dtype != torch.int64:
        raise RequestError(f"positions are {prompt.positions.dtype} of shape {found}, expected torch.int64, {expected}")
    length = len(generate.ids)
    answer = length + prompt.offset, length + generate.max_new_tokens - 1 + prompt.offset
    least, most = min(int(prompt.positions.min()), answer[0]), max(int(prompt.positions.max()), answer[1])
    if not 0 <= least <= most < limit:
        raise RequestError(f"rotary positions are {least} to {most}, expected 0 to {limit - 1} at most")
