"""What a bad network does to the caller's sound: our receiver and aiortc's own, on the same packets.

    python -m benchmarks.network [--clips 5] [--at-once 4] [--only NAME ...] [--seed 1]

A real client sends what people read aloud in Opus with error correction through a relay that loses, delays and reorders
its SRTP packets (tests/support/lossy.py). Each packet that comes is given to our receiver and in the same moment to
aiortc's jitter buffer and decoder, set up as aiortc does it. That is fairer than a second connection, which would meet
another load of the machine. The network is good in the first and in the last seconds of a call, and bad between them.

delay: from when a frame was sent to when its sound was handed on, in the bad seconds. The relay itself takes no time,
so all of it is jitter and waiting. growth: of the median delay, from the good seconds at the begin to those at the end.
recovered: by error correction. filled: made up where sound was missing, by concealment and after 100 ms by silence.
lost: what never came out as it was sent. word errors: of the product's recogniser on what came out.
Goals: with 5 % loss at most 60 ms of delay, and no growth.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import av
import numpy as np
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtp import RtpPacket

from benchmarks._measure import p95
from tests.support.lossy import Network, Relay
from tests.support.lossy_call import FRAME, LossyCall, frames, lossy_call, on_loopback
from tests.support.speech import RATE_HZ, Samples, human_clips, pooled_word_error_rate, resample, with_silence
from voice_runtime import assets
from voice_runtime.audio.jitter import Lost
from voice_runtime.gateway.transports.outgoing import FRAME_MS, FRAME_S, FRAME_TICKS
from voice_runtime.models.moonshine import Moonshine

GOOD = 150  # packets at the begin and at the end, 3 s
TAIL = 50  # the last of them: aiortc holds some back for ever
BETWEEN_S = 0.4
AT_ONCE = 4  # calls: together they take a tenth of a core
STOCK_HZ = 48_000

Happens = Callable[[int, Relay], None]


@dataclass(frozen=True, slots=True)
class Speech:
    """Clips on end. packets: with the good seconds around. spans: of each clip, in packets."""

    packets: list[bytes]
    texts: list[str]
    spans: list[range]


@dataclass(frozen=True, slots=True)
class Piece:
    """Sound handed on. number: of its packet, or of the one that it was filled in before."""

    number: int
    samples: Samples


@dataclass(slots=True, repr=False)  # asyncio.run has the repr of what it returns made: minutes, for so many samples
class Heard:
    """What one receiver made of a call. at_s: when each packet's sound was handed on, by its number."""

    rate_hz: int
    pieces: list[Piece] = field(default_factory=list)
    at_s: dict[int, float] = field(default_factory=dict)
    recovered_ms: float = 0.0
    filled_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    network: str
    receiver: str
    delays_ms: list[float]
    growth_ms: float
    recovered_ms: float
    filled_ms: float
    lost_ms: float
    word_errors: float

    @property
    def delay_ms(self) -> float:
        return statistics.median(self.delays_ms)


