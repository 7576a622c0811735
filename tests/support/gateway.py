"""A gateway on real sockets whose stages are played by the test: doors can be tried without any model."""

import asyncio
import contextlib
import http.client
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from websockets.asyncio.client import connect

from tests.support.played_stages import PlayedStages
from voice_runtime.audio.pcm import Samples
from voice_runtime.cli import shared
from voice_runtime.gateway.app import Gateway
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.server import Server, listen
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import LimitSettings, PipelineConfig, SessionSettings
from voice_runtime.pipeline.runtime import Pipeline


class Deaf:
    """A voice detector that never hears speech, and what opens it."""

    def open(self) -> "Deaf":
        return self

    def push(self, frame: Samples) -> float:
        return 0.0


class Stages(PlayedStages):
    """Stages that tell how they are."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.state = "ready"

    def health(self) -> dict[str, str]:
        return {"asr": "ready", "thinker": self.state}


@dataclass(frozen=True, slots=True)
class Answer:
    """What HTTP brought. headers: by names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass(frozen=True, slots=True)
class Doors:
    """A gateway's address. trusted: what a client trusts, if it speaks TLS."""

    port: int
    trusted: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"{'wss' if self.trusted else 'ws'}://localhost:{self.port}"

    async def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """headers: `_` in a name stands for `-`."""
        return await asyncio.to_thread(self._ask, method, path, body, headers)

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        if self.trusted is None:
            connection = http.client.HTTPConnection("localhost", self.port, timeout=10)
        else:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=10, context=self.trusted)
        with contextlib.closing(connection):
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()
            )

    def call(self, query: str = "", **headers: str) -> connect:
        """A socket to /v1/pcm."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return connect(f"{self.url}/v1/pcm?{query}", ssl=self.trusted, additional_headers=named)

    async def first(self, query: str = "", **headers: str) -> tuple[dict[str, Any], int | None]:
        """The first event of a socket that is then closed, and the code of its close."""
        async with self.call(query, **headers) as socket:
            event = json.loads(await socket.recv())
            if event["type"] == "error":
                await socket.wait_closed()
        return dict(event), socket.close_code


@contextlib.asynccontextmanager
async def opened(
    access: Access,
    limits: LimitSettings | None = None,
    proxies: Sequence[str] = (),
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    carriers: CarrierAccess | None = None,
) -> AsyncIterator[Doors]:
    """A gateway on a free port. tls: the server's side and a client's."""
    settings = SessionSettings(recognise="asr", reply="thinker", speak="speech")
    config = PipelineConfig(name="p", stages={}, session=settings, limits=limits or LimitSettings())
    gateway = Gateway(config, cast(Pipeline, Stages()), cast(SileroVad, Deaf()), access, shared("web"), carriers)
    async with listening(Server(gateway, tls[0] if tls else None, proxies)) as port:
        yield Doors(port, tls[1] if tls else None)


@contextlib.asynccontextmanager
async def listening(server: Server) -> AsyncIterator[int]:
    """Serve on a free port, which this gives."""
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            try:
                yield int(listener.getsockname()[1])
            finally:
                server.should_exit = True
