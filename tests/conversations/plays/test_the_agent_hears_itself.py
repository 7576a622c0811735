"""The loudspeaker stands beside the microphone. Agent: tells a story, and is not interrupted by itself."""

import pytest

from tests.support.overlaps import Echo, spoken
from tests.support.play import EchoAtMicrophone, Theatre
from voice_runtime.session import events


@pytest.mark.parametrize(
    "echo", [Echo(delay_ms=90, level_db=-20, path="loudspeaker"), Echo(delay_ms=200, level_db=-10, path="phone")]
)
async def test_an_echo_does_not_interrupt_and_a_caller_over_it_does(stage: Theatre, echo: Echo) -> None:
    async with stage.call() as call:
        call.echo = EchoAtMicrophone(echo)
        await call.ask(spoken("Tell me a story about a dog.", "festival"), after_ms=3_000)
        assert not call.of(events.Flush)
        assert len(call.of(events.SpeechStarted)) == 1
        await call.say(spoken("Stop! What is the capital of Italy?", "festival"))
        await call.until_told(events.Flush)
