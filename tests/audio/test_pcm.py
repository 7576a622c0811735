"""16-bit PCM and float samples."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.pcm import PcmReader, to_pcm, to_samples


def test_the_extremes_of_pcm_are_minus_one_and_just_under_one() -> None:
    assert to_samples(b"\x00\x80\xff\x7f\x00\x00\x01\x00").tolist() == [-1.0, 32767 / 32768, 0.0, 1 / 32768]


def test_what_is_out_of_range_is_clipped() -> None:
    samples = np.array([1.0, 1.5, -1.5, np.inf, -np.inf], np.float32)
    assert to_pcm(samples) == b"\xff\x7f\xff\x7f\x00\x80\xff\x7f\x00\x80"


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer size"):
        to_samples(b"abc")


@given(pcm=st.binary(max_size=400))
def test_pcm_comes_back_as_it_was(pcm: bytes) -> None:
    even = pcm[: len(pcm) // 2 * 2]
    assert to_pcm(to_samples(even)) == even


@given(pcm=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)))
def test_any_cut_of_the_bytes_gives_the_same_samples(pcm: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(min(cut, len(pcm)) for cut in cuts), len(pcm)]
    reader = PcmReader()
    pieces = [reader.push(pcm[start:end]) for start, end in pairwise(borders)]
    assert np.array_equal(np.concatenate(pieces), to_samples(pcm[: len(pcm) // 2 * 2]))
    assert all(piece.dtype == np.float32 for piece in pieces)


def test_an_odd_byte_waits_for_its_other_half() -> None:
    reader = PcmReader()
    assert reader.push(b"\x00").size == 0
    assert reader.push(b"").size == 0
    assert reader.push(b"\x40\x00").tolist() == [0.5]
    assert reader.push(b"\xc0").tolist() == [-0.5]
