"""The sides of jambonz's listen verb and of FreeSWITCH's mod_audio_stream. Sans-IO.

Source: docs.jambonz.org/verbs/verbs/listen with bidirectionalAudio.streaming; github.com/amigniter/mod_audio_stream.
Binary messages of PCM16LE both ways; killAudio drops what waits. jambonz tells a mark as played or as cleared;
mod_audio_stream knows no marks and begins with whatever text it was started with, here the call's parameters; without
one it begins with sound.
"""

from typing import ClassVar

from voice_runtime.carrier import base, words


class JambonzSide:
    """One call, at 8 kHz by default."""

    name: ClassVar[str] = "jambonz"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("l16", terms.rate_hz or 8_000)
        self._call, self._parameters = terms.call_id, terms.parameters

    def begin(self) -> list[base.Wire]:
        about = {"callSid": self._call, "sampleRate": self.audio.rate_hz, "mixType": "mono", "direction": "inbound"}
        return [words.write({**self._parameters, **about})]

    def caller(self, data: bytes) -> list[base.Wire]:
        return [data]

    def key(self, digit: str) -> list[base.Wire]:
        return [words.write({"event": "dtmf", "dtmf": digit, "duration": "1600"})]

    def stop(self) -> list[base.Wire]:
        return []

    def take(self, message: base.Wire) -> list[base.Asked]:
        if isinstance(message, bytes):
            return [base.Sound(self.audio.decode(message))]
        found = words.fields(message)
        match found.get("type"):
            case "killAudio":
                return [base.Drop()]
            case "mark":
                return [base.Place(words.string(words.inner(found, "data"), "name"))]
            case "disconnect":
                return [base.HangUp()]
        raise words.unknown(found, "type", "killAudio, mark or disconnect")

    def tell(self, told: base.Told) -> list[base.Wire]:
        if not isinstance(told, base.Reached):
            return []
        event = "cleared" if told.was_dropped else "playout"
        return [words.write({"type": "mark", "data": {"name": told.name, "event": event}})]


class FreeSwitchSide:
    """One call, at 8 kHz by default."""

    name: ClassVar[str] = "freeswitch"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("l16", terms.rate_hz or 8_000)
        self._parameters = terms.parameters

    def begin(self) -> list[base.Wire]:
        if not self._parameters and self.audio.rate_hz == 8_000:
            return [bytes(self.audio.frame_bytes)]
        return [words.write({**self._parameters, "sampleRate": self.audio.rate_hz})]

    def caller(self, data: bytes) -> list[base.Wire]:
        return [data]

    def key(self, digit: str) -> list[base.Wire]:
        return [words.write({"event": "dtmf", "dtmf": digit})]

    def stop(self) -> list[base.Wire]:
        return []

    def take(self, message: base.Wire) -> list[base.Asked]:
        if isinstance(message, bytes):
            return [base.Sound(self.audio.decode(message))]
        found = words.fields(message)
        if found.get("type") == "killAudio":
            return [base.Drop()]
        raise words.unknown(found, "type", "killAudio")

    def tell(self, told: base.Told) -> list[base.Wire]:
        return []
