"""Plivo audio streams, bidirectional: JSON text, mu-law or L16 in base64. Sans-IO.

Source: plivo.com/docs/voice/audio-streaming/audio-streaming (Stream Event Protocol). Documents no stop: the call is
over when the connection is; a stop that comes all the same is understood. What was cleared is never told as played.

There is no message that ends or transfers the call: closing the connection gives it back to the XML after the
<Stream>, and with keepCallAlive it ends when there is none. Also spoken by Vobiz.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, shapes, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

AUDIO = base.AudioFormat("mulaw", 8_000)
CONTENT_TYPES = {"mulaw": "audio/x-mulaw", "alaw": "audio/x-alaw", "l16": "audio/x-l16"}


class _Start(msgspec.Struct, rename="camel"):
    stream_id: Loose
    call_id: Loose = None
    media_format: shapes.CamelFormat | None = None


class _StartMessage(msgspec.Struct):
    start: _Start
    extra_headers: str | dict[str, Any] | None = None


class _PlayedMessage(msgspec.Struct):
    name: Loose


_start = msgspec.json.Decoder(_StartMessage)
_played = msgspec.json.Decoder(_PlayedMessage)


class PlivoCodec:
    """One call."""

    name: ClassVar[str] = "plivo"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        found = wire.fields(message)
        start = found.get("start")
        return found.get("event") == "start" and isinstance(start, dict) and "streamId" in start

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        return self._call.let(self._read(wire.as_text(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        match shapes.kind(text):
            case "start":
                yield _started(wire.decode(text, _start))
            case "media":
                yield from self._call.heard(shapes.caller_sound(text)[0])
            case "dtmf":
                yield shapes.digit(text)
            case "playedStream":
                yield base.MarkReached(wire.text(wire.decode(text, _played).name))
            case "clearedAudio":
                yield base.Cleared()
            case "stop":
                yield shapes.stop(text)

    @property
    def _stream(self) -> str:
        return self._call.begun().stream_id

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data) if data:
                start = self._call.begun()
                about = {"contentType": CONTENT_TYPES[start.audio.encoding], "sampleRate": start.audio.rate_hz}
                media = {**about, "payload": wire.base64_text(data)}
                return [wire.encode({"event": "playAudio", "streamId": start.stream_id, "media": media})]
            case base.Mark(name):
                return [wire.encode({"event": "checkpoint", "streamId": self._stream, "name": name})]
            case base.Clear():
                return [wire.encode({"event": "clearAudio", "streamId": self._stream})]
            case _:
                return []


def _started(message: _StartMessage) -> base.Started:
    start, found = message.start, message.start.media_format or shapes.CamelFormat()
    audio = wire.audio_format(found.encoding, found.sample_rate, AUDIO)
    headers = message.extra_headers
    if isinstance(headers, str):  # "a=1;b=2", or with commas
        headers = dict(pair.split("=", 1) for pair in re.split("[;,]", headers.strip("{} ")) if "=" in pair)
    return base.Started(wire.text(start.call_id), wire.text(start.stream_id), audio, wire.parameters(headers))
