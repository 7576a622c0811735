"""What holds for every codec whatever is sent to it, checked while messages are fed to it."""

import dataclasses
from collections.abc import Iterable
from typing import get_args

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols.telephony import base

MOST_RETAINED_BYTES = 500_000  # of one call: Telnyx's window of four chunks is the largest
MOST_REFUSAL_CHARACTERS = 400
EVENTS = get_args(base.CarrierEvent)


def feed(codec: base.CarrierCodec, messages: Iterable[base.Wire]) -> list[base.CarrierEvent]:
    """The events of all messages; those that are refused bring none. Raises AssertionError when an invariant breaks."""
    events: list[base.CarrierEvent] = []
    for message in messages:
        found = _received(codec, message)
        if isinstance(found, PeerError):
            assert found.code == "bad_message"
            assert ", expected " in str(found)
            assert len(str(found)) <= MOST_REFUSAL_CHARACTERS
        else:
            events += found
    assert_a_call(events)
    assert retained_bytes(codec) <= MOST_RETAINED_BYTES
    return events


def _received(codec: base.CarrierCodec, message: base.Wire) -> list[base.CarrierEvent] | PeerError:
    try:
        return codec.receive(message)
    except PeerError as error:
        return error


def assert_a_call(events: list[base.CarrierEvent]) -> None:
    """Begins with its only `Started`, ends with its only `Stopped` if it ends; sound is whole samples."""
    if not events:
        return
    started = events[0]
    assert isinstance(started, base.Started)
    assert started.audio.step_bytes > 0
    assert started.audio.least_bytes % started.audio.step_bytes == 0
    sample_bytes = 2 if started.audio.encoding == "l16" else 1
    for event in events[1:]:
        assert isinstance(event, EVENTS)
        assert not isinstance(event, base.Started)
        if isinstance(event, base.Audio):
            assert event.data
            assert len(event.data) % sample_bytes == 0
    assert not any(isinstance(event, base.Stopped) for event in events[:-1])


def retained_bytes(held: object) -> int:
    """Bytes of text and sound that an object holds on to."""
    if isinstance(held, str | bytes | bytearray):
        return len(held)
    if isinstance(held, dict):
        return sum(retained_bytes(key) + retained_bytes(value) for key, value in held.items())
    if isinstance(held, list | tuple | set):
        return sum(map(retained_bytes, held))
    if dataclasses.is_dataclass(held):
        return sum(retained_bytes(getattr(held, field.name)) for field in dataclasses.fields(held))
    return retained_bytes(vars(held)) if hasattr(held, "__dict__") else 8
