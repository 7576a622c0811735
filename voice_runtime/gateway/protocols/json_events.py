"""The events of a session as JSON text, whatever carries them. Sans-IO."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, assert_never

import msgspec

from voice_runtime.errors import PeerError
from voice_runtime.session import events

MOST_TEXT_CHARACTERS = 2_000  # of a typed question


class _Played(msgspec.Struct, tag="played", forbid_unknown_fields=True):
    reply: str
    ms: float


class _Interrupt(msgspec.Struct, tag="interrupt", forbid_unknown_fields=True):
    pass


class _Text(msgspec.Struct, tag="text", forbid_unknown_fields=True):
    text: str


class _Configure(msgspec.Struct, tag="configure", forbid_unknown_fields=True, omit_defaults=True):
    """Fields as in `SessionSettings`, which checks their values; what is left out stays as it was."""

    instructions: str | None = None
    greeting: str | None = None
    idle_s: float | None = None
    idle_prompts: list[str] | None = None
    goodbye: str | None = None
    turn: dict[str, Any] | None = None
    timeline: bool | None = None

    def event(self) -> events.Configure:
        changes = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return events.Configure(changes, changes.pop("timeline", None))


class _Playout(msgspec.Struct, tag="playout", forbid_unknown_fields=True):
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    delay_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 0.0
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Playout:
    """What a client of an RTP stream tells of it.

    timestamp: RTP timestamp (32 bits) of the newest frame that left its jitter buffer; delay_ms: until that is heard.
    muted: the client was told to pause, and plays nothing of what comes after that; then delay_ms is of what it mutes.
    """

    timestamp: int
    delay_ms: float
    muted: bool = False


_decoder = msgspec.json.Decoder(_Played | _Playout | _Interrupt | _Text | _Configure)
_encoder = msgspec.json.Encoder()


def decode(text: str) -> events.CallEvent | Playout:
    """An event from the client.

    Raises:
        PeerError: bad_event.
    """
    try:
        message = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise PeerError("bad_event", f"{error}; expected played, playout, interrupt, text or configure") from None
    match message:
        case _Played(reply, ms):
            return events.Played(reply, ms)
        case _Playout(timestamp, delay_ms, muted):
            return Playout(timestamp, delay_ms, muted)
        case _Interrupt():
            return events.Interrupt()
        case _Text(typed):
            return _typed(typed)
        case _Configure():
            return message.event()
        case _:
            assert_never(message)


def _typed(text: str) -> events.TypedText:
    visible = any(character.isprintable() and not character.isspace() for character in text)
    if not visible or len(text) > MOST_TEXT_CHARACTERS:
        raise PeerError(
            "bad_event", f"text has {len(text)} characters, expected 1 to {MOST_TEXT_CHARACTERS} that can be seen"
        )
    return events.TypedText(text.strip())


def ready(session: str, input_rate: int, output_rate: int, resume: str, *, recorded: bool) -> str:
    """The first message to the client.

    resume: the token with which a later session goes on with this conversation. recorded: the session is kept on disk.
    """
    rates = {"input_rate": input_rate, "output_rate": output_rate}
    return _json({"type": "ready", "session": session, **rates, "resume": resume, "recorded": recorded})


_TYPES: dict[type[events.SessionEvent], str] = {
    events.SpeechStarted: "speech_started",
    events.SpeechStopped: "speech_stopped",
    events.TranscriptReady: "transcript",
    events.ReplyStarted: "reply_started",
    events.ReplyText: "reply_text",
    events.Pause: "pause",
    events.Resume: "resume",
    events.Flush: "flush",
    events.ReplyDone: "reply_done",
    events.Timing: "timing",
    events.TurnTimeline: "timeline",
    events.Closing: "closing",
    events.SessionError: "error",
}


def encode(event: events.SessionEvent) -> str:
    """An event for the client: its type, and its fields by their names."""
    message: dict[str, object] = {"type": _TYPES[type(event)], **dataclasses.asdict(event)}
    match event:
        case events.TranscriptReady():
            message["final"] = message.pop("is_final")
        case events.TurnTimeline(entries):
            message["entries"] = [{"ms": at_ms, "what": what, **details} for at_ms, what, details in entries]
    return _json(message)


def _json(message: dict[str, object]) -> str:
    return _encoder.encode(message).decode()
