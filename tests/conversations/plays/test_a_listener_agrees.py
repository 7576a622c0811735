"""Caller: asks for a story. Agent: tells it. Caller: "Yeah." Agent: pauses, and goes on from the same sample."""

import numpy as np

from tests.support.overlaps import spoken
from tests.support.play import AGENT_HZ, Theatre
from voice_runtime.session import events


async def test_the_agent_goes_on_after_a_yeah_and_says_nothing_twice(stage: Theatre) -> None:
    async with stage.call() as call:
        await call.ask(spoken("Tell me a story about a dog.", "festival"), after_ms=900)
        begun_s, before = call.now_s(), call.mark()
        await call.say(spoken("Yes.", "festival"))
        await call.until_told(events.Resume, before)
        done = await call.until_told(events.ReplyDone)

    (pause,), (resume,) = call.of(events.Pause), call.of(events.Resume)
    assert begun_s < pause.at_s < resume.at_s
    silence = call.loudspeaker.sound(pause.at_s + 0.03, resume.at_s - 0.01)
    assert silence.size > AGENT_HZ // 20
    assert not silence.any()
    assert not call.of(events.Flush)
    assert done.status == "completed"
    assert call.fenced_samples == 0
    assert len(call.of(events.ReplyStarted)) == 1
    # All of the reply was heard, once: as long as what was played without the pause and the fade that is played again.
    played_ms = call.loudspeaker.played_ms
    sounded = sum(len(piece.pcm) for piece in call.loudspeaker.heard) * 500 / AGENT_HZ
    assert np.isclose(sounded - played_ms, 20, atol=1)
