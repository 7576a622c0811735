"""Callers of a gateway by Twilio's messages alone. The kernel says when each of the gateway's messages came.

So it is the gateway that is measured, and not how late a busy process of callers comes to read: as long as it reads
within a frame, since TCP gives what waits together one time.
"""

import asyncio
import base64
import itertools
import json
import socket
import struct
import time
from collections.abc import Sequence

import numpy as np
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.support.speech import resample, synthesise
from voice_runtime.audio.g711 import encode

SO_TIMESTAMPNS = 35  # include/uapi/asm-generic/socket.h; not in Python's socket module
OPEN_S = 10.0
FRAME_S = 0.02
FRAME_BYTES = 160
PAUSE_S = 4.0  # for the answer
BURST_FRAMES = 30  # what is sent ahead at a reply's beginning is not paced


class PacedCall:
    """One call: a question again and again.

    came_s: when each piece of the agent's sound had come, seconds.
    """

    def __init__(self, url: str, question: bytes) -> None:
        uri = parse_uri(f"{url.replace('http', 'ws')}/telephony/twilio")
        self.came_s: list[float] = []
        self._spoken = question + b"\xff" * int(8_000 * PAUSE_S)
        self._opened = asyncio.Event()
        self._is_over = False
        self._protocol = ClientProtocol(uri)
        self._socket = socket.create_connection((uri.host, uri.port))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        loop.add_reader(self._socket, self._take)
        try:
            start = {"streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "customParameters": {}}
            async with asyncio.timeout(OPEN_S):
                await self._opened.wait()
            self._send({"event": "start", "streamSid": "MZ1", "start": start})
            began_s = time.monotonic()
            for number in itertools.count():
                at = number * FRAME_BYTES % len(self._spoken)
                payload = base64.b64encode(self._spoken[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\xff")).decode()
                self._send({"event": "media", "streamSid": "MZ1", "media": {"payload": payload}})
                await asyncio.sleep(max(0.0, began_s + (number + 1) * FRAME_S - time.monotonic()))
                if self._is_over:
                    raise ConnectionError(f"a call has ended, or has no time of arrival, after {number} frames")
                if time.monotonic() > began_s + seconds:
                    return
        finally:
            loop.remove_reader(self._socket)
            self._socket.close()

    def _send(self, message: dict[str, object]) -> None:
        self._protocol.send_text(json.dumps(message).encode())
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data and self._socket.send(data) < len(data):
                raise ConnectionError("the gateway takes nothing")

    def _take(self) -> None:
        data, ancillary, _, _ = self._socket.recvmsg(65_536, socket.CMSG_SPACE(16))
        stamps = [struct.unpack("qq", value) for _, kind, value in ancillary if kind == SO_TIMESTAMPNS]
        if not data or not stamps:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self._socket)
            return
        whole_s, nanoseconds = stamps[0]
        self._protocol.receive_data(data)
        if self._protocol.state is State.OPEN:
            self._opened.set()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT and b'"media"' in event.data:
                self.came_s.append(whole_s + nanoseconds / 1e9)


def off_s(came_s: Sequence[float]) -> list[float]:
    """How far from 20 ms pieces came apart within replies, without the burst at a reply's beginning; seconds."""
    off: list[float] = []
    since = 0
    for before, now in itertools.pairwise(came_s):
        since = 0 if now - before > 0.5 else since + 1
        if since > BURST_FRAMES:
            off.append(abs(now - before - FRAME_S))
    return off


async def call_at_once(url: str, count: int, seconds: float) -> list[float]:
    """So many calls, which begin at any moment of a frame; `off_s` of all."""
    question = encode(resample(synthesise("What is the capital of Italy?", "flite"), 16_000, 8_000), "mulaw")
    calls = [PacedCall(url, question) for _ in range(count)]
    moments_s = np.random.default_rng(0).uniform(0, 2.0, count)

    async def later(call: PacedCall, moment_s: float) -> None:
        await asyncio.sleep(moment_s)
        await call.run(seconds)

    await asyncio.gather(*(later(call, float(moment_s)) for call, moment_s in zip(calls, moments_s, strict=True)))
    return [off for call in calls for off in off_s(call.came_s)]
