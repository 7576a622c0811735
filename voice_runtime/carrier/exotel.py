"""Exotel's side of its Voicebot applet. Sans-IO.

Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet. Base64 is of 16-bit PCM; the caller's comes every
100 ms, the agent's in messages of 3.2 to 100 kB, each a multiple of 320 bytes. After a clear the marks that waited come
back too.
"""

import itertools
from typing import ClassVar

from voice_runtime.carrier import base, words

LEAST_BYTES, MOST_BYTES, STEP_BYTES = 3_200, 100_000, 320


class ExotelSide:
    """One call, at 8 kHz by default."""

    name: ClassVar[str] = "exotel"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("l16", terms.rate_hz or 8_000, frame_ms=100)
        self._parameters = terms.parameters
        self._stream, self._call = terms.stream_id, terms.call_id
        self._numbers = itertools.count(1)
        self._frames = 0

    def begin(self) -> list[base.Wire]:
        kbps = self.audio.rate_hz * 16 // 1_000
        start = {
            "stream_sid": self._stream,
            "call_sid": self._call,
            "account_sid": "acct",
            "from": "09900000000",
            "to": "08000000000",
            "custom_parameters": self._parameters,
            "media_format": {
                "encoding": "base64",
                "sample_rate": str(self.audio.rate_hz),
                "bit_rate": f"{kbps}kbps",
            },
        }
        return [words.write({"event": "connected"}), self._message("start", start=start)]

    def caller(self, data: bytes) -> list[base.Wire]:
        self._frames += 1
        at_ms = (self._frames - 1) * self.audio.frame_ms
        media = {"chunk": self._frames, "timestamp": str(at_ms), "payload": words.base64_text(data)}
        return [self._message("media", media=media)]

    def key(self, digit: str) -> list[base.Wire]:
        return [self._message("dtmf", dtmf={"digit": digit, "duration": "120"})]

    def stop(self) -> list[base.Wire]:
        stop = {"call_sid": self._call, "account_sid": "acct", "reason": "callended"}
        return [self._message("stop", stop=stop)]

    def take(self, message: base.Wire) -> list[base.Asked]:
        found = words.fields(message)
        if found.get("event") not in ("media", "mark", "clear"):
            raise words.unknown(found, "event", "media, mark or clear")
        words.same(found, "stream_sid", self._stream)
        match found["event"]:
            case "media":
                return self._sound(words.payload(words.inner(found, "media")))
            case "mark":
                return [base.Place(words.string(words.inner(found, "mark"), "name"))]
        return [base.Drop()]

    def _sound(self, data: bytes) -> list[base.Asked]:
        sound = base.Sound(self.audio.decode(data))
        if not LEAST_BYTES <= len(data) <= MOST_BYTES or len(data) % STEP_BYTES:
            expected = f"{LEAST_BYTES} to {MOST_BYTES}, a multiple of {STEP_BYTES}"
            return [base.Fault(f"media has {len(data)} bytes, expected {expected}"), sound]
        return [sound]

    def tell(self, told: base.Told) -> list[base.Wire]:
        return [self._message("mark", mark={"name": told.name})] if isinstance(told, base.Reached) else []

    def _message(self, event: str, **more: object) -> str:
        about = {"event": event, "sequence_number": str(next(self._numbers)), "stream_sid": self._stream}
        return words.write({**about, **more})
