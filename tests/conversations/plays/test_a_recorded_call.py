"""The server keeps this call. Caller: asks. Agent: answers. Both are on the recording, each on its side."""

import json
import wave
from pathlib import Path

from tests.support.overlaps import spoken
from tests.support.play import Theatre
from tests.support.speech import recognise
from voice_runtime.audio.pcm import to_samples
from voice_runtime.session import events
from voice_runtime.session.recording import Recorder


async def test_both_voices_and_what_happened_are_kept(stage: Theatre, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "cafe", longest_s=60)
    async with stage.call(recorder=recorder) as call:
        await call.ask(spoken("What is the capital of Italy?", "flite"))
        await call.until_told(events.ReplyDone)
    recorder.close()
    assert recorder.join(10)

    with wave.open(str(tmp_path / "cafe.wav")) as file:
        assert (file.getnchannels(), file.getframerate()) == (2, 16_000)
        sound = to_samples(file.readframes(file.getnframes())).reshape(-1, 2)
    assert "capital of italy" in recognise(sound[:, 0].copy(), 16_000).lower()
    assert "rome" in recognise(sound[:, 1].copy(), 16_000).lower()
    happened = json.loads((tmp_path / "cafe.json").read_text())
    names = [entry["name"] for entry in happened]
    assert names.index("SpeechStarted") < names.index("ReplyStarted") < names.index("ReplyDone")
    assert "Italy" not in json.dumps(happened)
