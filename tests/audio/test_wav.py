"""WAV files: what is written is read, and what is not one of ours is named."""

import contextlib
import wave
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voice_runtime.audio import wav
from voice_runtime.audio.pcm import to_pcm
from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.errors import ConfigError


def write(path: Path, *, channels: int = 1, width_bytes: int = 2, rate_hz: int = 16_000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width_bytes)
        file.setframerate(rate_hz)
        file.writeframes(bytes(channels * width_bytes * 10))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_what_was_written_is_read(tmp_path: Path, rate_hz: int) -> None:
    wav.write(tmp_path / "a.wav", b"\x01\x00\xff\x7f\x00\x80", rate_hz)
    samples, found_hz = wav.read(tmp_path / "a.wav")
    assert (to_pcm(samples), found_hz) == (b"\x01\x00\xff\x7f\x00\x80", rate_hz)


def test_a_file_without_samples_is_empty(tmp_path: Path) -> None:
    wav.write(tmp_path / "a.wav", b"", 16_000)
    assert wav.read(tmp_path / "a.wav")[0].size == 0


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ({"channels": 2}, "2 channels of 16 bits at 16000 Hz"),
        ({"width_bytes": 1}, "1 channels of 8 bits at 16000 Hz"),
        ({"width_bytes": 3}, "1 channels of 24 bits at 16000 Hz"),
        ({"rate_hz": 44_100}, "1 channels of 16 bits at 44100 Hz"),
    ],
)
def test_another_shape_is_refused_with_found_and_expected(tmp_path: Path, shape: dict[str, int], found: str) -> None:
    write(tmp_path / "a.wav", **shape)
    expected = f"a.wav has {found}, expected 1 of 16 at one of 8000, 16000, 24000, 48000"
    with pytest.raises(ConfigError, match=expected):
        wav.read(tmp_path / "a.wav")


@pytest.mark.parametrize("content", [b"", b"RIFF", b"not a WAV file at all", b"RIFF\x24\x00\x00\x00WAVEdata"])
def test_what_is_no_wav_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.wav cannot be read .*, expected a WAV file of 16-bit mono"):
        wav.read(tmp_path / "a.wav")


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.wav", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            wav.read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 63), value=st.integers(0, 255), size=st.integers(0, 64))
def test_a_damaged_or_cut_file_is_read_or_refused_by_name(tmp_path: Path, at: int, value: int, size: int) -> None:
    path = tmp_path / "a.wav"
    write(path)
    content = bytearray(path.read_bytes())
    content[at] = value
    path.write_bytes(content[:size])
    with contextlib.suppress(ConfigError):
        samples, rate_hz = wav.read(path)
        assert samples.size <= 10
        assert rate_hz in RATES_HZ


def test_of_a_file_that_was_cut_off_the_whole_samples_are_read(tmp_path: Path) -> None:
    wav.write(tmp_path / "a.wav", b"\x01\x02\x03\x04", 16_000)
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(content[:-1])
    assert to_pcm(wav.read(tmp_path / "a.wav")[0]) == b"\x01\x02"
