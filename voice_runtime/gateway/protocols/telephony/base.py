"""What all telephony protocols have in common: the events of a call, the commands to it, and what a codec is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

Encoding = Literal["mulaw", "alaw", "l16"]  # l16: 16-bit little-endian
Wire = str | bytes  # a text or a binary message


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How sound travels, both ways alike, mono.

    least_bytes, step_bytes: of one message with sound to the carrier: at least so many, and a multiple of that.
    """

    encoding: Encoding = "mulaw"
    rate_hz: int = 8_000
    least_bytes: int = 1
    step_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a carrier can do with sound that it was sent.

    clear: drop what it has not played. marks: tell when it has come to a place. pause: stop, and go on from there.
    """

    clear: bool = True
    marks: bool = True
    pause: bool = False


# From the carrier


@dataclass(frozen=True, slots=True)
class Started:
    """The call is there; the first event of all.

    call_id, stream_id: the carrier's. parameters: what the call was connected with, by name.
    """

    call_id: str
    stream_id: str
    audio: AudioFormat
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Audio:
    """The caller's sound, in the call's encoding; in order, whatever the order on the wire."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """So much of the caller's sound never came, before the Audio that follows."""

    ms: float


@dataclass(frozen=True, slots=True)
class MarkReached:
    """The carrier has played everything before the mark; after a Clear it may mean that it was dropped."""

    name: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was queued has been dropped, where the carrier tells so."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A key: 0 to 9, *, #, A to D."""

    digit: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The carrier's queue is full (False: send nothing) or has room again (True)."""

    may_send: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The call is over, by the carrier or the caller."""

    reason: str = ""


CarrierEvent = Started | Audio | Lost | MarkReached | Cleared | Digit | Flow | Stopped


# To the carrier


@dataclass(frozen=True, slots=True)
class Play:
    """Sound in the call's encoding, as `AudioFormat` wants its size."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """Tell when everything before this was played."""

    name: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Drop what was not played."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop playing, and keep what is queued."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on after a Pause."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call; where a carrier has no message for it, the connection's end does it."""


Command = Play | Mark | Clear | Pause | Continue | HangUp


class CarrierCodec(Protocol):
    """One call's messages, both ways. Owns no socket, clock or task.

    name: in the path, /telephony/NAME.
    """

    name: ClassVar[str]
    abilities: ClassVar[Abilities]

    def __init__(self) -> None: ...

    @staticmethod
    def begins(message: Wire) -> bool:
        """Whether a call of this carrier may begin with this message; any message may be asked about."""

    def receive(self, message: Wire) -> list[CarrierEvent]:
        """What a message of the carrier says; nothing when it is one that says nothing to us, or an unknown one.

        Raises:
            PeerError: bad_message.
        """

    def send(self, command: Command) -> Sequence[Wire]:
        """The messages for a command; none when the carrier knows no such thing.

        Raises:
            PeerError: bad_message; the carrier has not told what they need (its stream's id).
        """
