"""The seam: SGLang's scheduler without its sockets. Imported only once `cpu_compat.prepare()` has run.

Every upstream name that this folder touches is on the checked list, tests/architecture/sglang_names.py.
Source: sglang 0.5.15.post1, srt/managers/scheduler.py.
"""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.io_struct import AbortReq, BatchTokenIDOutput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.server_args import PortArgs, ServerArgs

from voice_runtime.runner.batch import Row
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.schedulers.engine import Tokens
from voice_runtime.sglang_backend.worker import RunnerWorker


class OutputCollector:
    """Stands where SGLang has its sockets to the tokenizer and the detokeniser: keeps what a step sends."""

    def __init__(self) -> None:
        self._sent: list[Tokens] = []

    def send_output(self, message: object, recv_obj: object = None) -> None:
        """Called by SGLang. Other messages than token batches and aborts have no reader here."""
        if isinstance(message, BatchTokenIDOutput):
            self._sent.extend(_tokens(message))
        elif isinstance(message, AbortReq):
            self._sent.append(Tokens(message.rid, (), "abort"))

    def take(self) -> list[Tokens]:
        sent, self._sent = self._sent, []
        return sent


def _tokens(batch: Any) -> list[Tokens]:
    return [
        Tokens(
            rid,
            list(batch.output_ids[row]),
            reason["type"] if reason else None,
            (reason or {}).get("message") or "",
            {"retractions": batch.retraction_counts[row]},
        )
        for row, (rid, reason) in enumerate(zip(batch.rids, batch.finished_reasons, strict=True))
    ]


class QueueScheduler(Scheduler):  # type: ignore[misc]  # upstream is untyped here
    """SGLang's scheduler as it is, with its outputs collected instead of sent and its batches run by our runner.

    server_args: see `server_args.server_args`; overlap scheduling must be off in it.
    on_failure: told the key and the error of each request whose batch could not be run.
    rank: of this process in tensor parallelism, and its device.
    """

    def __init__(
        self,
        server_args: ServerArgs,
        runner: ModelRunner,
        on_failure: Callable[[str, Exception], None],
        rank: int = 0,
    ) -> None:
        self.collector = OutputCollector()
        self.our_runner = runner
        self.on_failure = on_failure
        self.failures: list[tuple[Row, Any, Exception]] = []
        super().__init__(server_args, PortArgs.init_new(server_args), rank, rank, 0, 0, 0, 0, None)

    def init_ipc_channels(self, port_args: PortArgs) -> None:
        self.ipc_channels = SimpleNamespace(
            recv_from_tokenizer=None,
            recv_from_rpc=None,
            send_to_tokenizer=self.collector,
            send_to_detokenizer=self.collector,
            send_metrics_from_scheduler=None,
        )
        self.load_snapshot_writer = None

    def init_batch_result_processor(self) -> None:
        """Upstream's run_batch calls `model_worker`: this is the last hook before it is read."""
        self.our_worker = RunnerWorker(self.tp_worker, self.our_runner, self.failures)
        self.model_worker = self.our_worker
        super().init_batch_result_processor()

    def end_failed(self, but: Collection[str] = ()) -> None:
        """End the requests of a batch that could not be run, and let none of their pages be reused.

        A middle chunk's request is given back by upstream's abort alone: marking it as not to be cached as well would
        leak the pages of its earlier chunks.

        but: keys of those that have ended before.
        """
        for row, req, error in self.failures:
            if row.request.key not in but:
                if row.draws:
                    req.skip_radix_cache_insert = True
                self.on_failure(row.request.key, error)
                self.abort_request(AbortReq(rid=row.request.key))
        self.failures.clear()

    def rest(self) -> None:
        """There is no batch: upstream does its housekeeping, and nothing of the last one is kept."""
        self.our_worker.rows = ()
        self.on_idle()

    def choose(self, received: list[object]) -> Any:
        """Upstream's next batch, without what was to be aborted.

        Choosing may retract a request of a full pool into the waiting queue; the mark of an abort would be looked at
        only after its next prefill, which waits for room. Asked for again, the abort takes it out of the queue.
        """
        batch = self.get_next_batch_to_run()
        for abort in received:
            if isinstance(abort, AbortReq):
                self.abort_request(abort)
        return batch

    def round(self, received: list[object]) -> list[Tokens]:
        """One turn of upstream's normal event loop: receive, choose a batch, run it, process the result.

        Source: Scheduler.event_loop_normal.
        """
        self.process_input_requests(received)
        batch = self.choose(received)
        self.cur_batch = batch
        if batch:
            result = self.run_batch(batch)
            self.end_failed()
            self.process_batch_result(batch, result)
        else:
            self.rest()
        self.last_batch = batch
        return self.collector.take()
