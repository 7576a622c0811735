"""Agent: greets. Nobody answers. Agent: asks whether anybody is there, says goodbye, hangs up."""

from typing import Any

from tests.support.overlaps import spoken
from tests.support.play import Theatre
from tests.support.speech import recognise, word_error_rate
from voice_runtime.session import events
from voice_runtime.session.turn import State

HOUSE: dict[str, Any] = {
    "greeting": "Hello, this is the library.",
    "idle_s": 4.0,
    "idle_prompts": ("Are you still there?",),
}


async def test_a_silent_caller_is_greeted_asked_once_and_told_goodbye(stage: Theatre) -> None:
    async with stage.call(**HOUSE, goodbye="I will hang up now.") as call:
        await call.until_told(events.Closing)

    said = [moment.event.heard for moment in call.of(events.ReplyDone)]
    assert said == ["Hello, this is the library.", "Are you still there?", "I will hang up now."]
    first, second = call.of(events.ReplyDone)[0].at_s, call.of(events.ReplyStarted)[1].at_s
    assert 4.0 <= second - first < 4.2
    heard = recognise(call.loudspeaker.sound(call.told[0].at_s, first), 24_000)
    assert word_error_rate("Hello, this is the library.", heard) <= 0.2
    assert call.session.state is State.CLOSED


async def test_a_caller_who_answers_in_time_is_not_asked_again_until_as_quiet_as_before(stage: Theatre) -> None:
    async with stage.call(**HOUSE) as call:
        await call.until_told(events.ReplyDone)
        await call.listen(2.0)
        await call.ask(spoken("What is the capital of France?", "flite"))
        assert "capital" in call.of(events.TranscriptReady)[-1].event.text.lower()
        done = await call.until_told(events.ReplyDone, call.mark())
        since = call.mark()
        await call.listen(3.5)

    assert done.status == "completed"
    assert not call.of(events.ReplyStarted, since)


async def test_a_caller_who_speaks_over_the_goodbye_keeps_the_call(stage: Theatre) -> None:
    goodbye = "Nobody seems to be there, so I will hang up in a moment and wish you a very good day."
    async with stage.call(idle_s=1.0, idle_prompts=(), goodbye=goodbye) as call:
        await call.hear_answer(500)
        await call.say(spoken("Wait! What is the capital of France?", "flite"))
        await call.until(lambda: len(call.of(events.ReplyDone)) == 2)

    assert [moment.event.status for moment in call.of(events.ReplyDone)] == ["interrupted", "completed"]
    assert not call.of(events.Closing)