class Stock:
    """aiortc's receiver: its buffer as RTCRtpReceiver makes it, its decoder as its decoder thread runs it."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self._numbers = {packet: number for number, packet in enumerate(packets)}
        self._buffer = JitterBuffer(capacity=16, prefetch=4)
        self._decoder = OpusDecoder()
        self.heard = Heard(STOCK_HZ)

    def take(self, packet: RtpPacket) -> None:
        _, frame = self._buffer.add(packet)
        if frame is None:
            return
        number = self._numbers[frame.data]
        frame.timestamp = number * FRAME_TICKS
        try:
            decoded = self._decoder.decode(frame)
        except av.FFmpegError:
            return
        for sound in decoded:
            self.heard.pieces.append(Piece(number, _left(sound)))
            self.heard.at_s[number] = time.monotonic()


def _left(sound: av.AudioFrame) -> Samples:
    """Of interleaved stereo: both channels are the same."""
    left: Samples = sound.to_ndarray()[0, ::2].astype(np.float32) / 32768
    return left


def ours(call: LossyCall) -> Heard:
    heard, number = Heard(RATE_HZ), 0
    for given in call.listener.given:
        if isinstance(given.piece, Lost):
            following = given.piece.following
            if following is not None and _corrects(following):
                heard.recovered_ms += given.piece.ms
                heard.at_s[call.listener.numbers[following] - 1] = given.at_s
            else:
                heard.filled_ms += given.piece.ms
        elif given.number is not None:
            number = given.number + 1
            heard.at_s[given.number] = given.at_s
        heard.pieces.append(Piece(number if given.number is None else given.number, given.samples))
    return heard


def _corrects(packet: bytes) -> bool:
    """Whether a mono packet of one frame of 20 ms holds the one before it. Source: RFC 6716, sections 3.1 and 4.2.4."""
    is_silk = packet[0] < 0x80
    return is_silk and len(packet) > 1 and bool(packet[1] & 0x40)


def speech(count: int) -> Speech:
    clips = human_clips()[:count]
    sound = [np.zeros(GOOD * FRAME, np.float32)]
    spans, at = [], GOOD
    for clip in clips:
        said = with_silence(clip.samples, BETWEEN_S / 2, BETWEEN_S / 2)
        said = np.pad(said, (0, -said.size % FRAME))
        spans.append(range(at, at + said.size // FRAME))
        at = spans[-1].stop
        sound.append(said)
    sound.append(np.zeros(GOOD * FRAME, np.float32))
    return Speech(frames(np.concatenate(sound)), [clip.text for clip in clips], spans)


def while_bad(network: Network) -> Callable[[Speech], Happens]:
    def schedule(said: Speech) -> Happens:
        def happens(number: int, relay: Relay) -> None:
            if number == GOOD:
                relay.network = network
            if number == len(said.packets) - GOOD:
                relay.network = Network()

        return happens

    return schedule


def once(event: Callable[[Relay], None]) -> Callable[[Speech], Happens]:
    """In the midst of the longest clip."""

    def schedule(said: Speech) -> Happens:
        longest = max(said.spans, key=len)

        def happens(number: int, relay: Relay) -> None:
            if number == longest[len(longest) // 2]:
                event(relay)

        return happens

    return schedule


NETWORKS: dict[str, Callable[[Speech], Happens]] = {
    "no loss": while_bad(Network()),
    "1 % loss": while_bad(Network(loss=0.01)),
    "5 % loss": while_bad(Network(loss=0.05)),
    "10 % loss": while_bad(Network(loss=0.10)),
    "30 ms jitter": while_bad(Network(jitter_s=0.03)),
    "5 % loss, 30 ms jitter": while_bad(Network(loss=0.05, jitter_s=0.03)),
    "outage of 1 s": once(lambda relay: relay.drop_all(1.0)),
    "stall of 1 s": once(lambda relay: relay.stall(1.0)),
}


class Bench:
    def __init__(self, said: Speech, seed: int) -> None:
        self._said = said
        self._seed = seed
        names = ("moonshine-encoder", "moonshine-decoder", "moonshine-tokenizer")
        self._moonshine = Moonshine(*(assets.locate(name) for name in names))

    async def call(self, name: str) -> dict[str, tuple[Heard, list[float]]]:
        """By receiver: what it heard, and when each packet was sent."""
        stock = Stock(self._said.packets)
        happens = NETWORKS[name](self._said)
        async with lossy_call(self._said.packets, self._seed, happens, stock.take) as call:
            await call.listener.listen()
        return {"ours": (ours(call), call.microphone.sent_s), "aiortc": (stock.heard, call.microphone.sent_s)}

    def row(self, network: str, receiver: str, heard: Heard, sent_s: Sequence[float]) -> Row:
        last = len(sent_s)

        def delays_ms(numbers: range) -> list[float]:
            return [(heard.at_s[number] - sent_s[number]) * 1000 for number in numbers if number in heard.at_s]

        begin, bad, end = range(GOOD), range(GOOD, last - GOOD), range(last - GOOD + TAIL, last - TAIL)
        return Row(
            network,
            receiver,
            delays_ms(bad),
            statistics.median(delays_ms(end)) - statistics.median(delays_ms(begin)),
            heard.recovered_ms,
            heard.filled_ms,
            FRAME_MS * sum(number not in heard.at_s for number in range(last - TAIL)),
            pooled_word_error_rate(zip(self._said.texts, self._read(heard), strict=True)),
        )

    def _read(self, heard: Heard) -> list[str]:
        clips = []
        for span in self._said.spans:
            pieces = [piece.samples for piece in heard.pieces if piece.number in span]
            clips.append(resample(np.concatenate(pieces), heard.rate_hz, RATE_HZ))
        return [reading.text for reading in self._moonshine.transcribe(clips)]


async def calls(bench: Bench, names: Sequence[str]) -> list[dict[str, tuple[Heard, list[float]]]]:
    return await asyncio.gather(*(bench.call(name) for name in names))


def show(row: Row) -> None:
    delays = f"{row.delay_ms:.1f} ms | {p95(row.delays_ms):.1f} ms | {row.growth_ms:+.1f} ms"
    sounds = f"{row.recovered_ms:.0f} ms | {row.filled_ms:.0f} ms | {row.lost_ms:.0f} ms"
    print(f"| {row.network} | {row.receiver} | {delays} | {sounds} | {row.word_errors:.1%} |", flush=True)


def lateness_ms(sent_s: Sequence[float]) -> list[float]:
    """By how much each packet was sent late: what the machine's other work adds to any delay here."""
    quickest_s = min(at_s - number * FRAME_S for number, at_s in enumerate(sent_s))
    return [(at_s - number * FRAME_S - quickest_s) * 1000 for number, at_s in enumerate(sent_s)]


def show_ratios(rows: Sequence[Row]) -> None:
    print("\n| ours over aiortc's | median delay | sound lost |")
    print("|---|--:|--:|")
    for our, stock in zip(rows[::2], rows[1::2], strict=True):
        lost = f"{our.lost_ms / stock.lost_ms:.2f}" if stock.lost_ms else "-"
        print(f"| {our.network} | {our.delay_ms / stock.delay_ms:.3f} | {lost} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="calls")
    parser.add_argument("--only", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    said = speech(given.clips)
    bench, rows, late_ms = Bench(said, given.seed), [], []
    print(f"{len(said.packets) * FRAME_MS / 1000:.0f} s a call, {2 * GOOD * FRAME_MS / 1000:.0f} s of them good\n")
    print("| network | receiver | delay p50 | p95 | growth | recovered | filled | lost | word errors |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for at in range(0, len(given.only), given.at_once):
        names = given.only[at : at + given.at_once]
        with on_loopback():
            came = asyncio.run(calls(bench, names))
        for name, receivers in zip(names, came, strict=True):
            for receiver, heard in receivers.items():
                late_ms += lateness_ms(heard[1])
                rows.append(bench.row(name, receiver, *heard))
                show(rows[-1])
    show_ratios(rows)
    print(f"\npackets were sent up to {p95(late_ms):.0f} ms late (p95): where that is much, delays are the machine's")


if __name__ == "__main__":
    main()
