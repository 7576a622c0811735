"""A WebRTC client of a session: the caller's track in, the agent's track out, events over a data channel."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import av
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket
from aiortc.sdp import candidate_from_sdp

from voice_runtime.audio import opus
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events, sdp
from voice_runtime.gateway.transports import upstream
from voice_runtime.gateway.transports.common import EVENT_S, MOST_BAD_EVENTS, Allowance, HungUp, outputs
from voice_runtime.gateway.transports.incoming import Incoming
from voice_runtime.gateway.transports.outgoing import FRAME_S, FRAME_TICKS, TICK, Outgoing, Pacer
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    Closing,
    Flush,
    Pause,
    ReplyStarted,
    ReplyText,
    Resume,
    SessionError,
    SessionEvent,
)
from voice_runtime.session.session import Session

logger = logging.getLogger(__name__)
INPUT_HZ = 16_000  # what recognition takes: Opus decodes to it, nothing is resampled
OUTPUT_HZ = 24_000
CONNECT_S = 15.0
CHANNEL_S = 3.0  # a peer that is connected and opens no channel so long is served without one
LOST_S = 10.0  # neither a packet nor a message: browsers send both all the time
CLOSE_S = 3.0
MOST_UNSENT_BYTES = 1 << 20  # of events
REPORT_S = 0.1
LIKELY_DELAY_MS = 80  # from our socket to the ear, for a peer that reports nothing; measured 20 to 80 with Chromium


class AgentTrack(MediaStreamTrack):
    """The agent's voice: a packet every 20 ms from the first to the last, silence included.

    on_late: called with each frame that leaves later than the next one was due.
    """

    kind = "audio"

    def __init__(self, outgoing: Outgoing, on_late: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._outgoing = outgoing
        self._on_late = on_late
        self._encoder = opus.Encoder(outgoing.rate_hz)
        self._pacer: Pacer | None = None
        self.captions: asyncio.Queue[ReplyText] = asyncio.Queue()
        self.sent_ticks = 0  # where the packet begins that was made last

    async def recv(self) -> av.Packet:
        """The next packet, when it is due."""
        self._pacer = self._pacer or Pacer(time.monotonic())
        due_s = self._pacer.due_s(time.monotonic())
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        if time.monotonic() > due_s + FRAME_S:
            self._on_late()
        if self.readyState != "live":
            raise MediaStreamError
        self.sent_ticks = self._pacer.take() * FRAME_TICKS
        pcm, captions = self._outgoing.take(self.sent_ticks)
        for words in captions:
            self.captions.put_nowait(words)
        packet = av.Packet(self._encoder.encode(pcm))
        packet.pts, packet.time_base = self.sent_ticks, TICK
        return packet


class Peer:
    """One connection, from its offer to its end."""

    def __init__(
        self, session: Session, ready: str, ice_servers: list[RTCIceServer], on_late: Callable[[], None]
    ) -> None:
        self._session = session
        self._ready = ready
        # The default of aiortc is a public STUN server.
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=ice_servers))
        self._incoming = Incoming(INPUT_HZ)
        self._outgoing = Outgoing(OUTPUT_HZ)
        self._track = AgentTrack(self._outgoing, on_late)
        self._sender = self._connection.addTrack(self._track)
        self._channel: RTCDataChannel | None = None
        self._channel_open = asyncio.Event()
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()  # the connection's state
        self._messages: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._heard_s = time.monotonic()  # when the peer was last heard of
        self._reports = False  # the peer tells what it has played
        self._ufrag: str | None = None

    async def answer(self, offer: str) -> str:
        """Take the offer; the answer, with all candidates of ours.

        Raises:
            PeerError: bad_offer.
        """
        connection = self._connection
        checked = sdp.checked_offer(offer)
        self._ufrag = sdp.ufrag(offer)
        connection.on("track", self._take_track)
        connection.on("datachannel", self._take_channel)
        connection.on("connectionstatechange", self._changed.set)
        (transceiver,) = connection.getTransceivers()
        capabilities = RTCRtpReceiver.getCapabilities("audio")
        assert capabilities is not None
        transceiver.setCodecPreferences([codec for codec in capabilities.codecs if codec.mimeType == "audio/opus"])
        try:
            await connection.setRemoteDescription(RTCSessionDescription(checked, "offer"))
            await connection.setLocalDescription(await connection.createAnswer())
        except Exception as error:  # a parser that was not written for enemies: it raises whatever it stumbles over
            raise PeerError(
                "bad_offer", f"{type(error).__name__}: {str(error)[:200]}, expected an SDP offer"
            ) from error
        return sdp.tuned_answer(connection.localDescription.sdp)

    async def add_candidates(self, text: str) -> None:
        """A trickle ICE fragment.

        Raises:
            PeerError: bad_candidates, ice_restart.
        """
        fragment = sdp.fragment(text)
        if fragment.ufrag not in (None, self._ufrag):
            raise PeerError("ice_restart", "the credentials are new, expected a new offer with the resume token")
        try:
            for line in fragment.candidates:
                candidate = candidate_from_sdp(line.removeprefix("candidate:"))
                candidate.sdpMid = fragment.mid or "0"
                await self._connection.addIceCandidate(candidate)
            if fragment.is_last:
                await self._connection.addIceCandidate(None)
        except Exception as error:  # as in `answer`
            raise PeerError("bad_candidates", f"{type(error).__name__}: {error}, expected ICE candidates") from error

    async def serve(self, session_s: float) -> None:
        """Carry the session until the peer leaves, is dropped, or its time is over, after session_s."""
        code = ""
        try:
            async with asyncio.timeout(session_s), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name="watch peer")
                tasks.create_task(self._listen(), name="listen to peer")
                tasks.create_task(self._read(), name="read peer")
                tasks.create_task(self._write(), name="write peer")
                tasks.create_task(self._send_captions(), name="send captions")
                tasks.create_task(self._report(), name="report to session")
        except TimeoutError:
            code = "session_too_long"
            self._tell(SessionError(code, f"{session_s:g} s are over, the limit"))
        except ExceptionGroup as group:
            if group.split((PeerError, HungUp))[1] is not None:
                raise  # a fault of ours
            error = group.exceptions[0]
            code = error.code if isinstance(error, PeerError) else str(error)
            if isinstance(error, PeerError):
                self._tell(SessionError(error.code, str(error)))
        finally:
            self._session.close()
        logger.info("closing a peer: %s", code)

    async def close(self) -> None:
        """Say goodbye, if anybody is there to hear it, and let go of every socket and thread."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._all_sent()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()

    async def _all_sent(self) -> None:
        sent = asyncio.Event()
        if self._channel is not None and self._channel.readyState == "open" and self._channel.bufferedAmount > 0:
            self._channel.on("bufferedamountlow", sent.set)
            await sent.wait()

    # What aiortc tells

    def _take_track(self, track: MediaStreamTrack) -> None:
        (receiver,) = (item for item in self._connection.getReceivers() if item.track is track)
        upstream.tap(receiver, self._take_packet)

    def _take_packet(self, packet: RtpPacket) -> None:
        self._heard_s = time.monotonic()
        self._incoming.take(packet)

    def _take_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            channel.close()
            return
        self._channel = channel
        channel.on("message", self._messages.put_nowait)
        self._channel_open.set()

    # Tasks

    async def _watch(self) -> None:
        """Wait for the end of the connection, or of its being heard of."""
        try:
            async with asyncio.timeout(CONNECT_S):
                while self._state() != "connected":
                    await self._next_state()
        except TimeoutError:
            raise HungUp("not_connected") from None
        self._connected.set()
        self._heard_s = time.monotonic()
        while True:
            silent_s = time.monotonic() - self._heard_s
            if silent_s >= LOST_S:
                raise HungUp("lost")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOST_S - silent_s):
                    await self._next_state()

    async def _next_state(self) -> None:
        self._changed.clear()
        await self._changed.wait()
        if self._state() in ("failed", "closed"):
            raise HungUp("hung_up")

    def _state(self) -> str:
        return self._connection.connectionState

    async def _listen(self) -> None:
        sound = Allowance("too_much_audio", time.monotonic())
        async for samples in self._incoming.sounds():
            sound.take(samples.size / INPUT_HZ, time.monotonic())
            self._session.receive(CallerAudio(samples))
            await asyncio.sleep(0)  # the other sessions' frames go in between

    async def _read(self) -> None:
        events = Allowance("too_many_events", time.monotonic())
        bad_events = 0
        while True:
            message = await self._messages.get()
            self._heard_s = time.monotonic()
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
        age_ticks = (upstream.rtp_timestamp(self._sender) - event.timestamp) % (1 << 32)
        self._report_played(self._track.sent_ticks - age_ticks - event.delay_ms * FRAME_TICKS / 20)

    async def _write(self) -> None:
        await self._wait_for_channel()
        if self._channel is not None:
            self._channel.send(self._ready)
        reply = ""
        async for output in outputs(self._session):
            if isinstance(output, AgentAudio):
                self._outgoing.append(reply, output.pcm)
            elif isinstance(output, ReplyText):
                self._outgoing.caption(output)  # told when its sound is sent
            else:
                reply = output.reply if isinstance(output, ReplyStarted) else reply
                self._steer(output)
                self._tell(output)
            if isinstance(output, Closing):
                raise HungUp("goodbye")

    def _steer(self, event: SessionEvent) -> None:
        match event:
            case Pause():
                self._outgoing.pause()
            case Resume():
                self._outgoing.resume()
            case Flush():
                for unheard in self._outgoing.flush():
                    self._tell(unheard)

    async def _wait_for_channel(self) -> None:
        await self._connected.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHANNEL_S):
                await self._channel_open.wait()

    async def _send_captions(self) -> None:
        while True:
            self._tell(await self._track.captions.get())

    async def _report(self) -> None:
        """For a peer that does not tell what it has played: what was sent, less the time that it takes to the ear."""
        while True:
            await asyncio.sleep(REPORT_S)
            if not self._reports:
                self._report_played(self._track.sent_ticks + FRAME_TICKS * (1 - LIKELY_DELAY_MS / 20))

    def _report_played(self, ticks: float) -> None:
        played = self._outgoing.played(ticks)
        if played is not None:
            self._session.receive(played)

    def _tell(self, event: SessionEvent) -> None:
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return
        if channel.bufferedAmount > MOST_UNSENT_BYTES:
            raise PeerError("slow_client", f"{channel.bufferedAmount} bytes wait, expected {MOST_UNSENT_BYTES} at most")
        channel.send(json_events.encode(event))
