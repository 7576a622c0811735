"""What a session takes from a client and gives to it, whatever the transport and the protocol."""

from dataclasses import dataclass
from typing import Any, Literal

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
class Digit:
    """The caller has pressed a key of the telephone."""

    digit: str


@dataclass(frozen=True, slots=True)
class TypedText:
    """A typed question."""

    text: str


@dataclass(frozen=True, slots=True)
class Configure:
    """Settings of this session alone. changes: fields of `SessionSettings` that a client may set, as JSON has them.

    timeline: whether the client wants each turn's `TurnTimeline`.
    """

    changes: dict[str, Any]
    timeline: bool | None = None


CallEvent = CallerAudio | Played | Interrupt | Digit | TypedText | Configure


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller speaks."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's turn is over."""


@dataclass(frozen=True, slots=True)
class TranscriptReady:
    """What was recognised of the caller's turn.

    is_final: False while the caller may go on; the next transcript replaces it.
    """

    text: str
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The audio that follows belongs to this reply."""

    reply: str


@dataclass(frozen=True, slots=True)
class ReplyText:
    """Words of the reply, right before the frame in which they begin."""

    reply: str
    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Fall silent at once, and keep what is buffered of this reply: somebody may be interrupting."""

    reply: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on from the sample of the pause: nobody was."""

    reply: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Drop what is buffered of this reply: none of its audio follows."""

    reply: str


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is over: played to its end, cut, or given up. heard: the words of it that were heard."""

    reply: str
    status: Literal["completed", "interrupted", "failed"]
    heard: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a reply's time went; sent before its ReplyDone when any of its sound was sent.

    ms: milliseconds by stage, in order, from the end of the caller's speech to the first audio; their sum is "total".
    tokens: the thinker's counts, once it has finished. underruns: how often the audio came later than it was due.
    models_ms: what the models computed for the first audio, after the end of the caller's speech and one after another;
        None when a stage has not told it, as one that had not finished when the reply was cut.
    """

    reply: str
    ms: dict[str, float]
    tokens: dict[str, float]
    underruns: int
    models_ms: float | None = None


@dataclass(frozen=True, slots=True)
class TurnTimeline:
    """What happened since the last one: (milliseconds since the session began, what, details), in order."""

    entries: list[tuple[float, str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Closing:
    """The agent has said goodbye; the session ends after this event."""

    reason: Literal["idle"]


@dataclass(frozen=True, slots=True)
class SessionError:
    """Something failed; the session goes on. code: one of README's error codes."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """One frame for the client. epoch: compare with the session's at the last hop."""

    epoch: int
    pcm: bytes


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | TranscriptReady
    | ReplyStarted
    | ReplyText
    | Pause
    | Resume
    | Flush
    | ReplyDone
    | Timing
    | TurnTimeline
    | Closing
    | SessionError
)
