"""Conformance: what carriers say is understood, odd but legal things too, and what we say is as they want it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.telephony import transcripts
from tests.gateway.telephony.transcripts import Heard
from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec


@pytest.mark.parametrize("path", transcripts.PATHS, ids=lambda path: path.stem)
def test_a_conversation_means_what_its_record_says(path: Path) -> None:
    codec = transcripts.codec_of(path)
    for at, line in enumerate(transcripts.lines(path)):
        if isinstance(line, Heard):
            assert codec.receive(line.message) == line.events, f"line {at + 1}"
        else:
            assert codec.send(line.command) == line.messages, f"line {at + 1}"


def test_there_is_a_conversation_for_every_codec() -> None:
    assert {path.stem.partition("-")[0] for path in transcripts.PATHS} == set(transcripts.EVERY_CODEC)


@pytest.mark.parametrize("path", transcripts.PATHS, ids=lambda path: path.stem)
def test_a_conversation_begins_once_and_nothing_follows_its_end(path: Path) -> None:
    codec = transcripts.codec_of(path)
    heard = [line for line in transcripts.lines(path) if isinstance(line, Heard)]
    events = [type(event) for line in heard for event in codec.receive(line.message)]
    assert events[0] is base.Started
    assert events.count(base.Started) == 1
    assert base.Stopped not in events[:-1]


AUDIOSOCKET = b"".join(
    line.message
    for line in transcripts.lines(transcripts.FOLDER / "audiosocket.jsonl")
    if isinstance(line, Heard) and isinstance(line.message, bytes)
)


def joined(events: list[base.CarrierEvent]) -> list[base.CarrierEvent]:
    """Sound in one piece between other events: where it was cut is not a fact about the call."""
    whole: list[base.CarrierEvent] = []
    for event in events:
        if isinstance(event, base.Audio) and whole and isinstance(whole[-1], base.Audio):
            whole[-1] = base.Audio(whole[-1].data + event.data)
        else:
            whole.append(event)
    return whole


@given(cuts=st.lists(st.integers(0, len(AUDIOSOCKET)), max_size=20).map(sorted))
def test_audiosocket_frames_mean_the_same_however_their_bytes_are_cut(cuts: list[int]) -> None:
    codec, expected = AudioSocketCodec(), AudioSocketCodec().receive(AUDIOSOCKET)
    pieces = [AUDIOSOCKET[start:end] for start, end in zip([0, *cuts], [*cuts, len(AUDIOSOCKET)], strict=True)]
    assert [event for piece in pieces for event in codec.receive(piece)] == expected
    assert len(joined(expected)) == 5


def test_audiosocket_frames_mean_the_same_byte_by_byte() -> None:
    codec = AudioSocketCodec()
    events = [event for byte in AUDIOSOCKET for event in codec.receive(bytes([byte]))]
    assert events == AudioSocketCodec().receive(AUDIOSOCKET)
