"""Code2Wav on tiny random weights: what streaming, batches, masks and resets must not change."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from voice_runtime.models.code2wav import (
    DELAY_SAMPLES,
    FRAME_SAMPLES,
    Code2Wav,
    Code2WavConfig,
    CodecDecoder,
    State,
    offline,
)

ONE = np.ones(1, np.bool_)
TINY = Code2WavConfig(codes=16, components=8, width=16, heads=2, window=6, hidden=32, blocks=2)
Codes = NDArray[np.int64]


def _vocoder() -> Code2Wav:
    torch.manual_seed(0)
    decoder = CodecDecoder(TINY)
    with torch.no_grad():
        decoder.pitch.out.bias[1::2] = 0.5  # mostly voiced, so that the phase matters
    return Code2Wav(decoder)


VOCODER = _vocoder()


def _codes(seed: int, frames: int, rows: int = 1) -> Codes:
    return np.random.default_rng(seed).integers(TINY.codes, size=(rows, frames, TINY.books))


def _streamed(codes: Codes, cuts: list[int]) -> NDArray[np.float32]:
    state = VOCODER.init_state(1)
    pieces = [VOCODER.decode(state, part, ONE) for part in np.split(codes, sorted(cuts), 1)]
    return np.concatenate([*pieces, VOCODER.flush(state, ONE)], 1)[0, DELAY_SAMPLES:]


def _equal(a: State, b: State) -> bool:
    return all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)


@settings(max_examples=30)
@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 30), max_size=12))
def test_any_cutting_of_the_codes_gives_the_sound_of_the_whole(seed: int, cuts: list[int]) -> None:
    codes = _codes(seed, 30)
    whole = offline(VOCODER, codes[0])
    assert whole.shape == (30 * FRAME_SAMPLES,)
    assert whole.std() > 0.01
    np.testing.assert_allclose(_streamed(codes, cuts), whole, atol=1e-5)


@settings(max_examples=30)
@given(seed=st.integers(0, 99), steps=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=10))
def test_batch_mates_change_nothing(seed: int, steps: list[tuple[int, bool, bool]]) -> None:
    frames = sum(count for count, _, _ in steps)
    mine, at = _codes(seed, frames), 0
    state = VOCODER.init_state(3)
    heard = []
    for index, (count, first, last) in enumerate(steps):
        batch = _codes(index, count, rows=3)
        batch[1] = mine[0, at : at + count]
        heard.append(VOCODER.decode(state, batch, np.array([first, True, last]))[1])
        at += count
    heard.append(VOCODER.flush(state, np.array([False, True, True]))[1])
    np.testing.assert_allclose(np.concatenate(heard)[DELAY_SAMPLES:], offline(VOCODER, mine[0]), atol=1e-5)


def test_a_row_outside_the_mask_is_silent_and_keeps_its_state_whatever_its_codes() -> None:
    state = VOCODER.init_state(2)
    VOCODER.decode(state, _codes(0, 3, rows=2), np.ones(2, np.bool_))
    before = State({name: tensor.clone() for name, tensor in state.tensors.items()})
    codes = _codes(1, 3, rows=2)
    codes[0] = 999
    mask = np.array([False, True])
    assert not VOCODER.decode(state, codes, mask)[0].any()
    assert not VOCODER.flush(state, mask)[0].any()
    VOCODER.reset(state, mask)
    assert _equal(State(state.take(torch.tensor([0]))), State(before.take(torch.tensor([0]))))


@pytest.mark.parametrize("end", [Code2Wav.reset, Code2Wav.flush])
def test_a_row_that_was_reset_or_flushed_sounds_like_a_new_one(end: object) -> None:
    state = VOCODER.init_state(1)
    VOCODER.decode(state, _codes(0, 9), ONE)
    assert callable(end)
    end(VOCODER, state, ONE)
    assert _equal(state, VOCODER.init_state(1))


def test_the_state_does_not_grow_with_time() -> None:
    state = VOCODER.init_state(2)
    sizes = {name: tensor.shape for name, tensor in state.tensors.items()}
    for _ in range(20):
        VOCODER.decode(state, _codes(0, 5, rows=2), np.ones(2, np.bool_))
    assert {name: tensor.shape for name, tensor in state.tensors.items()} == sizes


@pytest.mark.parametrize("part", ["keys.0", "values.1", "convs.1", "pitch", "phase", "pulses", "shape", "overlap"])
def test_every_part_of_the_state_is_heard(part: str) -> None:
    codes = _codes(0, 12)
    heard = []
    for cleared in (False, True):
        state = VOCODER.init_state(1)
        VOCODER.decode(state, codes, ONE)
        if cleared:
            state.tensors[part].zero_()
        heard.append(VOCODER.decode(state, codes, ONE))
    assert np.abs(heard[0] - heard[1]).max() > 1e-4


@settings(max_examples=20)
@given(frame=st.integers(0, 11))
def test_what_comes_later_is_not_heard_before(frame: int) -> None:
    codes = _codes(0, 12)
    other = codes.copy()
    other[:, frame:] = _codes(1, 12 - frame)
    heard = [VOCODER.decode(VOCODER.init_state(1), each, ONE)[0] for each in (codes, other)]
    differs = np.flatnonzero(np.abs(heard[0] - heard[1]) > 1e-6)
    assert len(differs) > 0
    assert differs[0] >= frame * FRAME_SAMPLES


def test_the_declared_delay_is_the_true_one() -> None:
    """The last codes change the sound up to the very end of their frames: the delay hides none of it."""
    codes = _codes(0, 8)
    other = codes.copy()
    other[:, 4:] = _codes(1, 4)
    differs = np.flatnonzero(np.abs(offline(VOCODER, codes[0]) - offline(VOCODER, other[0])) > 1e-6)
    assert 4 * FRAME_SAMPLES - DELAY_SAMPLES <= differs[0] < 4 * FRAME_SAMPLES
    assert differs[-1] >= 7 * FRAME_SAMPLES


def test_no_frames_give_no_sound() -> None:
    assert VOCODER.decode(VOCODER.init_state(1), _codes(0, 0), ONE).shape == (1, 0)
    np.testing.assert_array_equal(VOCODER.flush(VOCODER.init_state(1), ONE), np.zeros((1, DELAY_SAMPLES), np.float32))


@pytest.mark.parametrize("code", [-1, TINY.codes])
def test_a_code_out_of_range_is_refused_and_changes_nothing(code: int) -> None:
    state = VOCODER.init_state(1)
    codes = _codes(0, 2)
    codes[0, 1, 3] = code
    with pytest.raises(ValueError, match="expected 0 to 15"):
        VOCODER.decode(state, codes, ONE)
    assert _equal(state, VOCODER.init_state(1))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 5), (1, 4)])
def test_codes_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected int64\(1, frames, 4\)"):
        VOCODER.decode(VOCODER.init_state(1), np.zeros(shape, np.int64), ONE)


def test_a_mask_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected bool\(1,\)"):
        VOCODER.reset(VOCODER.init_state(1), np.ones(2, np.bool_))
