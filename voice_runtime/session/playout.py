"""The playout ledger of one reply: text, samples sent, milliseconds heard. Sans-IO; the caller brings the time."""

from collections import deque
from dataclasses import dataclass, field

FRAME_MS = 20


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    start_sample: int
    end_sample: int


@dataclass(slots=True)
class Playout:
    """Releases a reply's audio in frames of 20 ms, in real time, and knows how much of it was heard.

    reply: id of the reply. epoch: of the session when the reply began; a frame of an older epoch is never sent.
    rate_hz: of the audio, 16-bit mono. lead_ms: most audio sent ahead of play-out.
    """

    reply: str
    epoch: int
    rate_hz: int
    lead_ms: int
    underruns: int = 0
    is_complete: bool = False  # no more audio will be appended
    _clauses: list[_Clause] = field(default_factory=list)
    _pending: deque[bytes] = field(default_factory=deque)
    _appended: int = 0  # samples
    _sent: int = 0
    _played_base: float = 0.0  # milliseconds played at time _base_s, as far as is known
    _base_s: float | None = None

    def append(self, text: str, pcm: bytes) -> None:
        """A clause's sound, 16-bit little-endian at `rate_hz`."""
        start = self._appended
        self._appended += len(pcm) // 2
        self._clauses.append(_Clause(text, start, self._appended))
        self._push(pcm)

    def append_tail(self, pcm: bytes) -> None:
        """Sound that belongs to the clause before: what a resampler has held back."""
        self._appended += len(pcm) // 2
        self._push(pcm)

    def next_frame(self, now_s: float) -> bytes | None:
        """The next frame to send, or None when none is due: see `wait_s`."""
        if not self._pending or self.wait_s(now_s) > 0:
            return None
        if self._base_s is None or self.played_ms(now_s) >= self.sent_ms:
            self.underruns += self._base_s is not None
            self._played_base, self._base_s = self.sent_ms, now_s
        frame = self._pending.popleft()
        self._sent += len(frame) // 2
        return frame

    def wait_s(self, now_s: float) -> float:
        """Seconds until something may change (a frame is due, the end is played); inf when nothing is waited for."""
        if self._pending:
            return max(0.0, (self.sent_ms + FRAME_MS - self.played_ms(now_s) - self.lead_ms) / 1000)
        if self.is_complete:
            return max(0.0, (self.sent_ms - self.played_ms(now_s)) / 1000)
        return float("inf")

    def reported(self, ms: float, now_s: float) -> None:
        """The client has played `ms`: better evidence than the clock. Clamped to what was sent."""
        if self._base_s is not None:
            self._played_base, self._base_s = min(max(ms, 0.0), self.sent_ms), now_s

    def played_ms(self, now_s: float) -> float:
        """Milliseconds of the reply that the client has played by now, at most what was sent."""
        if self._base_s is None:
            return 0.0
        return min(self._played_base + (now_s - self._base_s) * 1000, self.sent_ms)

    def is_over(self, now_s: float) -> bool:
        """Everything was sent and played."""
        return self.is_complete and not self._pending and self.played_ms(now_s) >= self.sent_ms

    @property
    def sent_ms(self) -> float:
        return self._sent * 1000 / self.rate_hz

    @property
    def appended_s(self) -> float:
        return self._appended / self.rate_hz

    def heard_text(self, now_s: float) -> str:
        """The words heard so far: whole clauses, and of the last one as many words as its time allows."""
        heard = self.played_ms(now_s) * self.rate_hz / 1000
        if not heard:  # not even a clause that has no sound
            return ""
        parts = []
        for clause in self._clauses:
            if clause.end_sample <= heard:
                parts.append(clause.text)
            elif clause.start_sample < heard:
                words = clause.text.split()
                share = (heard - clause.start_sample) / (clause.end_sample - clause.start_sample)
                parts.append(" ".join(words[: int(share * len(words))]))
        return "".join(parts).strip()

    def _push(self, pcm: bytes) -> None:
        """Cut into frames; a short last frame is filled up by what follows."""
        size = self.rate_hz * FRAME_MS // 1000 * 2
        if self._pending and len(self._pending[-1]) < size:
            pcm = self._pending.pop() + pcm
        self._pending.extend(pcm[at : at + size] for at in range(0, len(pcm), size))
