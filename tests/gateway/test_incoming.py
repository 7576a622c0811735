"""From RTP packets to the caller's sound, under a clock of our own."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from aiortc.rtp import RtpPacket

from tests.support import speech
from tests.support.clock import Clock
from voice_runtime.audio import opus
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.gateway.transports.incoming import LONGEST_CONCEALED_MS, Incoming

RATE_HZ = 16_000
FRAME = RATE_HZ // 50
START_S = 5_000.0
FIRST = 65_500  # sequence numbers wrap around on the way
WAIT_S = 5.0  # at most, for what is due: it comes at once


@cache
def packets() -> tuple[bytes, ...]:
    encoder = opus.Encoder(RATE_HZ)
    voice = speech.human_clips()[0].samples[: 100 * FRAME]
    return tuple(encoder.encode(to_pcm(voice[at : at + FRAME])) for at in range(0, voice.size, FRAME))


@cache
def truth() -> Samples:
    """What comes out when nothing is lost."""
    decoder = opus.Decoder(RATE_HZ)
    return np.concatenate([decoder.decode(packet) for packet in packets()])


@dataclass
class Caller:
    """Sends packet n of `packets` at n * 20 ms, and hears what the server makes of it."""

    clock: Clock = field(default_factory=lambda: Clock(START_S))
    heard: list[Samples] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.incoming = Incoming(RATE_HZ, self.clock)
        self._sounds: AsyncIterator[Samples] = self.incoming.sounds()

    def send(self, number: int, payload: bytes | None = None, ssrc: int = 1, at_s: float | None = None) -> None:
        self.clock.now_s = START_S + (number * 0.02 if at_s is None else at_s)
        payload = packets()[number] if payload is None else payload
        self.incoming.take(RtpPacket(111, 0, (FIRST + number) & 0xFFFF, number * 960, ssrc, payload))

    async def hear(self, pieces: int = 1) -> Samples:
        """As many pieces; that no more are due shows in what comes next."""
        async with asyncio.timeout(WAIT_S):
            new = [await anext(self._sounds) for _ in range(pieces)]
        self.heard += new
        return np.concatenate(new)

    async def talk(self, numbers: Iterable[int]) -> Samples:
        before = len(self.heard)
        for number in numbers:
            self.send(number)
            await self.hear()
        return np.concatenate(self.heard[before:])

    async def wait(self, until_s: float, pieces: int) -> Samples:
        self.clock.now_s = START_S + until_s
        return await self.hear(pieces)


def piece(number: int) -> Samples:
    return truth()[number * FRAME : (number + 1) * FRAME]


def power(sound: Samples) -> float:
    return float(np.mean(np.square(sound)))


async def test_every_packet_is_sound_when_it_comes() -> None:
    caller = Caller()
    assert np.array_equal(await caller.talk(range(100)), truth())
    assert caller.incoming.counts.received == 100
    assert caller.incoming.depth_ms == 40


async def test_who_listens_wakes_up_when_a_packet_comes() -> None:
    caller = Caller()
    asyncio.get_running_loop().call_soon(caller.send, 0)
    assert np.array_equal(await caller.hear(), piece(0))


async def test_who_listens_wakes_up_when_a_loss_is_given_up() -> None:
    incoming = Incoming(RATE_HZ)
    incoming.take(RtpPacket(111, 0, 7, 960, 1, packets()[0]))
    async with asyncio.timeout(WAIT_S):
        async for _ in incoming.sounds():
            if incoming.counts.filled_ms == 40:
                break


async def test_packets_out_of_order_are_put_in_order() -> None:
    caller = Caller()
    await caller.talk(range(50))
    caller.send(51, at_s=1.02)
    caller.send(50, at_s=1.03)
    await caller.hear(2)
    await caller.talk(range(52, 100))
    assert np.array_equal(np.concatenate(caller.heard), truth())


async def test_a_lost_packet_is_recovered_from_the_one_after_it() -> None:
    caller = Caller()
    loud = [n for n in range(20, 90, 4) if power(piece(n)) > power(truth())]
    recovered, concealed = 0.0, 0.0
    for number in range(100):
        if number in loud:
            continue
        caller.send(number)
        if number - 1 in loud:
            made_up = (await caller.wait((number - 1) * 0.02 + 0.0401, 2))[:FRAME]
            recovered += power(made_up - piece(number - 1))
            concealed += power(piece(number - 1))
        else:
            await caller.hear()
    assert len(loud) > 5
    assert recovered < 0.3 * concealed
    assert np.concatenate(caller.heard).size == truth().size


async def test_a_long_loss_is_concealed_for_100_ms_and_is_then_silence() -> None:
    caller = Caller()
    loud = max(range(20, 90), key=lambda n: power(piece(n)))
    await caller.talk(range(loud + 1))
    made_up = await caller.wait(loud * 0.02 + 1, 48)
    assert power(made_up[:FRAME]) > 0.1 * power(piece(loud))
    assert power(made_up[4 * FRAME : 5 * FRAME]) > 0
    assert not made_up[LONGEST_CONCEALED_MS * RATE_HZ // 1000 :].any()


async def test_after_a_loss_there_may_be_another() -> None:
    caller = Caller()
    await caller.talk(range(50))
    assert not (await caller.wait(1.421, 20))[-FRAME:].any()
    caller.send(70)
    await caller.wait(1.441, 1)
    assert power(await caller.wait(1.461, 1)) > 0


@pytest.mark.parametrize("payload", [b"", b"\xff\xff\xff", b"\x0b\x00"])
async def test_a_packet_that_is_not_opus_is_as_one_that_was_lost(payload: bytes) -> None:
    caller = Caller()
    await caller.talk(range(50))
    caller.send(50, payload)
    caller.send(51)
    assert (await caller.wait(50 * 0.02 + 0.0401, 2)).size == 2 * FRAME
    await caller.talk(range(52, 100))
    assert np.allclose(caller.heard[-1], piece(99), atol=0.01)  # the decoder has not quite forgotten it
    assert caller.incoming.counts.lost == 1


async def test_what_looks_like_opus_and_is_not_ends_nothing() -> None:
    caller, rng = Caller(), np.random.default_rng(1)
    for number in range(100):
        head = packets()[number][0]
        broken = {1: bytes([head]) + rng.bytes(40), 2: bytes([head | 3, 0x41, 0xFF])}  # padding longer than the packet
        caller.send(number, broken.get(number % 4))
        sound = await caller.hear()
        assert sound.size == FRAME
        assert np.abs(sound).max() <= 1


async def test_a_new_source_begins_a_new_stream_at_once() -> None:
    caller = Caller()
    await caller.talk(range(50))
    caller.incoming.take(RtpPacket(111, 0, 12_345, 3_000_000_000, 2, packets()[50]))
    assert np.array_equal(await caller.hear(), piece(50))
    caller.clock.now_s += 0.02
    caller.incoming.take(RtpPacket(111, 0, 12_346, 3_000_000_960, 2, packets()[51]))
    assert np.array_equal(await caller.hear(), piece(51))
    assert (caller.incoming.counts.received, caller.incoming.counts.strange) == (52, 0)
