"""A WebRTC client made of aiortc: speaks, hears every packet as it comes, and keeps the events."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamTrack
from aiortc.rtp import RtpPacket

from voice_runtime.audio import opus
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.gateway.transports import upstream
from voice_runtime.gateway.transports.outgoing import Outgoing
from voice_runtime.gateway.transports.rtc import AgentTrack

MICROPHONE_HZ = 16_000
AGENT_HZ = 24_000
FRAME = MICROPHONE_HZ // 50
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Heard:
    """A packet of the agent's. samples: float32 at AGENT_HZ, 20 ms."""

    at_s: float
    timestamp: int
    samples: Samples

    @property
    def is_silent(self) -> bool:
        return float(np.abs(self.samples).max()) < 0.003


@dataclass(slots=True)
class RtcCaller:
    """One connection; see `rtc_call`."""

    connection: RTCPeerConnection
    microphone: Outgoing
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    location: str = ""
    spoken_until_s: float = 0.0
    decodes: bool = True
    channel: Any = None
    _decoder: opus.Decoder = field(default_factory=lambda: opus.Decoder(AGENT_HZ))
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, samples: Samples) -> None:
        """Speak from now on, in real time: float32 at MICROPHONE_HZ."""
        for at in range(0, samples.size, FRAME):
            self.microphone.append("caller", to_pcm(samples[at : at + FRAME]))
        self.spoken_until_s = time.monotonic() + samples.size / MICROPHONE_HZ

    def open_channel(self) -> None:
        self.channel = self.connection.createDataChannel("events")
        self.channel.on("message", self.take_message)

    def send(self, **event: object) -> None:
        self.channel.send(json.dumps(event))

    async def wait_for(self, type_: str, since: int = 0, **fields: object) -> dict[str, Any]:
        """The first such event from index `since` of `events` on."""

        def found() -> dict[str, Any] | None:
            for _, event in self.events[since:]:
                if event["type"] == type_ and all(event.get(name) == fields[name] for name in fields):
                    return event
            return None

        event: dict[str, Any] = await self.wait_until(found)
        return event

    async def wait_until(self, found: Callable[[], Any]) -> Any:
        """What `found` gives, asked at each packet and event."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (value := found()):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            came = [event["type"] for _, event in self.events]
            raise TimeoutError(f"events {came[-30:]}, {len(self.heard)} packets") from None
        return value

    def take_message(self, message: str) -> None:
        self.events.append((time.monotonic(), json.loads(message)))
        self._news.set()

    def take_packet(self, packet: RtpPacket) -> None:
        sound = self._decoder.decode(packet.payload) if self.decodes else np.zeros(0, np.float32)
        self.heard.append(Heard(time.monotonic(), packet.timestamp, sound))
        self._news.set()


async def connected(url: str, query: str = "", *, has_channel: bool = True) -> RtcCaller:
    """A caller whose offer was answered.

    url: http://host:port. has_channel: False offers a data channel's stream only, see `open_channel`.

    Raises:
        ConnectionError: the offer was refused; the message is the server's answer.
    """
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[], alwaysNegotiateDataChannels=not has_channel))
    microphone = Outgoing(MICROPHONE_HZ)
    caller = RtcCaller(connection, microphone)
    connection.addTrack(AgentTrack(microphone))
    if has_channel:
        caller.open_channel()

    def hear(track: MediaStreamTrack) -> None:
        upstream.tap(connection.getReceivers()[0], caller.take_packet)

    connection.on("track", hear)
    await connection.setLocalDescription(await connection.createOffer())
    async with httpx.AsyncClient(base_url=url) as http:
        headers = {"content-type": "application/sdp"}
        answer = await http.post(f"/v1/webrtc/offer{query}", content=connection.localDescription.sdp, headers=headers)
    if answer.status_code != 201:
        await connection.close()
        raise ConnectionError(answer.text)
    caller.location = answer.headers["location"]
    await connection.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
    return caller


@contextlib.asynccontextmanager
async def rtc_call(url: str, query: str = "", *, has_channel: bool = True) -> AsyncIterator[RtcCaller]:
    """Call a server; hangs up at the end, as a closed tab does."""
    caller = await connected(url, query, has_channel=has_channel)
    try:
        yield caller
    finally:
        await caller.connection.close()
