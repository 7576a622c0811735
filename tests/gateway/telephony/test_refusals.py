"""What no carrier sends is refused with found and expected; what is too large, before it costs anything."""

import base64
import json
import re

import pytest

from tests.gateway.telephony import invariants, transcripts
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols.telephony import base, wire
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec
from voice_runtime.gateway.protocols.telephony.registry import CODECS

TEXT_ONLY = ["twilio", "telnyx", "plivo", "exotel"]
WITH_JSON = [*TEXT_ONLY, "vonage", "jambonz"]
WITH_BINARY = ["vonage", "asterisk", "jambonz", "freeswitch"]


def begun(name: str) -> base.CarrierCodec:
    """A codec whose call has started as in its record."""
    codec = transcripts.EVERY_CODEC[name]()
    next(line for line in transcripts.heard(_record(name)) if codec.receive(line.message))
    return codec


def _record(name: str) -> str:
    return "asterisk-plain" if name == "asterisk" else name


def refusal(codec: base.CarrierCodec, message: base.Wire) -> str:
    with pytest.raises(PeerError) as caught:
        codec.receive(message)
    assert caught.value.code == "bad_message"
    assert ", expected " in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", WITH_JSON)
@pytest.mark.parametrize("text", ["", "null", "[]", "{", '"start"', "[" * 100_000, '{"a":' * 30_000, "\ud800"])
def test_what_is_no_json_object_is_refused(name: str, text: str) -> None:
    assert refusal(CODECS[name](), text).endswith("expected JSON as the carrier documents it")


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_binary_where_all_is_text_is_refused(name: str) -> None:
    assert refusal(begun(name), b"\xff" * 160) == "a binary message of 160 bytes, expected text"


def test_text_where_all_is_bytes_is_refused() -> None:
    assert refusal(begun("audiosocket"), "text") == "text of 4 characters, expected bytes"


@pytest.mark.parametrize("name", CODECS)
def test_a_text_that_is_too_long_is_refused_unread(name: str) -> None:
    text = '{"event":"x"}' + " " * wire.MOST_TEXT_CHARACTERS
    assert refusal(CODECS[name](), text) == f"message has {len(text)} characters, expected at most 200000"


@pytest.mark.parametrize("name", WITH_BINARY)
def test_sound_of_more_than_a_message_may_hold_is_refused_and_less_is_not(name: str) -> None:
    codec = begun(name)
    assert codec.receive(bytes(wire.MOST_AUDIO_BYTES)) == [base.Audio(bytes(wire.MOST_AUDIO_BYTES))]
    found = refusal(codec, bytes(wire.MOST_AUDIO_BYTES + 1))
    assert found == f"message has {wire.MOST_AUDIO_BYTES + 1} bytes, expected at most {wire.MOST_AUDIO_BYTES}"


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_base64_of_more_than_a_message_may_hold_is_refused_and_less_is_not(name: str) -> None:
    codec = begun(name)
    most = base64.b64encode(bytes(wire.MOST_AUDIO_BYTES)).decode()
    assert codec.receive(media(most)) == [base.Audio(bytes(wire.MOST_AUDIO_BYTES))]
    assert refusal(codec, media(most + "AAAA")).startswith("payload has 128004 characters, expected base64 of at most ")


def media(payload: object) -> str:
    return json.dumps({"event": "media", "media": {"payload": payload}})


@pytest.mark.parametrize("name", TEXT_ONLY)
@pytest.mark.parametrize("payload", ["=", "A", "AAA", "AA=A", "////\n", "é", "A" * 5, 1, None, ["AAAA"], {}])
def test_a_payload_that_is_no_base64_is_refused(name: str, payload: object) -> None:
    assert re.search(r"payload|base64", refusal(begun(name), media(payload)))


@pytest.mark.parametrize("name", TEXT_ONLY)
@pytest.mark.parametrize(
    "message",
    [
        {"event": 1},
        {"event": "media"},
        {"event": "media", "media": "AAAA"},
        {"event": "media", "media": {"payload": "AAAA", "chunk": "x"}},
        {"event": "media", "media": {"payload": "AAAA", "chunk": -1}},
        {"event": "media", "media": {"payload": "AAAA", "chunk": 1.5}},
        {"event": "media", "media": {"payload": "AAAA", "chunk": 10**400}},
        {"event": "media", "media": {"payload": "AAAA", "chunk": "٣"}},
        {"event": "dtmf"},
        {"event": "dtmf", "dtmf": {"digit": ""}},
        {"event": "dtmf", "dtmf": {"digit": "12"}},
        {"event": "dtmf", "dtmf": {"digit": "E"}},
        {"event": "dtmf", "dtmf": {"digit": 12}},
        {"event": "dtmf", "dtmf": {"digit": True}},
        {"event": "start"},
        {"event": "start", "start": {"streamSid": "a" * 1_001, "streamId": "a" * 1_001, "stream_sid": "a" * 1_001}},
    ],
    ids=lambda message: json.dumps(message)[:60],
)
def test_a_known_event_that_lacks_what_it_needs_is_refused(name: str, message: dict[str, object]) -> None:
    if name == "telnyx" and "start" in message:
        message = {**message, "stream_id": "a" * 1_001}
    refusal(begun(name), json.dumps(message))


START = {
    "twilio": ("streamSid", "mediaFormat", "sampleRate", "customParameters"),
    "plivo": ("streamId", "mediaFormat", "sampleRate", None),
    "telnyx": ("stream_id", "media_format", "sample_rate", "custom_parameters"),
    "exotel": ("stream_sid", "media_format", "sample_rate", "custom_parameters"),
}


