"""Exotel's Voicebot applet: JSON text, PCM16LE in base64. Sans-IO.

Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet. Sound to Exotel is a multiple of 320 bytes, at
least 3,200 and at most 100,000 a message; what is missing to that is filled up with silence.

There is no message that ends or transfers the call: closing the connection goes on to the flow's next applet.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, shapes, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

AUDIO = base.AudioFormat("l16", 8_000, least_bytes=3_200, step_bytes=320)
MOST_BYTES = 100_000
BARE_ENCODINGS = ("base64", "raw", "pcm")  # Exotel's names for PCM16LE, or for how that is written


class _Start(msgspec.Struct):
    stream_sid: Loose = None
    call_sid: Loose = None
    media_format: shapes.Format | None = None
    custom_parameters: dict[str, Any] | None = None
    sender: Loose = msgspec.field(name="from", default=None)
    to: Loose = None


class _StartMessage(msgspec.Struct):
    start: _Start
    stream_sid: Loose = None


_start = msgspec.json.Decoder(_StartMessage)


class ExotelCodec:
    """One call."""

    name: ClassVar[str] = "exotel"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        found = wire.fields(message)
        start = found.get("start")
        match found.get("event"):
            case "connected":
                return "version" not in found and "protocol" not in found
            case "start":
                return "stream_sid" in found or (isinstance(start, dict) and "stream_sid" in start)
        return False

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
            case "mark":
                yield shapes.mark(text)
            case "stop":
                yield shapes.stop(text)

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                pieces = wire.pieces(data, self._call.begun().audio, MOST_BYTES)
                return [self._message("media", media={"payload": wire.base64_text(piece)}) for piece in pieces]
            case base.Mark(name):
                return [self._message("mark", mark={"name": name})]
            case base.Clear():
                return [self._message("clear")]
            case _:
                return []

    def _message(self, event: str, **more: object) -> str:
        return wire.encode({"event": event, "stream_sid": self._call.begun().stream_id, **more})


def _started(message: _StartMessage) -> base.Started:
    start, found = message.start, message.start.media_format or shapes.Format()
    encoding = "" if found.encoding.lower() in BARE_ENCODINGS else found.encoding
    audio = wire.audio_format(encoding, found.sample_rate, AUDIO)
    stream = start.stream_sid if message.stream_sid is None else message.stream_sid
    about = {"from": start.sender, "to": start.to}
    parameters = wire.parameters({**about, **(start.custom_parameters or {})})
    return base.Started(wire.text(start.call_sid), wire.text(stream), audio, parameters)
