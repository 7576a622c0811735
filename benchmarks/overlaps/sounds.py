"""Sounds made from noise and pulses: bodies, rooms, beds of noise, and the echo of a loudspeaker or a phone line.

No recording is used. A sound is a few bursts, each a source (hiss or the pulses of a voice) that makes resonances ring.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tests.support.speech import RATE_HZ, Samples

SoundKind = Literal[
    "cough",
    "throat_clear",
    "sneeze",
    "laugh",
    "breath",
    "sniff",
    "hum",
    "door_slam",
    "typing",
    "phone_ring",
    "chair_creak",
    "dog_bark",
    "glass_clink",
]
BedKind = Literal["car", "fan", "pink", "street", "white"]
EchoPath = Literal["loudspeaker", "phone"]

Wave = NDArray[np.float64]
Generator = np.random.Generator
# (hz, width_hz, weight): a wide one is a formant, a narrow one rings like a bell.
Resonance = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Burst:
    """One stroke of a sound.

    fall: nepers of decay over the burst; 0 holds the level.
    pulses_hz: rate of the source's pulses at the beginning and the end; None is hiss.
    rough: how irregular the pulses are, in time and in strength.
    """

    at_s: float
    seconds: float
    resonances: tuple[Resonance, ...]
    loud: float = 1.0
    rise_s: float = 0.003
    fall: float = 4.0
    pulses_hz: tuple[float, float] | None = None
    rough: float = 0.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bursts, played `times` (least, most) over, every `every_s`, each time `fade` as loud as the time before."""

    bursts: tuple[Burst, ...]
    times: tuple[int, int] = (1, 1)
    every_s: float = 0.0
    fade: float = 1.0


HISS = ((2000.0, 2600.0, 1.0), (4500.0, 2500.0, 0.7))
SHARP_HISS = ((4200.0, 1500.0, 1.0), (6200.0, 1500.0, 0.8))
OPEN_THROAT = ((650.0, 160.0, 1.0), (1250.0, 200.0, 0.6), (2600.0, 350.0, 0.35), (4100.0, 600.0, 0.2))
TIGHT_THROAT = ((450.0, 120.0, 1.0), (1150.0, 180.0, 0.4), (2400.0, 300.0, 0.2))
NOSE = ((270.0, 110.0, 1.0), (1100.0, 250.0, 0.3), (2300.0, 400.0, 0.12))
ROUNDED = ((350.0, 100.0, 1.0), (900.0, 150.0, 0.5), (2300.0, 300.0, 0.1))
AIR = ((900.0, 700.0, 1.0), (2400.0, 1500.0, 0.7))
BARK = ((800.0, 200.0, 1.0), (1550.0, 250.0, 0.8), (2900.0, 500.0, 0.4))
BOARD = ((72.0, 9.0, 1.0), (118.0, 14.0, 0.7), (196.0, 25.0, 0.5), (410.0, 90.0, 0.2))
WOOD = ((580.0, 60.0, 1.0), (1240.0, 90.0, 0.6), (2350.0, 160.0, 0.4))
BELL = ((1410.0, 9.0, 1.0), (1760.0, 11.0, 0.8), (3120.0, 16.0, 0.4), (5200.0, 30.0, 0.15))
GLASS = ((1980.0, 9.0, 1.0), (3270.0, 12.0, 0.7), (4910.0, 18.0, 0.5), (6650.0, 30.0, 0.3))
KEY = ((2600.0, 1500.0, 1.0), (4700.0, 1800.0, 0.8), (310.0, 130.0, 0.3))

TUNE_HZ = (196.0, 220.0, 247.0, 294.0, 247.0, 220.0, 196.0)

