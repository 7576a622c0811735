import numpy as np
import pytest

from tests.support.speech import (
    RATE_HZ,
    VOICES,
    Voice,
    human_clips,
    pooled_word_error_rate,
    recognise,
    resample,
    synthesise,
    with_silence,
    word_error_rate,
)

SENTENCE = "I like to drink a cup of tea in the morning."


@pytest.mark.parametrize("voice", VOICES)
def test_the_second_recogniser_reads_back_each_voice(voice: Voice) -> None:
    samples = with_silence(synthesise(SENTENCE, voice), before_s=0.3, after_s=0.3)
    assert word_error_rate(SENTENCE, recognise(samples, RATE_HZ)) <= 0.1


def test_a_clip_at_24_khz_is_read_as_at_16_khz() -> None:
    samples = synthesise(SENTENCE, "flite")
    assert word_error_rate(SENTENCE, recognise(resample(samples, RATE_HZ, 24_000), 24_000)) <= 0.1


def test_people_are_recognised_within_a_fifth_of_their_words() -> None:
    clips = human_clips()
    assert len(clips) == 10
    assert pooled_word_error_rate((clip.text, recognise(clip.samples, RATE_HZ)) for clip in clips) < 0.2


@pytest.mark.parametrize(
    ("reference", "hypothesis"),
    [
        ("Twenty-one cats sat down.", "21 CATS SAT DOWN"),
        ("Count one, two, three!", "count 1 2 3"),
        ("It is a colour.", "it's a color"),
    ],
)
def test_case_number_style_and_spelling_are_no_errors(reference: str, hypothesis: str) -> None:
    assert word_error_rate(reference, hypothesis) == 0.0


def test_errors_are_counted_over_all_reference_words() -> None:
    assert word_error_rate("the cat sat down", "the dog sat down") == 0.25
    assert (
        pooled_word_error_rate([("the cat sat down", "the dog sat down"), ("yes it did so", "yes it did so")]) == 0.125
    )


def test_resampling_keeps_a_tone() -> None:
    time_s = np.arange(4_800) / 48_000
    tone = np.sin(2 * np.pi * 440 * time_s).astype(np.float32)
    there_and_back = resample(resample(tone, 48_000, 16_000), 16_000, 48_000)
    assert np.abs(there_and_back - tone)[480:-480].max() < 0.02
