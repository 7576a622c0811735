"""Hibari text to speech: a text to its samples, whole. Streaming and queues are not its matter."""

import numpy as np
from hibari import Hibari
from numpy.typing import NDArray

from voice_runtime.errors import ConfigError

RATE_HZ = 24_000
VOICE = "heart"
# The voice adds noise to every frame; one seed makes a text sound the same each time, which tests and caches rely on.
SEED = 0
AUDIBLE = 10 ** (-60 / 20)
LEAD_SAMPLES = RATE_HZ * 20 // 1000
TAIL_SAMPLES = RATE_HZ * 200 // 1000


def phonemizer() -> Hibari:
    """The package's own rules from text to phonemes, ready for a word that its lexicon lacks."""
    hibari = Hibari(voice=VOICE, threads=1)
    hibari.g2p.oov("hibari")
    return hibari


class HibariVoice:
    """The voice "heart" (American English) with its own text-to-phoneme rules, on one thread.

    `threads=1` sets the synthesis session's threads; the session for words that the lexicon lacks is opened by the
    package with one thread, whatever it is told. Both are loaded here, so the first sentence does not pay for them.

    Source: hibari-tts 0.2.1, hibari/tts.py and hibari/g2p/oov.py.
    """

    def __init__(self, voice: str = VOICE) -> None:
        """Raises ConfigError for another voice: the package would download it in the middle of a call."""
        if voice != VOICE:
            raise ConfigError(f"voice is {voice!r}, expected {VOICE!r}: it is the only one inside hibari-tts")
        self._hibari = phonemizer()

    def speak(self, text: str) -> NDArray[np.float32]:
        """Return float32, shape (T,), in about [-1, 1], 24 kHz; the same text always gives the same samples.

        Empty, shape (0,), when the text has nothing to say (spaces, punctuation, emoji). 0.008 of real time on one
        thread, 0.011 for a word or two.

        The voice itself puts 240 to 320 ms of silence (below -120 dBFS) before a sentence and 320 to 420 ms after it
        (measured at -60 dBFS). The listener would wait for the first, so 20 ms of it are kept; of the second 200 ms,
        the pause to the next sentence.
        """
        if not any(character.isalpha() for sentence in self._hibari.phonemize(text) for character in sentence):
            return np.zeros(0, np.float32)
        return _trim(self._hibari(text, seed=SEED))


def _trim(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    audible = np.flatnonzero(np.abs(samples) > AUDIBLE)
    if len(audible) == 0:
        return samples[:0]
    return samples[max(0, audible[0] - LEAD_SAMPLES) : audible[-1] + 1 + TAIL_SAMPLES]
