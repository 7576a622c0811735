"""Hibari's voice, heard by the recogniser."""

import numpy as np
import pytest

from tests.support.speech import recognise, word_error_rate
from voice_runtime.errors import ConfigError
from voice_runtime.models.hibari import RATE_HZ, HibariVoice

SENTENCE = "The capital of France is Paris, and the river there is called the Seine."


@pytest.fixture(scope="module")
def voice() -> HibariVoice:
    return HibariVoice()


def test_a_second_recogniser_understands_what_is_spoken(voice: HibariVoice) -> None:
    samples = voice.speak(SENTENCE)
    assert samples.dtype == np.float32
    assert np.abs(samples).max() < 1.0
    assert word_error_rate(SENTENCE, recognise(samples, RATE_HZ)) < 0.15


def test_a_text_always_gives_the_same_samples(voice: HibariVoice) -> None:
    first = voice.speak(SENTENCE)
    voice.speak("Something else in between.")
    np.testing.assert_array_equal(voice.speak(SENTENCE), first)
    np.testing.assert_array_equal(HibariVoice().speak(SENTENCE), first)


def test_speech_begins_within_30_ms_and_ends_with_a_pause_of_200_ms(voice: HibariVoice) -> None:
    for text in ("Five.", "Hello there.", "She said so.", SENTENCE):
        audible = np.flatnonzero(np.abs(samples := voice.speak(text)) > 0.001)
        assert audible[0] <= 0.03 * RATE_HZ
        assert len(samples) - 1 - audible[-1] == 0.2 * RATE_HZ


def test_a_word_that_no_lexicon_has_is_spoken_too(voice: HibariVoice) -> None:
    assert len(voice.speak("zorbified")) > 0.3 * RATE_HZ


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!", "\N{SLIGHTLY SMILING FACE}", "\N{EM DASH}"])
def test_a_text_with_nothing_to_say_gives_no_samples(voice: HibariVoice, text: str) -> None:
    assert voice.speak(text).shape == (0,)


def test_both_of_its_sessions_compute_on_one_thread(voice: HibariVoice) -> None:
    for session in (voice._hibari.sess, voice._hibari.g2p.oov.sess):
        assert session.get_session_options().intra_op_num_threads == 1


def test_a_voice_that_would_be_downloaded_is_refused() -> None:
    with pytest.raises(ConfigError, match="'emma', expected 'heart'"):
        HibariVoice("emma")
