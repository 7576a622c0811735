"""Silero VAD against the package's own wrapper."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from silero_vad.utils_vad import OnnxWrapper

from tests.support.speech import human_clips
from voice_runtime.assets import locate
from voice_runtime.models.vad import FRAME_SAMPLES, RATE_HZ, SileroVad


@pytest.fixture(scope="module")
def vad() -> SileroVad:
    return SileroVad(locate("silero-vad"))


def frames_of(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
    return samples[:whole].reshape(-1, FRAME_SAMPLES)


def noise(frames: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).normal(0.0, 0.1, (frames, FRAME_SAMPLES)).astype(np.float32)


def test_probabilities_equal_those_of_the_package_s_own_wrapper(vad: SileroVad) -> None:
    theirs = OnnxWrapper(str(locate("silero-vad")), force_onnx_cpu=True)
    ours = vad.open()
    for frame in frames_of(human_clips()[0].samples):
        assert ours.push(frame) == theirs(torch.from_numpy(frame), RATE_HZ).item()


def test_speech_is_likely_in_speech_and_unlikely_in_noise_and_silence(vad: SileroVad) -> None:
    def mean(frames: NDArray[np.float32]) -> float:
        stream = vad.open()
        return float(np.mean([stream.push(frame) for frame in frames]))

    assert mean(frames_of(human_clips()[0].samples)) > 0.8
    assert mean(noise(60)) < 0.1
    assert mean(np.zeros((60, FRAME_SAMPLES), np.float32)) < 0.1


def test_streams_that_take_turns_hear_what_each_would_hear_alone(vad: SileroVad) -> None:
    speech, hiss = frames_of(human_clips()[1].samples)[:40], noise(40)
    alone = vad.open()
    expected = [alone.push(frame) for frame in speech]
    mine, other = vad.open(), vad.open()
    heard = []
    for frame, disturbance in zip(speech, hiss, strict=True):
        heard.append(mine.push(frame))
        other.push(disturbance)
    assert heard == expected


def test_the_frame_that_was_pushed_may_be_overwritten(vad: SileroVad) -> None:
    speech = frames_of(human_clips()[1].samples)[:10]
    kept, reused = vad.open(), vad.open()
    buffer = np.empty(FRAME_SAMPLES, np.float32)
    for frame in speech:
        buffer[:] = frame
        assert reused.push(buffer) == kept.push(frame)
        buffer[:] = 1.0


@pytest.mark.parametrize("frame", [np.zeros(480, np.float32), np.zeros(512), np.zeros((1, 512), np.float32)])
def test_a_frame_of_another_shape_or_type_is_refused(vad: SileroVad, frame: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"expected float32\(512,\)"):
        vad.open().push(frame)
