"""The carrier's side of a call: what it tells the agent, what the agent asks of it, and what a protocol's side is.

Written a second time, from the carriers' documents: nothing here may import the gateway, which is the other side.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from voice_runtime.audio import g711, pcm
from voice_runtime.audio.pcm import Samples

Wire = str | bytes  # a text or a binary message
Encoding = Literal["mulaw", "alaw", "l16"]


class Violation(Exception):
    """A message of the agent that the carrier would not take; the text says found and expected."""


@dataclass(frozen=True, slots=True)
class Format:
    """How sound travels, both ways alike, mono. frame_ms: of the caller's sound in one message."""

    encoding: Encoding
    rate_hz: int
    frame_ms: int = 20

    @property
    def sample_bytes(self) -> int:
        return 2 if self.encoding == "l16" else 1

    @property
    def frame_samples(self) -> int:
        return self.rate_hz * self.frame_ms // 1_000

    @property
    def frame_bytes(self) -> int:
        return self.frame_samples * self.sample_bytes

    def encode(self, samples: Samples) -> bytes:
        """samples: float32, shape (T,)."""
        return pcm.to_pcm(samples) if self.encoding == "l16" else g711.encode(samples, self.encoding)

    def decode(self, data: bytes) -> Samples:
        """float32, shape (T,). Raises Violation: half a sample."""
        if len(data) % self.sample_bytes:
            raise Violation(f"sound has {len(data)} bytes, expected whole samples of {self.sample_bytes}")
        return pcm.to_samples(data) if self.encoding == "l16" else g711.decode(data, self.encoding)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a call is set up.

    parameters: what it is connected with, by name. rate_hz: of its sound; None: what the carrier uses by default.
    seed: with one, a carrier that promises no order sends media out of order.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    rate_hz: int | None = None
    seed: int | None = None
    call_id: str = field(default_factory=lambda: secrets.token_hex(16))
    stream_id: str = field(default_factory=lambda: secrets.token_hex(16))


# What the agent asks


@dataclass(frozen=True, slots=True)
class Sound:
    """Play this after what is queued. samples: float32, shape (T,), at the call's rate."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Place:
    """Tell when everything before this was played. name: what is told then, as the agent has written it."""

    name: object


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop what is queued."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Play nothing, and keep what is queued."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Play again."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A violation that the carrier gets over: what else the message asks for is done."""

    text: str


Asked = Sound | Place | Drop | Halt | GoOn | HangUp | Fault


# What the line tells


@dataclass(frozen=True, slots=True)
class Reached:
    """A place. was_dropped: what was before it was not played, or not all."""

    name: object
    was_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """The queue was emptied as asked."""


@dataclass(frozen=True, slots=True)
class Room:
    """The queue is nearly full (False: send nothing), or has room again (True)."""

    may_send: bool


Told = Reached | Dropped | Room


@dataclass(frozen=True, slots=True)
class Queue:
    """How much a carrier keeps, in messages of 20 ms. full, room: where it tells so; most: what it drops beyond."""

    full: int
    room: int
    most: int


class Side(Protocol):
    """One call's messages, on the carrier's side. Owns no socket, clock or task.

    queue: limits of the agent's sound that waits; None: none that the carrier documents.
    """

    name: ClassVar[str]
    queue: ClassVar[Queue | None]
    audio: Format

    def __init__(self, terms: Terms) -> None: ...

    def begin(self) -> Sequence[Wire]:
        """The messages that a call begins with."""

    def caller(self, data: bytes) -> Sequence[Wire]:
        """The caller's next frame."""

    def key(self, digit: str) -> Sequence[Wire]:
        """The caller has pressed a key."""

    def stop(self) -> Sequence[Wire]:
        """The caller has hung up; the connection is closed afterwards."""

    def take(self, message: Wire) -> Sequence[Asked]:
        """What a message of the agent asks. Raises Violation."""

    def tell(self, told: Told) -> Sequence[Wire]:
        """How the agent hears of it; nothing when this carrier does not tell."""
