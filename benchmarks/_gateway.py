"""A gateway in a process of its own, on one core, with a pipeline that answers at once: what it costs is its own."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import uvloop

import tests  # noqa: F401 - it has to see voice_runtime being imported
from voice_runtime import assets
from voice_runtime.cli import default_pipeline
from voice_runtime.gateway.app import Gateway
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.server import Server, listen
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline import pools
from voice_runtime.pipeline.config import LimitSettings, PipelineConfig, TelephonySettings, TwilioSettings, load
from voice_runtime.pipeline.runtime import Listener, Marks, Pipeline
from voice_runtime.schedulers.messages import Chunk, Finished
from voice_runtime.stages.payloads import Payload, SpokenClause, Transcript, TurnEnd

ANSWER_S = 3.0


@contextlib.contextmanager
def gateway_on_one_core() -> Iterator[tuple[str, psutil.Process]]:
    """Its http://host:port and its process; ours has the other core meanwhile."""
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "benchmarks._gateway"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        os.sched_setaffinity(process.pid, {cores[0]})
        os.sched_setaffinity(0, {cores[-1]})
        try:
            yield url, psutil.Process(process.pid)
        finally:
            os.sched_setaffinity(0, cores)
            process.terminate()


class Parrot:
    """A pipeline whose stages answer at once: every question is understood, every answer is the same sound."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        noise = np.random.default_rng(0).normal(0, 1_500, int(24_000 * ANSWER_S))
        clause = SpokenClause.spread("words " * int(3 * ANSWER_S), noise.astype("<i2").tobytes(), 24_000)
        self._answers: dict[str, Payload] = {"asr": Transcript("hello"), "turn_end": TurnEnd(1.0), "thinker": clause}

    def new_id(self) -> str:
        return f"{next(self._numbers):016x}"

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks:
        asyncio.get_running_loop().call_soon(self._answer, entry, request_id, listener)
        return Marks()

    def _answer(self, entry: str, request_id: str, listener: Listener) -> None:
        answer = self._answers[entry]
        if isinstance(answer, SpokenClause):  # a reply's sound comes in pieces
            listener(Chunk(request_id, answer))
            listener(Finished(request_id, None))
        else:
            listener(Finished(request_id, answer))

    def abort(self, request_id: str) -> None:
        """Everything has ended already."""

    def health(self) -> dict[str, str]:
        return {}

    async def resources(self) -> dict[str, Any]:
        return {}


def config() -> PipelineConfig:
    loaded = load(default_pipeline())
    values = {name: getattr(loaded, name) for name in loaded.__struct_fields__}
    telephony = TelephonySettings(public_url="https://localhost", calls=1_000, twilio=TwilioSettings())
    return PipelineConfig(**(values | {"limits": LimitSettings(sessions=1_000), "telephony": telephony}))


async def serve_gateway() -> None:
    vad = SileroVad(assets.locate("silero-vad"))
    access, carriers = Access("127.0.0.1"), CarrierAccess(config().telephony, "127.0.0.1")
    gateway = Gateway(config(), cast(Pipeline, Parrot()), vad, access, Path(__file__).parent, carriers)
    with listen("127.0.0.1", 0) as listener:
        print(listener.getsockname()[1], flush=True)
        await Server(gateway).serve([listener])


if __name__ == "__main__":
    pools.set_to_one_thread()
    uvloop.run(serve_gateway())
