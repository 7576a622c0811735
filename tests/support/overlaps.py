"""Scripts of what overlaps an agent's speech, and how to hear them: other voices, coughs, noise, echo.

Nothing here imports voice_runtime: a script must not know what the product listens for.
"""

import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from benchmarks.overlaps.sounds import BedKind, EchoPath, EchoStream, SoundKind, make_bed, make_sound
from tests.support.need import need
from tests.support.speech import PEAK_LIMIT, RATE_HZ, RMS_LEVEL, Samples, human_clips, read_wav, resample

Category = Literal["interruption", "backchannel", "cough", "noise", "echo", "pause"]
NoiseKind = Literal["babble", BedKind]

# What a script of each category says, by the key that holds it.
CONTENT: dict[Category, str] = {
    "interruption": "says",
    "backchannel": "says",
    "cough": "sound",
    "noise": "noise",
    "echo": "echo",
    "pause": "parts",
}
SOUND_KINDS: tuple[SoundKind, ...] = get_args(SoundKind)
NOISE_KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)

# Only voices whose words the tests' recogniser reads back; of espeak-ng some accents and variants are not.
FLITE_VOICES = ("kal", "kal16", "awb", "rms", "slt")
ESPEAK_VOICES = (
    *("en-us", "en-us+f3", "en-us+f5", "en-us+steph", "en-us+m6", "en-us+m7", "en-us+m8", "en-us+klatt", "en-us+Diogo"),
    *("en-us+Michael", "en-us+Gene", "en-gb", "en-gb+f4", "en-gb+f5", "en-gb+steph", "en-gb+m1", "en-gb+Denis"),
    *("en-gb-x-rp", "en-gb-x-rp+f5"),
)
SYNTHESISERS = (*(f"flite:{name}" for name in FLITE_VOICES), "festival", *(f"espeak:{name}" for name in ESPEAK_VOICES))
PEOPLE = tuple(f"human:{book}/{index}" for book in ("librivox", "cards") for index in range(5))
# The names that `speech.synthesise` knows.
SHORT_NAMES = {"flite": "flite:slt", "espeak-ng": "espeak:en-us"}
VOICES = (*SYNTHESISERS, *SHORT_NAMES, *PEOPLE)

HUM = re.compile(r"mm-hm", re.IGNORECASE)
BABBLE = (
    "The second shelf on the left has all of the plates that we bought for the wedding.",
    "My brother drove home through the rain and found that nobody had fed the cat.",
    "There was a long queue at the bakery, so we walked down to the river with our coffee.",
    "She told me that the train was late again and that the heating did not work.",
    "Every evening the whole team plays cards until somebody loses and wants to go to bed.",
)


class ScriptError(ValueError):
    """A script says something that is not in the format."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of a body or a room. level_db: of its loud part, over the caller's usual speech."""

    kind: SoundKind
    seed: int
    level_db: float = 0.0

    def __post_init__(self) -> None:
        _within("sound.level_db", self.level_db, -30, 10)


@dataclass(frozen=True, slots=True)
class Noise:
    """A bed of noise. snr_db: how far it is under the caller's usual speech."""

    kind: NoiseKind
    snr_db: float
    seconds: float
    seed: int

    def __post_init__(self) -> None:
        _within("noise.snr_db", self.snr_db, -5, 40)
        _within("noise.seconds", self.seconds, 0.5, 30)


@dataclass(frozen=True, slots=True)
class Echo:
    """The agent's own sound in the caller's microphone. level_db: over what the agent sent."""

    delay_ms: float
    level_db: float
    path: EchoPath

    def __post_init__(self) -> None:
        _within("echo.delay_ms", self.delay_ms, 20, 500)
        _within("echo.level_db", self.level_db, -60, 0)


