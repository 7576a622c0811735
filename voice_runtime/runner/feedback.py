"""FeedbackARModelRunner: codec language models, whose next input is made of the codes that they have just given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from voice_runtime.errors import ConfigError, RequestError
from voice_runtime.runner.batch import Batch, Request, Row
from voice_runtime.runner.codec_lm import NO_CODE
from voice_runtime.runner.runner import ModelRunner

if TYPE_CHECKING:
    from voice_runtime.runner.generate import Generate


@dataclass(frozen=True, slots=True)
class CodecPrompt:
    """Conditioning of one generation of a codec language model.

    frames: what each position is conditioned on, float, shape (positions, hidden): the prompt's positions and those
        of the frames to come, one before the last included.
    history: codes of the frames before the first new one, int64, shape (prompt positions - 1, books).
    """

    frames: torch.Tensor
    history: torch.Tensor


class CodecModel(Protocol):
    """What the runner asks of a codec language model beside its forward pass.

    books: codes a frame. codes: of each book. hidden_size: width of its inputs.
    feedback: its next inputs, float, shape (most positions of a batch, hidden): the model reads as many rows as the
        batch has positions, in place of token embeddings. last: which of them is each row's last, int64, shape (rows,).
    hidden: set by the forward pass: the last layer's output at each row's last position, shape (rows, hidden).
    """

    books: int
    codes: int
    hidden_size: int
    feedback: torch.Tensor
    last: torch.Tensor
    hidden: torch.Tensor

    def embed(self, frames: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """Inputs of positions: frames (n, hidden) and the codes before each, (n, books), NO_CODE where none came."""

    def complete(self, hidden: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Whole frames from the first book's codes: (n, hidden), (n,) -> int64 (n, books)."""


class FeedbackARModelRunner(ModelRunner):
    """Before a forward pass the feedback of what was spoken is written, after it the codebooks are taken.

    Each request keeps all its frames: after a retraction the feedback of every position is rebuilt from them.
    """

    def attach(self, model: Any) -> None:
        if not hasattr(model, "feedback") or not hasattr(model, "complete"):
            raise ConfigError(f"model is a {type(model).__name__}, expected a codec language model")
        self._model: CodecModel = model

    def check(self, generate: Generate) -> None:
        prompt = generate.conditioning
        if not isinstance(prompt, CodecPrompt):
            raise RequestError(f"conditioning is a {type(prompt).__name__}, expected a CodecPrompt")
        model = self._model
        positions = len(generate.ids) + generate.max_new_tokens - 1
        expected = (positions, model.hidden_size), (len(generate.ids) - 1, model.books)
        found = tuple(prompt.frames.shape), tuple(prompt.history.shape)
        if found != expected:
            raise RequestError(f"conditioning has shapes {found}, expected {expected}")
        history = prompt.history
        if history.dtype != torch.int64 or (history.numel() and not 0 <= history.min() <= history.max() < model.codes):
            raise RequestError(
                f"history holds {history.dtype} from {history.min()} to {history.max()}, "
                f"expected torch.int64 from 0 to {model.codes - 1}"
            )
        if generate.repetition_penalty != 1:
            raise RequestError(
                f"repetition_penalty is {generate.repetition_penalty}, expected 1: the prompt ids are stand-ins"
            )

    def outputs(self, request: Request, start: int, ids: Sequence[int]) -> Sequence[Any]:
        """The frames of these `ids`: each a tuple of `books` codes."""
        return request.made[start : start + len(ids)]

    def before_prefill(self, batch: Batch) -> None:
        self._write_feedback(batch)

    def before_decode(self, batch: Batch) -> None:
        self._write_feedback(batch)

    def post_prefill(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        return self._take_codebooks(batch, logits)

    def post_decode(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        return self._take_codebooks(batch, logits)

    def _write_feedback(self, batch: Batch) -> None:
        rows = batch.rows
        frames = torch.cat([row.request.generate.conditioning.frames[row.start : row.end] for row in rows])
        previous = torch.cat([self._codes_before(row) for row in rows])
        self._model.feedback[: len(frames)] = self._model.embed(frames, previous)
        self._model.last = torch.tensor([row.end - row.start for row in batch.rows]).cumsum(0) - 1

    def _codes_before(self, row: Row) -> torch.Tensor:
        """The codes before each position of a row, int64, shape (positions, books); NO_CODE before the first of all."""
        history: torch.Tensor = row.request.generate.conditioning.history
        first, end = row.start - 1, row.end - 1
        made = row.request.made[max(first - len(history), 0) : max(end - len(history), 0)]
        return torch.cat(
            [
                history.new_full((1 if first < 0 else 0, self._model.books), NO_CODE),
                history[max(first, 0) : end],
                torch.tensor(made, dtype=torch.int64).reshape(-1, self._model.books),
            ]
        )

    def _take_codebooks(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        first = self.sample(batch, logits)
        frames = self._model.complete(self._model.hidden, first)
        for row, frame in zip(batch.rows, frames.tolist(), strict=True):
            if row.draws:
                row.request.made.append(tuple(frame))
        return first
