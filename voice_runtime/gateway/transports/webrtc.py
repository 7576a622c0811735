"""A WebRTC client of a session: the caller's track in, the agent's track out, events over a data channel."""

import asyncio
import logging
import time

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events
from voice_runtime.gateway.sessions import Admitted
from voice_runtime.gateway.transports.common import EVENT_S, MOST_BAD_EVENTS, Allowance, HungUp, carry, outputs
from voice_runtime.gateway.transports.outgoing import FRAME_TICKS
from voice_runtime.gateway.transports.rtc import Connection
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    Closing,
    Flush,
    Pause,
    Played,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Resume,
    SessionError,
    SessionEvent,
)

logger = logging.getLogger(__name__)
INPUT_HZ = 16_000  # what recognition takes: Opus decodes to it, nothing is resampled
OUTPUT_HZ = 24_000
REPORT_S = 0.1
LIKELY_DELAY_MS = 80  # from our socket to the ear, for a peer that reports nothing; measured 20 to 80 with Chromium


class Peer:
    """A connection and its session. ready: the first event."""

    def __init__(self, connection: Connection, admitted: Admitted, ready: str) -> None:
        self.connection = connection
        self._admitted = admitted
        self._session = admitted.session
        self._ready = ready
        self._reports = False  # the peer tells what it has played

    async def serve(self, session_s: float) -> None:
        """Carry the session until the peer leaves, is dropped, or its time is over, after session_s."""
        work = (self._listen(), self._read(), self._write(), self._send_captions(), self._report_sent())
        ended = await carry(self._session, session_s, self.connection.watch(), *work)
        code = ended.code if isinstance(ended, PeerError) else str(ended)
        if code == "resumed_elsewhere":
            self._tell(SessionError(code, "another connection has taken this conversation up"))
        elif isinstance(ended, PeerError) and code != "slow_client":
            self._tell(SessionError(code, str(ended)))
        logger.info("closing a peer: %s", code)

    async def _listen(self) -> None:
        sound = Allowance("too_much_audio", time.monotonic())
        async for samples in self.connection.incoming.sounds():
            sound.take(samples.size / INPUT_HZ, time.monotonic())
            self._session.receive(CallerAudio(samples))
            await asyncio.sleep(0)  # the other sessions' frames go in between

    async def _read(self) -> None:
        events = Allowance("too_many_events", time.monotonic())
        bad_events = 0
        while True:
            message = await self.connection.next_message()
            events.take(EVENT_S, time.monotonic())
            try:
                self._receive(message)
            except PeerError as error:
                bad_events += 1
                if bad_events > MOST_BAD_EVENTS:
                    raise
                self._session.tell(SessionError(error.code, str(error)))

    def _receive(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            raise PeerError("bad_event", f"{len(message)} bytes came, expected JSON text")
        event = json_events.decode(message)
        if not isinstance(event, json_events.Playout):
            self._session.receive(event)
            return
        self._reports = True
        ticks = self.connection.ticks_at(event.timestamp) - event.delay_ms * FRAME_TICKS / 20
        outgoing = self.connection.outgoing
        self._report(outgoing.mute_from(ticks) if event.muted else outgoing.played(ticks))

    async def _write(self) -> None:
        await self.connection.ready(self._ready, self._told)
        reply = ""
        async for output in outputs(self._session):
            if isinstance(output, AgentAudio):
                self.connection.outgoing.append(reply, output.pcm)
            elif isinstance(output, ReplyText):
                self.connection.outgoing.caption(output)  # told when its sound is sent
            else:
                reply = output.reply if isinstance(output, ReplyStarted) else reply
                self._steer(output)
                self._tell(output)
            if isinstance(output, Closing):
                raise HungUp("goodbye")

    def _told(self) -> None:
        self._admitted.is_told = True

    def _steer(self, event: SessionEvent) -> None:
        outgoing = self.connection.outgoing
        match event:
            case Pause():
                outgoing.pause()
            case Resume():
                outgoing.resume()
            case Flush():
                for unheard in outgoing.flush():
                    self._tell(unheard)
            case ReplyDone():
                for without_sound in outgoing.due_captions():
                    self._tell(without_sound)

    async def _send_captions(self) -> None:
        while True:
            self._tell(await self.connection.track.captions.get())

    async def _report_sent(self) -> None:
        """For a peer that does not tell what it has played: what was sent, less the time that it takes to the ear."""
        while True:
            await asyncio.sleep(REPORT_S)
            if not self._reports:
                ticks = self.connection.track.sent_ticks + FRAME_TICKS * (1 - LIKELY_DELAY_MS / 20)
                self._report(self.connection.outgoing.played(ticks))

    def _report(self, played: Played | None) -> None:
        if played is not None:
            self._session.receive(played)

    def _tell(self, event: SessionEvent) -> None:
        self.connection.send(json_events.encode(event))
