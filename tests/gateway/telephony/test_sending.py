"""Sizes of what is sent, in each carrier's terms, and what a carrier cannot do."""

import base64
import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.telephony import transcripts
from tests.gateway.telephony.test_refusals import begun
from tests.gateway.telephony.transcripts import EVERY_CODEC
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec

SIZES = {  # bytes of one message: least, step, most; the recorded calls' formats
    "twilio": (1, 1, 10**9),
    "telnyx": (160, 1, 240_000),
    "plivo": (1, 1, 10**9),
    "vonage": (640, 640, 640),
    "exotel": (3_200, 320, 100_000),
    "asterisk": (160, 160, 65_500),
    "jambonz": (2, 2, 96_000),
    "freeswitch": (2, 2, 96_000),
    "audiosocket": (320, 320, 320),
}
SILENCE = {"telnyx": b"\xd5", "asterisk": b"\xff"}


def sound_of(message: base.Wire) -> bytes:
    if isinstance(message, str):
        return base64.b64decode(json.loads(message)["media"]["payload"])
    return message[3:] if message[:3] == b"\x10\x01\x40" else message


def test_every_codec_has_its_sizes_here() -> None:
    assert set(SIZES) == set(EVERY_CODEC)


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=30)
@given(size=st.integers(0, 2_000) | st.sampled_from([65_500, 65_501, 100_000, 250_000]))
def test_sound_is_cut_and_filled_to_the_sizes_that_a_carrier_takes(name: str, size: int) -> None:
    least, step, most = SIZES[name]
    data = (bytes(range(1, 251)) * (size // 250 + 1))[:size]
    pieces = [sound_of(message) for message in begun(name).send(base.Play(data))]
    sent = b"".join(pieces)
    assert all(least <= len(piece) <= most and len(piece) % step == 0 for piece in pieces)
    assert sent[:size] == data
    assert len(sent) - size < max(least, step)
    assert set(sent[size:]) <= set(SILENCE.get(name, b"\0"))


@pytest.mark.parametrize("name", [name for name in SIZES if name not in ("twilio", "plivo", "audiosocket")])
def test_the_format_of_a_call_names_the_sizes(name: str) -> None:
    codec = EVERY_CODEC[name]()
    events = [event for message in _start_of(name) for event in codec.receive(message)]
    assert isinstance(events[0], base.Started)
    assert (events[0].audio.least_bytes, events[0].audio.step_bytes) == SIZES[name][:2]


def _start_of(name: str) -> list[base.Wire]:
    return [line.message for line in transcripts.heard("asterisk-plain" if name == "asterisk" else name)]


COMMANDS: dict[str, base.Command] = {
    "clear": base.Clear(),
    "marks": base.Mark("m"),
    "pause": base.Pause(),
}


@pytest.mark.parametrize("name", EVERY_CODEC)
@pytest.mark.parametrize("ability", COMMANDS)
def test_a_command_has_messages_where_the_carrier_is_able_and_none_elsewhere(name: str, ability: str) -> None:
    codec = begun(name)
    assert bool(codec.send(COMMANDS[ability])) == getattr(codec.abilities, ability)


def test_every_command_but_sound_is_an_ability() -> None:
    always = {base.Play, base.Continue, base.HangUp}
    assert {type(command) for command in COMMANDS.values()} | always == set(get_args(base.Command))


def test_only_asterisk_is_told_in_words_to_hang_up() -> None:
    told = {name for name in EVERY_CODEC if begun(name).send(base.HangUp())}
    assert told == {"asterisk", "audiosocket"}


@pytest.mark.parametrize(("rate_hz", "kind"), [(8_000, 0x10), (16_000, 0x12), (24_000, 0x13), (48_000, 0x16)])
def test_an_audiosocket_port_of_a_rate_speaks_in_frames_of_20_ms_of_it(rate_hz: int, kind: int) -> None:
    codec = AudioSocketCodec(rate_hz)
    frame_bytes = rate_hz * 2 // 50
    (started,) = codec.receive(b"\x01\x00\x10" + bytes(16))
    assert isinstance(started, base.Started)
    assert started.audio == base.AudioFormat("l16", rate_hz, frame_bytes, frame_bytes)
    frame = bytes([kind]) + frame_bytes.to_bytes(2) + b"ab" * (frame_bytes // 2)
    assert codec.send(base.Play(b"ab" * frame_bytes)) == [frame, frame]
    assert codec.receive(frame) == [base.Audio(frame[3:])]
