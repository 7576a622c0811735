"""How much of what the microphone brings is the agent's own sound. Pure; knows nothing of turns, voices or clocks."""

import numpy as np
from numpy.typing import NDArray

from voice_runtime.audio.pcm import Samples

ECHO_LIKENESS = 0.65
"""From here on a frame is the agent's own.

Wrong frames among those with sound, in 270 scenes: neural and synthetic agents, synthetic and human callers at the
same level (RMS 0.08), delays of 20 to 500 ms, flat, telephone and room paths, noise at -60 dBFS:

    echo alone at -10, -20 or -30 dB, after its first 4 frames     0.1 %; 160 ms of them in a row: never
    caller alone while the agent plays                             0.8 %
    caller over an echo of -10 / -20 / -30 dB                      8.7 / 2.2 / 1.3 %
    the same in frames in which he is 10 dB above it               3.2 / 1.2 / 1.2 %

At 0.55 the first two are 0.03 and 1.7 %, at 0.75 0.14 and 0.3 %.
"""

FRAME_SAMPLES = 512  # as pushed, at 16 kHz
FRAME = 256  # at 8 kHz, the rate that everything below counts in: a telephone carries no more, and it is half the work
WINDOW = 12 * FRAME  # 384 ms of what was heard: the filter is fitted to it
RECENT = 4 * FRAME  # 128 ms: the filter is judged by them
LAGS = 5600  # 0 to 700 ms from `played` to its echo
TAPS = 192  # 24 ms: most of a room's tail. 256 explain more of a stranger as well
TAPS_BEFORE = 32  # of them ahead of the strongest lag
PLAYED = WINDOW + LAGS + TAPS
LAG_FFT, FIT_FFT = 9000, 3456  # products of small primes, no shorter than PLAYED and WINDOW + TAPS - 1
STEPS = 16  # 8 miss four times as many of the echo's frames and save 0.15 ms
RIDGE = 1e-3  # of the power played
REMEMBERED = 0.8  # of the lags' evidence, a frame
FLOOR_FRAMES = 50  # the quietest frame of 1.6 s is the noise
FLOOR_FACTOR = 1.2  # from the quietest frame of noise to the mean one
AUDIBLE = 1.6  # times the noise


def _thinning_filter() -> Samples:
    """To 8 kHz, with 1 - 0.9 z^-1 at that rate: without it the lowest harmonics outweigh all else."""
    at = np.arange(63) - 31
    low_pass = 0.5 * np.sinc(at / 2) * np.hamming(63)
    return np.convolve(low_pass, [1.0, 0.0, -0.9]).astype(np.float32)


def _spectrum(samples: Samples, size: int) -> NDArray[np.complex64]:
    return np.fft.rfft(samples, size).astype(np.complex64, copy=False)  # float32 stays so; its type does not say it


def _samples(spectrum: NDArray[np.complex64], size: int) -> Samples:
    return np.fft.irfft(spectrum, size).astype(np.float32, copy=False)


THINNING = _thinning_filter()
LOUDEST_FLOOR = 1e-4 * float(THINNING @ THINNING)  # -40 dBFS of white noise; what is louder is never taken for noise
# Of late counts more: a jump of the delay is forgotten sooner.
RISING = np.linspace(1 / WINDOW, 1.0, WINDOW, dtype=np.float32)
RISING_PLAYED = np.pad(RISING, (TAPS - 1 - TAPS_BEFORE, TAPS_BEFORE), mode="edge")  # the same as `_aligned`


class EchoGuard:
    """Tells the agent's own sound, delayed, filtered and attenuated on its way back, from a caller's voice.

    A short filter from what was played to what was heard is fitted to the last 384 ms, at the best lag of these and at
    the best one of late. The share of the last 128 ms that it explains, noise left out, is the likeness. Sound at the
    level of the noise decides nothing: the answer is the one before, 0 at first. A push takes 0.8 ms.

    Weak spots: of an echo through heavy clipping 12 % of the frames are missed, in a room of 400 ms 6 %; one jump of
    the delay in fifteen looks like a caller for 160 ms.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all that was heard and played."""
        self._heard, self._played = _Thinned(WINDOW), _Thinned(PLAYED)
        self._powers = np.full(FLOOR_FRAMES, LOUDEST_FLOOR, np.float32)  # of the last frames
        self._evidence = np.zeros(LAGS, np.float32)  # for each lag, of late
        self._likeness = 0.0

    def push(self, heard: Samples, played: Samples) -> float:
        """The share, 0 to 1, of the last 128 ms heard that is the agent's own.

        heard, played: the next 512 samples at 16 kHz of the microphone, and of what the agent played meanwhile; the
        echo of `played` is expected 0 to 700 ms later.
        """
        if len(heard) != FRAME_SAMPLES or len(played) != FRAME_SAMPLES:
            raise ValueError(f"frames have {len(heard)} and {len(played)} samples, expected {FRAME_SAMPLES}")
        self._heard.push(heard)
        self._played.push(played)
        floor = self._noise_floor()
        recent = self._heard.samples[-RECENT:]
        if min(_power(recent), self._powers[-1]) > max(AUDIBLE * floor, 1e-12):
            self._likeness = self._explained(floor)
        return self._likeness

    def _noise_floor(self) -> float:
        self._powers = np.append(self._powers[1:], _power(self._heard.samples[-FRAME:]))
        return min(FLOOR_FACTOR * float(self._powers.min()), LOUDEST_FLOOR)

    def _explained(self, floor: float) -> float:
        strengths = _lag_strengths(RISING * self._heard.samples, self._played.samples)
        self._evidence = REMEMBERED * self._evidence + (1 - REMEMBERED) * strengths
        of_late, now = int(self._evidence.argmax()), int(strengths.argmax())
        explained = self._explained_at(of_late, floor)
        if explained < ECHO_LIKENESS and abs(now - of_late) > TAPS_BEFORE // 4:  # it may have jumped
            explained = max(explained, self._explained_at(now, floor))
        return explained

    def _explained_at(self, lag: int, floor: float) -> float:
        heard, played = self._heard.samples, _aligned(self._played.samples, lag)
        left = _unexplained(heard, played)[-RECENT:]
        share = 1 - (_power(left) - floor) / (_power(heard[-RECENT:]) - floor)
        return min(1.0, max(0.0, share))


