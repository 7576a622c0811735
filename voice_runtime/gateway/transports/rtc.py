"""An aiortc connection as we use it: one audio stream each way and one data channel, offered by the other side."""

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
from voice_runtime.gateway.protocols import sdp
from voice_runtime.gateway.transports import upstream
from voice_runtime.gateway.transports.common import HungUp
from voice_runtime.gateway.transports.incoming import Incoming
from voice_runtime.gateway.transports.outgoing import FRAME_S, FRAME_TICKS, TICK, Outgoing, Pacer
from voice_runtime.session.events import ReplyText

CONNECT_S = 15.0
CHANNEL_S = 3.0  # a peer that is connected and opens no channel so long is served without one
LOST_S = 10.0  # neither a packet nor a message: browsers send both all the time
CLOSE_S = 3.0
MOST_UNSENT_BYTES = 1 << 20  # of events
MOST_MESSAGES = 1_000  # that wait to be looked at
MOST_MESSAGE = 65_536  # characters or bytes

logger = logging.getLogger(__name__)


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


class Connection:
    """From the offer to the close.

    input_hz, output_hz: of the caller's sound and of the agent's. on_late: see `AgentTrack`.
    """

    def __init__(
        self, input_hz: int, output_hz: int, ice_servers: list[RTCIceServer], on_late: Callable[[], None]
    ) -> None:
        self.incoming = Incoming(input_hz)
        self.outgoing = Outgoing(output_hz)
        self.track = AgentTrack(self.outgoing, on_late)
        self._messages: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        # The default of aiortc is a public STUN server.
        self._rtc = RTCPeerConnection(RTCConfiguration(iceServers=ice_servers))
        self._sender = self._rtc.addTrack(self.track)
        self._channel: RTCDataChannel | None = None
        self._channel_open = asyncio.Event()
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()  # the connection's state
        self._heard_s = time.monotonic()  # when the peer was last heard of
        self._ufrag: str | None = None
        self._candidates = 0
        self._first: tuple[str, Callable[[], None]] | None = None  # what the channel begins with, and who waits for it

    async def answer(self, offer: str) -> str:
        """Take the offer; the answer, with all candidates of ours.

        Raises:
            PeerError: bad_offer.
        """
        rtc = self._rtc
        checked = sdp.checked_offer(offer)
        self._ufrag = sdp.ufrag(checked)
        rtc.on("track", self._take_track)
        rtc.on("datachannel", self._take_channel)
        rtc.on("connectionstatechange", self._changed.set)
        (transceiver,) = rtc.getTransceivers()
        capabilities = RTCRtpReceiver.getCapabilities("audio")
        assert capabilities is not None
        transceiver.setCodecPreferences([codec for codec in capabilities.codecs if codec.mimeType == "audio/opus"])
        try:
            await rtc.setRemoteDescription(RTCSessionDescription(checked, "offer"))
            await rtc.setLocalDescription(await rtc.createAnswer())
        except Exception as error:  # a parser that was not written for enemies: it raises whatever it stumbles over
            raise PeerError(
                "bad_offer", f"{type(error).__name__}: {str(error)[:200]}, expected an SDP offer"
            ) from error
        return sdp.tuned_answer(rtc.localDescription.sdp)

    async def add_candidates(self, text: str) -> None:
        """A trickle ICE fragment.

        Raises:
            PeerError: bad_candidates, ice_restart.
        """
        fragment = sdp.fragment(text)
        self._candidates += len(fragment.candidates)
        if self._candidates > sdp.MOST_CANDIDATES:  # each is compared with all the others, and checked over the network
            raise PeerError("bad_candidates", f"{self._candidates} in all, expected at most {sdp.MOST_CANDIDATES}")
        if fragment.ufrag not in (None, self._ufrag):
            raise PeerError("ice_restart", "the credentials are new, expected a new offer with the resume token")
        try:
            for line in fragment.candidates:
                candidate = candidate_from_sdp(line.removeprefix("candidate:"))
                candidate.sdpMid = fragment.mid or "0"
                await self._rtc.addIceCandidate(candidate)
            if fragment.is_last:
                await self._rtc.addIceCandidate(None)
        except Exception as error:  # as in `answer`
            raise PeerError("bad_candidates", f"{type(error).__name__}: {error}, expected ICE candidates") from error

    async def watch(self) -> None:
        """Never ends but by raising.

        Raises:
            HungUp: it does not come about, has ended, or the peer has not been heard of for LOST_S.
        """
        try:
            async with asyncio.timeout(CONNECT_S):
                while self._rtc.connectionState != "connected":
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

    async def ready(self, first: str, on_told: Callable[[], None]) -> None:
        """Wait until it stands, and for its data channel, but not for ever for that.

        first: what the channel begins with, whenever it opens. on_told: called then.
        """
        self._first = (first, on_told)
        await self._connected.wait()
        if self._channel is not None:
            self._begin(self._channel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHANNEL_S):
                await self._channel_open.wait()

    async def next_message(self) -> str | bytes:
        """Raises PeerError: too_many_events, too much has come at once to be looked at."""
        message = await self._messages.get()
        if message is None:
            raise PeerError(
                "too_many_events", f"{MOST_MESSAGES} messages or one of {MOST_MESSAGE} came, expected fewer"
            )
        self._heard_s = time.monotonic()
        return message

    def send(self, text: str) -> None:
        """Over the data channel, if there is one.

        Raises:
            PeerError: slow_client.
        """
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return
        if channel.bufferedAmount > MOST_UNSENT_BYTES:
            raise PeerError("slow_client", f"{channel.bufferedAmount} bytes wait, expected {MOST_UNSENT_BYTES} at most")
        channel.send(text)

    def ticks_at(self, rtp_timestamp: int) -> int:
        """The place in our stream that has this timestamp."""
        return self.track.sent_ticks - (upstream.rtp_timestamp(self._sender) - rtp_timestamp) % (1 << 32)

    async def close(self) -> None:
        """Have what was sent go out, if anybody is there to take it, and let go of every socket and thread."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await _all_sent(self._channel)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._rtc.close()
        except TimeoutError:
            logger.warning("a connection did not close within %g s: its sockets may stay open", CLOSE_S)

    async def _next_state(self) -> None:
        self._changed.clear()
        await self._changed.wait()
        if self._rtc.connectionState in ("failed", "closed"):
            raise HungUp("hung_up")

    # What aiortc tells

    def _take_track(self, track: MediaStreamTrack) -> None:
        (receiver,) = (item for item in self._rtc.getReceivers() if item.track is track)
        upstream.tap(receiver, self._take_packet)

    def _take_packet(self, packet: RtpPacket) -> None:
        self._heard_s = time.monotonic()
        self.incoming.take(packet)

    def _take_channel(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            channel.close()
            return
        self._channel = channel
        channel.on("message", self._take_message)
        self._channel_open.set()
        if self._connected.is_set():
            self._begin(channel)

    def _take_message(self, message: str | bytes) -> None:
        """None stands for one too many: what comes after it is not kept."""
        if self._messages.qsize() < MOST_MESSAGES:
            is_long = len(message) > MOST_MESSAGE
            self._messages.put_nowait(None if is_long else message)
        elif self._messages.qsize() == MOST_MESSAGES:
            self._messages.put_nowait(None)

    def _begin(self, channel: RTCDataChannel) -> None:
        if self._first is not None:
            (text, on_told), self._first = self._first, None
            channel.send(text)
            on_told()


async def _all_sent(channel: RTCDataChannel | None) -> None:
    sent = asyncio.Event()
    if channel is not None and channel.readyState == "open" and channel.bufferedAmount > 0:
        channel.on("bufferedamountlow", sent.set)
        await sent.wait()
