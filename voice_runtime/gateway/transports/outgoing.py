"""What a stream that never stops sends: the agent's frames, silence between them, fades at every cut. Sans-IO."""

from collections import deque
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from voice_runtime.audio.pcm import to_pcm, to_samples
from voice_runtime.session.events import Played, ReplyText

FRAME_MS = 20
FRAME_S = 0.02
CLOCK_HZ = 48_000
FRAME_TICKS = CLOCK_HZ // 50
TICK = Fraction(1, CLOCK_HZ)
REMEMBERED = 500  # frames sent, 10 s: what a peer reports as played is younger
KEPT = 50  # frames sent, 1 s: hardly an ear is further behind
MOST_BEHIND_S = 0.2


@dataclass(slots=True)
class Pacer:
    """When each frame is due, on a monotonic clock: frame n at start + n * 20 ms, however late the ones before it were.

    After a stall of more than MOST_BEHIND_S the frames that are overdue are never sent: their time has passed.
    """

    start_s: float
    next_frame: int = 0

    def due_s(self, now_s: float) -> float:
        """Of the next frame."""
        behind = now_s - (self.start_s + self.next_frame * FRAME_S)
        if behind > MOST_BEHIND_S:
            self.next_frame += int(behind / FRAME_S)
        return self.start_s + self.next_frame * FRAME_S

    def take(self) -> int:
        """The next frame is sent; its number, from 0."""
        self.next_frame += 1
        return self.next_frame - 1


@dataclass(frozen=True, slots=True)
class _Sound:
    reply: str
    pcm: bytes


@dataclass(frozen=True, slots=True)
class _Sent:
    """ticks: where its frame begins in the stream. from_ms, to_ms: how much of the reply was sent before and after."""

    ticks: int
    reply: str
    from_ms: float
    to_ms: float


@dataclass(slots=True)
class Outgoing:
    """The queue before a stream of 16-bit mono at rate_hz.

    What fades out at a pause is not counted as sent: the reply goes on with it. With a peer that mutes itself at a
    pause it goes on with what that has not heard.
    """

    rate_hz: int
    _queue: deque[_Sound | ReplyText] = field(default_factory=deque)
    _fading: bytes = b""
    _is_paused: bool = False
    _is_rising: bool = False
    _reply: str = ""  # of the frame sent last
    _newest: str = ""  # of the frame appended last
    _sent_ms: float = 0.0
    _sent: deque[_Sent] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _kept: deque[tuple[float, _Sound]] = field(default_factory=lambda: deque(maxlen=KEPT))  # with its from_ms
    _heard_ms: float | None = None  # when the peer muted itself in this pause

    def append(self, reply: str, pcm: bytes) -> None:
        """A frame of at most 20 ms. One of a new reply ends a pause: of the reply that is paused no more will come."""
        if self._is_paused and reply != self._newest:
            its_own = [item for item in self._queue if item.reply == reply]  # captions come before their sound
            self.flush()
            self._queue.extend(its_own)
        self._newest = reply
        self._queue.append(_Sound(reply, pcm))

    def caption(self, words: ReplyText) -> None:
        """Words that begin in the next frame appended."""
        self._queue.append(words)

    def pause(self) -> None:
        if not self._is_paused:
            self._fade_out()
        self._is_paused = True

    def mute_from(self, ticks: float) -> Played | None:
        """The peer has heard the stream up to there, and of what was sent after it nothing: told before the resume.

        What that means for the reply, as of `played`.
        """
        heard = self.played(ticks)
        if not self._is_paused or not self._reply or (heard is None and len(self._sent) == REMEMBERED):
            return heard
        if heard is None or heard.reply != self._reply:  # it was muted before anything of it was heard
            heard = Played(self._reply, 0.0)
        self._heard_ms = heard.ms
        return heard

    def resume(self) -> None:
        if self._is_paused and self._heard_ms is not None:
            self._go_back(self._heard_ms)
        self._is_rising, self._is_paused, self._heard_ms = self._is_rising or self._is_paused, False, None

    def flush(self) -> list[ReplyText]:
        """Drop what is queued; the captions that were."""
        if not self._is_paused:
            self._fade_out()
        unheard = [item for item in self._queue if isinstance(item, ReplyText)]
        self._queue.clear()
        self._kept.clear()
        self._is_paused, self._is_rising, self._heard_ms = False, False, None
        return unheard

    def take(self, ticks: int) -> tuple[bytes, list[ReplyText]]:
        """The frame that begins at `ticks` of the stream, 20 ms of PCM, and the captions of words that begin in it."""
        captions: list[ReplyText] = []
        pcm, sent = self._fading, 0.0
        self._fading = b""
        if not pcm and not self._is_paused:
            captions = self.due_captions()
            pcm, sent = self._next_sound()
        self._sent.append(_Sent(ticks, self._reply, self._sent_ms, self._sent_ms + sent))
        self._sent_ms += sent
        return pcm.ljust(self.rate_hz * FRAME_MS // 1000 * 2, b"\0"), captions

    def due_captions(self) -> list[ReplyText]:
        """Those of words that begin in the next frame, or in none any more."""
        captions: list[ReplyText] = []
        while self._queue and isinstance(self._queue[0], ReplyText):
            captions.append(self._queue.popleft())  # type: ignore[arg-type]
        return captions

    def played(self, ticks: float) -> Played | None:
        """What is known of a reply when the stream has been heard up to `ticks`; None: nothing, or it is long ago."""
        for sent in reversed(self._sent):
            if sent.ticks <= ticks:
                share = min(1.0, (ticks - sent.ticks) / FRAME_TICKS)
                heard_ms = sent.from_ms + share * (sent.to_ms - sent.from_ms)
                return Played(sent.reply, heard_ms) if sent.reply else None
        return None

    def _next_sound(self) -> tuple[bytes, float]:
        if not self._queue:
            return b"", 0.0
        sound = self._queue.popleft()
        assert isinstance(sound, _Sound)
        if sound.reply != self._reply:
            self._reply, self._sent_ms = sound.reply, 0.0
            self._kept.clear()
        self._kept.append((self._sent_ms, sound))
        rising, self._is_rising = self._is_rising, False
        return _ramp(sound.pcm, 0, 1) if rising else sound.pcm, len(sound.pcm) * 500 / self.rate_hz

    def _go_back(self, heard_ms: float) -> None:
        """To the beginning of the frame in which that is: whatever was sent after it counts for nothing."""
        while self._kept and self._sent_ms > heard_ms:
            self._sent_ms, sound = self._kept.pop()
            self._queue.appendleft(sound)
        for at, sent in enumerate(self._sent):
            if sent.reply == self._reply and sent.to_ms > self._sent_ms:
                from_ms = min(sent.from_ms, self._sent_ms)
                self._sent[at] = replace(sent, from_ms=from_ms, to_ms=self._sent_ms)

    def _fade_out(self) -> None:
        following = next((item for item in self._queue if isinstance(item, _Sound)), None)
        if following is not None and not self._fading:
            self._fading = _ramp(following.pcm, 0 if self._is_rising else 1, 0)


def _ramp(pcm: bytes, begin: float, end: float) -> bytes:
    samples = to_samples(pcm)
    return to_pcm(samples * np.linspace(begin, end, samples.size, dtype=np.float32))
