"""G.711 against ITU-T's own arithmetic, for every code and every sample, and against its tables."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from voice_runtime.audio import g711
from voice_runtime.audio.g711 import Law
from voice_runtime.audio.pcm import Samples, to_pcm, to_samples

EVERY_SAMPLE = np.arange(-32768, 32768).astype("<i2")
EVERY_CODE = bytes(range(256))
LAWS: tuple[Law, ...] = ("mulaw", "alaw")


def mulaw_code(sample: int) -> int:
    """ITU-T G.191's arithmetic: 14 bits of a magnitude with a bias of 33, ones' complement when negative."""
    magnitude = min((~sample if sample < 0 else sample) // 4 + 33, 0x1FFF)
    segment = magnitude.bit_length() - 5
    code = (8 - segment) << 4 | 0xF - (magnitude >> segment & 0xF)
    return code | 0x80 if sample >= 0 else code


def alaw_code(sample: int) -> int:
    """ITU-T G.191's arithmetic: 12 bits of a magnitude, even bits inverted."""
    magnitude = (~sample if sample < 0 else sample) >> 4
    exponent = max(magnitude.bit_length() - 4, 0)
    mantissa = magnitude >> max(exponent - 1, 0) & 0xF
    return (exponent << 4 | mantissa | (0x80 if sample >= 0 else 0)) ^ 0x55


def mulaw_sample(code: int) -> int:
    inverted = ~code & 0x7F
    magnitude = ((inverted & 0xF) * 8 + 0x84 << (inverted >> 4)) - 0x84
    return magnitude if code & 0x80 else -magnitude


def alaw_sample(code: int) -> int:
    plain = (code ^ 0x55) & 0x7F
    exponent, mantissa = plain >> 4, plain & 0xF
    magnitude = (mantissa * 16 + 264) << exponent - 1 if exponent else mantissa * 16 + 8
    return magnitude if code & 0x80 else -magnitude


@pytest.mark.parametrize(("law", "code"), [("mulaw", mulaw_code), ("alaw", alaw_code)])
def test_every_sample_has_the_code_of_g191(law: Law, code: Callable[[int], int]) -> None:
    assert g711.encode_pcm(EVERY_SAMPLE.tobytes(), law) == bytes(code(sample) for sample in EVERY_SAMPLE.tolist())


@pytest.mark.parametrize(("law", "sample"), [("mulaw", mulaw_sample), ("alaw", alaw_sample)])
def test_every_code_has_the_sample_of_g711(law: Law, sample: Callable[[int], int]) -> None:
    decoded = np.frombuffer(g711.decode_pcm(EVERY_CODE, law), "<i2").tolist()
    assert decoded == [sample(code) for code in EVERY_CODE]


def test_the_ends_of_the_tables_are_those_that_g711_prints() -> None:
    """Table 2a: 8031 of 8159 and 0, in 14 bits. Table 1a: 4032 of 4096 and 1, in 13 bits."""
    mulaw = np.frombuffer(g711.decode_pcm(b"\x80\xff\x7f\x00", "mulaw"), "<i2") // 4
    assert mulaw.tolist() == [8031, 0, 0, -8031]
    alaw = np.frombuffer(g711.decode_pcm(b"\xaa\xd5\x55\x2a", "alaw"), "<i2") // 8
    assert alaw.tolist() == [4032, 1, -1, -4032]


@pytest.mark.parametrize("law", LAWS)
def test_a_decoded_code_is_encoded_as_itself(law: Law) -> None:
    again = g711.encode_pcm(g711.decode_pcm(EVERY_CODE, law), law)
    zeros = {"mulaw": EVERY_CODE.replace(b"\x7f", b"\xff"), "alaw": EVERY_CODE}  # mu-law's -0 becomes 0
    assert again == zeros[law]


@pytest.mark.parametrize("law", LAWS)
def test_floats_and_pcm_have_the_same_codes_and_samples(law: Law) -> None:
    pcm = EVERY_SAMPLE.tobytes()
    assert g711.encode(to_samples(pcm), law) == g711.encode_pcm(pcm, law)
    decoded = g711.decode(EVERY_CODE, law)
    assert decoded.dtype == np.float32
    assert to_pcm(decoded) == g711.decode_pcm(EVERY_CODE, law)


@pytest.mark.parametrize("law", LAWS)
@given(samples=st_numpy.arrays(np.float32, st.integers(0, 50), elements=st.floats(-4, 4, width=32)))
def test_floats_are_rounded_and_clipped_as_for_pcm(law: Law, samples: Samples) -> None:
    assert g711.encode(samples, law) == g711.encode_pcm(to_pcm(samples), law)


@pytest.mark.parametrize("law", LAWS)
def test_half_a_sample_is_refused(law: Law) -> None:
    with pytest.raises(ValueError, match="multiple"):
        g711.encode_pcm(b"\0\0\0", law)
