"""The pipeline as the session sees it: requests in, results out, one abort for all stages. Runs on the event loop.

Every worker is reached through two sockets. Results pass through here on their way to the next stage, so that an abort
or a dead worker is dealt with in one place.
"""

import asyncio
import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

import msgspec
import psutil
import zmq
import zmq.asyncio

from voice_runtime.errors import QueueFullError, StageDiedError
from voice_runtime.pipeline import wire
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inbound,
    Inquire,
    Ledger,
    NewRequest,
    Outbound,
    StreamChunk,
    StreamDone,
    describe,
)
from voice_runtime.stages.payloads import Opening, Payload

logger = logging.getLogger(__name__)
LEDGER_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Marks:
    """When the stages of a request first brought something, and what they counted.

    first_s: stage -> time.monotonic() of its first result. metrics: stage -> counts given at its end.
    """

    first_s: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)


Listener = Callable[[Chunk[Payload] | Finished[Payload] | Failed], None]


@dataclass(slots=True)
class _Request:
    """One request on its way through its chain of stages."""

    chain: tuple[str, ...]
    listener: Listener | None  # None once the session has its end: aborted, failed or finished
    marks: Marks
    live: set[str]  # stages that have not yet reported their end
    deadline: asyncio.TimerHandle
    settled: asyncio.Future[None]


@dataclass(slots=True)
class _Worker:
    name: str
    stages: list[str]
    generation: int = 0
    pid: int | None = None
    ready: bool = False
    pidfd: int | None = None
    pools: dict[str, int] = field(default_factory=dict)
    sender: zmq.Socket[bytes] | None = None
    receiver: zmq.asyncio.Socket | None = None
    reader: asyncio.Task[None] | None = None


