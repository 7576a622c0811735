"""What a session takes from a client and gives to it, whatever the transport and the protocol."""

from dataclasses import dataclass
from typing import Literal

from voice_runtime.audio.pcm import Samples


@dataclass(frozen=True, slots=True)
class CallerAudio:
    """samples: float32, shape (T,), at the session's input rate."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Played:
    """The client has played the first `ms` milliseconds of a reply."""

    reply: str
    ms: float


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The caller wants silence, without having to speak."""


@dataclass(frozen=True, slots=True)
class TypedText:
    """A typed question."""

    text: str


CallEvent = CallerAudio | Played | Interrupt | TypedText


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller speaks."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's turn is over."""


@dataclass(frozen=True, slots=True)
class TranscriptReady:
    """What was recognised of the caller's turn."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The audio that follows belongs to this reply."""

    reply: str


@dataclass(frozen=True, slots=True)
class ReplyText:
    """A clause of the reply, sent before its sound."""

    reply: str
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Drop what is buffered of this reply: none of its audio follows."""

    reply: str


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is over: played to its end, cut, or given up."""

    reply: str
    status: Literal["completed", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a reply's time went; sent before its ReplyDone when any of its sound was sent.

    ms: milliseconds by stage, in order, from the end of the caller's speech to the first audio; their sum is "total".
    tokens: the thinker's counts, once it has finished. underruns: how often the audio came later than it was due.
    """

    reply: str
    ms: dict[str, float]
    tokens: dict[str, float]
    underruns: int


@dataclass(frozen=True, slots=True)
class SessionError:
    """Something failed; the session goes on. code: one of README's error codes."""

    code: str
    message: str


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | TranscriptReady
    | ReplyStarted
    | ReplyText
    | Flush
    | ReplyDone
    | Timing
    | SessionError
)
