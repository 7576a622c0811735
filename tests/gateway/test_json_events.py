"""What a client of an RTP stream tells of its playing. The other events: see test_raw_pcm.py."""

import json

import pytest

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events
from voice_runtime.gateway.protocols.json_events import Playout
from voice_runtime.gateway.protocols.raw_pcm import RawPcmCodec


@pytest.mark.parametrize("timestamp", [0, 960, 2**32 - 1])
@pytest.mark.parametrize("delay_ms", [0, 12.5, 10_000])
def test_a_client_tells_which_frame_left_its_buffer_and_how_long_it_takes_to_the_ear(
    timestamp: int, delay_ms: float
) -> None:
    told = json.dumps({"type": "playout", "timestamp": timestamp, "delay_ms": delay_ms})
    assert json_events.decode(told) == Playout(timestamp, delay_ms)


def test_a_client_tells_that_it_has_muted_itself() -> None:
    assert json_events.decode('{"type":"playout","timestamp":1,"muted":true}') == Playout(1, 0.0, muted=True)


def test_a_client_that_does_not_know_its_delay_has_none() -> None:
    assert json_events.decode('{"type":"playout","timestamp":1}') == Playout(1, 0.0)


@pytest.mark.parametrize(
    "fields",
    [
        "",
        ',"timestamp":-1',
        ',"timestamp":4294967296',
        ',"timestamp":1.5',
        ',"timestamp":"1"',
        ',"timestamp":1,"delay_ms":-0.1',
        ',"timestamp":1,"delay_ms":10000.1',
        ',"timestamp":1,"delay_ms":NaN',
        ',"timestamp":1,"delay_ms":1e999',
        ',"timestamp":1,"delay_ms":null',
        ',"timestamp":1,"more":1',
        ',"timestamp":1,"muted":1',
    ],
)
def test_a_playout_of_other_values_is_refused(fields: str) -> None:
    with pytest.raises(PeerError, match="expected") as caught:
        json_events.decode(f'{{"type":"playout"{fields}}}')
    assert caught.value.code == "bad_event"


def test_a_client_that_has_no_rtp_stream_is_told_what_to_send_instead() -> None:
    with pytest.raises(PeerError, match="expected played"):
        RawPcmCodec().receive_text('{"type":"playout","timestamp":1}')
