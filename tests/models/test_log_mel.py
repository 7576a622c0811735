"""The log-mel front end against transformers' Whisper feature extractor."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.speech import human_clips
from voice_runtime.models.log_mel import MEL_BANDS, RATE_HZ, log_mel
from voice_runtime.sglang_backend import cpu_compat

WINDOW_SAMPLES = 8 * RATE_HZ


@pytest.fixture(scope="module")
def oracle() -> Any:
    cpu_compat.prepare()
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(chunk_length=8)


def expected(oracle: Any, audio: NDArray[np.float32]) -> NDArray[np.float32]:
    features: NDArray[np.float32] = oracle(audio, sampling_rate=RATE_HZ, return_tensors="np").input_features[0]
    return features


def eight_seconds(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(audio[:WINDOW_SAMPLES], (0, max(0, WINDOW_SAMPLES - len(audio))))


def test_features_of_recorded_speech_equal_the_oracle_s(oracle: Any) -> None:
    for clip in human_clips():
        audio = eight_seconds(clip.samples)
        ours = log_mel(audio)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, expected(oracle, audio), atol=2e-4)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    level=st.floats(1e-4, 1.0),
    silent_s=st.floats(0.0, 7.9),
    tone_hz=st.floats(20.0, 8000.0),
)
def test_features_of_any_noise_tone_and_silence_equal_the_oracle_s(
    oracle: Any, seed: int, level: float, silent_s: float, tone_hz: float
) -> None:
    rng = np.random.default_rng(seed)
    tone = np.sin(2 * np.pi * tone_hz * np.arange(WINDOW_SAMPLES) / RATE_HZ)
    audio = (level * (tone + 0.1 * rng.standard_normal(WINDOW_SAMPLES))).astype(np.float32)
    audio[: int(silent_s * RATE_HZ)] = 0.0
    np.testing.assert_allclose(log_mel(audio), expected(oracle, audio), atol=2e-4)


@given(samples=st.integers(201, 4000))
def test_there_is_one_column_for_each_whole_10_ms(samples: int) -> None:
    assert log_mel(np.ones(samples, np.float32)).shape == (MEL_BANDS, samples // 160)
