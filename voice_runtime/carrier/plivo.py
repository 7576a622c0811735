"""Plivo's side of a bidirectional audio stream. Sans-IO.

Source: plivo.com/docs/voice/audio-streaming/audio-streaming. A checkpoint is told as playedStream once its sound was
played, and never after a clearAudio, which is answered itself. No stop is documented: the connection is closed.
"""

import itertools
from typing import ClassVar

from voice_runtime.carrier import base, words


class PlivoSide:
    """One call: mu-law at 8 kHz, or 16-bit PCM at 16 kHz."""

    name: ClassVar[str] = "plivo"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        rate_hz = terms.rate_hz or 8_000
        self.audio = base.Format("mulaw" if rate_hz == 8_000 else "l16", rate_hz)
        self._type = "audio/x-mulaw" if rate_hz == 8_000 else "audio/x-l16"
        self._headers = ";".join(f"{name}={value}" for name, value in terms.parameters.items())
        self._stream, self._call = terms.stream_id, terms.call_id
        self._numbers = itertools.count()
        self._frames = 0

    def begin(self) -> list[base.Wire]:
        start = {
            "callId": self._call,
            "streamId": self._stream,
            "accountId": "MA0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": self._type, "sampleRate": self.audio.rate_hz},
        }
        return [self._message("start", start=start, extra_headers=self._headers)]

    def caller(self, data: bytes) -> list[base.Wire]:
        self._frames += 1
        at_ms = (self._frames - 1) * self.audio.frame_ms
        about = {"track": "inbound", "chunk": self._frames, "timestamp": str(at_ms)}
        media = {**about, "payload": words.base64_text(data)}
        return [self._message("media", streamId=self._stream, media=media, extra_headers=self._headers)]

    def key(self, digit: str) -> list[base.Wire]:
        dtmf = {"track": "inbound", "digit": digit, "timestamp": str(self._frames * self.audio.frame_ms)}
        return [self._message("dtmf", streamId=self._stream, dtmf=dtmf)]

    def stop(self) -> list[base.Wire]:
        return []

    def take(self, message: base.Wire) -> list[base.Asked]:
        found = words.fields(message)
        match found.get("event"):
            case "playAudio":
                if "streamId" in found:  # documented without, and sent with it by everybody
                    words.same(found, "streamId", self._stream)
                media = words.inner(found, "media")
                words.same(media, "contentType", self._type)
                words.same(media, "sampleRate", self.audio.rate_hz)
                return [base.Sound(self.audio.decode(words.payload(media)))]
            case "checkpoint":
                words.same(found, "streamId", self._stream)
                return [base.Place(words.string(found, "name"))]
            case "clearAudio":
                words.same(found, "streamId", self._stream)
                return [base.Drop()]
        raise words.unknown(found, "event", "playAudio, checkpoint or clearAudio")

    def tell(self, told: base.Told) -> list[base.Wire]:
        match told:
            case base.Reached(name, was_dropped=False):
                return [self._message("playedStream", streamId=self._stream, name=name)]
            case base.Dropped():
                return [self._message("clearedAudio", streamId=self._stream)]
        return []

    def _message(self, event: str, **more: object) -> str:
        return words.write({"event": event, "sequenceNumber": next(self._numbers), **more})