RECIPES: dict[SoundKind, Recipe] = {
    "cough": Recipe(
        (
            Burst(0.0, 0.05, HISS, fall=3),
            Burst(0.03, 0.24, OPEN_THROAT, loud=0.8, rise_s=0.01),
            Burst(0.16, 0.14, OPEN_THROAT, loud=0.4, rise_s=0.02, fall=3, pulses_hz=(230, 140), rough=0.25),
        ),
        times=(1, 3),
        every_s=0.4,
        fade=0.8,
    ),
    "throat_clear": Recipe(
        (
            Burst(0.0, 0.26, TIGHT_THROAT, rise_s=0.03, fall=2, pulses_hz=(85, 70), rough=0.45),
            Burst(0.0, 0.3, OPEN_THROAT, loud=0.35, rise_s=0.04, fall=2),
            Burst(0.33, 0.42, TIGHT_THROAT, rise_s=0.03, fall=2.5, pulses_hz=(105, 65), rough=0.45),
            Burst(0.33, 0.45, OPEN_THROAT, loud=0.35, rise_s=0.04, fall=2.5),
        )
    ),
    "sneeze": Recipe(
        (
            Burst(0.0, 0.45, AIR, loud=0.12, rise_s=0.4, fall=0.3),
            Burst(0.55, 0.13, SHARP_HISS, fall=2),
            Burst(0.62, 0.32, ROUNDED, loud=0.8, rise_s=0.02),
            Burst(0.63, 0.22, ROUNDED, loud=0.6, rise_s=0.02, fall=3, pulses_hz=(320, 190), rough=0.1),
        )
    ),
    "laugh": Recipe(
        (
            Burst(0.0, 0.08, OPEN_THROAT, loud=0.35, rise_s=0.03, fall=1),
            Burst(0.06, 0.11, OPEN_THROAT, rise_s=0.02, fall=2, pulses_hz=(260, 215), rough=0.05),
        ),
        times=(3, 5),
        every_s=0.21,
        fade=0.85,
    ),
    "breath": Recipe(
        (Burst(0.0, 0.9, AIR, rise_s=0.45, fall=1.5), Burst(1.1, 0.9, OPEN_THROAT, loud=0.7, rise_s=0.15, fall=3))
    ),
    "sniff": Recipe((Burst(0.0, 0.28, SHARP_HISS, rise_s=0.12, fall=1),), times=(1, 2), every_s=0.5, fade=0.8),
    "hum": Recipe(
        tuple(
            Burst(0.36 * index, 0.36, NOSE, rise_s=0.05, fall=0.5, pulses_hz=(hz, hz), rough=0.01)
            for index, hz in enumerate(TUNE_HZ)
        )
    ),
    "door_slam": Recipe(
        (
            Burst(0.0, 0.006, KEY, loud=0.2),
            Burst(0.09, 0.01, BOARD, fall=1, rise_s=0.001),
            Burst(0.09, 0.05, HISS, loud=0.5, rise_s=0.001),
            Burst(0.1, 0.4, AIR, loud=0.15),
        )
    ),
    "typing": Recipe(
        (Burst(0.0, 0.012, KEY, rise_s=0.001), Burst(0.08, 0.008, KEY, loud=0.4, rise_s=0.001)),
        times=(9, 16),
        every_s=0.15,
    ),
    "phone_ring": Recipe((Burst(0.0, 0.8, BELL, rise_s=0.02, fall=0, pulses_hz=(22, 22)),), times=(1, 2), every_s=1.1),
    "chair_creak": Recipe(
        (Burst(0.0, 0.7, WOOD, rise_s=0.1, fall=1, pulses_hz=(38, 115), rough=0.3),), times=(1, 2), every_s=0.9
    ),
    "dog_bark": Recipe(
        (
            Burst(0.0, 0.09, BARK, rise_s=0.02, fall=0.3, pulses_hz=(330, 520), rough=0.12),
            Burst(0.08, 0.12, BARK, fall=3, pulses_hz=(520, 280), rough=0.18),
            Burst(0.0, 0.2, BARK, loud=0.3, rise_s=0.03, fall=3),
        ),
        times=(1, 3),
        every_s=0.45,
    ),
    "glass_clink": Recipe((Burst(0.0, 0.004, GLASS, fall=1, rise_s=0.001),), times=(1, 2), every_s=0.3, fade=0.6),
}

# Level by frequency, (hz, db), read on a logarithmic scale of frequency.
PINK = ((20.0, 26.0), (8000.0, 0.0))
SPECTRA: dict[BedKind, tuple[tuple[float, float], ...]] = {
    "car": ((20, 0), (60, 6), (150, 0), (400, -16), (1000, -28), (3000, -40), (8000, -55)),
    "fan": ((20, -12), (80, 0), (500, -3), (1500, -12), (4000, -24), (8000, -36)),
    "pink": PINK,
    "street": ((20, -3), (60, 0), (250, -4), (1000, -9), (2500, -18), (8000, -32)),
    "white": ((20, 0), (8000, 0)),
}
# (hz, rms over that of the bed)
TONES: dict[BedKind, tuple[tuple[float, float], ...]] = {
    "car": ((58, 0.5), (87, 0.3), (116, 0.2)),
    "fan": ((50, 0.15), (175, 0.3), (350, 0.12)),
}
# How far the level swells and sinks: a street's cars pass by.
SWELLS: dict[BedKind, float] = {"street": 0.6, "car": 0.15, "fan": 0.05}

