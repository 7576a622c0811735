"""The caller's RTP packets to sound: through the jitter buffer and the Opus decoder, as soon as it is in order."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
from aiortc.rtp import RtpPacket

from voice_runtime.audio import opus
from voice_runtime.audio.jitter import Counts, JitterBuffer, Lost, Voice
from voice_runtime.audio.pcm import Samples
from voice_runtime.errors import MediaError
from voice_runtime.gateway.transports.common import wait

LONGEST_CONCEALED_MS = 100  # what Opus makes up of a longer loss is a buzz that may be taken for a voice


class Incoming:
    """One stream of Opus. rate_hz: of the sound that comes out, mono."""

    def __init__(self, rate_hz: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_hz = rate_hz
        self._clock = clock
        self._decoder = opus.Decoder(rate_hz)
        self._buffer = JitterBuffer()
        self._ssrc: int | None = None
        self._concealed_ms = 0.0
        self._came = asyncio.Event()

    @property
    def counts(self) -> Counts:
        return self._buffer.counts

    @property
    def depth_ms(self) -> float:
        return self._buffer.depth_ms

    def take(self, packet: RtpPacket) -> None:
        """A packet has come. One that is not Opus is left out, and is then missing like one that was lost."""
        if packet.ssrc != self._ssrc:
            self._ssrc, self._buffer = packet.ssrc, JitterBuffer(self._buffer.counts)
        with contextlib.suppress(MediaError):
            length_ms = opus.duration_ms(packet.payload)
            self._buffer.push(packet.sequence_number, packet.timestamp, packet.payload, length_ms, self._clock())
        self._came.set()

    async def sounds(self) -> AsyncIterator[Samples]:
        """Pieces of the caller's sound in order, float32 mono; ends never."""
        while True:
            self._came.clear()
            piece = self._buffer.pull(self._clock())
            if piece is not None:
                yield self._sound(piece)
                continue
            await wait(self._came, self._buffer.wait_s(self._clock()))

    def _sound(self, piece: Voice | Lost) -> Samples:
        try:
            match piece:
                case Voice(payload):
                    self._concealed_ms = 0.0
                    return self._decoder.decode(payload)
                case Lost(ms, following):
                    return self._made_up(ms, following)
        except MediaError:  # its table of contents was in order, the rest is not
            return self._decoder.conceal(opus.FRAME_MS)

    def _made_up(self, ms: float, following: bytes | None) -> Samples:
        self._concealed_ms += ms
        if following is not None:
            return self._decoder.recover(following, ms)
        if self._concealed_ms > LONGEST_CONCEALED_MS:
            return np.zeros(int(ms * self._rate_hz / 1000), np.float32)
        return self._decoder.conceal(ms)
