"""Telnyx's side of bidirectional media streaming in mode rtp. Sans-IO.

Source: developers.telnyx.com/api-reference/websockets/stream-call-media-over-websocket. The order of media is not
promised: with a seed in the call's terms neighbours change places. Numbers of chunks come as strings. What the agent
sends holds 20 ms to 30 s of sound. After a clear the marks that waited come back too.
"""

import itertools
import random
from typing import ClassVar

from voice_runtime.carrier import base, words

SHARE_LATE = 0.2  # of the chunks, when they come out of order
LEAST_S, MOST_S = 0.02, 30.0


class TelnyxSide:
    """One call: PCMU at 8 kHz, or L16 at any other rate."""

    name: ClassVar[str] = "telnyx"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        rate_hz = terms.rate_hz or 8_000
        self.audio = base.Format("mulaw" if rate_hz == 8_000 else "l16", rate_hz)
        self._parameters = terms.parameters
        self._stream, self._call = terms.stream_id, "v3:" + terms.call_id
        self._numbers = itertools.count(1)
        self._frames = 0
        self._random = None if terms.seed is None else random.Random(terms.seed)
        self._late: list[base.Wire] = []

    def begin(self) -> list[base.Wire]:
        media_format = {
            "encoding": "PCMU" if self.audio.encoding == "mulaw" else "L16",
            "sample_rate": self.audio.rate_hz,
            "channels": 1,
        }
        start = {
            "user_id": "u",
            "call_control_id": self._call,
            "call_session_id": self._call,
            "from": "+15550100",
            "to": "+15550199",
            "client_state": "",
            "media_format": media_format,
            "custom_parameters": self._parameters,
        }
        return [words.write({"event": "connected", "version": "1.0.0"}), self._message("start", start=start)]

    def caller(self, data: bytes) -> list[base.Wire]:
        self._frames += 1
        at_ms = (self._frames - 1) * self.audio.frame_ms
        about = {"track": "inbound", "chunk": str(self._frames), "timestamp": str(at_ms)}
        message = self._message("media", media={**about, "payload": words.base64_text(data)})
        if self._random is not None and not self._late and self._random.random() < SHARE_LATE:
            self._late.append(message)
            return []
        late, self._late = self._late, []
        return [message, *late]

    def key(self, digit: str) -> list[base.Wire]:
        return [self._message("dtmf", dtmf={"digit": digit})]

    def stop(self) -> list[base.Wire]:
        return [*self._late, self._message("stop", stop={"user_id": "u", "call_control_id": self._call})]

    def take(self, message: base.Wire) -> list[base.Asked]:
        found = words.fields(message)
        match found.get("event"):
            case "media":
                return self._sound(words.payload(words.inner(found, "media")))
            case "mark":
                return [base.Place(words.string(words.inner(found, "mark"), "name"))]
            case "clear":
                return [base.Drop()]
        raise words.unknown(found, "event", "media, mark or clear")

    def _sound(self, data: bytes) -> list[base.Asked]:
        samples = self.audio.decode(data)
        length_s = samples.size / self.audio.rate_hz
        if length_s < LEAST_S or length_s > MOST_S:
            return [base.Fault(f"media has {length_s:.4g} s, expected 20 ms to 30 s"), base.Sound(samples)]
        return [base.Sound(samples)]

    def tell(self, told: base.Told) -> list[base.Wire]:
        return [self._message("mark", mark={"name": told.name})] if isinstance(told, base.Reached) else []

    def _message(self, event: str, **more: object) -> str:
        about = {"event": event, "sequence_number": str(next(self._numbers)), "stream_id": self._stream}
        return words.write({**about, **more})
