"""Where upstream's run_batch calls its worker, our ModelRunner runs the batch.

Source: sglang 0.5.15.post1, srt/managers/tp_worker.py, TpModelWorker.forward_batch_generation.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
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
    failures: takes each request of a batch that could not be run: its row, upstream's request and the error.
    """

    rows: Sequence[Row] = ()  # of the last batch
    all_drew = False  # whether each of them had its next token drawn: none was a middle chunk, nor failed

    def __init__(self, tp_worker: Any, runner: ModelRunner, failures: list[tuple[Row, Any, Exception]]) -> None:
        self._upstream = tp_worker.model_runner
        self._runner = runner
        self._failures = failures
        self._inputs = find_inputs(self._upstream.model)
        runner.attach(self._upstream.model)
        runner.attach_sizes(self._inputs.sizes if self._inputs else None)

    def forward_batch_generation(self, batch: Any, pp_proxy_tensors: None = None) -> GenerationBatchResult:
        """Called by upstream. batch: a ScheduleBatch. pp_proxy_tensors: always None without pipeline parallelism."""
        forward_batch = ForwardBatch.init_new(batch, self._upstream)
        rows = self.rows = self._rows(forward_batch)
        self.all_drew = all(row.draws for row in rows)
        is_prefill = forward_batch.extend_seq_lens_cpu is not None
        try:
            forward_pass = _UpstreamPass(self._upstream, forward_batch, self._inputs)
            ids = self._runner.run(Batch(rows, is_prefill, forward_pass))
        except Exception as error:
            logger.exception("a batch of %s cannot be run", len(rows))
            self._failures += [(row, req, error) for row, req in zip(rows, batch.reqs, strict=True)]
            self.all_drew = False
            ids = torch.zeros(len(rows), dtype=torch.int64)
        self._ids = ids
        return GenerationBatchResult(next_token_ids=ids)

    def result_of(self, rows: list[int]) -> GenerationBatchResult:
        """The last batch's result for some of its rows alone."""
        return GenerationBatchResult(next_token_ids=self._ids[rows])

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

    def place(self, positions: torch.Tensor) -> None:
        self._forward_batch.mrope_positions = positions.to(self._forward_batch.mrope_positions.device)

    def run(self) -> torch.Tensor:
        output = self._upstream.forward(self._forward_batch).logits_output
        logits: torch.Tensor = output.next_token_logits
        return logits

    def run_embedded(self, replacement: Replacement) -> torch.Tensor:
        if self._inputs is None:
            raise UnsupportedError("the model takes token ids alone, expected one that takes embeddings")
        with self._inputs.replaced(replacement):
            return self.run()

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        output = LogitsProcessorOutput(next_token_logits=logits)
        ids: torch.Tensor = self._upstream.sample(output, self._forward_batch)
        return ids
