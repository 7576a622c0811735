"""What the carriers' messages have in common on the wire: lenient JSON, base64, sizes. Sans-IO.

Lenient: unknown fields and events are passed over, and a number may come as a string or a string as a number.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols.telephony.base import (
    Audio,
    AudioFormat,
    CarrierEvent,
    Digit,
    Encoding,
    Started,
    Stopped,
    Wire,
)

MOST_AUDIO_BYTES = 96_000  # of one message: one second of the finest format
MOST_TEXT_CHARACTERS = 200_000  # of one message; above what that takes in base64
MOST_PARAMETERS_CHARACTERS = 16_000  # kept for as long as the call is
MOST_NAME_CHARACTERS = 1_000  # of an id or a mark

T = TypeVar("T")
Loose = str | int | float | None  # a string or a number, as a carrier may write either

ENCODINGS: dict[str, Encoding] = {
    "audio/x-mulaw": "mulaw",
    "mulaw": "mulaw",
    "ulaw": "mulaw",
    "pcmu": "mulaw",
    "audio/x-alaw": "alaw",
    "alaw": "alaw",
    "pcma": "alaw",
    "audio/x-l16": "l16",
    "audio/l16": "l16",
    "l16": "l16",
    "slin": "l16",
    "raw/slin": "l16",
}
SILENCE: dict[Encoding, bytes] = {"mulaw": b"\xff", "alaw": b"\xd5", "l16": b"\0"}

_encoder = msgspec.json.Encoder()
_anything = msgspec.json.Decoder()


def refusal(found: str, expected: str) -> PeerError:
    return PeerError("bad_message", f"{found}, expected {expected}")


# Messages of the carrier


def as_text(message: Wire) -> str:
    """A message that has to be text, of a size that is served.

    Raises:
        PeerError: bad_message.
    """
    if isinstance(message, bytes):
        raise refusal(f"a binary message of {len(message)} bytes", "text")
    if len(message) > MOST_TEXT_CHARACTERS:
        raise refusal(f"message has {len(message)} characters", f"at most {MOST_TEXT_CHARACTERS}")
    return message


def decode(text: str, decoder: "msgspec.json.Decoder[T]") -> T:
    """JSON of a known shape.

    Raises:
        PeerError: bad_message.
    """
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as error:
        raise refusal(str(error)[:200], "JSON as the carrier documents it") from None


def fields(message: Wire) -> Mapping[str, Any]:
    """The fields of a JSON object; none of anything else. To look at, never an error."""
    try:
        found = decode(as_text(message), _anything)
    except PeerError:
        return {}
    return found if isinstance(found, dict) else {}


def text(found: Loose) -> str:
    """An id or a name; empty when there is none.

    Raises:
        PeerError: bad_message.
    """
    if isinstance(found, int) and abs(found) >= 10**18:
        raise refusal("a name is a number", "at most 18 digits")
    name = "" if found is None else str(found)
    if len(name) > MOST_NAME_CHARACTERS:
        raise refusal(f"a name has {len(name)} characters", f"at most {MOST_NAME_CHARACTERS}")
    return name


def number(found: Loose, what: str) -> int | None:
    """A count of at most 15 digits; None when there is none.

    Raises:
        PeerError: bad_message.
    """
    if found is None or found == "":
        return None
    if isinstance(found, float):
        found = f"{found:.0f}" if found.is_integer() and found >= 0 else str(found)
    digits = str(found) if isinstance(found, str) or abs(found) < 10**15 else "beyond 15 digits"
    if len(digits) > 15 or not digits.isascii() or not digits.isdigit():
        raise refusal(f"{what} is {digits[:20]!r}", "a number of at most 15 digits")
    return int(digits)


def payload(found: str) -> bytes:
    """Sound in base64.

    Raises:
        PeerError: bad_message.
    """
    if len(found) > MOST_AUDIO_BYTES * 4 // 3:
        raise refusal(f"payload has {len(found)} characters", f"base64 of at most {MOST_AUDIO_BYTES} bytes")
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(f"payload: {error}", "base64") from None


def sound(message: bytes) -> bytes:
    """Sound in a binary message, of a size that is served.

    Raises:
        PeerError: bad_message.
    """
    if len(message) > MOST_AUDIO_BYTES:
        raise refusal(f"message has {len(message)} bytes", f"at most {MOST_AUDIO_BYTES}")
    return message


def digit(found: Loose) -> Digit:
    """A key.

    Raises:
        PeerError: bad_message.
    """
    key = text(found).upper()
    if len(key) != 1 or key not in "0123456789*#ABCD":
        raise refusal(f"digit is {key[:20]!r}", "0 to 9, *, # or A to D")
    return Digit(key)


def parameters(found: Mapping[str, Any] | None, but: Iterable[str] = ()) -> dict[str, str]:
    """What a call was connected with, by name; a value that is no string is written as JSON.

    but: names that are not of the call's own making.

    Raises:
        PeerError: bad_message.
    """
    other = set(but)
    kept = {
        name: value if isinstance(value, str) else _encoder.encode(value).decode()
        for name, value in (found or {}).items()
        if name not in other and value is not None
    }
    characters = sum(len(name) + len(value) for name, value in kept.items())
    if characters > MOST_PARAMETERS_CHARACTERS:
        raise refusal(f"parameters have {characters} characters", f"at most {MOST_PARAMETERS_CHARACTERS}")
    return kept


def audio_format(encoding: str, rate_hz: Loose, default: AudioFormat) -> AudioFormat:
    """What a carrier says that it sends; what it leaves out is as in `default`.

    Raises:
        PeerError: bad_message.
    """
    known = ENCODINGS.get(encoding.lower()) if encoding else default.encoding
    rate = number(rate_hz, "sample rate") or default.rate_hz
    if known is None:
        raise refusal(f"encoding is {encoding[:40]!r}", "mu-law, A-law or 16-bit PCM")
    if rate not in RATES_HZ:
        raise refusal(f"sample rate is {rate}", ", ".join(map(str, RATES_HZ)))
    sample_bytes = 2 if known == "l16" else 1
    step_bytes = max(default.step_bytes, sample_bytes)
    return AudioFormat(known, rate, max(default.least_bytes, step_bytes), step_bytes)


# Messages to the carrier


def encode(message: Mapping[str, object]) -> str:
    return _encoder.encode(message).decode()


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pieces(data: bytes, audio: AudioFormat, most_bytes: int) -> list[bytes]:
    """Sound in messages of at most `most_bytes`; silence fills the last one up to the size that the format wants."""
    most_bytes -= most_bytes % audio.step_bytes
    return [_filled(data[start : start + most_bytes], audio) for start in range(0, len(data), most_bytes)]


def _filled(data: bytes, audio: AudioFormat) -> bytes:
    whole = max(len(data) + -len(data) % audio.step_bytes, audio.least_bytes)
    return data + SILENCE[audio.encoding] * (whole - len(data))


# A call


class Call:
    """Where a call is: before its `Started`, in it, or after its `Stopped`; each of the two happens once.

    What comes too early or too late (sound before the start, marks after the stop) is dropped: carriers may do that.
    """

    def __init__(self) -> None:
        self._started: Started | None = None
        self._is_over = False
        self._half = b""

    def let(self, events: Iterable[CarrierEvent]) -> list[CarrierEvent]:
        """Those of the events whose time it is."""
        return [event for event in events if self._passes(event)]

    def _passes(self, event: CarrierEvent) -> bool:
        if isinstance(event, Started):
            passes = self._started is None
            self._started = self._started or event
            return passes
        passes = self.is_on
        self._is_over = self._is_over or (passes and isinstance(event, Stopped))
        return passes

    @property
    def is_on(self) -> bool:
        return self._started is not None and not self._is_over

    def begun(self) -> Started:
        """What the call started with.

        Raises:
            PeerError: bad_message; it has not.
        """
        if self._started is None:
            raise refusal("the call has not started", "its start before a command")
        return self._started

    def heard(self, data: bytes) -> list[CarrierEvent]:
        """Sound as an event, cut between samples: an odd byte of 16-bit sound waits for its other half."""
        if self._started is None or self._is_over:
            return []
        if self._started.audio.encoding == "l16":
            data = self._half + data
            whole = len(data) - len(data) % 2
            data, self._half = data[:whole], data[whole:]
        return [Audio(data)] if data else []
