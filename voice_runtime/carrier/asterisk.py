"""Asterisk's side of chan_websocket, in plain words or JSON. Sans-IO.

Source: chan_websocket.c. Sound is cut into frames of 20 ms and what does not fill one is lost, unless it is buffered; a
message to a queue of 1,000 frames is lost whole. A flush drops frames and marks, tells nothing, and leaves a paused
queue paused. MEDIA_XON comes only while frames are played. A text of more than 128 bytes is passed over; a message of
more than 65,500 ends the call. What is asked about the queue (GET_STATUS, REPORT_QUEUE_DRAINED) is not answered here.
"""

from typing import ClassVar

import numpy as np

from voice_runtime.carrier import base, words

MOST_TEXT_BYTES, MOST_MESSAGE_BYTES = 128, 65_500
FORMATS = {8_000: "ulaw", 16_000: "slin16", 24_000: "slin24", 48_000: "slin48"}
UNANSWERED = ("ANSWER", "GET_STATUS", "REPORT_QUEUE_DRAINED", "SET_MEDIA_DIRECTION")
COMMANDS: dict[str, base.Asked] = {
    "FLUSH_MEDIA": base.Drop(),
    "PAUSE_MEDIA": base.Halt(),
    "CONTINUE_MEDIA": base.GoOn(),
    "HANGUP": base.HangUp(),
}


class AsteriskSide:
    """One call: mu-law at 8 kHz, or slin at any other rate. Control in plain words."""

    name: ClassVar[str] = "asterisk"
    queue: ClassVar[base.Queue | None] = base.Queue(full=900, room=800, most=1_000)
    _is_json: ClassVar[bool] = False

    def __init__(self, terms: base.Terms) -> None:
        rate_hz = terms.rate_hz or 8_000
        self.audio = base.Format("mulaw" if rate_hz == 8_000 else "l16", rate_hz)
        self._variables = terms.parameters
        self._connection, self._channel = terms.stream_id, terms.call_id
        self._is_buffering = False
        self._rest = b""

    def begin(self) -> list[base.Wire]:
        start: dict[str, object] = {
            "connection_id": self._connection,
            "channel": f"WebSocket/carrier/{self._connection}",
            "channel_id": self._channel,
            "format": FORMATS[self.audio.rate_hz],
            "optimal_frame_size": self.audio.frame_bytes,
            "ptime": self.audio.frame_ms,
        }
        if self._is_json:
            return [self._event("MEDIA_START", **start, channel_variables=self._variables)]
        return [self._event("MEDIA_START", **start)]

    def caller(self, data: bytes) -> list[base.Wire]:
        return [data]

    def key(self, digit: str) -> list[base.Wire]:
        return [self._event("DTMF_END", digit=digit, channel_id=self._channel)]

    def stop(self) -> list[base.Wire]:
        return []

    def take(self, message: base.Wire) -> list[base.Asked]:
        size = len(message.encode()) if isinstance(message, str) else len(message)
        if size > MOST_MESSAGE_BYTES:
            return [base.Fault(f"message has {size} bytes, expected at most {MOST_MESSAGE_BYTES}"), base.HangUp()]
        if isinstance(message, bytes):
            return self._sound(message)
        if size > MOST_TEXT_BYTES:
            raise base.Violation(f"command has {size} bytes, expected at most {MOST_TEXT_BYTES}")
        return self._command(*self._words(message.strip()))

    def _words(self, text: str) -> tuple[str, str]:
        """A command and its id."""
        if not self._is_json:
            command, _, correlation_id = text.partition(" ")
            return command, correlation_id
        found = words.fields(text)
        return words.string(found, "command"), str(found.get("correlation_id", ""))

    def _command(self, command: str, correlation_id: str) -> list[base.Asked]:
        match command:
            case "MARK_MEDIA":
                return [base.Place(("MEDIA_MARK_PROCESSED", correlation_id))]
            case "START_MEDIA_BUFFERING":
                self._is_buffering = True
                return []
            case "STOP_MEDIA_BUFFERING":
                rest, self._rest, self._is_buffering = self._rest, b"", False
                done = base.Place(("MEDIA_BUFFERING_COMPLETED", correlation_id))
                if not rest:
                    return [done]
                silence = self.audio.encode(np.zeros(self.audio.frame_samples, np.float32))
                return [base.Sound(self.audio.decode(rest + silence[len(rest) :])), done]
        if command in UNANSWERED:
            return []
        if command not in COMMANDS:
            raise base.Violation(f"command is {command[:40]!r}, expected one of chan_websocket's")
        if command == "FLUSH_MEDIA":
            self._rest, self._is_buffering = b"", False
        return [COMMANDS[command]]

    def _sound(self, data: bytes) -> list[base.Asked]:
        data, self._rest = self._rest + data, b""
        whole = len(data) - len(data) % self.audio.frame_bytes
        asked: list[base.Asked] = [base.Sound(self.audio.decode(data[:whole]))] if whole else []
        if self._is_buffering:
            self._rest = data[whole:]
        elif whole < len(data):
            fault = f"{len(data)} bytes of sound, expected frames of {self.audio.frame_bytes}: the rest is lost"
            asked.append(base.Fault(fault))
        return asked

    def tell(self, told: base.Told) -> list[base.Wire]:
        match told:
            case base.Reached((str(event), correlation_id), was_dropped=False):
                if self._is_json:
                    return [self._event(event, channel_id=self._channel, correlation_id=correlation_id)]
                return [f"{event} {correlation_id}"]
            case base.Room(may_send):
                event = "MEDIA_XON" if may_send else "MEDIA_XOFF"
                return [self._event(event, channel_id=self._channel)] if self._is_json else [event]
        return []

    def _event(self, event: str, **about: object) -> str:
        if self._is_json:
            return words.write({"event": event, **about})
        return " ".join([event, *(f"{name}:{value}" for name, value in about.items())])


class AsteriskJsonSide(AsteriskSide):
    """The same with control in JSON, which newer versions offer."""

    name: ClassVar[str] = "asterisk-json"
    _is_json: ClassVar[bool] = True