@dataclass(frozen=True, slots=True)
class Overlap:
    """One script. The caller asks `question`; `after_ms` after the agent's first sound the overlap begins.

    Exactly one of says, sound, noise, echo and parts is set, as `category` demands. A pause has no question: `parts`
    are the caller's one sentence, with `pauses_ms` between them.
    level_db: of `says` or `parts`, over the caller's usual speech. rate, pitch: 1.0 is the voice's own.
    """

    name: str
    category: Category
    question: str = ""
    question_voice: str = "flite"
    after_ms: int = 0
    says: str | None = None
    voice: str = "flite"
    level_db: float = 0.0
    rate: float = 1.0
    pitch: float = 1.0
    sound: Sound | None = None
    noise: Noise | None = None
    echo: Echo | None = None
    parts: tuple[str, ...] | None = None
    pauses_ms: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise ScriptError(f"name is {self.name!r}, expected lower-case words joined by '-'")
        self._check_content()
        for voice in (self.voice, self.question_voice):
            if voice not in VOICES:
                raise ScriptError(f"voice is {voice!r}, expected one of {', '.join(VOICES)}")
        _within("level_db", self.level_db, -20, 10)
        _within("rate", self.rate, 0.7, 1.4)
        _within("pitch", self.pitch, 0.8, 1.25)
        if self.voice in PEOPLE and (self.rate, self.pitch) != (1.0, 1.0):
            raise ScriptError(f"{self.voice} has rate {self.rate} and pitch {self.pitch}, expected a person's own, 1.0")
        self._check_times()

    def _check_content(self) -> None:
        content = {"says": self.says, "sound": self.sound, "noise": self.noise, "echo": self.echo, "parts": self.parts}
        found = [key for key, value in content.items() if value is not None]
        expected = CONTENT[self.category]
        if found != [expected]:
            raise ScriptError(f"category {self.category!r} has {found}, expected only {expected!r}")

    def _check_times(self) -> None:
        if self.parts is not None:
            if self.question or self.after_ms or len(self.pauses_ms) != len(self.parts) - 1 or not self.pauses_ms:
                raise ScriptError("a pause has no question and no after_ms, and one of pauses_ms between two parts")
            for pause_ms in self.pauses_ms:
                _within("pauses_ms", pause_ms, 400, 1200)
            return
        if not self.question or self.pauses_ms:
            raise ScriptError("a script that is no pause has a question and no pauses_ms")
        # An echo is there from the agent's first sound on.
        _within("after_ms", self.after_ms, 0 if self.echo else 400, 3000)


def load(path: Path) -> list[Overlap]:
    """The scripts of a TOML file that is a list of [[overlap]] tables.

    Raises ScriptError for an unknown key, kind or voice, a value out of range, or a name used twice.
    """
    document = tomllib.loads(path.read_text())
    if set(document) != {"overlap"}:
        raise ScriptError(f"{path.name} has the keys {sorted(document)}, expected only 'overlap'")
    overlaps = []
    for table in document["overlap"]:
        try:
            overlaps.append(_overlap(table))
        except ValueError as error:
            raise ScriptError(f"{path.name}, {table.get('name')!r}: {error}") from error
    names = [overlap.name for overlap in overlaps]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ScriptError(f"{path.name} has two scripts of the name {twice}")
    return overlaps


def render(overlap: Overlap) -> Samples:
    """What the caller's microphone adds to the line. An echo depends on what the agent says: see `echo_stream`."""
    match overlap:
        case Overlap(sound=Sound() as sound):
            return _at_level(make_sound(sound.kind, sound.seed), sound.level_db)
        case Overlap(noise=Noise() as noise):
            return _bed(noise)
        case Overlap(parts=(str(), *_) as parts):
            return _paused(overlap, parts)
        case Overlap(says=str() as text):
            return _at_level(spoken(text, overlap.voice, overlap.rate, overlap.pitch), overlap.level_db)
    raise ValueError(f"{overlap.name} is an echo, expected a script that can be heard without the agent")


def asked(overlap: Overlap) -> Samples:
    """The question that the caller asks before the overlap."""
    return spoken(overlap.question, overlap.question_voice)


def echo_stream(echo: Echo, rate_hz: int) -> EchoStream:
    return EchoStream(echo.path, echo.delay_ms, echo.level_db, rate_hz)


@cache
def spoken(text: str, voice: str = "flite", rate: float = 1.0, pitch: float = 1.0) -> Samples:
    """`text` by `voice`, without silence around it, at the caller's usual level. Read-only: it is shared.

    pitch: moves the formants too, so that it is another speaker. "mm-hm" is said as a hum, not spelt.
    """
    engine, _, name = SHORT_NAMES.get(voice, voice).partition(":")
    if engine == "human":
        samples, rate_hz = _person(name, text), RATE_HZ
    else:
        samples, rate_hz = _synthesised(text, engine, name, rate / pitch)
    loud = _at_level(_trimmed(resample(samples, round(rate_hz * pitch), RATE_HZ)), 0.0)
    loud.flags.writeable = False
    return loud


