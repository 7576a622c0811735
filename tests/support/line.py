"""A line on which RTP packets come when a test says so, into a jitter buffer under a clock of its own."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from voice_runtime.audio.jitter import CLOCK_HZ, MOST_HELD, JitterBuffer, Lost, Voice

START_S = 5_000.0  # as large as a real monotonic clock
FRAME_MS = 20
FIRST_SEQUENCE, FIRST_TIMESTAMP = 65_530, 2**32 - 3_000  # both wrap around within the first packets


@dataclass
class Line:
    """Packets come on it, and what is due is pulled at once. Times are ms since the first packet was sent.

    With every step it checks that `wait_s` is right: before it is over nothing comes, and then something does.
    """

    packet_ms: int = FRAME_MS
    sequence: int = FIRST_SEQUENCE
    timestamp: int = FIRST_TIMESTAMP
    buffer: JitterBuffer = field(default_factory=JitterBuffer)
    now_s: float = START_S
    out: list[tuple[float, Voice | Lost]] = field(default_factory=list)

    def come(self, number: int, at_ms: float, shift_ms: float = 0) -> None:
        """Packet `number`. shift_ms: of its timestamp, against its number."""
        self.run_until(at_ms)
        self.push(number, shift_ms)
        self.pull()

    def push(self, number: int, shift_ms: float = 0) -> None:
        timestamp = self.timestamp + round((number * self.packet_ms + shift_ms) * CLOCK_HZ / 1000)
        sequence = (self.sequence + number) & 0xFFFF
        self.buffer.push(sequence, timestamp & 0xFFFFFFFF, number.to_bytes(4), self.packet_ms, self.now_s)

    def come_in_order(self, numbers: Iterable[int], late_ms: float = 0, shift_ms: float = 0) -> None:
        for number in numbers:
            self.come(number, number * self.packet_ms + late_ms, shift_ms)

    def run_until(self, at_ms: float) -> None:
        until_s = START_S + at_ms / 1000
        while (wait_s := self.buffer.wait_s(self.now_s)) <= until_s - self.now_s:
            assert wait_s == 0 or self.buffer.pull(self.now_s + wait_s / 2) is None
            self.now_s += wait_s
            assert self.pull() > 0
        self.now_s = max(self.now_s, until_s)

    def pull(self) -> int:
        """How many pieces were due."""
        before = len(self.out)
        while (piece := self.buffer.pull(self.now_s)) is not None:
            self.out.append((self.ms, piece))
        assert len(self.buffer._held) <= MOST_HELD
        return len(self.out) - before

    @property
    def ms(self) -> float:
        return (self.now_s - START_S) * 1000

    @property
    def voices(self) -> list[int]:
        return [number for _, number in self.timed_voices]

    @property
    def timed_voices(self) -> list[tuple[float, int]]:
        """When, and which packet."""
        return [(round(at, 3), int.from_bytes(piece.payload)) for at, piece in self.out if isinstance(piece, Voice)]

    @property
    def losses(self) -> list[tuple[float, float, int | None]]:
        """When, how many ms, and the number of the packet that may have the error correction."""
        return [
            (round(at, 3), piece.ms, None if piece.following is None else int.from_bytes(piece.following))
            for at, piece in self.out
            if isinstance(piece, Lost)
        ]

    @property
    def filled_ms(self) -> float:
        filled_ms = sum(ms for _, ms, _ in self.losses)
        assert filled_ms == self.buffer.counts.filled_ms
        return filled_ms

    @property
    def length_ms(self) -> float:
        return len(self.voices) * self.packet_ms + self.filled_ms