BANDS_HZ: dict[EchoPath, tuple[float, float]] = {"loudspeaker": (250.0, 6800.0), "phone": (300.0, 3400.0)}


def make_sound(kind: SoundKind, seed: int) -> Samples:
    """A sound of `kind`: `seed` sets the size of the body or thing, the pace, and every pulse. Peak 1."""
    rng = np.random.default_rng([get_args(SoundKind).index(kind), seed])
    recipe = RECIPES[kind]
    size, pace = rng.uniform(0.85, 1.15, 2)
    strokes = []
    for time in range(rng.integers(recipe.times[0], recipe.times[1] + 1)):
        start_s = recipe.every_s * (time + rng.uniform(-0.1, 0.1) * min(time, 1))
        loud = recipe.fade**time * rng.uniform(0.8, 1.0)
        strokes += [((start_s + burst.at_s) * pace, loud * _burst(rng, burst, size, pace)) for burst in recipe.bursts]
    wave: Wave = np.zeros(max(round(at_s * RATE_HZ) + len(stroke) for at_s, stroke in strokes))
    for at_s, stroke in strokes:
        start = round(at_s * RATE_HZ)
        wave[start : start + len(stroke)] += stroke
    return np.asarray(wave / np.abs(wave).max(), np.float32)


def make_bed(kind: BedKind, seconds: float, seed: int) -> Samples:
    """Steady noise of `kind`, RMS 1."""
    rng = np.random.default_rng([get_args(BedKind).index(kind), seed])
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    wave = _over_rms(_shaped(rng.standard_normal(len(time_s)), RATE_HZ, SPECTRA[kind]))
    for hz, rms in TONES.get(kind, ()):
        wave += rms * np.sqrt(2) * np.sin(2 * np.pi * (hz * time_s + rng.uniform()))
    swell = sum(np.sin(2 * np.pi * (hz * time_s + rng.uniform())) for hz in rng.uniform(0.2, 0.9, 3)) / 3
    return np.asarray(_over_rms(wave * (1 + SWELLS.get(kind, 0.0) * swell)), np.float32)


class EchoStream:
    """What a microphone hears of what is pushed: `delay_ms` later, `level_db` over it, through `path`.

    For each sample pushed one comes back; push silence for the tail. How the audio is cut into pushes changes nothing.
    The level holds within the path's band: of a deep voice, much lies below a phone's.
    """

    def __init__(self, path: EchoPath, delay_ms: float, level_db: float, rate_hz: int) -> None:
        self._taps, lag = _PATHS[path](rate_hz)
        self._taps /= _gain_in_band(self._taps, path, rate_hz)
        wait = round(delay_ms * rate_hz / 1000) - lag
        if wait < 0:
            raise ValueError(f"delay_ms is {delay_ms}, expected at least {1000 * lag / rate_hz:.0f}, the filter's own")
        self._past = np.zeros(wait + len(self._taps) - 1)
        self._gain = 10 ** (level_db / 20)
        self._saturates = path == "phone"

    def push(self, samples: Samples) -> Samples:
        """The echo that is heard while `samples` are played."""
        if not len(samples):
            return samples
        played = np.concatenate([self._past, samples])
        self._past = played[len(samples) :]
        heard = _filtered(played[: len(self._taps) - 1 + len(samples)], self._taps)
        if self._saturates:
            heard = np.tanh(1.5 * heard) / 1.5
        return np.asarray(self._gain * heard, np.float32)


def _burst(rng: Generator, burst: Burst, size: float, pace: float) -> Wave:
    """One burst with its ringing; a larger body is lower in all its frequencies."""
    time_s = np.arange(round(burst.seconds * pace * RATE_HZ)) / RATE_HZ
    source = rng.standard_normal(len(time_s)) if burst.pulses_hz is None else _pulses(rng, burst, size, len(time_s))
    left_s = time_s[-1] - time_s
    source *= np.minimum(1, time_s / burst.rise_s) * np.minimum(1, left_s / 0.01 + 0.1)
    wave = _rung(source * np.exp(-burst.fall * time_s / time_s[-1]), burst.resonances, size)
    return np.asarray(wave * (burst.loud / np.abs(wave).max()))


