"""Smart Turn, with our features and with those of the package that ships it."""

import importlib.util
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.speech import human_clips
from voice_runtime.assets import locate
from voice_runtime.models.onnx import session
from voice_runtime.models.smart_turn import WINDOW_SAMPLES, SmartTurn


@pytest.fixture(scope="module")
def smart_turn() -> SmartTurn:
    return SmartTurn(locate("smart-turn"))


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    """pipecat's own features. Its analyser needs packages that are not installed; this file needs only numpy."""
    file = locate("smart-turn").parents[1] / "_whisper_features.py"
    spec = importlib.util.spec_from_file_location("whisper_features", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_probabilities_equal_those_with_pipecat_s_own_features(smart_turn: SmartTurn, oracle: ModuleType) -> None:
    model = session(locate("smart-turn"))
    differences = []
    for clip in human_clips():
        recent = clip.samples[-WINDOW_SAMPLES:]
        features = oracle.compute_whisper_log_mel_features(np.pad(recent, (WINDOW_SAMPLES - len(recent), 0)))
        (expected,) = model.run(None, {"input_features": features[None]})
        differences.append(abs(smart_turn.probability(clip.samples) - expected[0, 0]))
    # Features that differ by rounding alone, 5e-6, can move an int8 activation by a step.
    assert np.median(differences) < 0.001
    assert max(differences) < 0.1


def test_a_finished_turn_is_likelier_over_than_the_same_turn_cut_short(smart_turn: SmartTurn) -> None:
    clips = [clip.samples for clip in human_clips()]
    finished = [smart_turn.probability(samples) for samples in clips]
    cut = [smart_turn.probability(samples[: len(samples) * 6 // 10]) for samples in clips]
    assert np.mean(finished) > np.mean(cut) + 0.1


def test_only_the_last_eight_seconds_count(smart_turn: SmartTurn) -> None:
    turn = np.concatenate([clip.samples for clip in human_clips()[:3]])
    assert len(turn) > WINDOW_SAMPLES
    assert smart_turn.probability(turn) == smart_turn.probability(turn[-WINDOW_SAMPLES:])


def test_an_empty_turn_has_a_probability_too(smart_turn: SmartTurn) -> None:
    assert 0.0 <= smart_turn.probability(np.zeros(0, np.float32)) <= 1.0


@pytest.mark.parametrize("audio", [np.zeros(100), np.zeros((1, 100), np.float32)])
def test_audio_of_another_shape_or_type_is_refused(smart_turn: SmartTurn, audio: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"expected float32\(T,\)"):
        smart_turn.probability(audio)
