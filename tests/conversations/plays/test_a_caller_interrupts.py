"""Caller: asks for a story. Agent: tells it. Caller: "Wait! What is the capital of Spain?" Agent: stops and answers."""

from tests.support.overlaps import spoken
from tests.support.play import Theatre
from voice_runtime.session import events


async def test_the_agent_stops_and_answers_what_was_asked_and_keeps_only_what_was_heard(stage: Theatre) -> None:
    async with stage.call() as call:
        await call.ask(spoken("Tell me a story about a dog.", "flite"), after_ms=1_200)
        before = call.mark()
        await call.say(spoken("Wait! What is the capital of Spain?", "flite"))
        cut = await call.until_told(events.ReplyDone, before)
        await call.hear_answer(300, before)
        told = call.session.memory.messages
        done = (await call.until_told(events.ReplyDone, call.mark())).heard

    assert cut.status == "interrupted"
    shown = "".join(moment.event.text for moment in call.of(events.ReplyText) if moment.event.reply == cut.reply)
    assert cut.heard
    assert shown.startswith(cut.heard)
    assert len(cut.heard) < len(shown)
    story, question = told[1], told[2]
    assert (story.text, story.was_cut) == (cut.heard, True)
    assert "capital" in question.text.lower()
    assert done
    assert call.fenced_samples == 0
