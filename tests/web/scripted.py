"""A server for the page whose every message is written by the test: over WebRTC, over a WebSocket, or both."""

import asyncio
import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError, MediaStreamTrack
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.gateway.guard import CONTENT_POLICY

WEB = Path(__file__).parents[2] / "web"
PCM_HZ, TRACK_HZ = 24_000, 8_000
FRAME = TRACK_HZ // 50  # samples of AudioStreamTrack's 20 ms
PATIENCE_S = 20.0
LOUD = 0.03  # root mean square, of full scale
NOWHERE = "198.51.100.7"  # of RFC 5737: no such host


class WebRtc(Enum):
    """What becomes of an offer."""

    MISSING = auto()
    CONNECTS = auto()
    BLOCKED = auto()  # answered, but no packet gets through


class Peer(ABC):
    """The server's end of one call."""

    def __init__(self, query: dict[str, str]) -> None:
        self.query = query
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def ready(self, *, recorded: bool = False) -> None:
        rates = {"input_rate": PCM_HZ, "output_rate": PCM_HZ}
        await self.tell("ready", session="ab", resume="t0ken/+", recorded=recorded, **rates)

    async def event(self, type_: str | None = None) -> dict[str, Any]:
        """The next from the page, or the next of this type."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.events.get()
                if type_ in (None, message["type"]):
                    return message

    @abstractmethod
    async def tell(self, type_: str, **fields: object) -> None: ...

    @abstractmethod
    async def close(self, code: int = 1000) -> None: ...


class SocketPeer(Peer):
    def __init__(self, query: dict[str, str], socket: WebSocket) -> None:
        super().__init__(query)
        self.socket = socket

    async def tell(self, type_: str, **fields: object) -> None:
        await self.socket.send_json({"type": type_, **fields})

    async def sound(self, samples: Samples) -> None:
        await self.socket.send_bytes(to_pcm(samples))

    async def close(self, code: int = 1000) -> None:
        await self.socket.close(code)

    async def read(self) -> None:
        """Until the page goes."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if message.get("text") is not None:
                    self.events.put_nowait(json.loads(message["text"]))


class Voice(AudioStreamTrack):
    """The agent's track: what the test has put there, else silence."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: deque[Samples] = deque()
        self.began_s: float | None = None  # when the first frame of sound was taken, on the loop's clock

    def put(self, samples: Samples) -> None:
        self.frames.extend(np.split(samples[: samples.size // FRAME * FRAME], samples.size // FRAME))

    async def recv(self) -> AudioFrame:
        frame: AudioFrame = await super().recv()
        if self.frames:
            self.began_s = self.began_s or asyncio.get_running_loop().time()
            frame.planes[0].update(to_pcm(self.frames.popleft()))
        return frame


class RtcPeer(Peer):
    def __init__(self, query: dict[str, str], id_: str, tasks: asyncio.TaskGroup) -> None:
        super().__init__(query)
        self.id = id_
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.voice = Voice()
        self.channel: RTCDataChannel | None = None
        self.loud_s: float | None = None  # when the caller was loud last, on the loop's clock
        self._frame = asyncio.Condition()
        self._tasks = tasks
        self._listening: asyncio.Task[None] | None = None
        self.is_hung_up = asyncio.Event()

    async def answer(self, offer: str) -> str:
        await self.connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        self._listening = self._tasks.create_task(self._listen(self.connection.getReceivers()[0].track))
        self.connection.addTrack(self.voice)
        await self.connection.setLocalDescription(await self.connection.createAnswer())
        return self.connection.localDescription.sdp

    async def add(self, fragment: str) -> None:
        """The candidates of a fragment. Names of mDNS are nobody's here: the page finds us by ours."""
        lines = fragment.split("\r\n")
        mid = next(line.removeprefix("a=mid:") for line in lines if line.startswith("a=mid:"))
        for line in lines:
            if line.startswith("a=candidate:") and ".local" not in line:
                candidate = candidate_from_sdp(line.removeprefix("a=candidate:"))
                candidate.sdpMid = mid
                await self.connection.addIceCandidate(candidate)

    async def tell(self, type_: str, **fields: object) -> None:
        assert self.channel is not None
        self.channel.send(json.dumps({"type": type_, **fields}))

    async def _listen(self, microphone: MediaStreamTrack) -> None:
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await microphone.recv()
                assert isinstance(frame, AudioFrame)
                if math.sqrt(float(np.mean((frame.to_ndarray() / 32768.0) ** 2))) > LOUD:
                    self.loud_s = asyncio.get_running_loop().time()
                async with self._frame:
                    self._frame.notify_all()

    async def heard(self) -> None:
        """Until the caller's next frame has been heard."""
        async with self._frame, asyncio.timeout(PATIENCE_S):
            await self._frame.wait()

    async def close(self, code: int = 1000) -> None:
        if self._listening is not None:
            self._listening.cancel()
        await self.connection.close()

    async def vanish(self) -> None:
        """As when the network goes: nothing is sent any more, not even a farewell."""
        assert self.connection.sctp is not None
        await self.connection.sctp.transport.transport.stop()


