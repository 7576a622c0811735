"""Which carrier a connection is from, by its first message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.telephony import transcripts
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.registry import CODECS, detect


def test_a_codec_is_known_by_its_own_name() -> None:
    assert {name: codec.name for name, codec in CODECS.items()} == {name: name for name in CODECS}
    assert set(transcripts.EVERY_CODEC) == {*CODECS, "audiosocket"}


def starts(name: str) -> list[base.Wire]:
    """The messages with which a call of a carrier begins in its records."""
    found = []
    for messages in transcripts.messages(name):
        codec = CODECS[name]()
        found += [message for message in messages if codec.receive(message)][:1]
    return found


@pytest.mark.parametrize("name", [name for name in CODECS if name != "freeswitch"])
def test_the_start_of_a_call_is_its_carrier_s_and_no_other_s(name: str) -> None:
    assert starts(name)
    for message in starts(name):
        assert [codec.name for codec in CODECS.values() if codec.begins(message)] == [name]
        assert detect(message) is CODECS[name]


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ({"event": "connected", "protocol": "Call", "version": "1.0.0"}, "twilio"),
        ({"event": "connected", "version": "1.0.0"}, "telnyx"),
        ({"event": "connected"}, "exotel"),
        ({"event": "start", "stream_sid": "s", "start": {}}, "exotel"),
        ({"event": "websocket:connected"}, "vonage"),
        ({"event": "MEDIA_START"}, "asterisk"),
    ],
)
def test_a_greeting_is_enough(message: dict[str, object], name: str) -> None:
    assert [codec.name for codec in CODECS.values() if codec.begins(json.dumps(message))] == [name]


def test_sound_without_a_word_is_from_freeswitch() -> None:
    assert detect(bytes(320)) is CODECS["freeswitch"]


@pytest.mark.parametrize("text", ["", "hello", "{}", "[]", '{"event":"start"}', '{"event":"start","start":1}', "MEDIA"])
def test_nobody_s_message_is_nobody_s(text: str) -> None:
    assert detect(text) is None


@given(message=st.text(st.characters(), max_size=50) | st.binary(max_size=50))
def test_any_message_may_be_asked_about(message: base.Wire) -> None:
    assert (detect(message) is None) == isinstance(message, str)
