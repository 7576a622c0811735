"""A spoken question in, a spoken answer out, over real sockets and the whole default pipeline."""

import asyncio
import json

import numpy as np
import pytest
from websockets.asyncio.client import connect

from tests.support.serving import Served
from tests.support.speech import Voice, recognise, synthesise, word_error_rate
from voice_runtime import client
from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.audio.resample import Resampler

RATE_HZ = 16_000


def question(text: str = "What is the capital of Italy?", voice: Voice = "flite") -> Samples:
    return synthesise(text, voice)


def at_rate(samples: Samples, rate_hz: int) -> Samples:
    resampler = Resampler(RATE_HZ, rate_hz)
    return np.concatenate([resampler.push(samples), resampler.flush()])


@pytest.fixture(scope="module")
def caller(shared_server: Served) -> client.Caller:
    """Who has asked a question aloud and heard the answer."""

    async def asked() -> client.Caller:
        async with client.call(shared_server.url) as caller:
            await caller.say(question())
            await caller.wait_for("reply_done", status="completed")
            return caller

    shared_server.wait_ready()
    shared_server.wait_idle()
    return asyncio.run(asked())


def test_a_spoken_question_gets_a_spoken_answer(caller: client.Caller) -> None:
    assert "capital" in caller.events("transcript")[0]["text"].lower()
    reply = "".join(event["text"] for event in caller.events("reply_text"))
    assert "Rome" in reply
    heard = recognise(to_samples(caller.audio()), 24_000)
    assert word_error_rate(reply, heard) < 0.2, heard
    assert len(caller.events("reply_text")) > 2, "the words did not come with the sound that begins them"


def test_the_events_of_a_turn_come_in_the_order_of_the_protocol(caller: client.Caller) -> None:
    order = [one.event["type"] if one.event else "audio" for one in caller.received]
    assert "reply_text" in order[order.index("reply_started") : order.index("timing")]
    seen = [kind for kind in dict.fromkeys(order) if kind != "reply_text"]  # after the breath before the first word
    assert seen == [
        "ready",
        "speech_started",
        "transcript",
        "speech_stopped",
        "reply_started",
        "audio",
        "timing",
        "reply_done",
    ]
    assert order[-1] == "reply_done"


def test_audio_is_paced_and_never_more_than_400_ms_ahead_of_play_out(caller: client.Caller) -> None:
    frames = [one for one in caller.received if one.event is None]
    starts_s = frames[0].at_s
    sent_ms = np.cumsum([len(frame.pcm) / 48 for frame in frames])
    passed_ms = np.array([(frame.at_s - starts_s) * 1000 for frame in frames])
    assert (sent_ms - passed_ms).max() <= 400 + 20  # the first frame's own way through the socket is not the server's
    assert sent_ms[-1] > 1_000, "the answer is too short to show pacing"
    assert caller.loudspeaker.underruns == 0


async def test_every_rate_is_taken_and_given(server: Served) -> None:
    async def asked(rate_hz: int) -> client.Caller:
        async with client.call(server.url, rate_hz, rate_hz) as caller:
            await caller.say(at_rate(question(), rate_hz))
            await caller.wait_for("reply_done", status="completed")
            return caller

    rates_hz = (8_000, 24_000, 48_000)  # all three at once
    for rate_hz, caller in zip(rates_hz, await asyncio.gather(*map(asked, rates_hz)), strict=True):
        reply = "".join(event["text"] for event in caller.events("reply_text"))
        assert "Rome" in reply, rate_hz
        heard = recognise(at_16k(caller.audio(), rate_hz), RATE_HZ)
        assert "rome" in heard.lower(), (rate_hz, heard)


def at_16k(pcm: bytes, rate_hz: int) -> Samples:
    resampler = Resampler(rate_hz, RATE_HZ)
    return np.concatenate([resampler.push(to_samples(pcm)), resampler.flush()])


async def test_a_typed_question_is_answered_aloud(server: Served) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", status="completed")

    assert "Rome" in "".join(event["text"] for event in caller.events("reply_text"))
    assert len(caller.audio()) > 24_000


async def test_the_example_turns_come_from_the_radix_cache(server: Served) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="text", text="How are you today?")
        await caller.wait_for("reply_done")

    tokens = caller.events("timing")[0]["tokens"]
    # All but the caller's own words and the template around them.
    assert tokens["prompt_tokens"] - tokens["cached_tokens"] <= 16
    assert tokens["cached_tokens"] >= 40
    assert 'voice_thinker_tokens_total{kind="cached"}' in server.get("/metrics")[1]


async def test_a_client_that_stops_sending_audio_has_ended_its_turn(server: Served) -> None:
    async with connect(f"{server.url}/v1/pcm") as socket:
        await socket.send(
            to_pcm(question())
        )  # with the end of its last word, as from a microphone that is switched off
        async with asyncio.timeout(20):
            while (event := json.loads(await socket.recv()))["type"] != "transcript":
                pass
    assert "capital" in event["text"].lower()
