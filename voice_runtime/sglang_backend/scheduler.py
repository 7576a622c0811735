"""The seam: SGLang's scheduler without its sockets. Imported only once `cpu_compat.prepare()` has run.

Every upstream name that this folder touches is on the checked list, tests/architecture/sglang_names.py.
Source: sglang 0.5.15.post1, srt/managers/scheduler.py.
"""

from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.io_struct import AbortReq, BatchTokenIDOutput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.server_args import PortArgs, ServerArgs

from voice_runtime.schedulers.engine import Tokens


class OutputCollector:
    """Stands where SGLang has its sockets to the tokenizer and the detokeniser: keeps what a step sends."""

    def __init__(self) -> None:
        self._sent: list[Tokens] = []

    def send_output(self, message: object, recv_obj: object = None) -> None:
        """Called by SGLang. Other messages than token batches and aborts have no reader here."""
        if isinstance(message, BatchTokenIDOutput):
            self._sent.extend(_tokens(message))
        elif isinstance(message, AbortReq):
            reason = message.finished_reason or {}
            self._sent.append(Tokens(message.rid, (), "abort", reason.get("message") or ""))

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
            {
                "prompt_tokens": batch.prompt_tokens[row],
                "cached_tokens": batch.cached_tokens[row],
                "completion_tokens": batch.completion_tokens[row],
                "retractions": batch.retraction_counts[row],
            }
            if reason
            else {},
        )
        for row, (rid, reason) in enumerate(zip(batch.rids, batch.finished_reasons, strict=True))
    ]


class QueueScheduler(Scheduler):  # type: ignore[misc]  # upstream is untyped here
    """SGLang's scheduler as it is, with its outputs collected instead of sent.

    server_args: see `server_args.server_args`; overlap scheduling must be off in it.
    """

    def __init__(self, server_args: ServerArgs) -> None:
        self.collector = OutputCollector()
        super().__init__(server_args, PortArgs.init_new(server_args), 0, 0, 0, 0, 0, 0, None)

    def init_ipc_channels(self, port_args: PortArgs) -> None:
        self.ipc_channels = SimpleNamespace(
            recv_from_tokenizer=None,
            recv_from_rpc=None,
            send_to_tokenizer=self.collector,
            send_to_detokenizer=self.collector,
            send_metrics_from_scheduler=None,
        )
        self.load_snapshot_writer = None

    def round(self, received: list[object]) -> list[Tokens]:
        """One turn of upstream's normal event loop: receive, choose a batch, run it, process the result.

        Source: Scheduler.event_loop_normal.
        """
        self.process_input_requests(received)
        batch = self.get_next_batch_to_run()
        self.cur_batch = batch
        if batch:
            self.process_batch_result(batch, self.run_batch(batch))
        else:
            self.on_idle()
        self.last_batch = batch
        return self.collector.take()
