"""What the caller hears: the agent's sound out of a queue in real time, on the clock alone. Sans-IO."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from voice_runtime.audio.pcm import Samples
from voice_runtime.carrier.base import Dropped, Place, Queue, Reached, Room, Told


@dataclass(frozen=True, slots=True)
class Heard:
    """Sound that came out. at_s: of its first sample. samples: float32, shape (T,)."""

    at_s: float
    samples: Samples


def sound(pieces: list[Heard], rate_hz: int, start_s: float, end_s: float) -> Samples:
    """What sounded between two times, silence included: float32, shape (T,)."""
    first = round(start_s * rate_hz)
    line = np.zeros(max(0, round(end_s * rate_hz) - first), np.float32)
    for piece in pieces:
        at = round(piece.at_s * rate_hz) - first
        samples = piece.samples[max(0, -at) : max(0, line.size - at)]
        line[max(0, at) :][: samples.size] = samples
    return line


@dataclass(slots=True)
class Earpiece:
    """The queue of a call. Time is told with every call of a method and never goes back.

    limits: of the queue, see `Queue`. frame_samples: of the 20 ms that these count.
    heard: all that came out, in order of time. most_ahead_s: the longest that the queue has been.
    lost_samples: that came when there was no room.
    """

    rate_hz: int
    limits: Queue | None = None
    heard: list[Heard] = field(default_factory=list)
    most_ahead_s: float = 0.0
    lost_samples: int = 0
    is_paused: bool = False
    _at: int = 0  # the clock in samples: up to here everything is decided
    _waiting: deque[Samples | Place] = field(default_factory=deque)
    _queued: int = 0  # samples that wait
    _is_full: bool = False

    def play(self, samples: Samples, now_s: float) -> list[Told]:
        told = self.advance(now_s)
        if self.limits is not None and self._queued >= self.limits.most * self._frame:
            self.lost_samples += samples.size
            return told
        if samples.size:
            self._waiting.append(samples)
        self._queued += samples.size
        self.most_ahead_s = max(self.most_ahead_s, self._queued / self.rate_hz)
        if self.limits is not None and not self._is_full and self._queued >= self.limits.full * self._frame:
            self._is_full = True
            told.append(Room(may_send=False))
        return told

    def place(self, place: Place, now_s: float) -> list[Told]:
        told = self.advance(now_s)
        self._waiting.append(place)
        return told + self.advance(now_s)

    def drop(self, now_s: float) -> list[Told]:
        """Empty the queue; a pause stays one."""
        told = self.advance(now_s)
        told += [Reached(item.name, was_dropped=True) for item in self._waiting if isinstance(item, Place)]
        self._waiting.clear()
        self._queued = 0
        return [*told, Dropped(), *self.advance(now_s)]

    def pause(self, now_s: float) -> list[Told]:
        told = self.advance(now_s)
        self.is_paused = True
        return told

    def go_on(self, now_s: float) -> list[Told]:
        told = self.advance(now_s)
        self.is_paused = False
        return told + self.advance(now_s)

    def advance(self, now_s: float) -> list[Told]:
        """Play up to now; what there is to tell of it."""
        until = max(self._at, round(now_s * self.rate_hz))
        told: list[Told] = []
        while self._waiting and not self.is_paused:
            first = self._waiting[0]
            if isinstance(first, Place):
                told.append(Reached(first.name))
                self._waiting.popleft()
            elif self._at < until:
                self._put_out(first, until)
            else:
                break
        self._at = until
        if self._is_full and self.limits is not None and not self.is_paused:
            self._is_full = self._queued >= self.limits.room * self._frame
            told += [] if self._is_full else [Room(may_send=True)]
        return told

    def _put_out(self, first: Samples, until: int) -> None:
        samples, rest = first[: until - self._at], first[until - self._at :]
        self._waiting.popleft()
        if rest.size:
            self._waiting.appendleft(rest)
        self.heard.append(Heard(self._at / self.rate_hz, samples))
        self._at += samples.size
        self._queued -= samples.size

    def wait_s(self) -> float:
        """Seconds from the last time told until there is something to tell; inf when only a message can bring it."""
        if self.is_paused:
            return float("inf")
        ahead = 0
        waits = [float("inf")]
        for item in self._waiting:
            if isinstance(item, Place):
                waits.append(ahead / self.rate_hz)
                break
            ahead += item.size
        if self._is_full and self.limits is not None:
            waits.append((self._queued - self.limits.room * self._frame + 1) / self.rate_hz)
        return min(waits)

    @property
    def queued_s(self) -> float:
        """Of sound that waits to be played."""
        return self._queued / self.rate_hz

    @property
    def is_speaking(self) -> bool:
        return self._queued > 0 and not self.is_paused

    @property
    def heard_s(self) -> float:
        """Of sound that came out, in all."""
        return sum(piece.samples.size for piece in self.heard) / self.rate_hz

    @property
    def silent_since_s(self) -> float:
        """When the last sample that came out was over; 0 when there was none."""
        return self.heard[-1].at_s + self.heard[-1].samples.size / self.rate_hz if self.heard else 0.0

    @property
    def _frame(self) -> int:
        return self.rate_hz // 50