class _Thinned:
    """The last `size` samples at 8 kHz of what is pushed at 16 kHz, high frequencies raised."""

    def __init__(self, size: int) -> None:
        self.samples = np.zeros(size, np.float32)
        self._carried = np.zeros(len(THINNING) - 1, np.float32)

    def push(self, frame: Samples) -> None:
        pending = np.concatenate([self._carried, frame])
        self._carried = pending[FRAME_SAMPLES:]
        self.samples = np.concatenate([self.samples[FRAME:], np.convolve(pending, THINNING, "valid")[::2]])


def _power(samples: Samples) -> float:
    return float(samples @ samples) / len(samples)


def _lag_strengths(heard: Samples, played: Samples) -> Samples:
    """How well `heard` follows `played` at each lag: shape (LAGS,), of mean square 1.

    Correlation with the root of its magnitude in each frequency: between plain correlation, which a pitch misleads,
    and the phase alone, which noise does.
    """
    cross = _spectrum(played, LAG_FFT) * np.conj(_spectrum(heard, LAG_FFT))
    root: Samples = np.sqrt(np.abs(cross) + np.float32(1e-9))
    by_shift = _samples(cross / root, LAG_FFT)
    longest = PLAYED - WINDOW  # the shift of lag 0
    strengths: Samples = np.abs(by_shift[longest - LAGS + 1 : longest + 1][::-1])
    return strengths / np.float32(np.sqrt(_power(strengths) + 1e-18))


def _aligned(played: Samples, lag: int) -> Samples:
    """What may sound in the window at `lag`: shape (WINDOW + TAPS - 1,); zeros for what is not played yet."""
    end = PLAYED - lag + TAPS_BEFORE
    begin = end - (WINDOW + TAPS - 1)
    return np.pad(played[max(0, begin) : end], (max(0, -begin), max(0, end - PLAYED)))


def _unexplained(heard: Samples, played: Samples) -> Samples:
    """What the best filter of TAPS leaves of `heard`, both as `_aligned` to each other: shape (WINDOW,)."""
    spectrum = _spectrum(played, FIT_FFT)
    faded = _spectrum(RISING_PLAYED * played, FIT_FFT)
    delayed = np.pad(RISING * heard, (TAPS - 1, 0))
    cross = _samples(np.conj(faded) * _spectrum(delayed, FIT_FFT), FIT_FFT)[:TAPS]
    own = _samples(faded * np.conj(faded), FIT_FFT)[:TAPS]
    taps = _solve_toeplitz(own, cross)
    echo = _samples(spectrum * _spectrum(taps, FIT_FFT), FIT_FFT)[TAPS - 1 : TAPS - 1 + WINDOW]
    return heard - echo


def _solve_toeplitz(column: Samples, target: Samples) -> Samples:
    """Nearly x of (T + ridge) x = target, T symmetric Toeplitz: STEPS of conjugate gradients, each 20 us.

    To stop early is wanted, too: the last steps would fit a stranger's voice rather than the echo.
    """
    size = 2 * len(column)
    around = np.concatenate([column, np.zeros(1, np.float32), column[:0:-1]])  # circulant: a product is two transforms
    eigenvalues = _spectrum(around, size).real + RIDGE * column[0]
    solution = np.zeros_like(target)
    rest, direction, norm = target, target, float(target @ target)
    for _ in range(STEPS):
        image = _samples(eigenvalues * _spectrum(direction, size), size)[: len(target)]
        curvature = float(direction @ image)
        if curvature < 1e-30:
            break
        step = norm / curvature
        solution = solution + step * direction
        rest = rest - step * image
        before, norm = norm, float(rest @ rest)
        direction = rest + (norm / before) * direction
    return solution
