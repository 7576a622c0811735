"""One-step look-ahead: a decoding step is launched before the result of the one before it has been processed.

With overlap scheduling off, upstream would append a token to a row that ended meanwhile, and free it a second time:
such rows are taken out of the later result first.
"""

from typing import Any

from voice_runtime.schedulers.engine import Tokens
from voice_runtime.sglang_backend.scheduler import QueueScheduler


class LookAheadScheduler(QueueScheduler):
    """QueueScheduler whose results come one round later, as long as the next step is sure to be a plain decoding one.

    launched: the batch of the last step as it was run, and its result, not processed yet.
    """

    launched: tuple[Any, Any] | None = None

    def round(self, received: list[object]) -> list[Tokens]:
        self.process_input_requests(received)
        outputs = [] if not received and self._can_look_ahead() else self._process_launched()
        batch = self.choose(received)
        self.cur_batch = batch
        launched = (batch.copy(), self.run_batch(batch)) if batch else None
        if batch or self.launched is not None:
            outputs += self._process_launched()
        else:
            self.rest()
        self.last_batch = batch
        ended = {output.request_id for output in outputs if output.finish_reason is not None}
        self.end_failed(but=ended)
        self.launched = self._without(launched, ended)
        return outputs + self.collector.take()

    def _can_look_ahead(self) -> bool:
        """Whether the next step decodes exactly the rows of the last.

        Otherwise it falls back to the synchronous order: while a request waits or a prompt is in chunks, since
        upstream counts positions of a mixed batch from `output_ids`, which would be one token short; while a pool is
        so full that a row could be retracted with its result pending; while drawing reads the answer so far; and when
        a row has all its tokens, since there is no input for one more.
        """
        rows = self.our_worker.rows
        room = self.token_to_kv_pool_allocator.available_size() + self.tree_cache.evictable_size()
        return (
            self.launched is not None
            and self.our_worker.all_drew
            and self.our_runner.live == len(rows) <= room
            and not any(self.our_runner.reads_history(row.request) for row in rows)
            and all(len(row.request.sampled) < row.request.generate.max_new_tokens for row in rows)
        )

    def _process_launched(self) -> list[Tokens]:
        launched, self.launched = self.launched, None
        if launched is not None:
            self.process_batch_result(*launched)
        return self.collector.take()

    def _without(self, launched: tuple[Any, Any] | None, ended: set[str]) -> tuple[Any, Any] | None:
        """A launched step without the rows that have ended since; None when none is left."""
        if launched is None or not ended:
            return launched
        batch, _ = launched
        kept = [at for at, row in enumerate(self.our_worker.rows) if row.request.key not in ended]
        batch.reqs = [batch.reqs[at] for at in kept]
        return (batch, self.our_worker.result_of(kept)) if kept else None
