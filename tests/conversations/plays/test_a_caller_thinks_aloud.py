"""Caller: "I would like to know ... how tall the Eiffel Tower is." Agent: waits for the end of the sentence."""

from tests.support.overlaps import Overlap, render
from tests.support.play import Theatre
from voice_runtime.session import events


async def test_the_agent_does_not_speak_in_the_middle_of_a_sentence(stage: Theatre) -> None:
    parts = ("I would like to know about the", "history of the city of London.")
    sentence = Overlap("pause", "pause", parts=parts, pauses_ms=(900,), voice="festival")
    async with stage.call() as call:
        await call.say(render(sentence))
        assert not call.of(events.ReplyStarted)
        assert [moment.event.is_final for moment in call.of(events.TranscriptReady)] == [False]
        await call.hear_answer(100)

    final = call.of(events.TranscriptReady)[-1].event
    assert final.is_final
    assert "know" in final.text
    assert "London" in final.text
