"""The resampler: a stream in pieces is the stream, and a tone stays the tone that it was."""

from collections.abc import Iterable
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import RATES_HZ, Resampler

PAIRS = list(product(RATES_HZ, RATES_HZ))
UNEQUAL = [(from_hz, to_hz) for from_hz, to_hz in PAIRS if from_hz != to_hz]
EDGE_S = 0.005  # where the filter still sees the silence before and after the stream


def tone(rate_hz: int, size: int, hz: float = 440.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(size) / rate_hz)).astype(np.float32)


def noise(size: int) -> Samples:
    return np.random.default_rng(7).uniform(-1, 1, size).astype(np.float32)


def resampled(samples: Samples, from_hz: int, to_hz: int, cuts: Iterable[int] = ()) -> Samples:
    resampler = Resampler(from_hz, to_hz)
    borders = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    pieces = [resampler.push(samples[start:end]) for start, end in pairwise(borders)]
    return np.concatenate([*pieces, resampler.flush()])


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
@given(cuts=st.lists(st.integers(0, 700), max_size=12))
def test_any_cut_of_a_stream_gives_the_samples_of_the_uncut_one(from_hz: int, to_hz: int, cuts: list[int]) -> None:
    samples = noise(700)
    assert np.array_equal(resampled(samples, from_hz, to_hz, cuts), resampled(samples, from_hz, to_hz))


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_stream_of_single_samples_gives_the_samples_of_the_uncut_one(from_hz: int, to_hz: int) -> None:
    samples = noise(300)
    assert np.array_equal(resampled(samples, from_hz, to_hz, range(300)), resampled(samples, from_hz, to_hz))


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_tone_keeps_its_pitch_level_and_place_without_a_click_where_it_was_cut(from_hz: int, to_hz: int) -> None:
    out = resampled(tone(from_hz, from_hz // 2), from_hz, to_hz, range(0, from_hz // 2, from_hz // 50))
    edge = int(EDGE_S * to_hz)
    assert np.abs(out - tone(to_hz, len(out)))[edge:-edge].max() < 1e-4


@pytest.mark.parametrize(("from_hz", "to_hz"), UNEQUAL)
def test_a_tone_above_half_of_the_new_rate_does_not_come_back_as_another(from_hz: int, to_hz: int) -> None:
    size, hz = from_hz // 2, 0.45 * from_hz
    out = resampled(tone(from_hz, size, hz), from_hz, to_hz)
    edge = int(EDGE_S * to_hz)
    level = float(np.abs(out[edge:-edge]).max())
    assert level > 0.4 if to_hz > from_hz else level < 0.01


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
@pytest.mark.parametrize("size", [240, 241, 242, 243, 700, 4_801])
def test_the_length_is_that_of_the_stream_in_time(from_hz: int, to_hz: int, size: int) -> None:
    assert abs(len(resampled(tone(from_hz, size), from_hz, to_hz)) - size * to_hz / from_hz) < 1


@pytest.mark.parametrize(("from_hz", "to_hz"), UNEQUAL)
def test_a_stream_shorter_than_the_filter_may_come_out_shorter_and_is_never_longer(from_hz: int, to_hz: int) -> None:
    for size in range(1, 240):
        assert len(resampled(tone(from_hz, size), from_hz, to_hz)) < size * to_hz / from_hz + 1


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_no_more_than_four_milliseconds_are_held_back(from_hz: int, to_hz: int) -> None:
    pushed = Resampler(from_hz, to_hz).push(tone(from_hz, from_hz // 10))
    assert to_hz // 10 - len(pushed) <= 0.004 * to_hz


def test_equal_rates_pass_untouched() -> None:
    samples, resampler = noise(100), Resampler(16_000, 16_000)
    assert resampler.push(samples) is samples
    assert resampler.flush().size == 0


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_an_empty_stream_stays_empty(from_hz: int, to_hz: int) -> None:
    resampler = Resampler(from_hz, to_hz)
    assert resampler.push(np.zeros(0, np.float32)).size == 0
    assert resampler.flush().size == 0


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_the_samples_that_are_pushed_may_be_overwritten(from_hz: int, to_hz: int) -> None:
    if from_hz == to_hz:  # they are what comes out
        return
    samples, resampler = noise(400), Resampler(from_hz, to_hz)
    expected = resampled(samples, from_hz, to_hz)
    first = resampler.push(samples)
    samples[:] = 0
    assert np.array_equal(np.concatenate([first, resampler.flush()]), expected)
