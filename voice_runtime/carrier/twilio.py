"""Twilio's side of a bidirectional Media Stream. Sans-IO.

Source: twilio.com/docs/voice/media-streams/websocket-messages. Every number is a string, but for the media format.
After a clear the marks that waited come back too. Anything unknown is Twilio's error 31924.
"""

import itertools
from typing import ClassVar

from voice_runtime.carrier import base, words


class TwilioSide:
    """One call."""

    name: ClassVar[str] = "twilio"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("mulaw", 8_000)
        self._parameters = terms.parameters
        self._stream, self._call, self._account = "MZ" + terms.stream_id, "CA" + terms.call_id, "AC" + "0" * 32
        self._numbers = itertools.count(1)
        self._frames = 0

    def begin(self) -> list[base.Wire]:
        start = {
            "accountSid": self._account,
            "streamSid": self._stream,
            "callSid": self._call,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": self._parameters,
        }
        connected = words.write({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        return [connected, self._message("start", start=start)]

    def caller(self, data: bytes) -> list[base.Wire]:
        self._frames += 1
        at_ms = (self._frames - 1) * self.audio.frame_ms
        about = {"track": "inbound", "chunk": str(self._frames), "timestamp": str(at_ms)}
        return [self._message("media", media={**about, "payload": words.base64_text(data)})]

    def key(self, digit: str) -> list[base.Wire]:
        return [self._message("dtmf", dtmf={"track": "inbound_track", "digit": digit})]

    def stop(self) -> list[base.Wire]:
        return [self._message("stop", stop={"accountSid": self._account, "callSid": self._call})]

    def take(self, message: base.Wire) -> list[base.Asked]:
        found = words.fields(message)
        words.no_numbers(found)
        match found.get("event"):
            case "media":
                words.same(found, "streamSid", self._stream)
                return [base.Sound(self.audio.decode(words.payload(words.inner(found, "media"))))]
            case "mark":
                words.same(found, "streamSid", self._stream)
                return [base.Place(words.string(words.inner(found, "mark"), "name"))]
            case "clear":
                words.same(found, "streamSid", self._stream)
                return [base.Drop()]
        raise words.unknown(found, "event", "media, mark or clear (31924)")

    def tell(self, told: base.Told) -> list[base.Wire]:
        return [self._message("mark", mark={"name": told.name})] if isinstance(told, base.Reached) else []

    def _message(self, event: str, **more: object) -> str:
        about = {"event": event, "sequenceNumber": str(next(self._numbers)), "streamSid": self._stream}
        return words.write({**about, **more})
