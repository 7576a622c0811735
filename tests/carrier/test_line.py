"""The carrier's side by itself, under a clock of our own: what is played when, what is told, what is a fault."""

import base64
import itertools
import json
from typing import Any

import numpy as np
import pytest

from tests.support.clock import Clock
from voice_runtime.audio.pcm import Samples
from voice_runtime.carrier.base import Format, Terms, Wire
from voice_runtime.carrier.earpiece import Earpiece, sound
from voice_runtime.carrier.leg import Leg
from voice_runtime.carrier.registry import SIDES

TERMS = Terms({"agent": "booking"}, call_id="1" * 32, stream_id="2" * 32)
START_S = 5_000.0  # as large as a real monotonic clock
WITH_MARKS = ("twilio", "telnyx", "plivo", "vonage", "exotel", "asterisk", "asterisk-json", "jambonz")
MARKS_COME_BACK = ("twilio", "telnyx", "exotel", "jambonz")


class Line:
    """A call of a protocol. now: moved by the test."""

    def __init__(self, protocol: str, terms: Terms = TERMS) -> None:
        self.protocol = protocol
        self.side = SIDES[protocol](terms)
        self.leg = Leg(self.side, Earpiece(self.side.audio.rate_hz, self.side.queue))
        self.clock = Clock(START_S)
        self.leg.advance(self.clock())

    def ask(self, *messages: Wire) -> list[Wire]:
        return [answer for message in messages for answer in self.leg.take(message, self.clock())]

    def wait(self, ms: float) -> list[Wire]:
        self.clock.now_s += ms / 1_000
        return self.leg.advance(self.clock())

    def heard(self, start_ms: float, end_ms: float) -> Samples:
        earpiece = self.leg.earpiece
        return sound(earpiece.heard, earpiece.rate_hz, START_S + start_ms / 1_000, START_S + end_ms / 1_000)


