"""Silero voice activity detection: how likely is it that a frame holds speech. Decides nothing about turns."""

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from voice_runtime.models.onnx import session

RATE_HZ = 16_000
FRAME_SAMPLES = 512
CONTEXT_SAMPLES = 64
STATE_SHAPE = (2, 1, 128)


class SileroVad:
    """Silero VAD v6, shared by every conversation: it holds the weights, a stream holds the state.

    Source: silero-vad 6.2.3, silero_vad/data/silero_vad.onnx and utils_vad.py (OnnxWrapper).
    """

    def __init__(self, model: Path) -> None:
        self._session = session(model)

    def open(self) -> "VadStream":
        """Start a stream in the state of silence."""
        return VadStream(self._session)


class VadStream:
    """The state of one audio stream: the recurrent state and the last 64 samples of the frame before.

    Not safe for two threads at once; two streams never affect each other.
    """

    def __init__(self, model: onnxruntime.InferenceSession) -> None:
        self._session = model
        self._state = np.zeros(STATE_SHAPE, np.float32)
        self._window = np.zeros((1, CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._rate = np.array(RATE_HZ, np.int64)

    def push(self, frame: NDArray[np.float32]) -> float:
        """Return the probability, 0 to 1, that the next 32 ms hold speech. 0.12 ms on one thread.

        frame: float32, shape (512,), in [-1.0, 1.0], 16 kHz, contiguous with the frame before

        Raises ValueError for another shape or dtype.
        """
        if frame.shape != (FRAME_SAMPLES,) or frame.dtype != np.float32:
            raise ValueError(f"frame is {frame.dtype}{frame.shape}, expected float32({FRAME_SAMPLES},)")
        self._window[0, :CONTEXT_SAMPLES] = self._window[0, -CONTEXT_SAMPLES:]
        self._window[0, CONTEXT_SAMPLES:] = frame
        feeds = {"input": self._window, "state": self._state, "sr": self._rate}
        probability, self._state = self._session.run(None, feeds)
        return float(probability[0, 0])