def level_db(samples: Samples) -> float:
    """Of the loud part, over the caller's usual speech: RMS of the frames within 20 dB of the loudest."""
    powers = _frame_powers(samples, RATE_HZ // 50)
    return float(10 * np.log10(powers[powers >= powers.max() / 100].mean() / RMS_LEVEL**2))


def _at_level(samples: Samples, wanted_db: float) -> Samples:
    """`wanted_db` over the caller's usual speech; what is louder than PEAK_LIMIT overloads the microphone."""
    louder = samples * 10 ** ((wanted_db - level_db(samples)) / 20)
    return np.asarray(np.clip(louder, -PEAK_LIMIT, PEAK_LIMIT), np.float32)


def _frame_powers(samples: Samples, size: int) -> Samples:
    whole = np.pad(samples, (0, -len(samples) % size))
    return np.asarray(np.square(whole.reshape(-1, size)).mean(axis=1))


def _trimmed(samples: Samples) -> Samples:
    """Without the frames of 10 ms before and after the speech; one frame of margin is kept at each end."""
    size = RATE_HZ // 100
    powers = _frame_powers(samples, size)
    heard = np.flatnonzero(powers > powers.max() * 10**-4.5)
    return samples[max(0, heard[0] - 1) * size : (heard[-1] + 2) * size]


def _paused(overlap: Overlap, parts: tuple[str, ...]) -> Samples:
    said = [spoken(part, overlap.voice, overlap.rate, overlap.pitch) for part in parts]
    pieces = [said[0]]
    for pause_ms, part in zip(overlap.pauses_ms, said[1:], strict=True):
        pieces += [np.zeros(RATE_HZ * pause_ms // 1000, np.float32), part]
    return _at_level(np.concatenate(pieces), overlap.level_db)


def _bed(noise: Noise) -> Samples:
    """Noise that fades in and out within 0.1 s; its RMS is snr_db under RMS_LEVEL."""
    if noise.kind == "babble":
        bed = _babble(noise.seconds, noise.seed)
    else:
        bed = make_bed(noise.kind, noise.seconds, noise.seed)
    ramp = np.minimum(1, np.arange(1, len(bed) + 1) / (0.1 * RATE_HZ))
    bed = bed * ramp * ramp[::-1]
    rms = RMS_LEVEL * 10 ** (-noise.snr_db / 20)
    return np.asarray(bed * (rms / np.sqrt(np.mean(np.square(bed)))), np.float32)


def _babble(seconds: float, seed: int) -> Samples:
    """A full room: eight people at once, every other one backwards, so that no word stands out."""
    rng = np.random.default_rng(seed)
    length = round(seconds * RATE_HZ)
    bed = np.zeros(length, np.float32)
    for index in range(8):
        said = spoken(BABBLE[index % len(BABBLE)], SYNTHESISERS[(3 * index + 1) % len(SYNTHESISERS)])
        person = np.resize(np.roll(said[:: 1 - 2 * (index % 2)], rng.integers(len(said))), length)
        bed += person * np.float32(rng.uniform(0.6, 1.0))
    return bed


def _person(name: str, text: str) -> Samples:
    book, _, index = name.partition("/")
    clip = [clip for clip in human_clips() if clip.path.parent.name == book][int(index)]
    if clip.text != text:
        raise ScriptError(f"human:{name} says {clip.text!r}, the script {text!r}")
    return clip.samples


def _synthesised(text: str, engine: str, name: str, rate: float) -> tuple[Samples, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        command, stdin = _command(text, engine, name, rate, path)
        need(shutil.which(command[0]) is not None, f"the command {command[0]}")
        subprocess.run(command, input=stdin.encode(), check=True, capture_output=True, timeout=60)
        return read_wav(path)


def _command(text: str, engine: str, name: str, rate: float, path: Path) -> tuple[list[str], str]:
    """The words of the command and its standard input."""
    hums = len(HUM.findall(text))
    if engine == "espeak":
        said = HUM.sub("[[m@m'h@m]]", text)
        # espeak-ng knows British English as "en", and under the name "en-gb" passes over a variant in silence.
        return [
            "espeak-ng",
            "-v",
            name.replace("en-gb+", "en+"),
            "-s",
            str(round(170 * rate)),
            "--stdin",
            "-w",
            str(path),
        ], said
    if hums and (engine == "festival" or HUM.sub("", text).strip(" ,.")):
        raise ScriptError(f"{engine} is to say {text!r}, expected 'mm-hm' alone and by flite, or by espeak")
    if engine == "festival":
        scheme = f"(begin (voice_kal_diphone) (Parameter.set 'Duration_Stretch {1 / rate:.3f}))"
        return ["text2wave", "-eval", scheme, "-F", str(RATE_HZ), "-o", str(path)], text
    words = ["-p", " pau ".join(["m m m hh m m m"] * hums)] if hums else ["-t", text]
    stretch = f"duration_stretch={1 / rate:.3f}"
    return ["flite", "-voice", name, "--setf", stretch, *words, "-o", str(path)], ""


def _overlap(table: dict[str, Any]) -> Overlap:
    """msgspec checks the types, but lets unknown keys of a dataclass pass."""
    for kind, inner in (
        (Overlap, table),
        (Sound, table.get("sound")),
        (Noise, table.get("noise")),
        (Echo, table.get("echo")),
    ):
        if isinstance(inner, dict) and (unknown := sorted(set(inner) - {field.name for field in fields(kind)})):
            raise ScriptError(f"{kind.__name__} has no key {unknown}")
    return msgspec.convert(table, Overlap)


def _within(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ScriptError(f"{key} is {value}, expected {least} to {most}")