def _pulses(rng: Generator, burst: Burst, size: float, length: int) -> Wave:
    assert burst.pulses_hz is not None
    # A new deviation every 5 ms, and straight lines between.
    knots = np.arange(0, length + 80, 80)
    wander = np.interp(np.arange(length), knots, rng.standard_normal(len(knots)))
    hz = np.linspace(*burst.pulses_hz, length) / size * np.maximum(0.3, 1 + burst.rough * wander)
    ticks = np.diff(np.floor(np.cumsum(hz) / RATE_HZ), prepend=-1.0)
    return ticks * (1 + burst.rough * rng.standard_normal(length)) + 0.01 * rng.standard_normal(length)


def _rung(source: Wave, resonances: tuple[Resonance, ...], size: float) -> Wave:
    """`source` through the sum of two-pole resonators, with 0.4 s for them to die away."""
    length = len(source) + round(0.4 * RATE_HZ)
    z = np.exp(-2j * np.pi * np.fft.rfftfreq(length))
    total = np.zeros(len(z), np.complex128)
    for hz, width_hz, weight in resonances:
        radius = np.exp(-np.pi * width_hz / RATE_HZ)
        angle = 2 * np.pi * min(hz / size, 0.47 * RATE_HZ) / RATE_HZ
        response = 1 / (1 - 2 * radius * np.cos(angle) * z + radius**2 * z**2)
        total += weight * response / np.abs(response).max()
    return np.asarray(np.fft.irfft(np.fft.rfft(source, length) * total, length))


def _shaped(wave: Wave, rate_hz: int, levels: tuple[tuple[float, float], ...]) -> Wave:
    return np.asarray(np.fft.irfft(np.fft.rfft(wave) * _levels(len(wave), rate_hz, levels), len(wave)))


def _levels(length: int, rate_hz: int, levels: tuple[tuple[float, float], ...]) -> Wave:
    """The gain at each bin of a transform of `length`; nothing below the first frequency of `levels`."""
    hz = np.fft.rfftfreq(length, 1 / rate_hz)
    gains_db = np.interp(np.log(np.maximum(hz, 1)), [np.log(at) for at, _ in levels], [db for _, db in levels])
    return np.where(hz < levels[0][0], 0.0, 10 ** (gains_db / 20))


def _over_rms(wave: Wave) -> Wave:
    return np.asarray(wave / np.sqrt(np.mean(np.square(wave))))


def _filtered(wave: Wave, taps: Wave) -> Wave:
    """Only where `taps` lie wholly inside `wave`."""
    length = 1 << (len(wave) - 1).bit_length()
    whole = np.fft.irfft(np.fft.rfft(wave, length) * np.fft.rfft(taps, length), length)
    return np.asarray(whole[len(taps) - 1 : len(wave)])


def _band(path: EchoPath, rate_hz: int) -> tuple[Wave, int]:
    """(taps, lag in samples) of a linear-phase band-pass: a windowed sinc of 16 ms."""
    low_hz, high_hz = BANDS_HZ[path]
    lag = round(0.008 * rate_hz)
    time = np.arange(-lag, lag + 1) / rate_hz
    edges = [2 * hz / rate_hz * np.sinc(2 * hz * time) for hz in (min(high_hz, 0.49 * rate_hz), low_hz)]
    return (edges[0] - edges[1]) * np.hanning(len(time)), lag


def _loudspeaker(rate_hz: int) -> tuple[Wave, int]:
    """A small loudspeaker, and a furnished room: the sound dies by 60 dB in 0.25 s."""
    taps, lag = _band("loudspeaker", rate_hz)
    time_s = np.arange(round(0.2 * rate_hz)) / rate_hz
    room = np.random.default_rng(7).standard_normal(len(time_s)) * np.exp(-6.9 * time_s / 0.25) * (time_s > 0.004)
    room *= 0.4 / np.sqrt(np.sum(np.square(room)))
    room[0] = 1.0
    return np.convolve(taps, room), lag


def _phone(rate_hz: int) -> tuple[Wave, int]:
    """The hybrid of a phone line: narrow band, no room."""
    return _band("phone", rate_hz)


_PATHS: dict[EchoPath, Callable[[int], tuple[Wave, int]]] = {"loudspeaker": _loudspeaker, "phone": _phone}


def _gain_in_band(taps: Wave, path: EchoPath, rate_hz: int) -> float:
    """For pink noise, as speech is stronger in its low frequencies."""
    hz = np.fft.rfftfreq(1 << 15, 1 / rate_hz)
    low_hz, high_hz = BANDS_HZ[path]
    inside = (hz >= low_hz) & (hz <= high_hz)
    through = np.square(np.abs(np.fft.rfft(taps, 1 << 15)))
    return float(np.sqrt(np.average(through[inside], weights=1 / hz[inside])))
