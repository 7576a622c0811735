"""Training examples of the talker: utterances cut into chunks of text, seen as the talker will be asked for them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voice_runtime.models.talker import CLAUSE_ENDS, PAD, SLOT_FEATURES, SPACE, TalkerConfig
from voice_runtime.runner.codec_lm import NO_CODE

UNCUT_SHARE = 0.3
GROWING_SHARE = 0.5  # of those that are cut: a few words, then longer and longer pieces, as a reply grows
CLAUSE_SHARE = 0.7  # of cuts are made after punctuation, where there is some
FEWEST_PHONEMES = 6  # in a chunk
MOST_CHUNKS = 4
HISTORY_SHARE = 0.5  # of the windows begin with history instead of the reply
NOISE_SHARE = 0.1  # of the codes seen are random
LONGEST_FRAMES = 256


@dataclass(frozen=True, slots=True)
class Spoken:
    """phonemes, slots: int64 (P,); codes: int64 (T, books), T = slots.sum() / 2."""

    phonemes: NDArray[np.int64]
    slots: NDArray[np.int64]
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """One example. Rows are chunks, encoded apart; frames are those of the window.

    rows: phonemes of each chunk between those that it sees on its left and on its right
    own: where in each row the chunk's own phonemes begin
    durations: slots of the chunk's own phonemes
    slot_row, slot_column: int64 (2T,), which encoding each slot takes; features: float32 (2T, 3)
    codes: int64 (T, books)
    """

    rows: list[NDArray[np.int64]]
    own: list[int]
    durations: list[NDArray[np.int64]]
    slot_row: NDArray[np.int64]
    slot_column: NDArray[np.int64]
    features: NDArray[np.float32]
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """ids, keep, durations (0: none): (rows, phonemes). slots: int64 (windows, 2T), positions in the flattened ids.

    features: (windows, 2T, 3); previous, codes: int64 (windows, T, books); scored: bool (windows, T)
    """

    ids: Tensor
    keep: Tensor
    durations: Tensor
    slots: Tensor
    features: Tensor
    previous: Tensor
    codes: Tensor
    scored: Tensor


def read_codes(path: Path) -> Iterator[Spoken]:
    stored = np.load(path)
    phonemes, slots, codes = stored["phonemes"], stored["slots"], stored["codes"].astype(np.int64)
    phoneme, frame = 0, 0
    for count in stored["phoneme_counts"]:
        mine = slice(phoneme, phoneme + count)
        frames = int(slots[mine].sum()) // 2
        yield Spoken(phonemes[mine], slots[mine], codes[frame : frame + frames])
        phoneme, frame = phoneme + int(count), frame + frames


def window(spoken: Spoken, config: TalkerConfig, rng: np.random.Generator) -> Window:
    """Cut at random borders; begin at the reply's start, or history_frames before one of the cuts."""
    slots = spoken.slots.copy()
    cuts = _cuts(spoken.phonemes, slots, rng) if rng.random() > UNCUT_SHARE else []
    borders = [0, *cuts, len(slots)]
    start_slot = np.concatenate([[0], slots.cumsum()])
    first_frame = 0
    if cuts and rng.random() < HISTORY_SHARE:
        first_frame = max(0, int(start_slot[rng.choice(cuts)]) // 2 - config.history_frames)
    elif len(spoken.codes) > LONGEST_FRAMES:
        first_frame = int(rng.integers(len(spoken.codes) - LONGEST_FRAMES + 1))
    frames = slice(first_frame, min(len(spoken.codes), first_frame + LONGEST_FRAMES))
    row, column = [], []
    rows, own, durations = [], [], []
    for index, (first, end) in enumerate(pairwise(borders)):
        left = min(first, config.left_phonemes)
        rows.append(spoken.phonemes[first - left : end + _seen_ahead(spoken.phonemes, end, config)])
        own.append(left)
        durations.append(slots[first:end])
        column.append(np.repeat(np.arange(left, left + end - first), slots[first:end]))
        row.append(np.full(len(column[-1]), index))
    seen = slice(2 * frames.start, 2 * frames.stop)
    return Window(
        rows,
        own,
        durations,
        np.concatenate(row)[seen],
        np.concatenate(column)[seen],
        _features(slots)[seen],
        spoken.codes[frames],
    )


def _seen_ahead(phonemes: NDArray[np.int64], end: int, config: TalkerConfig) -> int:
    """As voice_runtime.models.talker.Reader: the next word is seen across a border that no punctuation makes."""
    if end == len(phonemes) or phonemes[end] != SPACE or phonemes[end - 1] in CLAUSE_ENDS:
        return 0
    word = phonemes[end + 1 : end + config.right_phonemes]
    stops = np.flatnonzero(np.isin(word, (SPACE, PAD, *CLAUSE_ENDS)))
    return 1 + int(stops[0] if len(stops) else len(word))


def _features(slots: NDArray[np.int64]) -> NDArray[np.float32]:
    """As voice_runtime.models.talker.slot_features."""
    length = np.repeat(slots, slots)
    index = np.arange(len(length)) - np.repeat(slots.cumsum() - slots, slots)
    return np.stack([(index + 0.5) / length, np.log(length), index == 0], 1).astype(np.float32)


def _cuts(phonemes: NDArray[np.int64], slots: NDArray[np.int64], rng: np.random.Generator) -> list[int]:
    """Choose borders, ascending. Moves a slot over each so that it lies between frames."""
    spaces = np.flatnonzero(phonemes == SPACE)
    sentences = np.flatnonzero((phonemes[:-1] == PAD) & (phonemes[1:] == PAD)) + 1
    after_clause = spaces[np.isin(phonemes[spaces - 1], CLAUSE_ENDS)]
    if rng.random() < GROWING_SHARE:
        return [cut for cut in _growing(np.union1d(spaces, sentences), rng) if _align(slots, cut)]
    chosen: list[int] = []
    for _ in range(int(rng.integers(1, MOST_CHUNKS))):
        natural = np.concatenate([after_clause, sentences])
        pool = natural if len(natural) and rng.random() < CLAUSE_SHARE else spaces
        if len(pool) == 0:
            continue
        cut = int(rng.choice(pool))
        if all(abs(cut - other) >= FEWEST_PHONEMES for other in (*chosen, 0, len(phonemes))) and _align(slots, cut):
            chosen.append(cut)
    return sorted(chosen)


def _growing(borders: NDArray[np.int64], rng: np.random.Generator) -> Iterator[int]:
    """Borders after a few words, and then after pieces that grow with all that was said before."""
    said, growth = int(rng.integers(2, 7)), rng.uniform(1.2, 3)
    while said <= len(borders):
        yield int(borders[said - 1])
        said += max(2, int(growth * said))


def _align(slots: NDArray[np.int64], cut: int) -> bool:
    """Make the slots before `cut` even by moving one over it. False when both neighbours have only one."""
    if slots[:cut].sum() % 2 == 0:
        return True
    giver, taker = (cut, cut - 1) if slots[cut] > 1 else (cut - 1, cut)
    if slots[giver] <= 1:
        return False
    slots[giver] -= 1
    slots[taker] += 1
    return True


def collate(windows: list[Window], config: TalkerConfig, rng: np.random.Generator | None) -> Batch:
    """Pad and join. rng: for random codes in place of some that are seen; None: none are."""
    rows = [row for item in windows for row in item.rows]
    own = [first for item in windows for first in item.own]
    durations = [row for item in windows for row in item.durations]
    longest = max(len(row) for row in rows)
    frames = max(len(item.codes) for item in windows)
    ids = np.zeros((len(rows), longest), np.int64)
    keep = np.zeros((len(rows), longest), bool)
    lengths = np.zeros((len(rows), longest), np.int64)
    for index, (row, first, fresh) in enumerate(zip(rows, own, durations, strict=True)):
        ids[index, : len(row)], keep[index, : len(row)] = row, True
        lengths[index, first : first + len(fresh)] = fresh
    slots = np.zeros((len(windows), 2 * frames), np.int64)
    features = np.zeros((len(windows), 2 * frames, SLOT_FEATURES), np.float32)
    codes = np.zeros((len(windows), frames, config.books), np.int64)
    previous = np.full((len(windows), frames, config.books), NO_CODE, np.int64)
    scored = np.zeros((len(windows), frames), bool)
    first_row = 0
    for index, item in enumerate(windows):
        count = len(item.codes)
        slots[index, : 2 * count] = (first_row + item.slot_row) * longest + item.slot_column
        features[index, : 2 * count] = item.features
        codes[index, :count], scored[index, :count] = item.codes, True
        previous[index, 1:count] = _noisy(item.codes[:-1], config, rng)
        first_row += len(item.rows)
    tensors = (ids, keep, lengths, slots, features, previous, codes, scored)
    return Batch(*(torch.from_numpy(values) for values in tensors))


def _noisy(codes: NDArray[np.int64], config: TalkerConfig, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """Replace whole frames of history with random codes, so that the talker outlives its own errors."""
    if rng is None:
        return codes
    replaced = rng.random(len(codes)) < NOISE_SHARE
    random = rng.integers(config.codes, size=codes.shape)
    return np.where(replaced[:, None], random, codes)
