"""Twilio Media Streams, bidirectional: JSON text, mu-law at 8 kHz in base64. Sans-IO.

Source: twilio.com/docs/voice/media-streams/websocket-messages. Every number on the wire is a string.

Twilio has no message that ends the call: with <Connect><Stream>, closing the connection ends the stream and gives the
call back to the TwiML after it, which hangs up when there is no more. To hang up at once or to transfer is a request
to Twilio's REST API, which is not part of this protocol. Also spoken by SignalWire and other carriers.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, shapes, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

AUDIO = base.AudioFormat("mulaw", 8_000)


class _Start(msgspec.Struct, rename="camel"):
    stream_sid: Loose
    call_sid: Loose = None
    media_format: shapes.CamelFormat | None = None
    custom_parameters: dict[str, Any] | None = None


class _StartMessage(msgspec.Struct):
    start: _Start


_start = msgspec.json.Decoder(_StartMessage)


class TwilioCodec:
    """One call. After a Clear Twilio sends back the marks that it dropped too: cleared is not played."""

    name: ClassVar[str] = "twilio"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        found = wire.fields(message)
        start = found.get("start")
        return (found.get("event") == "connected" and "protocol" in found) or (
            found.get("event") == "start" and isinstance(start, dict) and "streamSid" in start
        )

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        return self._call.let(self._read(wire.as_text(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        match shapes.kind(text):
            case "start":
                yield _started(wire.decode(text, _start).start)
            case "media":
                yield from self._call.heard(shapes.caller_sound(text)[0])
            case "dtmf":
                yield shapes.digit(text)
            case "mark":
                yield shapes.mark(text)
            case "stop":
                yield shapes.stop(text)

    @property
    def _stream(self) -> str:
        return self._call.begun().stream_id

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data) if data:
                media = {"payload": wire.base64_text(data)}
                return [wire.encode({"event": "media", "streamSid": self._stream, "media": media})]
            case base.Mark(name):
                return [wire.encode({"event": "mark", "streamSid": self._stream, "mark": {"name": name}})]
            case base.Clear():
                return [wire.encode({"event": "clear", "streamSid": self._stream})]
            case _:
                return []


def _started(start: _Start) -> base.Started:
    found = start.media_format or shapes.CamelFormat()
    audio = wire.audio_format(found.encoding, found.sample_rate, AUDIO)
    ids = wire.text(start.call_sid), wire.text(start.stream_sid)
    return base.Started(*ids, audio, wire.parameters(start.custom_parameters))
