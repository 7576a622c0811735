"""The codec of /v1/pcm: what a client may send, and that nothing else costs more than a refusal."""

import contextlib
import json
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import json_events, raw_pcm
from voice_runtime.gateway.protocols.json_events import MOST_TEXT_CHARACTERS
from voice_runtime.gateway.protocols.raw_pcm import RawPcmCodec
from voice_runtime.session import events


def received(message: object) -> events.CallEvent:
    return RawPcmCodec().receive_text(json.dumps(message))


def refusal(text: str) -> str:
    with pytest.raises(PeerError) as caught:
        RawPcmCodec().receive_text(text)
    assert caught.value.code == "bad_event"
    return str(caught.value)


def test_the_events_of_a_client_are_understood() -> None:
    assert received({"type": "played", "reply": "r1", "ms": 120}) == events.Played("r1", 120.0)
    assert received({"type": "interrupt"}) == events.Interrupt()
    assert received({"type": "text", "text": " What time is it? \n"}) == events.TypedText("What time is it?")
    assert received({"type": "configure"}) == events.Configure({})
    changes = {"instructions": "", "idle_s": 3.0, "idle_prompts": ["Hello?"], "turn": {"draft": False}}
    assert received({"type": "configure", **changes, "timeline": False}) == events.Configure(changes, timeline=False)


@pytest.mark.parametrize(
    "ms",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        pytest.param("1" * 400, id="ones"),
        "true",
        '"1"',
        "null",
        "[]",
    ],
)
def test_a_played_time_that_is_no_number_is_refused(ms: str) -> None:
    refusal(f'{{"type":"played","reply":"r1","ms":{ms}}}')


