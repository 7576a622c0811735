"""The gateway's end of a worker: its two sockets and its life. Knows nothing of requests."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_never

import psutil
import zmq
import zmq.asyncio

from voice_runtime.errors import QueueFullError, StageDiedError
from voice_runtime.pipeline import wire
from voice_runtime.schedulers.messages import Outbound, Sent
from voice_runtime.stages.payloads import Payload

logger = logging.getLogger(__name__)
CONNECT_S = 0.05  # between two looks whether a worker's second socket has connected


class Contexts:
    """One ZeroMQ context, as its asyncio half (for reading) and its plain half (for sends that never block)."""

    def __init__(self) -> None:
        self.reading = zmq.asyncio.Context()
        self.sending: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self.reading.underlying)

    def close(self) -> None:
        self.reading.destroy(linger=0)


class WorkerLink:
    """Listens for a worker, whoever starts it, and for its successor when it has ended.

    name, stages: of the worker. folder: where the sockets are. readers: runs the reading task.
    on_result: called with each result of a stage. on_change: called when the worker has become ready or has ended.
    """

    def __init__(
        self,
        name: str,
        stages: list[str],
        folder: Path,
        on_result: Callable[[str, Outbound[Payload]], None],
        on_change: Callable[["WorkerLink"], None],
    ) -> None:
        self.name = name
        self.stages = stages
        self.is_ready = False
        self._folder = folder
        self._on_result = on_result
        self._on_change = on_change
        self._generation = 0
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._pools: dict[str, int] = {}

    def open(self, contexts: Contexts, readers: asyncio.TaskGroup) -> None:
        """Listen on fresh sockets."""
        self._contexts, self._readers = contexts, readers
        self._generation += 1
        self._sender = wire.open_pair(contexts.sending)
        self._receiver = wire.open_pair(contexts.reading)
        self._sender.bind(wire.address(self._folder, self.name, "in"))
        self._receiver.bind(wire.address(self._folder, self.name, "out"))
        self._reader = readers.create_task(self._read(), name=f"read {self.name}")

    def close(self) -> None:
        """Close the sockets with all that a worker has left in them."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._reader.cancel()
        self._sender.close()
        self._receiver.close()
        self._pid, self._pidfd, self.is_ready = None, None, False

    def send(self, stage: str, message: Sent[Payload]) -> None:
        """Never blocks.

        Raises:
            StageDiedError: there is no worker.
            QueueFullError: the worker does not take what waits for it.
        """
        if self._pid is None:
            raise StageDiedError(f"worker {self.name} is not running")
        try:
            self._sender.send(wire.encode(wire.ToStage(stage, message)), zmq.NOBLOCK)
        except zmq.Again:
            raise QueueFullError(f"{wire.HIGH_WATER_MARK} messages wait for worker {self.name}, the limit") from None

    def facts(self) -> dict[str, Any] | None:
        """What the process costs; None when there is none."""
        if self._pid is None:
            return None
        try:
            process = psutil.Process(self._pid)
            return {
                "pid": self._pid,
                "generation": self._generation,
                "rss_bytes": process.memory_info().rss,
                "nice": process.nice(),
                "handles": process.num_fds(),
                "threads": process.num_threads(),
                "pools": self._pools,
            }
        except psutil.NoSuchProcess:
            return None

    def kill(self) -> None:
        """End the worker; what it held fails and its successor is awaited as after any other end."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    async def _read(self) -> None:
        while True:
            data = await self._receiver.recv()
            try:
                await self._take(wire.decode_from_worker(data))
            except Exception:
                # Whatever is wrong with one worker's message must not end the gateway.
                logger.exception("worker %s sent what cannot be taken, so it is ended", self.name)
                self.kill()

    async def _take(self, message: wire.FromWorker) -> None:
        match message:
            case wire.Hello(_, pid):
                await self._greet(pid)
            case wire.Ready(_, pools):
                self._pools, self.is_ready = pools, True
                self._on_change(self)
            case wire.FromStage(stage, outbound):
                if stage not in self.stages:
                    raise ValueError(f"worker {self.name} has a result of {stage!r}, expected of {self.stages}")
                self._on_result(stage, outbound)
            case _:
                assert_never(message)

    async def _greet(self, pid: int) -> None:
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._died()
            return
        self._pid = pid
        asyncio.get_running_loop().add_reader(self._pidfd, self._died)
        # The worker's two sockets connect one after the other: the other one may not be there yet.
        while True:
            try:
                self._sender.send(wire.encode(wire.Welcome(os.getpid())), zmq.NOBLOCK)
                return
            except zmq.Again:
                await asyncio.sleep(CONNECT_S)

    def _died(self) -> None:
        logger.error("worker %s (pid %s) has ended", self.name, self._pid)
        self.close()
        self.open(self._contexts, self._readers)
        self._on_change(self)
