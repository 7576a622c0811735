"""G.711: 8 bits a sample, as telephone networks carry them. Pure.

Source: ITU-T G.711 (11/88), tables 1 and 2; ties between two values and what is beyond the last one as in ITU-T G.191,
module G711, so that a negative sample is coded by its ones' complement.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from voice_runtime.audio.pcm import Samples

Law = Literal["mulaw", "alaw"]
Table = NDArray[np.int32]

_NUMBERS: Table = np.arange(128, dtype=np.int32)


def _mulaw_levels() -> tuple[Table, Table]:
    """Of the 128 magnitudes, smallest first, in 16-bit units: where each begins, and what stands for it.

    Eight segments of 16 equal steps, each segment twice as coarse as the one before; 33 is the bias of 14-bit samples.
    """
    segment, step = _NUMBERS // 16, _NUMBERS % 16
    begins = ((2 * step + 32) << segment) - 33
    values = ((2 * step + 33) << segment) - 33
    return 4 * begins, 4 * values


def _alaw_levels() -> tuple[Table, Table]:
    """As `_mulaw_levels`; the first two segments are equally coarse."""
    segment, step = _NUMBERS // 16, _NUMBERS % 16
    exponent = np.maximum(segment - 1, 0)
    begins = np.where(segment > 0, step + 16, step) << exponent + 4
    return begins, begins + (8 << exponent)


def _tables(law: Law) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """The code of every sample, by the sample's bits as an unsigned number, and the sample of every code."""
    begins, values = _mulaw_levels() if law == "mulaw" else _alaw_levels()
    positive = 0xFF - _NUMBERS if law == "mulaw" else (_NUMBERS | 0x80) ^ 0x55
    samples = np.arange(1 << 16).astype(np.uint16).view(np.int16).astype(np.int32)
    magnitudes = np.where(samples < 0, ~samples, samples)
    codes = positive[np.searchsorted(begins, magnitudes, side="right") - 1]
    decoded = np.zeros(256, np.int16)
    decoded[positive], decoded[positive ^ 0x80] = values, -values
    return np.where(samples < 0, codes ^ 0x80, codes).astype(np.uint8), decoded


_TABLES = {law: _tables(law) for law in get_args(Law)}
_CODES = {law: codes for law, (codes, _) in _TABLES.items()}
_SAMPLES = {law: samples for law, (_, samples) in _TABLES.items()}


def encode_pcm(pcm: bytes, law: Law) -> bytes:
    """16-bit little-endian bytes -> codes, one byte a sample. Raises ValueError on an odd byte count."""
    codes: bytes = _CODES[law][np.frombuffer(pcm, "<u2")].tobytes()
    return codes


def decode_pcm(codes: bytes, law: Law) -> bytes:
    """Codes -> 16-bit little-endian bytes."""
    pcm: bytes = _SAMPLES[law][np.frombuffer(codes, np.uint8)].astype("<i2").tobytes()
    return pcm


def encode(samples: Samples, law: Law) -> bytes:
    """float32, shape (T,) -> codes; what is outside [-1, 1) is clipped."""
    whole = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)
    codes: bytes = _CODES[law][whole.view(np.uint16)].tobytes()
    return codes


def decode(codes: bytes, law: Law) -> Samples:
    """Codes -> float32 in (-1, 1), shape (T,)."""
    return _SAMPLES[law][np.frombuffer(codes, np.uint8)].astype(np.float32) / 32768.0
