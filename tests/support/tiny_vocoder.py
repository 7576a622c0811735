"""A small deterministic streaming vocoder: windowed attention over frames, overlap-add, a lag. Real work, no weights.

`offline` computes the same sound from all codes at once without any state: what every stream must equal.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voice_runtime.schedulers.code2wav import Codes, Rows, Samples

BOOKS, CODES, WIDTH, WINDOW = 2, 20, 6, 4
FRAME, DELAY = 12, 5  # samples
_random = np.random.default_rng(3)
EMBEDDING = _random.normal(size=(BOOKS, CODES, WIDTH))
SHAPES = _random.normal(size=(WIDTH, DELAY + FRAME))  # the sound of a frame, which begins DELAY before it


def _attend(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """The last of (n, WIDTH) frames in the light of all of them."""
    weights = np.exp(frames @ frames[-1] / WIDTH)
    return weights @ frames / weights.sum()  # type: ignore[no-any-return]


def offline(codes: Codes) -> Samples:
    """codes: shape (frames, BOOKS). Returns shape (frames * FRAME,)."""
    embedded = np.stack([EMBEDDING[book, codes[:, book]] for book in range(BOOKS)]).sum(0)
    sound = np.zeros(DELAY + len(codes) * FRAME)
    for at in range(len(codes)):
        seen = embedded[max(0, at - WINDOW + 1) : at + 1]
        sound[at * FRAME : at * FRAME + DELAY + FRAME] += _attend(seen) @ SHAPES
    return sound[DELAY:].astype(np.float32)


@dataclass
class State:
    """cache: frames in the window, NaN where none came. tail: sound that the next frame adds to. counts: frames."""

    cache: NDArray[np.float64]
    tail: NDArray[np.float64]
    counts: NDArray[np.int64]


class TinyVocoder:
    """Implements StreamingVocoder."""

    books, codebook_size = BOOKS, CODES
    frame_samples, delay_samples = FRAME, DELAY

    def init_state(self, rows: int) -> State:
        return State(np.full((rows, WINDOW, WIDTH), np.nan), np.zeros((rows, DELAY)), np.zeros(rows, np.int64))

    def decode(self, state: State, codes: NDArray[np.int64], mask: Rows) -> Samples:
        rows, frames, _ = codes.shape
        sound = np.zeros((rows, frames * FRAME), np.float32)
        for row in np.flatnonzero(mask).tolist():
            for at in range(frames):
                sound[row, at * FRAME : (at + 1) * FRAME] = self._frame(state, row, codes[row, at])
        return sound

    def flush(self, state: State, mask: Rows) -> Samples:
        return np.where(mask[:, None], state.tail, 0).astype(np.float32)

    def reset(self, state: State, mask: Rows) -> None:
        state.cache[mask] = np.nan
        state.tail[mask] = 0
        state.counts[mask] = 0

    def _frame(self, state: State, row: int, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        embedded = sum(EMBEDDING[book, codes[book]] for book in range(BOOKS))
        state.cache[row] = np.concatenate([state.cache[row, 1:], [embedded]])
        state.counts[row] += 1
        seen = state.cache[row, -min(WINDOW, int(state.counts[row])) :]
        sound = _attend(seen) @ SHAPES
        sound[:DELAY] += state.tail[row]
        state.tail[row] = sound[FRAME:]
        return sound[:FRAME]
