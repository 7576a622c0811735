"""WAV files, 16-bit mono."""

import wave
from pathlib import Path

from voice_runtime.audio.pcm import Samples, to_samples
from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.errors import ConfigError


def read(path: Path) -> tuple[Samples, int]:
    """Samples, float32, shape (T,), and their rate in Hz.

    Raises:
        ConfigError: not a WAV file of 16-bit mono at a rate that the gateway takes.
    """
    try:
        with wave.open(str(path), "rb") as file:
            found = (file.getnchannels(), file.getsampwidth() * 8, file.getframerate())
            pcm = file.readframes(file.getnframes())
    except (OSError, EOFError, RuntimeError, wave.Error) as error:  # wave's own RuntimeError: a chunk that is cut off
        raise ConfigError(f"{path} cannot be read ({error!r}), expected a WAV file of 16-bit mono") from error
    if found[:2] != (1, 16) or found[2] not in RATES_HZ:
        raise ConfigError(
            f"{path} has {found[0]} channels of {found[1]} bits at {found[2]} Hz, "
            f"expected 1 of 16 at one of {', '.join(map(str, RATES_HZ))}"
        )
    return to_samples(pcm[: len(pcm) // 2 * 2]), found[2]  # a file that was cut off may end in half a sample


def write(path: Path, pcm: bytes, rate_hz: int) -> None:
    """pcm: 16-bit little-endian mono."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
