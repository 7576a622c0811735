"""jambonz's listen verb and FreeSWITCH's audio-streaming modules: binary PCM16LE, JSON for the rest. Sans-IO.

Source: docs.jambonz.org/verbs/verbs/listen with bidirectionalAudio.streaming; github.com/amigniter/mod_audio_stream.
Sound goes back at the rate at which it comes: bidirectionalAudio.sampleRate has to be the same as sampleRate.

Nothing here ends or transfers the call: closing the connection ends the verb (jambonz goes on to the next one) or the
stream (FreeSWITCH goes on as its dialplan or its controller says).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

AUDIO = base.AudioFormat("l16", 8_000, least_bytes=2, step_bytes=2)


class _Start(msgspec.Struct, rename="camel"):
    call_sid: Loose = None
    sample_rate: Loose = None
    mix_type: Loose = None


class _Mark(msgspec.Struct):
    name: Loose = None


class _MarkMessage(msgspec.Struct):
    data: _Mark


class _Key(msgspec.Struct):
    dtmf: Loose


_everything = msgspec.json.Decoder(dict[str, Any])
_start = msgspec.json.Decoder(_Start)
_mark = msgspec.json.Decoder(_MarkMessage)
_key = msgspec.json.Decoder(_Key)


class JambonzCodec:
    """One call. A mark that killAudio dropped is told as reached too."""

    name: ClassVar[str] = "jambonz"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        found = wire.fields(message)
        return "event" not in found and "callSid" in found and "sampleRate" in found

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        if isinstance(message, bytes):
            return self._call.let(self._call.heard(wire.sound(message)))
        return self._call.let(self._read(wire.as_text(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        match found := wire.decode(text, _everything):
            case {"event": "dtmf"}:
                yield wire.digit(wire.decode(text, _key).dtmf)
            case {"type": "mark"}:
                yield base.MarkReached(wire.text(wire.decode(text, _mark).data.name))
            case {"sampleRate": _} if "event" not in found and "type" not in found:
                yield _started(text, found)

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                return [*wire.pieces(data, self._call.begun().audio, wire.MOST_AUDIO_BYTES)]
            case base.Mark(name):
                return [wire.encode({"type": "mark", "data": {"name": name}})]
            case base.Clear():
                return ['{"type":"killAudio"}']
            case _:
                return []


class FreeSwitchCodec:
    """One call through mod_audio_stream and its like: jambonz's sound and killAudio, no marks.

    The first message is whatever text the stream was started with, or already sound: the call has then no id, and the
    rate is 8000 Hz if the text is no JSON that has a sampleRate.
    """

    name: ClassVar[str] = "freeswitch"
    abilities: ClassVar[base.Abilities] = base.Abilities(marks=False)

    def __init__(self) -> None:
        self._call = wire.Call()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        return isinstance(message, bytes)

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        if isinstance(message, str):
            return self._call.let(self._read(wire.as_text(message)))
        started = [] if self._call.is_on else self._call.let([base.Started("", "", AUDIO)])
        return started + self._call.let(self._call.heard(wire.sound(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        found = wire.fields(text)
        if not self._call.is_on:
            yield _started(text if found else "{}", found)
        elif found.get("event") == "dtmf":
            yield wire.digit(wire.decode(text, _key).dtmf)

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                return [*wire.pieces(data, self._call.begun().audio, wire.MOST_AUDIO_BYTES)]
            case base.Clear():
                return ['{"type":"killAudio"}']
            case _:
                return []


def _started(text: str, everything: Mapping[str, Any]) -> base.Started:
    start = wire.decode(text, _start)
    if start.mix_type not in (None, "mono", "mixed"):
        raise wire.refusal(f"mixType is {str(start.mix_type)[:20]!r}", "mono")
    audio = wire.audio_format("l16", start.sample_rate, AUDIO)
    call_id = wire.text(start.call_sid)
    return base.Started(call_id, call_id, audio, wire.parameters(everything, but=("callSid", "sampleRate", "mixType")))