def tone(audio: Format, ms: int) -> bytes:
    """No two neighbours alike."""
    noise = np.random.default_rng(ms).uniform(0.1, 0.9, audio.rate_hz * ms // 1_000)
    return audio.encode(noise.astype(np.float32))


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def media(line: Line, ms: int) -> list[Wire]:
    """So much of the agent's sound, as its messages."""
    data = tone(line.side.audio, ms)
    stream = {"twilio": "MZ" + TERMS.stream_id}.get(line.protocol, TERMS.stream_id)
    frame = line.side.audio.rate_hz // 50 * line.side.audio.sample_bytes
    frames = [data[at : at + frame] for at in range(0, len(data), frame)]
    match line.protocol:
        case "twilio":
            return [json.dumps({"event": "media", "streamSid": stream, "media": {"payload": text(data)}})]
        case "exotel":
            return [json.dumps({"event": "media", "stream_sid": stream, "media": {"payload": text(data)}})]
        case "telnyx":
            return [json.dumps({"event": "media", "media": {"payload": text(data)}})]
        case "plivo":
            about = {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": text(data)}
            return [json.dumps({"event": "playAudio", "streamId": stream, "media": about})]
        case "audiosocket":
            return [b"\x10" + len(one).to_bytes(2) + one for one in frames]
    return [*frames]


def mark(line: Line, name: str) -> Wire:
    stream = {"twilio": "MZ" + TERMS.stream_id}.get(line.protocol, TERMS.stream_id)
    orders: dict[str, Any] = {
        "twilio": {"event": "mark", "streamSid": stream, "mark": {"name": name}},
        "exotel": {"event": "mark", "stream_sid": stream, "mark": {"name": name}},
        "telnyx": {"event": "mark", "mark": {"name": name}},
        "plivo": {"event": "checkpoint", "streamId": stream, "name": name},
        "vonage": {"action": "notify", "payload": {"mark": name}},
        "asterisk-json": {"command": "MARK_MEDIA", "correlation_id": name},
        "jambonz": {"type": "mark", "data": {"name": name}},
    }
    return json.dumps(orders[line.protocol]) if line.protocol in orders else f"MARK_MEDIA {name}"


def clear(line: Line) -> Wire:
    stream = {"twilio": "MZ" + TERMS.stream_id}.get(line.protocol, TERMS.stream_id)
    orders: dict[str, Any] = {
        "twilio": {"event": "clear", "streamSid": stream},
        "exotel": {"event": "clear", "stream_sid": stream},
        "telnyx": {"event": "clear"},
        "plivo": {"event": "clearAudio", "streamId": stream},
        "vonage": {"action": "clear"},
        "asterisk-json": {"command": "FLUSH_MEDIA"},
    }
    if line.protocol in ("jambonz", "freeswitch"):
        return '{"type": "killAudio"}'
    return json.dumps(orders[line.protocol]) if line.protocol in orders else "FLUSH_MEDIA"


@pytest.mark.parametrize("protocol", SIDES)
def test_sound_is_heard_in_real_time_from_when_it_came_and_then_silence(protocol: str) -> None:
    line = Line(protocol)
    line.wait(100)
    line.ask(*media(line, 400))
    line.wait(700)
    decoded = line.side.audio.decode(tone(line.side.audio, 400))
    np.testing.assert_array_equal(line.heard(100, 500), decoded)
    assert not line.heard(0, 100).any()
    assert not line.heard(500, 800).any()
    assert line.leg.faults == []
    assert line.leg.earpiece.most_ahead_s == pytest.approx(0.4)


@pytest.mark.parametrize("protocol", WITH_MARKS)
def test_a_mark_is_told_when_all_before_it_was_played_and_not_earlier(protocol: str) -> None:
    line = Line(protocol)
    assert line.ask(*media(line, 200), mark(line, "m1"), *media(line, 200), mark(line, "m2")) == []
    assert line.wait(199) == []
    (first,) = line.wait(1)
    assert "m1" in str(first)
    assert "m2" not in str(first)
    assert line.wait(199) == []
    (second,) = line.wait(1)
    assert "m2" in str(second)
    (at_once,) = line.ask(mark(line, "m3"))
    assert "m3" in str(at_once)


@pytest.mark.parametrize("protocol", [name for name in SIDES if name != "audiosocket"])
def test_a_clear_silences_at_once_and_marks_come_back_where_the_carrier_sends_them(protocol: str) -> None:
    line = Line(protocol)
    line.ask(*media(line, 400))
    if protocol in WITH_MARKS:
        line.ask(mark(line, "m1"))
    line.wait(100)
    answers = line.ask(clear(line))
    assert any("m1" in str(answer) for answer in answers) == (protocol in MARKS_COME_BACK)
    line.wait(500)
    assert np.count_nonzero(line.heard(0, 100)) == line.side.audio.rate_hz // 10
    assert not line.heard(100, 600).any()
    assert line.leg.faults == []
    assert line.wait(1_000) == []


def test_jambonz_tells_a_dropped_mark_as_cleared_and_vonage_and_plivo_tell_the_clear() -> None:
    for protocol, expected in (("jambonz", "cleared"), ("vonage", "websocket:cleared"), ("plivo", "clearedAudio")):
        line = Line(protocol)
        line.ask(*media(line, 200), mark(line, "m"))
        (answer,) = line.ask(clear(line))
        assert expected in str(answer)


def test_asterisk_pauses_and_goes_on_at_the_same_sample_and_a_flush_ends_no_pause() -> None:
    line = Line("asterisk")
    line.ask(*media(line, 400), "MARK_MEDIA end")
    line.wait(100)
    line.ask("PAUSE_MEDIA")
    assert line.wait(1_000) == []
    line.ask("CONTINUE_MEDIA")
    assert line.wait(300) == ["MEDIA_MARK_PROCESSED end"]
    decoded = line.side.audio.decode(tone(line.side.audio, 400))
    joined = np.concatenate([line.heard(0, 100), line.heard(1_100, 1_400)])
    np.testing.assert_array_equal(joined, decoded)
    assert not line.heard(100, 1_100).any()
    line.ask("PAUSE_MEDIA", *media(line, 200), "FLUSH_MEDIA", *media(line, 100))
    line.wait(500)
    assert not line.heard(1_400, 1_900).any()
    line.ask("CONTINUE_MEDIA")
    line.wait(100)
    assert line.heard(1_900, 2_000).all()


def test_asterisk_tells_that_its_queue_is_full_at_900_frames_and_has_room_again_below_800() -> None:
    line = Line("asterisk")
    frame = line.side.audio.encode(np.full(160, 0.5, np.float32))
    assert line.ask(*[frame] * 899) == []
    assert line.ask(frame) == ["MEDIA_XOFF"]
    assert line.ask(frame) == []
    assert line.leg.earpiece.wait_s() == pytest.approx(101 * 0.02, abs=0.001)
    assert line.wait(101 * 20) == []
    assert line.wait(20) == ["MEDIA_XON"]
    assert line.leg.faults == []


def test_asterisk_loses_what_comes_to_a_queue_of_1000_frames() -> None:
    line = Line("asterisk")
    frame = line.side.audio.encode(np.full(160, 0.5, np.float32))
    line.ask(*[frame] * 1_002)
    assert len(line.leg.faults) == 2
    assert "full queue" in line.leg.faults[0]
    assert line.leg.earpiece.queued_s == 20.0


def test_asterisk_loses_what_does_not_fill_a_frame_unless_it_is_buffered() -> None:
    line = Line("asterisk")
    line.ask(b"\x00" * 250)
    assert line.leg.earpiece.queued_s == pytest.approx(0.02)
    assert ["the rest is lost" in fault for fault in line.leg.faults] == [True]
    line.ask("START_MEDIA_BUFFERING", b"\x00" * 250, b"\x00" * 130)
    assert line.ask("STOP_MEDIA_BUFFERING x") == []
    assert line.wait(80) == ["MEDIA_BUFFERING_COMPLETED x"]
    assert len(line.leg.faults) == 1


STREAM = "MZ" + TERMS.stream_id
FAULTS: list[tuple[str, Wire, str]] = [
    ("twilio", "no JSON", "expected a JSON object"),
    ("twilio", b"\xff" * 160, "expected text"),
    ("twilio", json.dumps({"event": "hangup", "streamSid": STREAM}), "31924"),
    ("twilio", json.dumps({"event": "clear", "streamSid": "MZ3"}), "streamSid"),
    ("twilio", json.dumps({"event": "clear"}), "streamSid"),
    ("twilio", json.dumps({"event": "mark", "streamSid": STREAM, "mark": {"name": 7}}), "expected a string"),
    ("twilio", json.dumps({"event": "media", "streamSid": STREAM, "media": {"payload": "%"}}), "base64"),
    ("twilio", json.dumps({"event": "media", "streamSid": STREAM, "media": {"payload": ""}}), "payload"),
    ("twilio", json.dumps({"event": "media", "streamSid": STREAM, "media": {"payload": text(b"RIFFxx")}}), "bare"),
    ("telnyx", json.dumps({"event": "media", "media": {"payload": text(b"\xff" * 80)}}), "20 ms"),
    ("telnyx", json.dumps({"event": "mark", "mark": {}}), "name"),
    ("plivo", json.dumps({"event": "media", "media": {"payload": text(b"\xff" * 160)}}), "playAudio"),
    ("plivo", json.dumps({"event": "playAudio", "media": {"contentType": "audio/x-l16"}}), "contentType"),
    ("plivo", json.dumps({"event": "clearAudio"}), "streamId"),
    ("vonage", b"\0" * 638, "640"),
    ("vonage", b"\0" * 641, "whole samples"),
    ("vonage", json.dumps({"action": "mark"}), "clear or notify"),
    (
        "exotel",
        json.dumps({"event": "media", "stream_sid": TERMS.stream_id, "media": {"payload": text(b"\0" * 1600)}}),
        "3200",
    ),
    (
        "exotel",
        json.dumps({"event": "media", "stream_sid": TERMS.stream_id, "media": {"payload": text(b"\0" * 3300)}}),
        "320",
    ),
    ("exotel", json.dumps({"event": "clear", "streamSid": TERMS.stream_id}), "stream_sid"),
    ("asterisk", "CLEAR", "chan_websocket"),
    ("asterisk", "MARK_MEDIA " + "x" * 128, "at most 128"),
    ("asterisk", b"\0" * 65_501, "at most 65500"),
    ("asterisk-json", "FLUSH_MEDIA", "JSON"),
    ("audiosocket", b"\x10\x00\x02\0\0", "320"),
    ("audiosocket", b"\x12\x02\x80" + b"\0" * 640, "type 0x12"),
    ("jambonz", b"\0" * 3, "whole samples"),
    ("jambonz", json.dumps({"type": "clear"}), "killAudio"),
    ("freeswitch", json.dumps({"type": "mark", "data": {"name": "m"}}), "killAudio"),
]


@pytest.mark.parametrize(("protocol", "message", "expected"), FAULTS)
def test_what_the_carrier_would_not_take_is_a_fault(protocol: str, message: Wire, expected: str) -> None:
    line = Line(protocol)
    line.ask(message)
    assert len(line.leg.faults) == 1
    assert expected in line.leg.faults[0]


def test_a_message_that_is_too_long_for_asterisk_ends_the_call() -> None:
    line = Line("asterisk")
    line.ask(b"\0" * 65_501)
    assert line.leg.agent_hung_up


def test_bytes_of_audiosocket_may_be_cut_anywhere() -> None:
    line = Line("audiosocket")
    stream = b"".join(one for one in media(line, 100) if isinstance(one, bytes)) + b"\x00\x00\x00"
    line.ask(*(stream[at : at + 7] for at in range(0, len(stream), 7)))
    line.wait(100)
    np.testing.assert_array_equal(line.heard(0, 100), line.side.audio.decode(tone(line.side.audio, 100)))
    assert line.leg.agent_hung_up


def test_telnyx_sends_neighbours_in_the_wrong_order_with_a_seed_and_loses_none() -> None:
    side = SIDES["telnyx"](Terms(seed=7))
    sent = [message for number in range(200) for message in side.caller(bytes([number]) * 160)] + [*side.stop()]
    chunks = [int(found["media"]["chunk"]) for found in map(json.loads, sent) if found["event"] == "media"]
    assert sorted(chunks) == list(range(1, 201))
    late = sum(later < earlier for earlier, later in itertools.pairwise(chunks))
    assert 10 < late < 100
    assert max(abs(chunk - place) for place, chunk in enumerate(chunks, 1)) == 1