@pytest.mark.parametrize("name", START)
@pytest.mark.parametrize(
    ("encoding", "rate", "found"),
    [
        ("OPUS", 8_000, "encoding is 'OPUS'"),
        ("G722", 16_000, "encoding is 'G722'"),
        ("audio/x-mulaw", 44_100, "sample rate is 44100"),
        ("audio/x-mulaw", "-8000", "sample rate is '-8000'"),
        ("audio/x-mulaw", "8k", "sample rate is '8k'"),
    ],
)
def test_sound_that_is_not_served_is_refused_at_the_start(name: str, encoding: str, rate: object, found: str) -> None:
    stream, about, rate_name, _ = START[name]
    start = {"event": "start", "start": {stream: "s", about: {"encoding": encoding, rate_name: rate}}}
    assert refusal(CODECS[name](), json.dumps(start)).startswith(found)


@pytest.mark.parametrize("name", [name for name, (*_, parameters) in START.items() if parameters])
def test_more_parameters_than_a_call_may_keep_are_refused(name: str) -> None:
    stream, _, _, parameters = START[name]
    start = {stream: "s", parameters: {"a": "b" * (wire.MOST_PARAMETERS_CHARACTERS - 1)}}
    (started,) = CODECS[name]().receive(json.dumps({"event": "start", "start": start}))
    assert isinstance(started, base.Started)
    start[parameters] = {"a": "b" * wire.MOST_PARAMETERS_CHARACTERS}
    found = refusal(CODECS[name](), json.dumps({"event": "start", "start": start}))
    assert found == "parameters have 16001 characters, expected at most 16000"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MEDIA_START connection_id:1 channel:c format:opus optimal_frame_size:160", "format is 'opus'"),
        ("MEDIA_START connection_id:1 channel:c format:ulaw optimal_frame_size:x", "optimal_frame_size is 'x'"),
        ("MEDIA_START connection_id:1 channel:c format:ulaw optimal_frame_size:65501", "optimal_frame_size is 65501"),
        ("MEDIA_START connection_id:1 channel:c format:slin optimal_frame_size:321", "optimal_frame_size is 321"),
        ("MEDIA_START", "format is ''"),
        ("DTMF_END channel_id:1", "digit is ''"),
        ("DTMF_END digit:55", "digit is '55'"),
        ('{"event":"DTMF_END","digit":[]}', "Expected"),
        ("MEDIA_MARK_PROCESSED " + "m" * 1_001, "a name has 1001 characters"),
    ],
)
def test_a_control_message_of_asterisk_that_lacks_what_it_needs_is_refused(text: str, found: str) -> None:
    assert refusal(CODECS["asterisk"](), text).startswith(found)


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (b"\x01\x00\x0fabcdefghijklmno", "a UUID has 15 bytes"),
        (b"\x03\x00\x0255", "digit is '55'"),
        (b"\x03\x00\x00", "digit is ''"),
        (b"\x12\x00\x02ab", "sound is of type 0x12, expected 0x10, 8000 Hz"),
    ],
)
def test_a_frame_of_audiosocket_that_is_malformed_ends_the_reading(frames: bytes, found: str) -> None:
    codec = begun("audiosocket")
    assert codec.receive(b"\x03\x00\x017" + frames + bytes([0x42, 0xFF, 0xFF]) + bytes(50_000)) == [base.Digit("7")]
    for _ in range(2):
        assert refusal(codec, bytes(100_000)).startswith(found)
    assert invariants.retained_bytes(codec) < 1_000
    assert refusal(begun("audiosocket"), frames).startswith(found)


@pytest.mark.parametrize("text", ["x", '{"sampleRate":8000,"callSid":"a","mixType":"stereo"}', '{"sampleRate":[]}'])
def test_a_first_message_of_jambonz_that_cannot_be_served_is_refused(text: str) -> None:
    refusal(CODECS["jambonz"](), text)


@pytest.mark.parametrize(
    "content_type", ["audio/l16;rate=44100", "audio/opus", "audio/x-mulaw;rate=8000", "audio/l16;rate=x"]
)
def test_a_content_type_of_vonage_that_is_not_served_is_refused(content_type: str) -> None:
    refusal(CODECS["vonage"](), json.dumps({"event": "websocket:connected", "content-type": content_type}))


@pytest.mark.parametrize("name", CODECS)
def test_no_sound_can_be_sent_before_a_call_has_started(name: str) -> None:
    with pytest.raises(PeerError, match="the call has not started, expected its start before a command"):
        CODECS[name]().send(base.Play(b"\0" * 640))


@pytest.mark.parametrize("first", [b"POST / HTTP/1.1" + bytes(30_000), b"\x42\x00\x00"])
def test_what_audiosocket_does_not_know_begins_no_call_of_it(first: bytes) -> None:
    codec = AudioSocketCodec()
    with pytest.raises(PeerError, match="expected 0x1, its UUID"):
        codec.receive(first + b"\x01\x00\x10" + bytes(16))


def test_a_rate_that_audiosocket_is_not_served_at_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="rate_hz is 44100, expected one of 8000, 16000, 24000, 48000"):
        AudioSocketCodec(44_100)


def test_a_mark_that_asterisk_would_drop_is_our_own_mistake() -> None:
    codec = begun("asterisk")
    assert codec.send(base.Mark("m" * 117)) == ["MARK_MEDIA " + "m" * 117]
    with pytest.raises(ValueError, match="MARK_MEDIA has 129 bytes, expected at most 128"):
        codec.send(base.Mark("m" * 118))