@pytest.mark.parametrize("ms", [-1.0, 0.0, 1e300, -0.0, 5e-324])
def test_any_finite_played_time_passes(ms: float) -> None:
    assert received({"type": "played", "reply": "r1", "ms": ms}) == events.Played("r1", ms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        "{}",
        '"interrupt"',
        '{"type":"unknown"}',
        '{"type":1}',
        '{"type":"interrupt","more":1}',
        '{"type":"text"}',
        '{"type":"text","text":1}',
        '{"type":"text","text":"\\ud800"}',
        '{"type":"text","text":"\ud800"}',
        '{"type":"played","reply":"r1"}',
        '{"type":"configure","greetings":"Hi."}',
        '{"type":"configure","greeting":1}',
        '{"type":"configure","turn":[]}',
        '{"type":"configure","timeline":"yes"}',
        '{"type":"configure","idle_s":NaN}',
        '{"more":' + "[" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=range(22),
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    assert refusal(text).endswith("expected played, playout, interrupt, text or configure")


@pytest.mark.parametrize("text", ["", " \n\t", pytest.param("x" * (MOST_TEXT_CHARACTERS + 1), id="long")])
def test_a_typed_question_that_is_empty_or_too_long_is_refused(text: str) -> None:
    refused = refusal(json.dumps({"type": "text", "text": text}))
    assert refused == f"text has {len(text)} characters, expected 1 to {MOST_TEXT_CHARACTERS} that can be seen"


def test_the_longest_typed_question_passes() -> None:
    text = "é" * MOST_TEXT_CHARACTERS
    assert received({"type": "text", "text": text}) == events.TypedText(text)


@given(text=st.text(st.characters(), max_size=200))
def test_no_text_brings_anything_but_an_event_or_a_refusal(text: str) -> None:
    with contextlib.suppress(PeerError):
        RawPcmCodec().receive_text(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=5
)


@given(
    message=st.dictionaries(st.sampled_from(["type", "reply", "ms", "text", "turn", "idle_s", "x"]), json_values),
    kind=st.sampled_from(["played", "interrupt", "text", "configure", "x"]),
)
def test_no_fields_bring_anything_but_an_event_or_a_refusal(message: dict[str, object], kind: str) -> None:
    with contextlib.suppress(PeerError):
        event = received({"type": kind, **message})
        assert isinstance(event, events.Played | events.Interrupt | events.TypedText | events.Configure)
        assert not isinstance(event, events.Played) or np.isfinite(event.ms)


@given(data=st.lists(st.binary(max_size=9), max_size=9))
def test_any_bytes_are_audio_however_they_are_cut(data: list[bytes]) -> None:
    codec, whole = RawPcmCodec(), b"".join(data)
    samples = [codec.receive_bytes(piece).samples for piece in data]
    expected = np.frombuffer(whole[: len(whole) // 2 * 2], "<i2")
    assert np.array_equal(np.concatenate([*samples, np.zeros(0, np.float32)]) * 32768, expected)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_rates_of_the_resampler_may_be_asked_for(rate_hz: int) -> None:
    assert raw_pcm.rate(str(rate_hz), "input_rate", 1) == rate_hz


def test_without_a_rate_the_default_is_taken() -> None:
    assert raw_pcm.rate(None, "input_rate", 16_000) == 16_000


@pytest.mark.parametrize(
    "query",
    ["", "0", "-16000", "44100", "16000.0", "1e4", " 16000", "١٦٠٠٠", "²", pytest.param("9" * 5_000, id="nines")],
)
def test_another_rate_is_refused_with_found_and_expected(query: str) -> None:
    with pytest.raises(PeerError, match=r"output_rate is .*, expected one of 8000, 16000, 24000, 48000") as caught:
        raw_pcm.rate(query, "output_rate", 16_000)
    assert caught.value.code == "bad_rate"
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (events.SpeechStarted(), {"type": "speech_started"}),
        (events.SpeechStopped(), {"type": "speech_stopped"}),
        (events.TranscriptReady("hi"), {"type": "transcript", "text": "hi", "final": True}),
        (events.ReplyStarted("r1"), {"type": "reply_started", "reply": "r1"}),
        (events.ReplyText("r1", "hé"), {"type": "reply_text", "reply": "r1", "text": "hé"}),
        (events.Flush("r1"), {"type": "flush", "reply": "r1"}),
        (events.TranscriptReady("hi", False), {"type": "transcript", "text": "hi", "final": False}),
        (events.Pause("r1"), {"type": "pause", "reply": "r1"}),
        (events.Resume("r1"), {"type": "resume", "reply": "r1"}),
        (events.Closing("idle"), {"type": "closing", "reason": "idle"}),
        (
            events.ReplyDone("r1", "interrupted", "Hé"),
            {"type": "reply_done", "reply": "r1", "status": "interrupted", "heard": "Hé"},
        ),
        (
            events.TurnTimeline([(1.5, "Flush", {"reply": "r1"}), (2.0, "judged", {})]),
            {
                "type": "timeline",
                "entries": [{"ms": 1.5, "what": "Flush", "reply": "r1"}, {"ms": 2.0, "what": "judged"}],
            },
        ),
        (
            events.Timing("r1", {"asr": 1.5}, {"completion_tokens": 3.0}, 2, 1.2),
            {
                "type": "timing",
                "reply": "r1",
                "ms": {"asr": 1.5},
                "tokens": {"completion_tokens": 3.0},
                "underruns": 2,
                "models_ms": 1.2,
            },
        ),
        (
            events.Timing("r1", {}, {}, 0, None),
            {"type": "timing", "reply": "r1", "ms": {}, "tokens": {}, "underruns": 0, "models_ms": None},
        ),
        (events.SessionError("bad_event", "no"), {"type": "error", "code": "bad_event", "message": "no"}),
    ],
)
def test_every_event_for_the_client_is_written_as_json(event: events.SessionEvent, expected: dict[str, object]) -> None:
    assert json.loads(json_events.encode(event)) == expected


def test_the_first_message_names_the_session_both_rates_and_the_token_to_go_on_with() -> None:
    rates = {"input_rate": 16_000, "output_rate": 24_000}
    expected = {"type": "ready", "session": "s1", **rates, "resume": "t0ken", "recorded": True}
    assert json.loads(json_events.ready("s1", 16_000, 24_000, "t0ken", recorded=True)) == expected


def test_there_is_a_way_to_write_every_event_of_a_session() -> None:
    assert set(json_events._TYPES) == set(get_args(events.SessionEvent))
    assert len(set(json_events._TYPES.values())) == len(json_events._TYPES)
