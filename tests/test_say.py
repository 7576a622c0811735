"""`voice-runtime say`: the words of the text are in the file, and what cannot be said is refused by name."""

import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.support.speech import recognise, word_error_rate
from voice_runtime import say
from voice_runtime.audio.pcm import to_samples
from voice_runtime.cli import shared
from voice_runtime.errors import ConfigError, VoiceRuntimeError
from voice_runtime.pipeline.config import load

CASCADE = shared("pipelines") / "cascade.toml"  # its voice has no SGLang: it can be built in the process of the tests
TEXT = "The train to the city leaves at noon, and it is never late."


def heard(path: Path) -> str:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        samples = to_samples(file.readframes(file.getnframes()))
    assert 2 < len(samples) / 24_000 < 8
    assert np.abs(samples).max() > 0.1
    return recognise(samples, 24_000)


@pytest.mark.parametrize(
    ("given", "typed"),
    [([TEXT], ""), (["--pipeline", str(CASCADE)], TEXT)],
    ids=["argument, default voice", "standard input, cascade"],
)
def test_the_words_of_the_text_are_in_the_file(tmp_path: Path, given: list[str], typed: str) -> None:
    out = tmp_path / "said.wav"
    command = [sys.executable, "-m", "voice_runtime.cli", "say", "--out", str(out), *given]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=120, check=True)
    assert str(out) in done.stdout
    assert word_error_rate(TEXT, heard(out)) < 0.2


def test_a_text_without_a_word_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(VoiceRuntimeError, match="nothing to say"):
        say.say(load(CASCADE), "... ", tmp_path / "said.wav")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing is not there"):
        say.say(load(CASCADE), TEXT, tmp_path / "missing" / "said.wav")
