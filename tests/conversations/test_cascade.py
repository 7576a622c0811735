"""pipelines/cascade.toml: Hibari speaks each clause by itself, and no talker runs."""

from collections.abc import Iterator

import pytest

from tests.support.serving import Served, serving
from tests.support.speech import recognise, synthesise
from voice_runtime import client
from voice_runtime.audio.pcm import to_samples
from voice_runtime.cli import shared


@pytest.fixture(scope="module")
def cascade() -> Iterator[Served]:
    with serving(shared("pipelines") / "cascade.toml") as server:
        yield server


async def test_a_question_is_answered_aloud_and_the_next_answer_interrupted(cascade: Served) -> None:
    async with client.call(cascade.url) as caller:
        await caller.say(synthesise("What is the capital of Italy?", "flite"))
        await caller.wait_for("reply_done", status="completed")
        assert "Rome" in "".join(event["text"] for event in caller.events("reply_text"))
        assert "rome" in recognise(to_samples(caller.audio()), 24_000).lower()

        since = len(caller.received)
        await caller.send(type="text", text="Tell me a long story about a little dog.")
        await caller.wait_for_audio(since)
        await caller.send(type="interrupt")
        await caller.wait_for("reply_done", since, status="interrupted")

    stages = cascade.wait_idle()["stages"]
    assert set(stages) == {"asr", "turn_end", "thinker", "text", "speech"}
