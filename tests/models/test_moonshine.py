"""Moonshine on recorded people, alone and in company."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.speech import human_clips, pooled_word_error_rate
from voice_runtime.assets import locate
from voice_runtime.errors import RequestError
from voice_runtime.models.moonshine import RATE_HZ, Moonshine


@pytest.fixture(scope="module")
def moonshine() -> Moonshine:
    return Moonshine(locate("moonshine-encoder"), locate("moonshine-decoder"), locate("moonshine-tokenizer"))


@pytest.fixture(scope="module")
def alone(moonshine: Moonshine) -> list[str]:
    return [moonshine.transcribe([clip.samples])[0].text for clip in human_clips()]


def test_one_word_in_ten_at_most_is_wrong_on_recorded_people(alone: list[str]) -> None:
    references = [clip.text for clip in human_clips()]
    assert pooled_word_error_rate(zip(references, alone, strict=True)) < 0.1


@settings(max_examples=8, deadline=None)
@given(company=st.lists(st.integers(0, 9), min_size=2, max_size=3))
def test_a_clip_in_company_has_the_text_it_has_alone(
    moonshine: Moonshine, alone: list[str], company: list[int]
) -> None:
    clips = [human_clips()[i].samples for i in company]
    assert [reading.text for reading in moonshine.transcribe(clips)] == [alone[i] for i in company]


def test_no_clips_give_no_texts(moonshine: Moonshine) -> None:
    assert moonshine.transcribe([]) == []


def test_words_that_were_said_are_surer_than_what_is_read_in_a_crowd(moonshine: Moonshine) -> None:
    said = [moonshine.transcribe([clip.samples])[0].confidence for clip in human_clips()]
    crowd = sum(clip.samples[: 2 * RATE_HZ] for clip in human_clips()[:5])
    assert moonshine.transcribe([crowd[::-1].copy()])[0].confidence < min(said)


@pytest.mark.parametrize("duration_s", [0.1, 30.0])
def test_noise_of_the_shortest_and_longest_clip_ends(moonshine: Moonshine, duration_s: float) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.05, round(duration_s * RATE_HZ)).astype(np.float32)
    (reading,) = moonshine.transcribe([noise])
    assert len(reading.text.split()) <= 6.5 * duration_s + 8


@pytest.mark.parametrize(
    ("clip", "found"),
    [
        (np.zeros(1599, np.float32), "0.100 s, expected 0.1 s to 30.0 s"),
        (np.zeros(30 * RATE_HZ + 1, np.float32), "30.000 s, expected 0.1 s to 30.0 s"),
        (np.zeros(RATE_HZ), r"float64\(16000,\), expected float32"),
        (np.zeros((1, RATE_HZ), np.float32), r"float32\(1, 16000\), expected float32"),
    ],
)
def test_a_clip_that_cannot_be_heard_is_refused_with_what_was_found_and_expected(
    moonshine: Moonshine, clip: NDArray[np.float32], found: str
) -> None:
    with pytest.raises(RequestError, match=found):
        moonshine.transcribe([clip])
