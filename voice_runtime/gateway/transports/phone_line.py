"""A reply's way into a carrier's queue: pieces of the size it wants, marks, and what is sent again after a pause.

Sans-IO. The session's ledger says when a frame is sent, and so how far ahead; a carrier plays what it has in real time.
Its marks come back when it has come to them, or when a Clear has dropped them: then they tell nothing.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from voice_runtime.gateway.protocols.telephony.base import (
    Abilities,
    AudioFormat,
    Clear,
    Command,
    Continue,
    Mark,
    Pause,
    Play,
)
from voice_runtime.session.events import Played

QUIET_S = 0.06  # three frames: so long nothing came, what is left of a reply goes out though it is short,
LITTLE_MS = 100  # once the carrier has only so much left to play
KEPT_MS = 2_000  # of what was sent: more than any lead


@dataclass(frozen=True, slots=True)
class _Frame:
    from_ms: float
    pcm: bytes  # 16-bit at the call's rate


@dataclass(slots=True)
class _Messages:
    """16-bit PCM to messages of the size that the carrier takes."""

    audio: AudioFormat
    encode: Callable[[bytes], bytes]
    _short: bytes = b""  # encoded, and too little for one

    def add(self, pcm: bytes) -> list[Command]:
        """As much as makes a message; what is left waits."""
        data = self._short + self.encode(pcm)
        usable = len(data) - len(data) % self.audio.step_bytes
        if usable < self.audio.least_bytes:
            usable = 0
        self._short = data[usable:]
        return [Play(data[:usable])] if usable else []

    def rest(self) -> list[Command]:
        """What waits, filled up with silence."""
        data, self._short = self._short, b""
        if not data:
            return []
        size = max(self.audio.least_bytes, -(-len(data) // self.audio.step_bytes) * self.audio.step_bytes)
        return [Play(data + self.encode(bytes(2 * (size - len(data)) // self._sample_bytes)))]

    def clear(self) -> None:
        self._short = b""

    @property
    def short_ms(self) -> float:
        """What waits."""
        return len(self._short) * 1_000 / (self.audio.rate_hz * self._sample_bytes)

    @property
    def _sample_bytes(self) -> int:
        return 2 if self.audio.encoding == "l16" else 1


class PhoneLine:
    """The agent's side of one call.

    encode: 16-bit little-endian PCM at the call's rate to the call's encoding.
    """

    def __init__(self, audio: AudioFormat, abilities: Abilities, encode: Callable[[bytes], bytes]) -> None:
        self.audio = audio
        self.abilities = abilities
        self._messages = _Messages(audio, encode)
        self._reply = ""
        self._sent_ms = 0.0  # of the reply, by the ledger; what waits in _messages is among it
        self._kept: deque[_Frame] = deque()
        self._marked_ms = 0.0
        self._marks: dict[str, Played] = {}  # those that are not back yet
        self._numbers = 0
        self._last_s: float | None = None  # when the last frame came; None: everything is out
        self._is_open = True  # the carrier takes sound
        self._blocked: deque[Command] = deque()  # until it does again

    def begin(self, reply: str) -> list[Command]:
        """What follows belongs to this reply."""
        commands = self._messages.rest()
        self._reply, self._sent_ms, self._marked_ms = reply, 0.0, 0.0
        self._kept.clear()
        return self._allowed(commands)

    def word(self) -> list[Command]:
        """A word begins in the next frame: its place is marked, where the carrier has marks."""
        return self._allowed(self._mark())

    def frame(self, pcm: bytes, now_s: float) -> list[Command]:
        """The reply's next frame, 16-bit PCM at the call's rate."""
        self._kept.append(_Frame(self._sent_ms, pcm))
        self._sent_ms += len(pcm) * 500 / self.audio.rate_hz
        while self._kept and self._kept[0].from_ms < self._sent_ms - KEPT_MS:
            self._kept.popleft()
        self._last_s = now_s
        return self._allowed(self._messages.add(pcm))

    def wait_s(self, now_s: float, heard_ms: float) -> float:
        """Seconds until `quiet` has something to do. heard_ms: of the reply, by the ledger.

        A pause of the frames alone means little: a ledger that a mark has corrected makes one too. What is short is
        filled up only when the carrier has little else left to play.
        """
        if self._last_s is None:
            return float("inf")
        return max(0.0, self._last_s + QUIET_S - now_s, (self._out_ms - heard_ms - LITTLE_MS) / 1_000)

    def quiet(self) -> list[Command]:
        """Perhaps the reply is over: see `wait_s`. What is short goes out, filled up, and its end is marked."""
        self._last_s = None
        return self._allowed([*self._messages.rest(), *self._mark()])

    def pause(self) -> list[Command]:
        """Silence, as soon as the carrier can: by its pause, or by dropping what it has."""
        if self.abilities.pause:
            return [Pause()]
        return self._drop()

    def resume(self, heard_ms: float, now_s: float) -> list[Command]:
        """Go on where the pause was: what was dropped is sent again, the same samples.

        heard_ms: of the reply, by the ledger.
        """
        if self.abilities.pause:
            return [Continue()]
        if not self.abilities.clear:
            return []  # it played on: nothing was dropped
        self._last_s, self._marked_ms = now_s, heard_ms
        commands: list[Command] = []
        for frame in self._kept:
            skip = max(0, int((heard_ms - frame.from_ms) * self.audio.rate_hz / 1_000))
            if 2 * skip < len(frame.pcm):
                commands += self._messages.add(frame.pcm[2 * skip :])
        return self._allowed(commands)

    def flush(self, *, was_paused: bool) -> list[Command]:
        """Drop the reply. was_paused: the carrier still stands still."""
        commands = self._drop()
        self._kept.clear()
        if was_paused and self.abilities.pause:
            commands.append(Continue())
        return commands

    def reached(self, name: str) -> Played | None:
        """A mark is back: how much of which reply was heard; None when it was dropped with what it marked."""
        return self._marks.pop(name, None)

    @property
    def is_played(self) -> bool:
        """All marks are back: where there are marks, and after `quiet`, nothing is left to be heard."""
        return not self._marks

    def flow(self, *, may_send: bool) -> list[Command]:
        """The carrier's queue is full, or has room again: then what was kept back goes out."""
        self._is_open = may_send
        return self._allowed([])

    def _drop(self) -> list[Command]:
        self._messages.clear()
        self._last_s = None
        self._marks.clear()
        self._blocked.clear()
        self._is_open = True  # what was full is empty; no carrier tells so
        return [Clear()] if self.abilities.clear else []

    @property
    def _out_ms(self) -> float:
        """Of the reply, as much as has gone out."""
        return self._sent_ms - self._messages.short_ms

    def _mark(self) -> list[Command]:
        out_ms = self._out_ms
        if not self.abilities.marks or out_ms <= self._marked_ms:
            return []
        self._marked_ms = out_ms
        self._numbers += 1
        name = f"m{self._numbers}"
        self._marks[name] = Played(self._reply, out_ms)
        return [Mark(name)]

    def _allowed(self, commands: list[Command]) -> list[Command]:
        self._blocked.extend(commands)
        if not self._is_open:
            return []
        allowed = [*self._blocked]
        self._blocked.clear()
        return allowed
