"""The side of Asterisk that opens an AudioSocket: type (1 byte), length (2, big-endian), payload, over TCP. Sans-IO.

Source: docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. What comes is played in its turn, and nothing can
be taken back: the agent owns the pace.
"""

import uuid
from typing import ClassVar

from voice_runtime.carrier import base

HANGUP, UUID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
KINDS = {8_000: 0x10, 16_000: 0x12, 24_000: 0x13, 48_000: 0x16}  # of sound, by rate in Hz
HEAD_BYTES = 3


class AudioSocketSide:
    """One call, at 8 kHz by default. Its only parameter is `uuid`, without which it has one of its own."""

    name: ClassVar[str] = "audiosocket"
    queue: ClassVar[base.Queue | None] = None

    def __init__(self, terms: base.Terms) -> None:
        self.audio = base.Format("l16", terms.rate_hz or 8_000)
        self._uuid = uuid.UUID(terms.parameters.get("uuid", terms.call_id))
        self._kind = KINDS[self.audio.rate_hz]
        self._partial = bytearray()

    def begin(self) -> list[base.Wire]:
        return [_frame(UUID, self._uuid.bytes)]

    def caller(self, data: bytes) -> list[base.Wire]:
        return [_frame(self._kind, data)]

    def key(self, digit: str) -> list[base.Wire]:
        return [_frame(DTMF, digit.encode())]

    def stop(self) -> list[base.Wire]:
        return [_frame(HANGUP, b"")]

    def take(self, message: base.Wire) -> list[base.Asked]:
        """message: the next bytes of the stream, cut in any way."""
        assert isinstance(message, bytes)
        self._partial += message
        asked: list[base.Asked] = []
        while len(self._partial) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(self._partial[1:HEAD_BYTES])
            if len(self._partial) < end:
                break
            asked += self._read(self._partial[0], bytes(self._partial[HEAD_BYTES:end]))
            del self._partial[:end]
        return asked

    def _read(self, kind: int, payload: bytes) -> list[base.Asked]:
        if kind == HANGUP:
            return [base.HangUp()]
        if kind == ERROR:
            return [base.Fault(f"the agent tells error {payload[:8].hex()}"), base.HangUp()]
        if kind != self._kind:
            return [base.Fault(f"a message of type {kind:#x}, expected {self._kind:#x} or {HANGUP:#x}")]
        if len(payload) != self.audio.frame_bytes:
            fault = base.Fault(f"sound has {len(payload)} bytes, expected {self.audio.frame_bytes}, 20 ms")
            return [fault, base.Sound(self.audio.decode(payload[: len(payload) // 2 * 2]))]
        return [base.Sound(self.audio.decode(payload))]

    def tell(self, told: base.Told) -> list[base.Wire]:
        return []


def _frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(2) + payload
