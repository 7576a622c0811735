"""Telnyx media streaming, bidirectional in mode rtp: JSON text, G.711 or L16 in base64. Sans-IO.

Source: developers.telnyx.com/api-reference/websockets/stream-call-media-over-websocket. Media comes in any order and
is sorted here by its chunk numbers; messages to Telnyx hold 20 ms to 30 s of sound.

Closing the connection ends the stream and not the call: hang-up and transfer are commands of Telnyx's REST API.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from voice_runtime.gateway.protocols.telephony import base, shapes, wire
from voice_runtime.gateway.protocols.telephony.wire import Loose

RESTART_CHUNKS = 100  # so far behind, a number is not late: it begins a new count
WINDOW_CHUNKS = 4  # that wait for a missing one before it is given up: 80 ms of sound as Telnyx cuts it
LEAST_S, MOST_S = 0.02, 30
MOST_LOST_MS = 2_000.0  # filled in at a time; a longer gap is no loss


class _Start(msgspec.Struct):
    call_control_id: Loose = None
    media_format: shapes.Format | None = None
    custom_parameters: dict[str, Any] | None = None
    sender: Loose = msgspec.field(name="from", default=None)
    to: Loose = None
    client_state: Loose = None


class _StartMessage(msgspec.Struct):
    start: _Start
    stream_id: Loose = None


_start = msgspec.json.Decoder(_StartMessage)


class ChunkOrder:
    """Puts chunks in order. One that is missing is given up when `window` later ones wait; then it is too late.

    Bounded by the window. Needs no clock: while a call lasts, later chunks come.
    """

    def __init__(self, window: int = WINDOW_CHUNKS) -> None:
        self._window = window
        self._waiting: dict[int, bytes] = {}
        self._next = 1
        self.given_up = 0  # chunks before what `push` gave last

    def push(self, chunk: int, data: bytes) -> list[bytes]:
        """What is in order by now."""
        restarts = chunk == 0 or chunk < self._next - RESTART_CHUNKS
        before = self.flush() if restarts else []
        self._next = chunk if restarts else self._next
        if chunk >= self._next:
            self._waiting.setdefault(chunk, data)
        self.given_up = 0
        if len(self._waiting) >= self._window:
            self.given_up = min(self._waiting) - self._next
            self._next = min(self._waiting)
        return before + list(self._ready())

    def _ready(self) -> Iterable[bytes]:
        while self._next in self._waiting:
            yield self._waiting.pop(self._next)
            self._next += 1

    def flush(self) -> list[bytes]:
        """All that waits, in order: nothing comes any more."""
        rest = [self._waiting[chunk] for chunk in sorted(self._waiting)]
        self._waiting.clear()
        return rest


class TelnyxCodec:
    """One call."""

    name: ClassVar[str] = "telnyx"
    abilities: ClassVar[base.Abilities] = base.Abilities()

    def __init__(self) -> None:
        self._call = wire.Call()
        self._order = ChunkOrder()

    @staticmethod
    def begins(message: base.Wire) -> bool:
        found = wire.fields(message)
        match found.get("event"):
            case "connected":
                return "version" in found and "protocol" not in found
            case "start":
                return "stream_id" in found
        return False

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        return self._call.let(self._read(wire.as_text(message)))

    def _read(self, text: str) -> Iterable[base.CarrierEvent]:
        match shapes.kind(text):
            case "start":
                yield _started(wire.decode(text, _start))
            case "media":
                yield from self._heard(*shapes.caller_sound(text))
            case "dtmf":
                yield shapes.digit(text)
            case "mark":
                yield shapes.mark(text)
            case "stop":
                stopped = shapes.stop(text)
                yield from self._call.heard(b"".join(self._order.flush()))
                yield stopped

    def _heard(self, data: bytes, chunk: int | None) -> Iterable[base.CarrierEvent]:
        if not self._call.is_on:
            return
        ordered = [data] if chunk is None else self._order.push(chunk, data)
        if chunk is not None and self._order.given_up > 0:
            chunk_ms = 1_000 * len(ordered[0]) / _bytes_per_s(self._call.begun().audio)
            yield base.Lost(min(MOST_LOST_MS, self._order.given_up * chunk_ms))
        yield from self._call.heard(b"".join(ordered))

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                audio = self._call.begun().audio
                most_bytes = MOST_S * _bytes_per_s(audio)
                return [
                    wire.encode({"event": "media", "media": {"payload": wire.base64_text(piece)}})
                    for piece in wire.pieces(data, audio, most_bytes)
                ]
            case base.Mark(name):
                return [wire.encode({"event": "mark", "mark": {"name": name}})]
            case base.Clear():
                return ['{"event":"clear"}']
            case _:
                return []


def _bytes_per_s(audio: base.AudioFormat) -> int:
    return audio.rate_hz * (2 if audio.encoding == "l16" else 1)


def _started(message: _StartMessage) -> base.Started:
    start, found = message.start, message.start.media_format or shapes.Format()
    audio = wire.audio_format(found.encoding, found.sample_rate, base.AudioFormat("mulaw", 8_000))
    audio = base.AudioFormat(audio.encoding, audio.rate_hz, int(LEAST_S * _bytes_per_s(audio)), audio.step_bytes)
    about = {"from": start.sender, "to": start.to, "client_state": start.client_state}
    parameters = wire.parameters({**about, **(start.custom_parameters or {})})
    return base.Started(wire.text(start.call_control_id), wire.text(message.stream_id), audio, parameters)
