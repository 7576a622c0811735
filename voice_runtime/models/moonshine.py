"""Moonshine speech recognition: finished clips of speech to text. Does not know where the clips come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from voice_runtime.errors import RequestError
from voice_runtime.models.onnx import session

RATE_HZ = 16_000
SHORTEST_S = 0.1
LONGEST_S = 30.0
START_TOKEN = 1
END_TOKEN = 2
# Moonshine's authors stop at 6.5 tokens a second of speech: silence and noise can repeat one word for ever. The head
# room is for clips so short that a fast word passes that rate.
TOKENS_PER_SECOND = 6.5
HEADROOM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """confidence: geometric mean of the tokens' probabilities, the end's included. weakest: the lowest of them."""

    text: str
    confidence: float
    weakest: float


class Moonshine:
    """Moonshine tiny (English), int8, greedy. Holds two sessions and no state between calls.

    Silence and noise come out as words ("You"): give it only what the voice activity detection let through.

    Source: moonshine-voice 0.0.73, assets/tiny-en; Jeffries et al., "Moonshine: Speech Recognition for Live
    Transcription and Voice Commands", section 3.
    """

    def __init__(self, encoder: Path, decoder: Path, tokenizer: Path) -> None:
        self._encoder = session(encoder)
        self._decoder = session(decoder)
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._cache_names = [i.name for i in self._decoder.get_inputs() if i.name.startswith("past_key_values")]
        self._empty_cache = {name: _no_positions(self._decoder, name) for name in self._cache_names}

    def transcribe(self, clips: Sequence[NDArray[np.float32]]) -> list[Reading]:
        """Return what was read in each clip, in order; that never depends on the clip's company.

        clips: each float32, shape (T,), in [-1.0, 1.0], 16 kHz, 0.1 s to 30 s

        That law is why the clips run one after the other. The weights are int8 with one activation scale for a whole
        tensor, so the rows of a batch disturb each other: a batched decoder took 0.76 of the time for two clips of
        3 s and 0.68 for three, but changed the text of 11 clips in 80. A second clip waits for the first instead,
        and the mean wait is the same. 85 ms for a clip of 4 s on one thread, twice that for two.

        Raises RequestError when a clip is too short, too long or not float32; then nothing was transcribed.
        """
        for clip in clips:
            _check(clip)
        return [self._read(clip) for clip in clips]

    def _read(self, clip: NDArray[np.float32]) -> Reading:
        # The decoder strides over the mask itself: it wants the length of the audio, not of the hidden states.
        mask = np.ones((1, len(clip)), np.int64)
        (hidden,) = self._encoder.run(None, {"input_values": clip[None], "attention_mask": mask})
        heard = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        tokens, logs = self._decode(heard, _token_limit(clip))
        text: str = self._tokenizer.decode(tokens)
        return Reading(text.strip(), exp(sum(logs) / len(logs)), exp(min(logs)))

    def _decode(
        self, heard: dict[str, NDArray[np.float32] | NDArray[np.int64]], limit: int
    ) -> tuple[list[int], list[float]]:
        """The likeliest tokens, and the log probability of each and of the end."""
        cache = dict(self._empty_cache)
        tokens, logs = [START_TOKEN], []
        while len(tokens) <= limit:
            cached = len(tokens) > 1
            step = {"input_ids": np.array([tokens[-1:]], np.int64), "use_cache_branch": np.array([cached])}
            logits, *present = self._decoder.run(None, heard | step | cache)
            token = int(logits[0, -1].argmax())
            logs.append(-float(np.log(np.exp(logits[0, -1] - logits[0, -1, token]).sum())))
            if token == END_TOKEN:
                break
            tokens.append(token)
            for name, values in zip(self._cache_names, present, strict=True):
                # The cached branch returns the encoder's half empty: it is computed once, by the first step.
                if not cached or ".decoder." in name:
                    cache[name] = values
        return tokens[1:], logs


def _check(clip: NDArray[np.float32]) -> None:
    if clip.ndim != 1 or clip.dtype != np.float32:
        raise RequestError(f"clip is {clip.dtype}{clip.shape}, expected float32(T,)")
    duration_s = len(clip) / RATE_HZ
    if not SHORTEST_S <= duration_s <= LONGEST_S:
        raise RequestError(f"clip lasts {duration_s:.3f} s, expected {SHORTEST_S} s to {LONGEST_S} s")


def _token_limit(clip: NDArray[np.float32]) -> int:
    return ceil(TOKENS_PER_SECOND * len(clip) / RATE_HZ) + HEADROOM_TOKENS


def _no_positions(decoder: onnxruntime.InferenceSession, name: str) -> NDArray[np.float32]:
    """Return what the first step takes as cache: the right rank, no row."""
    (heads, width) = next((i.shape[1], i.shape[3]) for i in decoder.get_inputs() if i.name == name)
    return np.zeros((0, heads, 1, width), np.float32)