@dataclass(slots=True)
class Scripted:
    """Serves the page's files; a call is the test's to answer. port: on 127.0.0.1."""

    tasks: asyncio.TaskGroup
    port: int = 0
    webrtc: WebRtc = WebRtc.CONNECTS
    refusal: tuple[int, str] | None = None  # of an offer: status and code
    denies_microphone: bool = False  # by a policy of the page, which counts as a user's refusal
    fragments: list[str] = field(default_factory=list)
    _calls: asyncio.Queue[Peer] = field(default_factory=asyncio.Queue)
    _offers: dict[str, RtcPeer] = field(default_factory=dict)

    async def call(self) -> Any:
        """The next call, made ready: an RtcPeer or a SocketPeer."""
        async with asyncio.timeout(PATIENCE_S):
            peer = await self._calls.get()
        await peer.ready()
        return peer

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/webrtc/config", self._config),
                Route("/v1/webrtc/offer", self._offer, methods=["POST"]),
                Route("/v1/webrtc/{id}", self._candidates, methods=["PATCH"]),
                Route("/v1/webrtc/{id}", self._hang_up, methods=["DELETE"]),
                WebSocketRoute("/v1/pcm", self._pcm),
                Route("/health", lambda _request: JSONResponse({})),
                Route("/blank", lambda _request: Response("<!doctype html>", media_type="text/html")),
                Mount("/", StaticFiles(directory=WEB, html=True)),
            ],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._with_policies)],
        )

    async def _with_policies(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """What the real policy forbids is to fail here too."""
        response = await call_next(request)
        response.headers["content-security-policy"] = CONTENT_POLICY
        response.headers["cache-control"] = "no-store"  # else a policy of one test outlives it
        if self.denies_microphone:
            response.headers["permissions-policy"] = "microphone=()"
        return response

    async def _config(self, _request: Request) -> Response:
        if self.webrtc is WebRtc.MISSING:
            return PlainTextResponse("Not Found", 404)
        return JSONResponse({"iceServers": []})

    async def _offer(self, request: Request) -> Response:
        if self.refusal is not None:
            status, code = self.refusal
            return JSONResponse({"type": "error", "code": code, "message": code}, status)
        peer = RtcPeer(dict(request.query_params), str(len(self._offers)), self.tasks)
        self._offers[peer.id] = peer

        @peer.connection.on("datachannel")
        def opened(channel: RTCDataChannel) -> None:
            peer.channel = channel
            channel.on("message", lambda text: peer.events.put_nowait(json.loads(text)))
            self._calls.put_nowait(peer)

        sdp = await peer.answer((await request.body()).decode())
        if self.webrtc is WebRtc.BLOCKED:
            sdp = sdp.replace("127.0.0.1", NOWHERE)
        headers = {"Location": f"/v1/webrtc/{peer.id}"}
        return Response(sdp, 201, headers, media_type="application/sdp")

    async def _candidates(self, request: Request) -> Response:
        fragment = (await request.body()).decode()
        self.fragments.append(fragment)
        if self.webrtc is not WebRtc.BLOCKED:
            await self._offers[request.path_params["id"]].add(fragment)
        return Response(status_code=204)

    async def _hang_up(self, request: Request) -> Response:
        peer = self._offers[request.path_params["id"]]
        peer.is_hung_up.set()
        await peer.close()
        return Response(status_code=204)

    async def _pcm(self, socket: WebSocket) -> None:
        await socket.accept()
        peer = SocketPeer(dict(socket.query_params), socket)
        self._calls.put_nowait(peer)
        await peer.read()

    async def close(self) -> None:
        for peer in self._offers.values():
            await peer.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    async with asyncio.TaskGroup() as tasks:
        made = Scripted(tasks)
        config = uvicorn.Config(
            made.app, port=0, ws="websockets-sansio", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = _Server(config)
        listener = config.bind_socket()
        made.port = listener.getsockname()[1]
        serving = tasks.create_task(server.serve(sockets=[listener]))
        try:
            yield made
        finally:
            await made.close()
            server.should_exit = True
            await serving
