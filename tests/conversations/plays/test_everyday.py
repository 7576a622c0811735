"""What happens on any day: asked to repeat, both begin at once, only noise, a lost line, a typed question."""

import numpy as np

from tests.support.overlaps import Noise, Overlap, render, spoken
from tests.support.play import Theatre
from voice_runtime.session import events


async def test_asked_to_say_it_again_the_agent_says_the_same_again_without_thinking(stage: Theatre) -> None:
    async with stage.call() as call:
        await call.ask(spoken("What is the capital of Italy?", "flite"))
        first = await call.until_told(events.ReplyDone)
        before = call.mark()
        call.session.receive(events.TypedText("Can you say that again?"))
        second = await call.until_told(events.ReplyDone, before)

    assert second.heard == first.heard
    assert "thinker" not in call.of(events.Timing)[-1].event.ms  # the words are the same since they are its own


async def test_when_both_begin_at_once_the_caller_is_heard(stage: Theatre) -> None:
    greeting = "Good day! This is the reading room of the old library in the centre of the town."
    async with stage.call(greeting=greeting) as call:
        await call.until(lambda: bool(call.of(events.ReplyStarted)))
        await call.say(spoken("What is the capital of France?", "festival"))
        await call.until(lambda: any(moment.event.is_final for moment in call.of(events.TranscriptReady)))

    assert call.of(events.ReplyDone)[0].event.status == "interrupted"
    assert "capital" in call.of(events.TranscriptReady)[-1].event.text.lower()


async def test_noise_alone_is_not_answered(stage: Theatre) -> None:
    street = Overlap("street", "noise", question="-", after_ms=400, noise=Noise("street", 5.0, 4.0, 3))
    async with stage.call() as call:
        await call.say(render(street))
        await call.listen(2.0)

    assert not call.of(events.ReplyStarted)


async def test_a_line_that_is_lost_and_taken_up_again_knows_the_conversation_and_replays_nothing(
    stage: Theatre,
) -> None:
    async with stage.call() as lost:
        await lost.ask(spoken("What is the capital of Italy?", "flite"), after_ms=700)
    assert lost.is_free

    async with stage.call(memory=lost.session.memory) as call:
        await call.listen(1.0)
        assert not call.told
        before = [message.text for message in call.session.memory.messages]
        await call.ask(spoken("And of Spain?", "flite"))

    assert any("capital" in text.lower() for text in before)
    assert before[-1] in [message.text for message in call.session.memory.messages]
    assert call.fenced_samples == 0


async def test_a_question_may_be_typed_while_the_agent_speaks(stage: Theatre) -> None:
    async with stage.call() as call:
        await call.ask(spoken("Tell me a story about a dog.", "flite"), after_ms=600)
        before = call.mark()
        call.session.receive(events.TypedText("What is the capital of Spain?"))
        await call.until_told(events.ReplyDone, before)
        await call.hear_answer(200, before)

    assert [moment.event.status for moment in call.of(events.ReplyDone)] == ["interrupted"]


async def test_a_long_turn_is_heard_whole(stage: Theatre) -> None:
    parts = [f"My friend number {number} likes to read books in the garden." for number in ("one", "two", "three")]
    gap = np.zeros(4_000, np.float32)
    async with stage.call() as call:
        await call.ask(np.concatenate([piece for part in parts for piece in (spoken(part, "festival"), gap)]))

    text = call.of(events.TranscriptReady)[-1].event.text.lower()
    assert text.count("garden") == 3
