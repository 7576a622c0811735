"""The protocol of /v1/pcm: PCM16LE in binary messages, events as JSON text. Sans-IO: owns no socket, clock or task."""

import dataclasses
from typing import Any, assert_never

import msgspec

from voice_runtime.audio.pcm import PcmReader
from voice_runtime.audio.resample import RATES_HZ
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


_decoder = msgspec.json.Decoder(_Played | _Interrupt | _Text | _Configure)
_encoder = msgspec.json.Encoder()


def rate(query: str | None, name: str, default: int) -> int:
    """A rate from the query string, in Hz.

    Raises:
        PeerError: bad_rate.
    """
    if query is None:
        return default
    if not query.isascii() or not query.isdigit() or len(query) > 6 or int(query) not in RATES_HZ:
        raise PeerError("bad_rate", f"{name} is {query[:20]!r}, expected one of {', '.join(map(str, RATES_HZ))}")
    return int(query)


class RawPcmCodec:
    """One connection's messages, both ways."""

    def __init__(self) -> None:
        self._reader = PcmReader()

    def receive_bytes(self, data: bytes) -> events.CallerAudio:
        """Audio of any length; an odd byte waits for the next message."""
        return events.CallerAudio(self._reader.push(data))

    def receive_text(self, text: str) -> events.CallEvent:
        """An event.

        Raises:
            PeerError: bad_event.
        """
        try:
            message = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise PeerError("bad_event", f"{error}; expected played, interrupt, text or configure") from None
        match message:
            case _Played(reply, ms):
                return events.Played(reply, ms)
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
