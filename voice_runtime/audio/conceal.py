"""What is put where a short piece of a telephone's sound never came. Pure."""

import numpy as np

from voice_runtime.audio.pcm import Samples

REPEATED_MS = 20
FADED_MS = 60  # a longer loss ends in silence: a sound that is repeated for longer is heard as a buzz


class Concealer:
    """The last sound again and again, softer each time, as ITU-T G.711 Appendix I does, but without its search for the
    pitch.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._last = np.zeros(0, np.float32)

    def push(self, samples: Samples) -> Samples:
        """Sound that came: float32, shape (T,); as it is."""
        self._last = np.concatenate([self._last, samples])[-self._rate_hz * REPEATED_MS // 1000 :]
        return samples

    def fill(self, ms: float) -> Samples:
        """In place of `ms` that did not come: float32, shape (T,)."""
        count = int(ms * self._rate_hz / 1000)
        fade = np.linspace(1, 0, int(FADED_MS * self._rate_hz / 1000), dtype=np.float32)[:count]
        filled = np.zeros(count, np.float32)
        if self._last.size:
            filled[: fade.size] = np.resize(self._last, fade.size) * fade
        return filled
