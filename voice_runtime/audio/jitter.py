"""A jitter buffer for a listener that is no loudspeaker: packets in any order in, a gapless stream out. Sans-IO.

A loudspeaker needs a frame every 20 ms, so a buffer before it delays every frame by the worst jitter. Recognition needs
none: what is in order goes out at once, and only what is missing is waited for, as long as the measured jitter makes it
worth while. So a loss costs its own wait, and leaves no delay behind.

Source: sequence numbers and their validity as RFC 3550, appendix A.1; timestamps of 48 kHz as RFC 7587, section 4.1.
"""

from collections import deque
from dataclasses import dataclass, field

CLOCK_HZ = 48_000
SHORTEST_WAIT_S = 0.04
LONGEST_WAIT_S = 0.12
JITTER_PACKETS = 250  # looked back at: 5 s
JITTER_SHARE = 0.98  # of packets that come within the wait
TRANSIT_S = 5.0  # the quickest way is measured over one to two such spans: clocks that drift are followed
MOST_HELD = 100  # packets: 2 s
LONGEST_GAP_S = 2.0  # of a longer one no more is filled in: the peer is away
RESTART_PACKETS = 500  # so far off the sequence that, twice in a row, it is a new one
PIECE = CLOCK_HZ // 50  # ticks of what is filled in at a time
GRAIN = CLOCK_HZ // 400  # what is filled in is a multiple of 2.5 ms, as Opus conceals


