"""Vonage Voice API, a WebSocket endpoint of an NCCO: binary messages of PCM16LE, JSON text for the rest. Sans-IO.

Source: developer.vonage.com/en/voice/voice-api/concepts/websockets. Sound goes out in messages of 20 ms, as it comes;
Vonage keeps 3,072 of them. Marks are its notify action: the payload comes back when what was sent before is played.

Vonage names no call on the wire: the NCCO's headers, which come beside the first event, do if it puts one there. It
tells no stop and takes none: the leg is over when the connection is. To transfer is a request to its REST API.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, shapes, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

FRAMES_PER_S = 50
MARK = "mark"  # the field of a notify's payload that holds the mark's name
CALL_IDS = ("call_uuid", "uuid", "call_id", "conversation_uuid")  # headers that an NCCO may name the call by


class _Connected(msgspec.Struct, rename="kebab"):
    content_type: str = "audio/l16;rate=16000"


class _Digit(msgspec.Struct):
    digit: Loose = None


class _Dtmf(msgspec.Struct):
    digit: Loose = None
    dtmf: _Digit | Loose = None


class _Notify(msgspec.Struct):
    payload: Any = None


_connected = msgspec.json.Decoder(_Connected)
_headers = msgspec.json.Decoder(dict[str, Any])
_dtmf = msgspec.json.Decoder(_Dtmf)
_notify = msgspec.json.Decoder(_Notify)


class VonageCodec:
    """One call."""

    name: ClassVar[str] = "vonage"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        return wire.fields(message).get("event") == "websocket:connected"

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        if isinstance(message, bytes):
            return self._call.let(self._call.heard(wire.sound(message)))
        return self._call.let(self._read(wire.as_text(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        match shapes.kind(text):
            case "websocket:connected":
                yield _started(text)
            case "websocket:dtmf":
                found = wire.decode(text, _dtmf)
                inner = found.dtmf.digit if isinstance(found.dtmf, _Digit) else found.dtmf
                yield wire.digit(inner if found.digit is None else found.digit)
            case "websocket:notify":
                payload = wire.decode(text, _notify).payload
                if isinstance(payload, dict) and isinstance(payload.get(MARK), str):
                    yield base.MarkReached(wire.text(payload[MARK]))
            case "websocket:cleared":
                yield base.Cleared()

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                audio = self._call.begun().audio
                return [*wire.pieces(data, audio, audio.step_bytes)]
            case base.Mark(name):
                return [wire.encode({"action": "notify", "payload": {MARK: name}})]
            case base.Clear():
                return ['{"action":"clear"}']
            case _:
                return []


def _started(text: str) -> base.Started:
    content_type = wire.decode(text, _connected).content_type
    found = re.fullmatch(r"([^;]*)(?:;\s*rate=([^;]*))?", content_type)
    encoding, rate_hz = found.groups() if found else (content_type, None)
    audio = wire.audio_format(encoding, rate_hz, base.AudioFormat("l16", 16_000))
    if audio.encoding != "l16":
        raise wire.refusal(f"content-type is {content_type[:60]!r}", "audio/l16;rate=16000")
    frame_bytes = 2 * audio.rate_hz // FRAMES_PER_S
    parameters = wire.parameters(wire.decode(text, _headers), but=("event", "content-type"))
    call_id = next((parameters[name] for name in CALL_IDS if name in parameters), "")
    audio = base.AudioFormat("l16", audio.rate_hz, frame_bytes, frame_bytes)
    return base.Started(wire.text(call_id), "", audio, parameters)
