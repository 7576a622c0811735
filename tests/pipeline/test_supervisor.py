"""The supervisor with real worker processes: which are started, what they are told, and what follows on their end.

A worker whose pipeline file is missing fails at once; one whose pipeline file is a pipe without a writer waits.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.played_workers import CASCADE
from voice_runtime.pipeline import lifeline
from voice_runtime.pipeline.supervisor import FIRST_PAUSE_S, Supervisor

PATIENCE_S = 20.0
ONE_WORKER = msgspec.structs.replace(CASCADE, stages={name: CASCADE.stages[name] for name in ("text", "speech")})


class Ends(logging.Handler):
    """What the supervisor says of the ends of its workers."""

    def __init__(self) -> None:
        super().__init__()
        self._records: asyncio.Queue[logging.LogRecord] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._records.put_nowait(record)

    async def next(self) -> tuple[str, int, float, float]:
        """Worker, exit code, pause before the next one, and when it was said."""
        async with asyncio.timeout(PATIENCE_S):
            record = await self._records.get()
        assert isinstance(record.args, tuple)
        worker, code, pause_s = record.args
        assert isinstance(worker, str)
        assert isinstance(code, int)
        assert isinstance(pause_s, float)
        return worker, code, pause_s, record.created


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends, logger = Ends(), logging.getLogger("voice_runtime.pipeline.supervisor")
    logger.addHandler(ends)
    yield ends
    logger.removeHandler(ends)


class Waiting:
    """A pipeline file that a worker waits for. path: a named pipe, kept open so that reading it does not end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._writers: list[int] = []

    async def reader(self) -> psutil.Process:
        """Wait until a worker reads the file; its process."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._writers.append(await asyncio.to_thread(os.open, self.path, os.O_WRONLY))
        except TimeoutError:
            os.close(os.open(self.path, os.O_RDWR))  # so that the thread ends
            raise
        (worker,) = (child for child in psutil.Process().children() if str(self.path) in child.cmdline())
        return worker

    def close(self) -> None:
        while self._writers:
            os.close(self._writers.pop())


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    waiting = Waiting(tmp_path / "waiting.toml")
    yield waiting
    waiting.close()


async def test_every_worker_of_the_file_is_started(tmp_path: Path, ends: Ends) -> None:
    async with Supervisor(CASCADE, tmp_path / "missing.toml", tmp_path):
        assert {(await ends.next())[0] for _ in range(3)} == {"recognition", "thinker", "voice"}


async def test_a_worker_that_fails_is_started_again_after_ever_longer_pauses(tmp_path: Path, ends: Ends) -> None:
    async with Supervisor(ONE_WORKER, tmp_path / "missing.toml", tmp_path):
        found = [await ends.next() for _ in range(3)]
    assert [(worker, code) for worker, code, _, _ in found] == [("voice", 1)] * 3
    pauses_s = [pause_s for _, _, pause_s, _ in found]
    assert pauses_s == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    said_s = [said_s for _, _, _, said_s in found]
    assert said_s[1] - said_s[0] > pauses_s[0]
    assert said_s[2] - said_s[1] > pauses_s[1]


async def test_a_worker_is_told_its_first_stage_the_sockets_folder_and_its_parent(
    tmp_path: Path, waiting: Waiting
) -> None:
    async with Supervisor(ONE_WORKER, waiting.path, tmp_path / "sockets"):
        worker = await waiting.reader()
        assert worker.cmdline()[-3:] == ["worker", str(waiting.path), "text"]
        environment = worker.environ()
        assert environment["VOICE_RUNTIME_SOCKETS"] == str(tmp_path / "sockets")
        assert environment[lifeline.PARENT] == str(os.getpid())


async def test_a_killed_worker_has_a_successor(tmp_path: Path, waiting: Waiting, ends: Ends) -> None:
    async with Supervisor(ONE_WORKER, waiting.path, tmp_path):
        first = await waiting.reader()
        first.kill()
        assert (await ends.next())[:3] == ("voice", -signal.SIGKILL, FIRST_PAUSE_S)
        waiting.close()
        second = await waiting.reader()
        assert second.pid != first.pid


async def test_the_workers_end_with_the_supervisor(tmp_path: Path, waiting: Waiting) -> None:
    async with Supervisor(ONE_WORKER, waiting.path, tmp_path):
        worker = await waiting.reader()
        assert worker.is_running()
    assert not worker.is_running()
