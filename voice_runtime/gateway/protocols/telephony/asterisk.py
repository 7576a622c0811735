"""Asterisk's chan_websocket: binary messages of sound, text for control as plain words or JSON. Sans-IO.

Source: docs.asterisk.org/Configuration/Channel-Drivers/WebSocket; chan_websocket.c for the limits. Asterisk's first
message shows which of the two forms the call has. The channel is answered by Asterisk itself unless its dial string
has the option n, which is not served.

A flush drops the marks that wait, and nothing tells of them. Some versions stay paused after a flush, so a paused call
is told to go on as well. To transfer is a request to ARI, which is not part of this protocol.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

MOST_MESSAGE_BYTES = 65_500  # a longer one ends the call
MOST_COMMAND_BYTES = 128  # a longer one is dropped
FRAMES_PER_S = 50
FORMATS: dict[str, tuple[base.Encoding, int]] = {
    "ulaw": ("mulaw", 8_000),
    "alaw": ("alaw", 8_000),
    "slin": ("l16", 8_000),
    "slin16": ("l16", 16_000),
    "slin24": ("l16", 24_000),
    "slin48": ("l16", 48_000),
}


class _Control(msgspec.Struct):
    """A control message in JSON. Those in plain words are turned into this."""

    event: str = ""
    connection_id: Loose = None
    channel: Loose = None
    channel_id: Loose = None
    format: Loose = None
    optimal_frame_size: Loose = None
    digit: Loose = None
    correlation_id: Loose = None
    channel_variables: dict[str, Any] | None = None


_control = msgspec.json.Decoder(_Control)
_FIELDS = frozenset(field for field in _Control.__struct_fields__ if field not in ("event", "channel_variables"))


class AsteriskCodec:
    """One call."""

    name: ClassVar[str] = "asterisk"
    abilities: ClassVar[base.Abilities] = base.Abilities(pause=True)

    def __init__(self) -> None:
        self._call = wire.Call()
        self._is_json = False
        self._is_paused = False

    @staticmethod
    def begins(message: base.Wire) -> bool:
        is_plain = isinstance(message, str) and message.startswith("MEDIA_START ")
        return is_plain or wire.fields(message).get("event") == "MEDIA_START"

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        if isinstance(message, bytes):
            return self._call.let(self._call.heard(wire.sound(message)))
        return self._call.let(self._read(wire.as_text(message).strip()))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        is_json = text.startswith("{")
        control = wire.decode(text, _control) if is_json else _plain(text)
        match control.event:
            case "MEDIA_START":
                self._is_json = is_json
                yield _started(control)
            case "MEDIA_MARK_PROCESSED":
                yield base.MarkReached(wire.text(control.correlation_id))
            case "MEDIA_XOFF":
                yield base.Flow(may_send=False)
            case "MEDIA_XON":
                yield base.Flow(may_send=True)
            case "DTMF_END":
                yield wire.digit(control.digit)

    def send(self, command: base.Command) -> list[base.Wire]:
        audio = self._call.begun().audio
        match command:
            case base.Play(data):
                return [*wire.pieces(data, audio, MOST_MESSAGE_BYTES)]
            case base.Mark(name):
                return [self._command("MARK_MEDIA", name)]
            case base.Clear():
                words = ["FLUSH_MEDIA", "CONTINUE_MEDIA"] if self._is_paused else ["FLUSH_MEDIA"]
                self._is_paused = False
                return [self._command(word) for word in words]
            case base.Pause():
                self._is_paused = True
                return [self._command("PAUSE_MEDIA")]
            case base.Continue():
                self._is_paused = False
                return [self._command("CONTINUE_MEDIA")]
            case base.HangUp():
                return [self._command("HANGUP")]
            case _:
                return []

    def _command(self, word: str, mark: str = "") -> str:
        """Raises ValueError on a mark that Asterisk would drop."""
        fields = {"command": word, "correlation_id": mark} if mark else {"command": word}
        command = wire.encode(fields) if self._is_json else f"{word} {mark}".rstrip()
        if len(command.encode()) > MOST_COMMAND_BYTES:
            raise ValueError(f"{word} has {len(command.encode())} bytes, expected at most {MOST_COMMAND_BYTES}")
        return command


def _plain(text: str) -> _Control:
    """EVENT name:value name:value, or for a mark EVENT value."""
    event, _, rest = text.partition(" ")
    if event == "MEDIA_MARK_PROCESSED":
        return _Control(event, correlation_id=rest.removeprefix("correlation_id:"))
    found: dict[str, Any] = dict(word.split(":", 1) for word in rest.split() if ":" in word)
    return _Control(event, **{name: value for name, value in found.items() if name in _FIELDS})


def _started(control: _Control) -> base.Started:
    """Frames of the optimal size keep their order and time; the rest of a message that holds a part of one is lost."""
    found = wire.text(control.format)
    if found not in FORMATS:
        raise wire.refusal(f"format is {found[:40]!r}", ", ".join(FORMATS))
    encoding, rate_hz = FORMATS[found]
    sample_bytes = 2 if encoding == "l16" else 1
    frame_bytes = wire.number(control.optimal_frame_size, "optimal_frame_size") or (
        rate_hz * sample_bytes // FRAMES_PER_S
    )
    if frame_bytes > MOST_MESSAGE_BYTES or frame_bytes % sample_bytes:
        raise wire.refusal(f"optimal_frame_size is {frame_bytes}", f"whole samples, at most {MOST_MESSAGE_BYTES} bytes")
    call_id = control.channel if control.channel_id is None else control.channel_id
    parameters = wire.parameters({"channel": control.channel, **(control.channel_variables or {})})
    audio = base.AudioFormat(encoding, rate_hz, frame_bytes, frame_bytes)
    return base.Started(wire.text(call_id), wire.text(control.connection_id), audio, parameters)
