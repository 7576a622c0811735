"""A WebSocket client of a session: one task reads, one writes. Knows nothing of models or turns."""

import asyncio
import contextlib
import logging
import time

from starlette.websockets import WebSocket, WebSocketDisconnect

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events, raw_pcm
from voice_runtime.gateway.transports.common import EVENT_S, MOST_BAD_EVENTS, Allowance, HungUp, carry, outputs
from voice_runtime.session.events import AgentAudio, CallerAudio, Closing, SessionError
from voice_runtime.session.session import Session

logger = logging.getLogger(__name__)
MOST_MESSAGE_BYTES = 1 << 20
SMALLEST_AUDIO_S = 0.001  # what a message counts for, however little is in it
CLOSE_S = 1.0
SLICE_S = 0.25  # of caller audio judged at a stretch: 8 frames; 7 ms of the event loop while the agent speaks, else one


async def serve(socket: WebSocket, session: Session, input_hz: int, send_s: float, session_s: float) -> None:
    """Carry a session over an accepted socket until the client leaves, is dropped, or its time is over.

    send_s: a client that takes nothing for so long is dropped. session_s: longest session.
    """
    codec = raw_pcm.RawPcmCodec()
    work = (_read(socket, session, codec, input_hz), _write(socket, session, send_s))
    ended = await carry(session, session_s, *work, leaving=(WebSocketDisconnect,))
    if isinstance(ended, PeerError):
        code = 1000 if ended.code == "session_too_long" else 1008
        await _close(socket, code, "", SessionError(ended.code, str(ended)))
    elif isinstance(ended, HungUp):
        await _close(socket, 1000, str(ended), None)


async def _read(socket: WebSocket, session: Session, codec: raw_pcm.RawPcmCodec, input_hz: int) -> None:
    sound = Allowance("too_much_audio", time.monotonic())
    events = Allowance("too_many_events", time.monotonic())
    bad_events = 0
    slice_samples = int(input_hz * SLICE_S)
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        data, text = message.get("bytes"), message.get("text")
        if data is not None:
            audio = codec.receive_bytes(data)
            sound.take(max(SMALLEST_AUDIO_S, audio.samples.size / input_hz), time.monotonic())
            for at in range(0, audio.samples.size, slice_samples):
                session.receive(CallerAudio(audio.samples[at : at + slice_samples]))
                await asyncio.sleep(0)  # the other sessions' frames go in between
            continue
        events.take(EVENT_S, time.monotonic())
        try:
            session.receive(codec.receive_text(text or ""))
        except PeerError as error:
            bad_events += 1
            if bad_events > MOST_BAD_EVENTS:
                raise
            session.tell(SessionError(error.code, str(error)))


async def _write(socket: WebSocket, session: Session, send_s: float) -> None:
    async for output in outputs(session):
        try:
            async with asyncio.timeout(send_s):
                if isinstance(output, AgentAudio):
                    await socket.send_bytes(output.pcm)
                else:
                    await socket.send_text(json_events.encode(output))
        except TimeoutError:
            raise PeerError("slow_client", f"client took nothing for {send_s:g} s") from None
        if isinstance(output, Closing):
            raise HungUp("goodbye")


async def _close(socket: WebSocket, code: int, reason: str, over: SessionError | None) -> None:
    """Say why, if it was not said yet, and goodbye; a client that takes nothing does not get to hear it."""
    reason = reason if over is None else over.code
    logger.info("closing a client: %s", reason)
    with contextlib.suppress(TimeoutError, RuntimeError, WebSocketDisconnect):
        async with asyncio.timeout(CLOSE_S):
            if over is not None:
                await socket.send_text(json_events.encode(over))
            await socket.close(code, reason)
