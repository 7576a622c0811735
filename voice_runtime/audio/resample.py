"""Stateful resampling: a stream cut into chunks gives the samples of the uncut stream."""

import av
import numpy as np

from voice_runtime.audio.pcm import Samples

RATES_HZ = (8_000, 16_000, 24_000, 48_000)


class Resampler:
    """Mono float32 from one rate to another (libswresample through PyAV, with its low-pass filter).

    At equal rates the samples pass through untouched.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self._from_hz = from_hz
        self._swr = None
        if from_hz != to_hz:
            self._swr = av.AudioResampler(format="flt", layout="mono", rate=to_hz)

    def push(self, samples: Samples) -> Samples:
        """float32, shape (T,) -> what can be given out by now, shape (U,); the filter holds back a few samples."""
        if self._swr is None or not samples.size:
            return samples
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None, :]), format="flt", layout="mono")
        frame.sample_rate = self._from_hz
        return self._collect(frame)

    def flush(self) -> Samples:
        """The end of the stream: what the filter still holds. Nothing may be pushed afterwards."""
        return np.zeros(0, np.float32) if self._swr is None else self._collect(None)

    def _collect(self, frame: av.AudioFrame | None) -> Samples:
        assert self._swr is not None
        parts = [out.to_ndarray()[0] for out in self._swr.resample(frame)]
        return np.concatenate(parts).astype(np.float32, copy=False) if parts else np.zeros(0, np.float32)
