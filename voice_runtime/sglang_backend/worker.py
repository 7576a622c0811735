"""Where upstream's run_batch calls its worker, our ModelRunner runs the batch.

Source: sglang 0.5.15.post1, srt/managers/tp_worker.py, TpModelWorker.forward_batch_generation.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import ForwardBatch

from voice_runtime.errors import UnsupportedError
from voice_runtime.runner.batch import Batch, Replacement, Row
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.sglang_backend.embeddings import LanguageModelInputs, find_inputs

logger = logging.getLogger(__name__)


class RunnerWorker:
    """Gives the batches of upstream's scheduler to a ModelRunner.

    tp_worker: upstream's own worker: holds the model.
    fail: told of each request of a batch that could not be run: its row, upstream's request and the error.
    """

    def __init__(self, tp_worker: Any, runner: ModelRunner, fail: Callable[[Row, Any, Exception], None]) -> None:
        self._upstream = tp_worker.model_runner
        self._runner = runner
        self._fail = fail
        self._inputs = find_inputs(self._upstream.model)
        runner.attach(self._upstream.model)
        runner.attach_sizes(self._inputs.sizes if self._inputs else None)

    def forward_batch_generation(self, batch: Any, pp_proxy_tensors: None = None) -> GenerationBatchResult:
        """Called by upstream. batch: a ScheduleBatch. pp_proxy_tensors: always None without pipeline parallelism."""
        forward_batch = ForwardBatch.init_new(batch, self._upstream)
        rows = self._rows(forward_batch)
        is_prefill = forward_batch.extend_seq_lens_cpu is not None
        try:
            forward_pass = _UpstreamPass(self._upstream, forward_batch, self._inputs)
            ids = self._runner.run(Batch(rows, is_prefill, forward_pass))
        except Exception as error:
            logger.exception("a batch of %s cannot be run", len(rows))
            for row, req in zip(rows, batch.reqs, strict=True):
                self._fail(row, req, error)
            ids = torch.zeros(len(rows), dtype=torch.int64)
        return GenerationBatchResult(next_token_ids=ids)

    def _rows(self, forward_batch: Any) -> list[Row]:
        ends = forward_batch.seq_lens_cpu.tolist()
        lengths = forward_batch.extend_seq_lens_cpu or [1] * len(ends)
        return [
            Row(self._runner.request(rid), end - length, end)
            for rid, end, length in zip(forward_batch.rids, ends, lengths, strict=True)
        ]


class _UpstreamPass:
    """runner.batch.ForwardPass on one ForwardBatch. inputs: None for a model that takes token ids alone."""

    def __init__(self, upstream: Any, forward_batch: ForwardBatch, inputs: LanguageModelInputs | None) -> None:
        self._upstream = upstream
        self._forward_batch = forward_batch
        self._inputs = inputs
        self._logits_output: Any = None

    def place(self, positions: torch.Tensor) -> None:
        self._forward_batch.mrope_positions = positions.to(self._forward_batch.mrope_positions.device)

    def run(self) -> torch.Tensor:
        self._logits_output = self._upstream.forward(self._forward_batch).logits_output
        logits: torch.Tensor = self._logits_output.next_token_logits
        return logits

    def run_embedded(self, replacement: Replacement) -> torch.Tensor:
        if self._inputs is None:
            raise UnsupportedError("the model takes token ids alone, expected one that takes embeddings")
        with self._inputs.replaced(replacement):
            return self.run()

    def draw(self) -> torch.Tensor:
        ids: torch.Tensor = self._upstream.sample(self._logits_output, self._forward_batch)
        return ids
