"""The loudspeaker stands beside the microphone. Agent: tells a story, and is not interrupted by itself."""

import pytest

from tests.support import overlaps
from tests.support.overlaps import Echo, spoken
from tests.support.play import AGENT_HZ, RATE_HZ, Theatre
from voice_runtime.audio.resample import Resampler
from voice_runtime.session import events


@pytest.mark.parametrize(
    "echo", [Echo(delay_ms=90, level_db=-20, path="loudspeaker"), Echo(delay_ms=200, level_db=-10, path="phone")]
)
async def test_an_echo_does_not_interrupt_and_a_caller_over_it_does(stage: Theatre, echo: Echo) -> None:
    async with stage.call() as call:
        path, thinned = overlaps.echo_stream(echo, AGENT_HZ), Resampler(AGENT_HZ, RATE_HZ)
        call.echo = lambda played: thinned.push(path.push(played))
        await call.ask(spoken("Tell me a story about a dog.", "festival"), after_ms=3_000)
        assert not call.of(events.Flush)
        assert len(call.of(events.SpeechStarted)) == 1
        await call.say(spoken("Stop! What is the capital of Italy?", "festival"))
        await call.until_told(events.Flush)