class Pipeline:
    """Routes requests through the stages of a pipeline file. All methods are for the event loop's thread.

    config: the pipeline. folder: private folder of the sockets, see `wire.runtime_folder`.
    """

    def __init__(self, config: PipelineConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._context = zmq.asyncio.Context()
        self._plain_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context.underlying)
        self._workers = {name: _Worker(name, stages) for name, stages in config.workers().items()}
        self._requests: dict[str, _Request] = {}
        self._inquiries: dict[str, asyncio.Future[Mapping[str, int]]] = {}
        self._numbers = itertools.count()
        self._ready_changed = asyncio.Event()
        self._readers = asyncio.TaskGroup()

    async def __aenter__(self) -> "Pipeline":
        """Listen for the workers. They may start before or after."""
        await self._readers.__aenter__()
        for worker in self._workers.values():
            self._bind(worker)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Drop every request and close the sockets; the workers end when this process does."""
        for request_id in list(self._requests):
            self._give_up(request_id, "the pipeline has stopped")
        for worker in self._workers.values():
            self._unbind(worker)
        await self._readers.__aexit__(None, None, None)
        self._context.destroy(linger=0)

    def new_id(self) -> str:
        """A request id that was never used; all have the same length."""
        return f"{next(self._numbers):016x}"

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks:
        """Begin a request at stage `entry`; its results reach `listener` from the last stage of its chain.

        The listener gets any number of Chunks, then one Finished or Failed; after `abort` it gets nothing.
        """
        chain = self._config.chain(entry)
        loop = asyncio.get_running_loop()
        deadline_s = self._config.session.request_deadline_s
        request = _Request(
            chain,
            listener,
            Marks(),
            set(chain),
            loop.call_later(deadline_s, self._give_up, request_id, f"not done after {deadline_s:g} s"),
            loop.create_future(),
        )
        self._requests[request_id] = request
        for stage in reversed(chain):  # the last first: what the first brings finds the others open
            opening: Payload = payload if stage == entry else Opening()
            self._send(stage, NewRequest(request_id, opening))
        return request.marks

    def abort(self, request_id: str) -> asyncio.Future[None]:
        """Abort a request at every stage; the future is done when all have settled. Unknown ids are settled already."""
        request = self._requests.get(request_id)
        if request is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        request.listener = None
        self._abort_live(request_id, request)
        return request.settled

    def health(self) -> dict[str, str]:
        """Stage -> "ready" or "starting" (also after its worker has died, until the next one is warm)."""
        return {
            stage: "ready" if worker.ready else "starting"
            for worker in self._workers.values()
            for stage in worker.stages
        }

    async def wait_ready(self) -> None:
        while not all(worker.ready for worker in self._workers.values()):
            self._ready_changed.clear()
            await self._ready_changed.wait()

    async def resources(self) -> dict[str, Any]:
        """What every stage holds and what every worker costs; a stage that does not answer in time is None."""
        stages = {name: asyncio.ensure_future(self._inquire(name)) for name in self._config.stages}
        await asyncio.wait(stages.values())
        return {
            "requests": len(self._requests),
            "stages": {name: task.result() for name, task in stages.items()},
            "workers": {worker.name: _process(worker) for worker in self._workers.values()},
        }

    def has_requests(self) -> bool:
        return bool(self._requests)

    async def _inquire(self, stage: str) -> Mapping[str, int] | None:
        if not self._worker_of(stage).ready:
            return None
        request_id = self.new_id()
        answer: asyncio.Future[Mapping[str, int]] = asyncio.get_running_loop().create_future()
        self._inquiries[request_id] = answer
        self._send(stage, Inquire(request_id))
        try:
            async with asyncio.timeout(LEDGER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._inquiries[request_id]

    # Results on their way from stage to stage

    def _receive(self, stage: str, message: Outbound[Payload]) -> None:
        if isinstance(message, Ledger):
            if (answer := self._inquiries.get(message.request_id)) is not None and not answer.done():
                answer.set_result(message.held)
            return
        request = self._requests.get(message.request_id)
        if request is None or stage not in request.live:
            return
        match message:
            case Chunk(request_id, item):
                self._pass_on(stage, request_id, request, item)
            case Finished(request_id, result, metrics):
                request.marks.metrics[stage] = metrics
                self._finish(stage, request_id, request, result)
            case Failed(request_id, error):
                request.live.discard(stage)
                self._fail(request_id, request, f"stage {stage}: {error}")
            case Aborted(request_id):
                request.live.discard(stage)
                self._fail(request_id, request, f"stage {stage} aborted the request, expected it to finish")
            case _:
                assert_never(message)

    def _pass_on(self, stage: str, request_id: str, request: _Request, item: Payload) -> None:
        request.marks.first_s.setdefault(stage, time.monotonic())
        if request.listener is None:
            return
        following = self._config.stages[stage].next
        if following is None:
            self._call(request.listener, Chunk(request_id, item))
        elif following in request.live:
            self._send(following, StreamChunk(request_id, item))

    def _finish(self, stage: str, request_id: str, request: _Request, result: Payload | None) -> None:
        following = self._config.stages[stage].next
        if following is None:
            request.live.discard(stage)
            request.marks.first_s.setdefault(stage, time.monotonic())
            self._tell(request, Finished(request_id, result))
        else:
            if result is not None:
                self._pass_on(stage, request_id, request, result)
            request.live.discard(stage)
            if request.listener is not None and following in request.live:
                self._send(following, StreamDone(request_id))
        # A stage that ends before those that feed it wants no more from them: a stop string was met.
        for upstream in request.chain[: request.chain.index(stage)]:
            if upstream in request.live:
                self._send(upstream, Abort(request_id))
        self._settle(request_id, request)

    def _fail(self, request_id: str, request: _Request, error: str) -> None:
        self._tell(request, Failed(request_id, error))
        self._abort_live(request_id, request)

    def _give_up(self, request_id: str, error: str) -> None:
        """The request's deadline has passed: the stages that hold it are told once more and then not waited for."""
        request = self._requests[request_id]
        logger.warning("request %s: %s", request_id, error)
        self._fail(request_id, request, error)
        request.live.clear()
        self._settle(request_id, request)

    def _abort_live(self, request_id: str, request: _Request) -> None:
        for stage in list(request.live):
            self._send(stage, Abort(request_id))
        self._settle(request_id, request)

    def _tell(self, request: _Request, ended: Finished[Payload] | Failed) -> None:
        listener, request.listener = request.listener, None
        if listener is not None:
            self._call(listener, ended)

    def _call(self, listener: Listener, message: Chunk[Payload] | Finished[Payload] | Failed) -> None:
        """Tell one session; its fault must not reach the others, which are read by the same task."""
        try:
            listener(message)
        except Exception:
            logger.exception("request %s: the session failed on a result", message.request_id)
            self.abort(message.request_id)

    def _settle(self, request_id: str, request: _Request) -> None:
        """The one way out for a request: called whenever a stage has reported its end."""
        if request.live or self._requests.pop(request_id, None) is None:
            return
        request.deadline.cancel()
        if not request.settled.done():
            request.settled.set_result(None)

    # Workers

    def _worker_of(self, stage: str) -> _Worker:
        return self._workers[self._config.stages[stage].worker]

    def _send(self, stage: str, message: Inbound[Payload]) -> None:
        worker = self._worker_of(stage)
        try:
            if worker.pid is None or worker.sender is None:
                raise StageDiedError(f"worker {worker.name} is not running")
            worker.sender.send(wire.encode(wire.ToStage(stage, message)), zmq.NOBLOCK)
        except zmq.Again:
            full = QueueFullError(f"{wire.HIGH_WATER_MARK} messages wait for stage {stage}, the limit")
            self._lost(stage, message.request_id, full)
        except StageDiedError as error:
            self._lost(stage, message.request_id, error)

    def _lost(self, stage: str, request_id: str, error: Exception) -> None:
        """The stage did not get a message: the request cannot go on."""
        request = self._requests.get(request_id)
        if request is not None and stage in request.live:
            request.live.discard(stage)
            # Not at once: the caller may still be opening the request at its other stages.
            asyncio.get_running_loop().call_soon(self._fail_later, request_id, describe(error))

    def _fail_later(self, request_id: str, error: str) -> None:
        if (request := self._requests.get(request_id)) is not None:
            self._fail(request_id, request, error)

    def _bind(self, worker: _Worker) -> None:
        worker.generation += 1
        worker.sender = wire.open_pair(self._plain_context)
        worker.receiver = self._context.socket(zmq.PAIR)
        for socket, direction in ((worker.sender, "in"), (worker.receiver, "out")):
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.RCVHWM, wire.HIGH_WATER_MARK)
            socket.bind(wire.address(self._folder, worker.name, direction))
        worker.reader = self._readers.create_task(self._read(worker, worker.receiver), name=f"read {worker.name}")

    def _unbind(self, worker: _Worker) -> None:
        """Close the sockets with all that a dead worker has left in them."""
        if worker.pidfd is not None:
            asyncio.get_running_loop().remove_reader(worker.pidfd)
            os.close(worker.pidfd)
        if worker.reader is not None:
            worker.reader.cancel()
        for socket in (worker.sender, worker.receiver):
            if socket is not None:
                socket.close()
        worker.pid, worker.pidfd, worker.ready = None, None, False
        worker.sender, worker.receiver, worker.reader = None, None, None

    async def _read(self, worker: _Worker, receiver: zmq.asyncio.Socket) -> None:
        while True:
            data = await receiver.recv()
            try:
                message = wire.decode_from_worker(data)
            except msgspec.DecodeError as error:
                logger.error("worker %s: %s; expected a message of ours, so it is ended", worker.name, error)
                if worker.pid is not None:
                    os.kill(worker.pid, signal.SIGKILL)
                return
            match message:
                case wire.Hello(_, pid):
                    self._greet(worker, pid)
                case wire.Ready(_, pools):
                    worker.pools = pools
                    worker.ready = True
                    self._ready_changed.set()
                case wire.FromStage(stage, outbound):
                    self._receive(stage, outbound)
                case _:
                    assert_never(message)

    def _greet(self, worker: _Worker, pid: int) -> None:
        try:
            worker.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._died(worker)
            return
        worker.pid = pid
        asyncio.get_running_loop().add_reader(worker.pidfd, self._died, worker)
        assert worker.sender is not None
        worker.sender.send(wire.encode(wire.Welcome(os.getpid())), zmq.NOBLOCK)

    def _died(self, worker: _Worker) -> None:
        """Fail what the worker held and listen for its successor on fresh sockets."""
        logger.error("worker %s (pid %s) has ended", worker.name, worker.pid)
        self._unbind(worker)
        self._bind(worker)
        error = describe(StageDiedError(f"worker {worker.name} has ended"))
        for request_id, request in list(self._requests.items()):
            if request.live.intersection(worker.stages):
                request.live.difference_update(worker.stages)
                self._fail(request_id, request, error)


def _process(worker: _Worker) -> dict[str, Any] | None:
    if worker.pid is None:
        return None
    try:
        process = psutil.Process(worker.pid)
        return {
            "pid": worker.pid,
            "generation": worker.generation,
            "rss_bytes": process.memory_info().rss,
            "nice": process.nice(),
            "handles": process.num_fds(),
            "threads": process.num_threads(),
            "pools": worker.pools,
        }
    except psutil.NoSuchProcess:
        return None