@dataclass(frozen=True, slots=True)
class Voice:
    """A packet, in its order."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """Sound that did not come in time. following: the packet right after it, which may hold its error correction."""

    ms: float
    following: bytes | None = None


@dataclass(slots=True)
class Counts:
    """Packets by what became of them; filled_ms: put in where sound was missing."""

    received: int = 0
    late: int = 0
    repeated: int = 0
    strange: int = 0
    lost: int = 0
    filled_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class _Packet:
    timestamp: int  # unwrapped
    payload: bytes
    length: int  # ticks


@dataclass(slots=True)
class JitterBuffer:
    """One RTP stream. The caller brings the time: seconds on a clock that only goes forward.

    After each `push`, and when `wait_s` is over, `pull` until it gives None.
    """

    counts: Counts = field(default_factory=Counts)
    _held: dict[int, _Packet] = field(default_factory=dict)  # by unwrapped sequence number
    _next: int | None = None  # the sequence number that is due
    _due: int = 0  # its timestamp, unwrapped
    _stretched: int = 0  # ticks filled in from there on, one piece at a time as each was given up
    _behind_s: float = 0.0  # how much later than the quickest the stream goes on, since it was stalled
    _ready: deque[Voice | Lost] = field(default_factory=deque)
    _after_strange: int | None = None  # the sequence number that would make a strange packet a new sequence
    _quickest: list[float] = field(default_factory=list)  # seconds, in this span and in the one before
    _span_end_s: float = 0.0
    _lateness: deque[float] = field(default_factory=lambda: deque(maxlen=JITTER_PACKETS))
    _depth_s: float = SHORTEST_WAIT_S

    @property
    def depth_ms(self) -> float:
        """How long a missing packet is waited for."""
        return self._depth_s * 1000

    def push(self, sequence: int, timestamp: int, payload: bytes, length_ms: float, now_s: float) -> None:
        """A packet has come.

        sequence: 16 bits; timestamp: 32 bits, of CLOCK_HZ; length_ms: of the sound in it.
        """
        self.counts.received += 1
        if self._next is None:
            self._begin(sequence, timestamp)
        number = self._number(sequence, timestamp)
        if number is None:
            self.counts.strange += 1
            return
        unwrapped = self._due + _signed(timestamp - self._due, 32)
        late_s = self._measure(now_s - unwrapped / CLOCK_HZ, now_s)
        if self._next is not None and number < self._next:
            self.counts.late += 1
        elif number in self._held:
            self.counts.repeated += 1
        else:
            self._held[number] = _Packet(unwrapped, payload, round(length_ms * CLOCK_HZ / 1000))
            if unwrapped < self._due + self._stretched:
                # Its place was filled. What follows is as late as it is, and is not to be filled once more.
                self._behind_s, self._stretched = late_s, 0

    def pull(self, now_s: float) -> Voice | Lost | None:
        """The next piece of the stream; None when none is due."""
        if not self._ready and self._next is not None:
            self._prepare(self._next, now_s)
        return self._ready.popleft() if self._ready else None

    def wait_s(self, now_s: float) -> float:
        """Seconds until `pull` gives something though no packet comes; inf before the first, and of a peer away."""
        return float("inf") if self._next is None else max(0.0, self._deadline_s() - now_s)

    def _prepare(self, due: int, now_s: float) -> None:
        first = min(self._held, default=None)
        if first == due:
            self._give(due, is_lost=False)
        elif first is not None and self._is_next_in_line(first, now_s):
            self._give(first, is_lost=True)
        elif now_s >= self._deadline_s():
            self._stretched += PIECE
            self._fill(PIECE, None)

    def _is_next_in_line(self, first: int, now_s: float) -> bool:
        """Nothing before the first packet held is waited for any more.

        Of several that are missing each has its own deadline: one that comes out of order behind a loss is not lost.
        """
        packet, missing = self._held[first], self._missing(self._held[first])
        is_last = missing <= packet.length
        return missing <= 0 or len(self._held) >= MOST_HELD or (is_last and now_s >= self._deadline_s())

    def _missing(self, packet: _Packet) -> int:
        """Ticks to be filled in before it."""
        return min(packet.timestamp - self._due, int(LONGEST_GAP_S * CLOCK_HZ)) - self._stretched

    def _give(self, number: int, *, is_lost: bool) -> None:
        """Fill up to the packet, and give it out. Without a loss there is a gap where a peer sent nothing on purpose.

        is_lost: the packets before it are given up.
        """
        assert self._next is not None
        packet = self._held.pop(number)
        self.counts.lost += number - self._next
        self._fill(self._missing(packet), packet.payload if is_lost else None)
        self._next, self._due, self._stretched = number + 1, packet.timestamp + packet.length, 0
        self._ready.append(Voice(packet.payload))

    def _fill(self, ticks: int, following: bytes | None) -> None:
        ticks -= ticks % GRAIN
        while ticks > 0:
            piece = min(PIECE, ticks)
            ticks -= piece
            self.counts.filled_ms += piece * 1000 / CLOCK_HZ
            self._ready.append(Lost(piece * 1000 / CLOCK_HZ, None if ticks else following))

    def _deadline_s(self) -> float:
        """When what is due is given up; never, while the peer is away."""
        if self._stretched >= LONGEST_GAP_S * CLOCK_HZ:
            return float("inf")
        return min(self._quickest) + self._behind_s + (self._due + self._stretched) / CLOCK_HZ + self._depth_s

    def _number(self, sequence: int, timestamp: int) -> int | None:
        """The packet's unwrapped sequence number; None when it is far from what is due, unless two in a row are."""
        assert self._next is not None
        number = self._next + _signed(sequence - self._next, 16)
        if abs(number - self._next) <= RESTART_PACKETS:
            self._after_strange = None
            return number
        if sequence == self._after_strange:
            self._begin(sequence, timestamp)
            return sequence
        self._after_strange = (sequence + 1) & 0xFFFF
        return None

    def _begin(self, sequence: int, timestamp: int) -> None:
        self._held.clear()
        self._quickest.clear()
        self._lateness.clear()
        self._next, self._due, self._stretched, self._after_strange = sequence, timestamp, 0, None
        self._behind_s = 0.0

    def _measure(self, transit_s: float, now_s: float) -> float:
        """Learn from a packet's way, which is known but for a constant: how late it comes after the quickest."""
        if not self._quickest or now_s >= self._span_end_s:
            self._quickest = [transit_s, *self._quickest[:1]]
            self._span_end_s = now_s + TRANSIT_S
        self._quickest[0] = min(self._quickest[0], transit_s)
        late_s = transit_s - min(self._quickest)
        self._behind_s = min(self._behind_s, late_s)
        self._lateness.append(late_s)
        latest = sorted(self._lateness)[int(JITTER_SHARE * len(self._lateness))]
        self._depth_s = min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, latest))
        return late_s


def _signed(difference: int, bits: int) -> int:
    """The difference of two numbers that wrap around, taken as the shorter way."""
    half = 1 << (bits - 1)
    return (difference + half) % (1 << bits) - half
