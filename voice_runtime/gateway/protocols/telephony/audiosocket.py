"""Asterisk's AudioSocket over TCP: type (1 byte), length (2, big-endian), payload. Sans-IO.

Source: docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. What is sent plays at once and cannot be taken
back: we own the pace, one message every 20 ms, and stopping to send is the only barge-in.

No message names the rate before the first sound does, and that need not come before we speak: whoever opens the port
knows the rate that it is for. To transfer is for the dialplan, which goes on when the connection is closed.
"""

import uuid
from collections.abc import Iterable
from typing import ClassVar

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols.telephony import base, wire

HANGUP, UUID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
SOUNDS = range(0x10, 0x19)  # each another rate
KINDS = {8_000: 0x10, 16_000: 0x12, 24_000: 0x13, 48_000: 0x16}  # by rate in Hz
FRAMES_PER_S = 50
HEAD_BYTES = 3


class AudioSocketCodec:
    """One call's bytes, cut in any way; at most one frame (65,538 bytes) waits for its end.

    After a bad frame the stream is no longer read. What came before it in the same bytes is told first: the refusal is
    then for the next bytes, as for all that follow.
    """

    name: ClassVar[str] = "audiosocket"
    abilities: ClassVar[base.Abilities] = base.Abilities(clear=False, marks=False)

    def __init__(self, rate_hz: int = 8_000) -> None:
        """rate_hz: as the channel's slin format. Raises ValueError on a rate that is not served."""
        if rate_hz not in KINDS:
            raise ValueError(f"rate_hz is {rate_hz}, expected one of {', '.join(map(str, KINDS))}")
        self._kind = KINDS[rate_hz]
        frame_bytes = 2 * rate_hz // FRAMES_PER_S
        self._audio = base.AudioFormat("l16", rate_hz, frame_bytes, frame_bytes)
        self._call = wire.Call()
        self._partial = bytearray()
        self._refused = ""
        self._has_begun = False

    @staticmethod
    def begins(message: base.Wire) -> bool:
        return isinstance(message, bytes) and message[:HEAD_BYTES] == bytes([UUID, 0, 16])

    def receive(self, message: base.Wire) -> list[base.CarrierEvent]:
        if isinstance(message, str):
            raise wire.refusal(f"text of {len(message)} characters", "bytes")
        if self._refused:
            raise PeerError("bad_message", self._refused)
        events: list[base.CarrierEvent] = []
        try:
            for event in self._frames(message):
                events += self._call.let([event])
        except PeerError as error:
            self._refused = str(error)
            self._partial.clear()
            if not events:
                raise
        return events

    def _frames(self, data: bytes) -> Iterable[base.CarrierEvent]:
        self._partial += data
        at = 0
        try:
            while len(self._partial) - at >= HEAD_BYTES:
                kind, length = self._partial[at], int.from_bytes(self._partial[at + 1 : at + HEAD_BYTES])
                if len(self._partial) - at < HEAD_BYTES + length:
                    break
                payload = bytes(self._partial[at + HEAD_BYTES : at + HEAD_BYTES + length])
                at += HEAD_BYTES + length
                yield from self._frame(kind, payload)
        finally:
            del self._partial[:at]

    def _frame(self, kind: int, payload: bytes) -> Iterable[base.CarrierEvent]:
        if not self._has_begun and kind not in (
            UUID,
            DTMF,
            HANGUP,
            ERROR,
            *SOUNDS,
        ):  # a web page, say, that tries ports
            raise wire.refusal(f"before the call is a message of type {kind:#x}", f"{UUID:#x}, its UUID")
        self._has_begun |= kind == UUID
        if kind in SOUNDS:
            yield from self._sound(kind, payload)
        elif kind == UUID:
            if len(payload) != 16:
                raise wire.refusal(f"a UUID has {len(payload)} bytes", "16")
            call_id = str(uuid.UUID(bytes=payload))
            yield base.Started(call_id, call_id, self._audio)
        elif kind == DTMF:
            yield wire.digit(payload[:2].decode("latin-1"))
        elif kind == HANGUP:
            yield base.Stopped()
        elif kind == ERROR:
            yield base.Stopped(f"error {payload[:8].hex()}".rstrip())

    def _sound(self, kind: int, payload: bytes) -> Iterable[base.CarrierEvent]:
        if kind != self._kind:
            raise wire.refusal(f"sound is of type {kind:#x}", f"{self._kind:#x}, {self._audio.rate_hz} Hz")
        return self._call.heard(payload)

    def send(self, command: base.Command) -> list[base.Wire]:
        match command:
            case base.Play(data):
                pieces = wire.pieces(data, self._audio, self._audio.step_bytes)
                return [_frame(self._kind, piece) for piece in pieces]
            case base.HangUp():
                return [_frame(HANGUP, b"")]
            case _:
                return []


def _frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(2) + payload
