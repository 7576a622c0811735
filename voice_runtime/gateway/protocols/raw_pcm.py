"""The protocol of /v1/pcm: PCM16LE in binary messages, events as JSON text. Sans-IO: owns no socket, clock or task."""

from typing import assert_never

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


_decoder = msgspec.json.Decoder(_Played | _Interrupt | _Text)
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
            raise PeerError("bad_event", f"{error}; expected played, interrupt or text") from None
        match message:
            case _Played(reply, ms):
                return events.Played(reply, ms)
            case _Interrupt():
                return events.Interrupt()
            case _Text(typed):
                return _typed(typed)
            case _:
                assert_never(message)


def _typed(text: str) -> events.TypedText:
    visible = any(character.isprintable() and not character.isspace() for character in text)
    if not visible or len(text) > MOST_TEXT_CHARACTERS:
        raise PeerError(
            "bad_event", f"text has {len(text)} characters, expected 1 to {MOST_TEXT_CHARACTERS} that can be seen"
        )
    return events.TypedText(text.strip())


def ready(session: str, input_rate: int, output_rate: int) -> str:
    """The first message to the client."""
    return _json({"type": "ready", "session": session, "input_rate": input_rate, "output_rate": output_rate})


def encode(event: events.SessionEvent) -> str:
    """An event for the client."""
    match event:
        case events.SpeechStarted():
            return _json({"type": "speech_started"})
        case events.SpeechStopped():
            return _json({"type": "speech_stopped"})
        case events.TranscriptReady(text):
            return _json({"type": "transcript", "text": text, "final": True})
        case events.ReplyStarted(reply):
            return _json({"type": "reply_started", "reply": reply})
        case events.ReplyText(reply, text):
            return _json({"type": "reply_text", "reply": reply, "text": text})
        case events.Flush(reply):
            return _json({"type": "flush", "reply": reply})
        case events.ReplyDone(reply, status):
            return _json({"type": "reply_done", "reply": reply, "status": status})
        case events.Timing(reply, ms, tokens, underruns):
            return _json({"type": "timing", "reply": reply, "ms": ms, "tokens": tokens, "underruns": underruns})
        case events.SessionError(code, message):
            return _json({"type": "error", "code": code, "message": message})
        case _:
            assert_never(event)


def _json(message: dict[str, object]) -> str:
    return _encoder.encode(message).decode()
