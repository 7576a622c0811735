"""The protocol of /v1/pcm: PCM16LE in binary messages, events as JSON text. Sans-IO: owns no socket, clock or task."""

from voice_runtime.audio.pcm import PcmReader
from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events
from voice_runtime.session import events


def rate(query: str | None, name: str, default: int) -> int:
    """A rate from the query string, in Hz.

    Raises:
        PeerError: bad_rate.
    """
    if query is None:
        return default
    if not query.isascii() or not query.isdigit() or len(query) > 6 or int(query) not in RATES_HZ:
        raise PeerError("bad_rate", f"{name} is {query[:20]!r}, expected one of {', '.join(map(str, RATES_HZ))}")
    return int(query)


class RawPcmCodec:
    """One connection's messages from the client."""

    def __init__(self) -> None:
        self._reader = PcmReader()

    def receive_bytes(self, data: bytes) -> events.CallerAudio:
        """Audio of any length; an odd byte waits for the next message."""
        return events.CallerAudio(self._reader.push(data))

    def receive_text(self, text: str) -> events.CallEvent:
        """An event.

        Raises:
            PeerError: bad_event.
        """
        event = json_events.decode(text)
        if isinstance(event, json_events.Playout):
            raise PeerError("bad_event", "playout is for RTP streams, expected played")
        return event
