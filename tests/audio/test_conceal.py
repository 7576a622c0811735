"""What is put where a telephone's sound never came."""

import numpy as np

from voice_runtime.audio.conceal import FADED_MS, Concealer

RATE_HZ = 8_000
TONE = (0.3 * np.sin(2 * np.pi * 200 * np.arange(1_600) / RATE_HZ)).astype(np.float32)


def test_sound_that_came_is_as_it_was() -> None:
    concealer = Concealer(RATE_HZ)
    assert np.array_equal(concealer.push(TONE), TONE)


def test_a_loss_goes_on_like_the_sound_before_it_and_fades_to_silence() -> None:
    concealer = Concealer(RATE_HZ)
    concealer.push(TONE)
    filled = concealer.fill(200)
    assert filled.size == 1_600
    went_on = np.sin(2 * np.pi * 200 * np.arange(160) / RATE_HZ)
    assert np.corrcoef(filled[:160], went_on)[0, 1] > 0.95
    powers = [float(np.abs(filled[at : at + 160]).max()) for at in range(0, 1_600, 160)]
    assert powers == sorted(powers, reverse=True)
    assert not filled[FADED_MS * RATE_HZ // 1_000 :].any()


def test_a_loss_before_any_sound_is_silence_of_its_length() -> None:
    assert Concealer(RATE_HZ).fill(30).tolist() == [0.0] * 240
