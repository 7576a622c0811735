"""The JSON shapes that several carriers share, and reading them. Sans-IO."""

import msgspec

from voice_runtime.gateway.protocols.telephony import base, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose


class _Kind(msgspec.Struct):
    event: str = ""


class Format(msgspec.Struct):
    """Of a start, in snake_case."""

    encoding: str = ""
    sample_rate: Loose = None


class CamelFormat(msgspec.Struct, rename="camel"):
    """Of a start, in camelCase."""

    encoding: str = ""
    sample_rate: Loose = None


class _Media(msgspec.Struct):
    payload: str
    track: str = "inbound"
    chunk: Loose = None


class _MediaMessage(msgspec.Struct):
    media: _Media


class _Digit(msgspec.Struct):
    digit: Loose


class _DigitMessage(msgspec.Struct):
    dtmf: _Digit


class _Mark(msgspec.Struct):
    name: Loose


class _MarkMessage(msgspec.Struct):
    mark: _Mark


class _Stop(msgspec.Struct):
    reason: Loose = None


class _StopMessage(msgspec.Struct):
    stop: _Stop | None = None


_kind = msgspec.json.Decoder(_Kind)
_media = msgspec.json.Decoder(_MediaMessage)
_digit = msgspec.json.Decoder(_DigitMessage)
_mark = msgspec.json.Decoder(_MarkMessage)
_stop = msgspec.json.Decoder(_StopMessage)


def kind(text: str) -> str:
    """What `event` says; empty when there is none. Raises PeerError, as all here do: bad_message."""
    return wire.decode(text, _kind).event


def caller_sound(text: str) -> tuple[bytes, int | None]:
    """A media message's sound, empty when it is not the caller's, and its chunk's number if it has one."""
    media = wire.decode(text, _media).media
    data = wire.payload(media.payload)
    return b"" if media.track.startswith("outbound") else data, wire.number(media.chunk, "chunk")


def digit(text: str) -> base.Digit:
    return wire.digit(wire.decode(text, _digit).dtmf.digit)


def mark(text: str) -> base.MarkReached:
    return base.MarkReached(wire.text(wire.decode(text, _mark).mark.name))


def stop(text: str) -> base.Stopped:
    found = wire.decode(text, _stop).stop
    return base.Stopped("" if found is None else wire.text(found.reason))
