"""Smart Turn: has the speaker finished, judged by how it sounds. A hint for the turn taking, not a decision."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voice_runtime.models.log_mel import RATE_HZ, log_mel
from voice_runtime.models.onnx import session

WINDOW_SAMPLES = 8 * RATE_HZ
VARIANCE_FLOOR = 1e-7


class SmartTurn:
    """Smart Turn v3.2, shared by every conversation; it keeps no state.

    Source: pipecat-ai 1.14.0, pipecat/audio/turn/smart_turn/local_smart_turn_v3.py.
    """

    def __init__(self, model: Path) -> None:
        self._session = session(model)

    def probability(self, audio: NDArray[np.float32]) -> float:
        """Return the probability, 0 to 1, that the speaker has finished. 48 ms on one thread, whatever the length.

        audio: float32, shape (T,), 16 kHz, the speaker's turn so far; only the last 8 s are used, and a shorter turn
            is put at the end of 8 s

        The weights are int8, so the last digits mean little: a change of 1e-5 in the features, inaudible, moved a
        probability by up to 0.09.

        Raises ValueError for another shape or dtype.
        """
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise ValueError(f"audio is {audio.dtype}{audio.shape}, expected float32(T,)")
        window = np.zeros(WINDOW_SAMPLES, np.float32)
        recent = audio[-WINDOW_SAMPLES:]
        window[WINDOW_SAMPLES - len(recent) :] = recent
        # The model learnt on windows that were normalised with their padding in them.
        normal = (window - window.mean()) / np.sqrt(window.var() + VARIANCE_FLOOR)
        (probability,) = self._session.run(None, {"input_features": log_mel(normal)[None]})
        return float(probability[0, 0])
