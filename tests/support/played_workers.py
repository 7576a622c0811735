"""A pipeline whose workers the test plays: real sockets and real processes; what they answer the test says."""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import zmq
import zmq.asyncio

from voice_runtime.cli import shared
from voice_runtime.pipeline import wire
from voice_runtime.pipeline.config import PipelineConfig, load
from voice_runtime.pipeline.runtime import Pipeline, Result
from voice_runtime.schedulers.messages import Inbound, Inquire, Ledger, Outbound
from voice_runtime.stages.payloads import Payload

PATIENCE_S = 10.0
CASCADE = load(shared("pipelines") / "cascade.toml")


class PlayedWorker:
    """Both sockets of a worker, connected as `voice_runtime worker` connects them, and a process to be killed.

    welcome: what the gateway greeted it with.
    """

    def __init__(self, folder: Path, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.welcome: wire.Welcome | None = None
        self._context = zmq.asyncio.Context()
        self._folder = folder
        self._in = wire.open_pair(self._context)
        self._out = wire.open_pair(self._context)
        self._out.connect(wire.address(folder, name, "out"))
        self._taken: defaultdict[str, deque[Inbound[Payload]]] = defaultdict(deque)

    @classmethod
    async def start(cls, folder: Path, name: str) -> Self:
        """Connect and say Hello."""
        worker = await cls.half_start(folder, name)
        worker.connect_in()
        return worker

    @classmethod
    async def half_start(cls, folder: Path, name: str) -> Self:
        """Say Hello with the one socket while the other is not connected."""
        worker = cls(folder, name, await asyncio.create_subprocess_exec("sleep", "60"))
        await worker.send(wire.Hello(name, worker.process.pid))
        return worker

    def connect_in(self) -> None:
        self._in.connect(wire.address(self._folder, self.name, "in"))

    async def send(self, message: wire.FromWorker) -> None:
        await self.send_bytes(wire.encode(message))

    async def send_bytes(self, data: bytes) -> None:
        await self._out.send(data)

    async def give(self, stage: str, message: Outbound[Payload]) -> None:
        """A result of one of its stages."""
        await self.send(wire.FromStage(stage, message))

    async def welcomed(self) -> None:
        """Wait for the gateway's greeting, which is the first thing that a worker is told."""
        message = await self._receive()
        assert isinstance(message, wire.Welcome), f"{self.name} was told {message} before its Welcome"
        self.welcome = message

    async def take(self, stage: str) -> Inbound[Payload]:
        """The next message for a stage; what comes for the others is kept for them."""
        while not self._taken[stage]:
            await self._keep()
        return self._taken[stage].popleft()

    async def answer_inquiries(self, stages: list[str], held: Mapping[str, int]) -> None:
        """Take what comes until each of the stages has been asked what it holds, and answer."""
        asked: dict[str, str] = {}
        while asked.keys() != set(stages):
            stage = await self._keep()
            if isinstance(self._taken[stage][-1], Inquire):
                asked[stage] = self._taken[stage].pop().request_id
        for stage, request_id in asked.items():
            await self.give(stage, Ledger(request_id, held))

    def left(self, stage: str) -> list[Inbound[Payload]]:
        """What was kept for a stage and that nobody has taken."""
        left = list(self._taken[stage])
        self._taken[stage].clear()
        return left

    async def end(self) -> None:
        """End as a process does: sockets and all."""
        self._context.destroy(linger=0)
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def ended(self) -> int:
        """Wait until somebody has ended the process; its exit code."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
        self._context.destroy(linger=0)
        return code

    async def _keep(self) -> str:
        message = await self._receive()
        assert isinstance(message, wire.ToStage), f"{self.name} was told {message}"
        self._taken[message.stage].append(message.message)
        return message.stage

    async def _receive(self) -> wire.ToWorker:
        async with asyncio.timeout(PATIENCE_S):
            return wire.decode_to_worker(await self._in.recv())


@dataclass(slots=True)
class Cast:
    """A pipeline and whoever plays its workers."""

    pipeline: Pipeline
    config: PipelineConfig
    folder: Path
    workers: dict[str, PlayedWorker]

    async def enter(self, name: str) -> PlayedWorker:
        """Start a worker, in the place of the last one of its name, until it is ready."""
        worker = await PlayedWorker.start(self.folder, name)
        self.workers[name] = worker
        await worker.welcomed()
        await worker.send(wire.Ready(name, {"native": 1}))
        return worker

    def of(self, stage: str) -> PlayedWorker:
        return self.workers[self.config.stages[stage].worker]

    async def take(self, stage: str) -> Inbound[Payload]:
        """The next message for a stage."""
        return await self.of(stage).take(stage)

    async def give(self, stage: str, message: Outbound[Payload]) -> None:
        """A result of a stage."""
        await self.of(stage).give(stage, message)

    async def quiet(self) -> dict[str, Any]:
        """Let everything arrive that the stages have given: they are asked what they hold, which comes after it.

        What the gateway says of itself then.
        """
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            resources = tasks.create_task(self.pipeline.resources())
            health = self.pipeline.health()
            for name, stages in self.config.workers().items():
                if health[stages[0]] == "ready":
                    tasks.create_task(self.workers[name].answer_inquiries(stages, {"live_requests": 0}))
        return resources.result()

    async def left(self, *stages: str) -> dict[str, list[Inbound[Payload]]]:
        """What the stages were told by now that nobody has taken, without those that were told nothing."""
        for _ in range(2):  # what one stage has given may be news for another that was asked before
            await self.quiet()
        return {stage: left for stage in stages or self.config.stages if (left := self.of(stage).left(stage))}


class Results:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self._results: asyncio.Queue[Result] = asyncio.Queue()

    def __call__(self, result: Result) -> None:
        self._results.put_nowait(result)

    async def next(self) -> Result:
        async with asyncio.timeout(PATIENCE_S):
            return await self._results.get()

    def left(self) -> list[Result]:
        """What was told and that nobody has taken."""
        return [self._results.get_nowait() for _ in range(self._results.qsize())]


@contextlib.asynccontextmanager
async def played(
    folder: Path, config: PipelineConfig = CASCADE, *, ready: bool = True, **pipeline: float
) -> AsyncIterator[Cast]:
    """A pipeline whose workers the test plays. ready: whether they have come already. pipeline: its other arguments."""
    workers: dict[str, PlayedWorker] = {}
    try:
        async with Pipeline(config, folder, **pipeline) as served:
            cast = Cast(served, config, folder, workers)
            if ready:
                for name in config.workers():
                    await cast.enter(name)
                await served.wait_ready()
            yield cast
    finally:
        for worker in workers.values():
            await worker.end()
