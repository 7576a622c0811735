"""Vonage's side of a WebSocket endpoint of a call. Sans-IO.

Source: developer.vonage.com/en/voice/voice-api/concepts/websockets. Binary messages hold 20 ms of PCM16LE both ways;
at most 3,072 wait to be played. The NCCO's headers stand beside the first event. A notify's payload comes back when
what was sent before was played; after a clear only the clear is told. The leg is over when the connection is.
"""

from typing import ClassVar

from voice_runtime.carrier import base, words


class VonageSide:
    """One call, at 16 kHz by default."""

    name: ClassVar[str] = "vonage"
    queue: ClassVar[base.Queue | None] = base.Queue(full=3_072, room=3_072, most=3_072)

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("l16", terms.rate_hz or 16_000)
        self._headers = {"call_uuid": terms.call_id, **terms.parameters}

    def begin(self) -> list[base.Wire]:
        kind = f"audio/l16;rate={self.audio.rate_hz}"
        return [words.write({"event": "websocket:connected", "content-type": kind, **self._headers})]

    def caller(self, data: bytes) -> list[base.Wire]:
        return [data]

    def key(self, digit: str) -> list[base.Wire]:
        return [words.write({"event": "websocket:dtmf", "digit": digit, "duration": 260})]

    def stop(self) -> list[base.Wire]:
        return []

    def take(self, message: base.Wire) -> list[base.Asked]:
        if isinstance(message, bytes):
            sound = base.Sound(self.audio.decode(message))
            if len(message) != self.audio.frame_bytes:
                fault = f"sound has {len(message)} bytes, expected {self.audio.frame_bytes}, 20 ms"
                return [base.Fault(fault), sound]
            return [sound]
        found = words.fields(message)
        match found.get("action"):
            case "clear":
                return [base.Drop()]
            case "notify":
                return [base.Place(words.inner(found, "payload"))]
        raise words.unknown(found, "action", "clear or notify")

    def tell(self, told: base.Told) -> list[base.Wire]:
        match told:
            case base.Reached(payload, was_dropped=False):
                return [words.write({"event": "websocket:notify", "payload": payload})]
            case base.Dropped():
                return [words.write({"event": "websocket:cleared"})]
        return []
