"""A whole turn with the program's own voice, pipelines/cpu.toml: answered, understood, interrupted, all given back."""

from collections.abc import Iterator

import pytest

from tests.support.serving import Served, serving
from tests.support.speech import recognise, synthesise
from voice_runtime import client
from voice_runtime.audio.pcm import to_samples
from voice_runtime.cli import shared

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def own_voice() -> Iterator[Served]:
    with serving(shared("pipelines") / "cpu.toml") as server:
        server.wait_ready()
        yield server


async def test_a_spoken_question_is_answered_in_words_that_a_recogniser_understands(own_voice: Served) -> None:
    async with client.call(own_voice.url, RATE_HZ) as caller:
        await caller.say(synthesise("What is the capital of Italy?", "flite"))
        await caller.wait_for("reply_done", status="completed")
        reply = "".join(event["text"] for event in caller.events("reply_text"))
        assert "Rome" in reply
        assert "rome" in recognise(to_samples(caller.audio()), 24_000).lower()
        assert len(caller.events("reply_text")) > 2, "the words did not come with the sound that begins them"


async def test_an_interruption_frees_pages_and_slot_and_the_next_question_is_answered(
    own_voice: Served,
) -> None:
    own_voice.wait_idle()
    async with client.call(own_voice.url, RATE_HZ) as caller:
        await caller.send(type="text", text="Tell me a long story about a little dog.")
        await caller.wait_for_audio()
        await caller.send(type="interrupt")
        await caller.wait_for("reply_done", status="interrupted")
        own_voice.wait_idle()
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", status="completed")
    held = own_voice.wait_idle()["stages"]
    assert held["talker"]["kv_available"] == held["talker"]["kv_total"]
    assert held["code2wav"]["vocoder_slots"] == 0
