"""16-bit PCM bytes and float samples. Pure."""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]


def to_samples(pcm: bytes) -> Samples:
    """16-bit little-endian bytes -> float32 in [-1, 1), shape (T,). Raises ValueError on an odd byte count."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) / 32768.0


def to_pcm(samples: Samples) -> bytes:
    """float32, shape (T,) -> 16-bit little-endian bytes; what is outside [-1, 1) is clipped."""
    pcm: bytes = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2").tobytes()
    return pcm


class PcmReader:
    """16-bit little-endian mono from chunks of any size: an odd byte waits for its other half."""

    def __init__(self) -> None:
        self._carried = b""

    def push(self, chunk: bytes) -> Samples:
        """Samples that are whole by now: float32, shape (T,)."""
        data = self._carried + chunk
        whole = len(data) - len(data) % 2
        self._carried = data[whole:]
        return to_samples(data[:whole])
