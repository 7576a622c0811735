"""Starts the worker processes of a pipeline and starts each again when it ends."""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

from voice_runtime.pipeline import lifeline
from voice_runtime.pipeline.config import PipelineConfig

logger = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
STABLE_S = 60.0  # after a worker that ran for so long the pauses begin anew


class Supervisor:
    """One child process per worker of the pipeline file, for as long as the context is entered.

    pipeline_file: what the children are told to load. folder: where the gateway's sockets are.
    """

    def __init__(self, config: PipelineConfig, pipeline_file: Path, folder: Path) -> None:
        self._config = config
        self._pipeline_file = pipeline_file
        self._folder = folder
        self._keepers = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Supervisor":
        await self._keepers.__aenter__()
        for worker, stages in self._config.workers().items():
            self._tasks.append(self._keepers.create_task(self._keep(worker, stages[0]), name=f"keep {worker}"))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._keepers.__aexit__(None, None, None)

    async def _keep(self, worker: str, stage: str) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            started = time.monotonic()
            code = await self._run(stage)
            if time.monotonic() - started > STABLE_S:
                pause_s = FIRST_PAUSE_S
            logger.error("worker %s ended with code %s; the next one starts in %.2g s", worker, code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _run(self, stage: str) -> int:
        """Run one worker to its end; when we are cancelled, it is ended too."""
        command = [sys.executable, "-m", "voice_runtime.cli", "worker", str(self._pipeline_file), stage]
        environment = {**os.environ, "VOICE_RUNTIME_SOCKETS": str(self._folder), lifeline.PARENT: str(os.getpid())}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdin=asyncio.subprocess.DEVNULL)
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
