"""The playout ledger of one reply: words <-> samples <-> milliseconds heard. Sans-IO; the caller brings the time.

Whatever needs to know what was heard (history, captions, an interruption, a resumed reply, the wait before hanging up)
asks here.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

FRAME_MS = 20
GIVEN_MS = 1_200  # of what was given as played: more than it may be ahead, or a line goes back after a pause


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_sample: int


@dataclass(slots=True)
class Playout:
    """Releases a reply's audio in frames of 20 ms, in real time, and knows how much of it was heard.

    rate_hz: of the audio, 16-bit mono. lead_ms: most audio sent ahead of play-out.
    Evidence of what was heard comes through `reported`, whatever the line gives: a client's report, a mark, a clock of
    its own. Until it comes, what was sent is taken to be played in real time.
    """

    rate_hz: int
    lead_ms: int
    underruns: int = 0
    is_complete: bool = False  # no more audio will be appended
    is_held: bool = False
    _words: list[_Word] = field(default_factory=list)
    _pending: deque[bytes] = field(default_factory=deque)
    _appended: int = 0  # samples
    _sent: int = 0
    _played_base: float = 0.0  # milliseconds played at time _base_s, as far as is known
    _base_s: float | None = None
    _captioned: int = 0  # words
    _untaken: bytearray = field(default_factory=bytearray)  # sent and not yet given by `take_played`
    _taken: int = 0  # samples
    _given: bytearray = field(default_factory=bytearray)  # by `take_played`, the last of it

    def append(self, words: Iterable[tuple[str, int]], pcm: bytes) -> None:
        """A piece of the reply.

        words: text, and the sample of `pcm` at which it begins. pcm: 16-bit little-endian at `rate_hz`.
        """
        self._words += [_Word(text, self._appended + sample) for text, sample in words]
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
        self._untaken += frame
        return frame

    def wait_s(self, now_s: float) -> float:
        """Seconds until something may change (a frame is due, the end is played); inf when nothing is waited for."""
        if self.is_held:
            return float("inf")
        if self._pending:
            return max(0.0, (self.sent_ms + FRAME_MS - self.played_ms(now_s) - self.lead_ms) / 1000)
        if self.is_complete:
            return max(0.0, (self.sent_ms - self.played_ms(now_s)) / 1000)
        return float("inf")

    def take_caption(self, now_s: float) -> str:
        """The words that begin in the next frame, when it is due; each is given once."""
        if not self._pending or self.wait_s(now_s) > 0:
            return ""
        return self._captions(self._sent + len(self._pending[0]) // 2)

    def take_rest(self) -> str:
        """The words that `take_caption` has not given."""
        return self._captions(self._appended + 1)

    def _captions(self, until_sample: int) -> str:
        begun = bisect_left(self._words, until_sample, key=lambda word: word.start_sample)
        text = "".join(word.text for word in self._words[self._captioned : begun])
        self._captioned = max(self._captioned, begun)
        return text

    def hold(self, now_s: float) -> None:
        """The client has been told to pause: nothing more is sent or played."""
        self._played_base = self.played_ms(now_s)
        self.is_held = True

    def resume(self, now_s: float) -> None:
        """The client goes on from the sample at which it paused; nothing to a reply that is not held."""
        if self.is_held and self._base_s is not None:
            self._base_s = now_s
            self._give_again()
        self.is_held = False

    def reported(self, ms: float, now_s: float) -> None:
        """The client has played `ms`: better evidence than the clock. Clamped to what was sent."""
        if self._base_s is not None:
            self._played_base, self._base_s = min(max(ms, 0.0), self.sent_ms), now_s

    def played_ms(self, now_s: float) -> float:
        """Milliseconds of the reply that the client has played by now, at most what was sent."""
        if self._base_s is None:
            return 0.0
        if self.is_held:
            return self._played_base
        return min(self._played_base + (now_s - self._base_s) * 1000, self.sent_ms)

    def is_over(self, now_s: float) -> bool:
        """Everything was sent and played."""
        return self.is_complete and not self._pending and not self.is_held and self.played_ms(now_s) >= self.sent_ms

    @property
    def sent_ms(self) -> float:
        return self._sent * 1000 / self.rate_hz

    @property
    def appended_s(self) -> float:
        return self._appended / self.rate_hz

    @property
    def text(self) -> str:
        """All words so far, heard or not."""
        return "".join(word.text for word in self._words).strip()

    def heard_text(self, now_s: float) -> str:
        """The words heard so far: those of which more than half was played."""
        heard = self.played_ms(now_s) * self.rate_hz / 1000
        if not heard:  # not even a word that has no sound
            return ""
        begun = bisect_right(self._words, heard, key=lambda word: word.start_sample)
        if begun and not self._more_than_half(begun - 1, heard):
            begun -= 1
        return "".join(word.text for word in self._words[:begun]).strip()

    def take_played(self, now_s: float, ahead_ms: float = 0.0) -> bytes:
        """The sound that was played since the last call, by estimate; `ahead_ms` more when the estimate may be late."""
        until = int((self.played_ms(now_s) + ahead_ms) * self.rate_hz / 1000) if self._base_s is not None else 0
        count = 2 * min(max(0, until - self._taken), len(self._untaken) // 2)
        played = bytes(self._untaken[:count])
        del self._untaken[:count]
        self._taken += count // 2
        self._given += played
        del self._given[: -2 * self.rate_hz * GIVEN_MS // 1000]
        return played

    def _give_again(self) -> None:
        """What was given ahead of the time is played only now."""
        ahead = self._taken - int(self._played_base * self.rate_hz / 1000)
        kept = max(0, len(self._given) - 2 * max(0, ahead))
        self._taken -= (len(self._given) - kept) // 2
        self._untaken[:0] = self._given[kept:]
        del self._given[kept:]

    def _more_than_half(self, index: int, heard: float) -> bool:
        start = self._words[index].start_sample
        end = self._words[index + 1].start_sample if index + 1 < len(self._words) else self._appended
        return heard >= (start + end) / 2

    def _push(self, pcm: bytes) -> None:
        """Cut into frames; a short last frame is filled up by what follows."""
        size = self.rate_hz * FRAME_MS // 1000 * 2
        if self._pending and len(self._pending[-1]) < size:
            pcm = self._pending.pop() + pcm
        self._pending.extend(pcm[at : at + size] for at in range(0, len(pcm), size))
