"""A call whose caller is on a bad network: packets made beforehand go from a real client to a real receiver."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import av
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket

from tests.support.lossy import HOST, Relay, relaying, without_candidates
from tests.support.speech import RATE_HZ, Samples
from voice_runtime.audio import opus
from voice_runtime.audio.jitter import Lost, Voice
from voice_runtime.audio.pcm import to_pcm
from voice_runtime.gateway.transports import upstream
from voice_runtime.gateway.transports.incoming import Incoming
from voice_runtime.gateway.transports.outgoing import FRAME_S, FRAME_TICKS, TICK

FRAME = RATE_HZ // 50  # samples
ROOM_LEVEL = 0.0005  # what every microphone hears: it tells apart packets of what would be one and the same silence
CONNECT_S = 10.0
CLOSE_S = 5.0
MOST_BEHIND_S = 10.0


def frames(sound: Samples) -> list[bytes]:
    """Packets of 20 ms with error correction, no two of them alike."""
    noisy = sound + np.random.default_rng(1).normal(0.0, ROOM_LEVEL, sound.size).astype(np.float32)
    encoder = opus.Encoder(RATE_HZ)
    packets = [encoder.encode(to_pcm(noisy[at : at + FRAME])) for at in range(0, noisy.size, FRAME)]
    if len(set(packets)) < len(packets):
        raise ValueError(f"{len(packets)} packets are {len(set(packets))} different ones, expected all to differ")
    return packets


class Microphone(MediaStreamTrack):
    """Sends one packet every 20 ms, and ends after the last.

    sent_s: when each was sent, by its number. watch: told a packet's number before it is sent.
    """

    kind = "audio"

    def __init__(self, packets: Sequence[bytes], watch: Callable[[int], None]) -> None:
        super().__init__()
        self._packets = packets
        self._watch = watch
        self._begun_s: float | None = None
        self.sent_s: list[float] = []

    async def recv(self) -> av.Packet:
        number = len(self.sent_s)
        if number == len(self._packets):
            raise MediaStreamError
        self._begun_s = self._begun_s or time.monotonic()
        await asyncio.sleep(max(0.0, self._begun_s + number * FRAME_S - time.monotonic()))
        self._watch(number)
        packet = av.Packet(self._packets[number])
        packet.pts, packet.time_base = number * FRAME_TICKS, TICK
        self.sent_s.append(time.monotonic())
        return packet


@dataclass(frozen=True, slots=True)
class Given:
    """A piece that was handed on, and when.

    number: of the packet that it is, None for what was filled in. behind: how many later packets had come by then.
    """

    piece: Voice | Lost
    number: int | None
    behind: int
    samples: Samples
    at_s: float


class Listener(Incoming):
    """The receiver of the product, watched: what it hands on, and from which packet."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        super().__init__(RATE_HZ)
        self.numbers = {packet: number for number, packet in enumerate(packets)}
        self.given: list[Given] = []
        self.ended = asyncio.Event()  # the last packet was handed on
        self._newest = -1

    def take(self, packet: RtpPacket) -> None:
        self._newest = max(self._newest, self.numbers.get(packet.payload, -1))
        super().take(packet)

    def _sound(self, piece: Voice | Lost) -> Samples:
        samples = super()._sound(piece)
        number = self.numbers[piece.payload] if isinstance(piece, Voice) else None
        behind = 0 if number is None else self._newest - number
        self.given.append(Given(piece, number, behind, samples, time.monotonic()))
        if number == len(self.numbers) - 1:
            self.ended.set()
        return samples

    async def listen(self) -> None:
        """Until the last packet was handed on.

        Raises:
            TimeoutError: it should have been long ago.
        """
        try:
            async with asyncio.timeout(len(self.numbers) * FRAME_S + MOST_BEHIND_S):
                async for _ in self.sounds():
                    if self.ended.is_set():
                        return
        except TimeoutError:
            raise TimeoutError(f"{self._newest} is the newest of {len(self.numbers)} packets, {self.counts}") from None


@dataclass(slots=True)
class LossyCall:
    relay: Relay
    microphone: Microphone
    listener: Listener
    client: RTCPeerConnection
    server: RTCPeerConnection


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Peers that are made meanwhile have that one address: what is to go through the relay has no other way."""
    upstream.listen_on(HOST)
    try:
        yield
    finally:
        upstream.listen_on("0.0.0.0")


@contextlib.asynccontextmanager
async def lossy_call(
    packets: Sequence[bytes], seed: int, happens: Callable[[int, Relay], None], beside: Callable[[RtpPacket], None]
) -> AsyncIterator[LossyCall]:
    """A call that stands; the first packet is on its way.

    happens: told each packet's number before it is sent, to make the network what it is to be then.
    beside: is given every packet that the listener is given.
    """
    async with relaying(seed) as relay:
        client, server = RTCPeerConnection(), RTCPeerConnection()
        microphone, listener = Microphone(packets, lambda number: happens(number, relay)), Listener(packets)

        def take(packet: RtpPacket) -> None:
            beside(packet)
            listener.take(packet)

        server.on("track", lambda _: upstream.tap(server.getReceivers()[0], take))
        try:
            client.addTrack(microphone)
            await _connect(client, server, relay)
            yield LossyCall(relay, microphone, listener, client, server)
        finally:
            with contextlib.suppress(TimeoutError):  # aiortc may wait for ever for a peer that closes at the same time
                async with asyncio.timeout(CLOSE_S):
                    await client.close()
                    await server.close()


async def _connect(client: RTCPeerConnection, server: RTCPeerConnection, relay: Relay) -> None:
    connected = asyncio.Event()

    def note() -> None:
        if client.connectionState == "connected":
            connected.set()

    client.on("connectionstatechange", note)
    await client.setLocalDescription(await client.createOffer())
    offer = RTCSessionDescription(without_candidates(client.localDescription.sdp), "offer")
    await server.setRemoteDescription(offer)
    await server.setLocalDescription(await server.createAnswer())
    answer = RTCSessionDescription(relay.led_through(server.localDescription.sdp), "answer")
    await client.setRemoteDescription(answer)
    async with asyncio.timeout(CONNECT_S):
        await connected.wait()
