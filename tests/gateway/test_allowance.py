"""How much faster than real time a client may send its audio."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.errors import PeerError
from voice_runtime.gateway.transports.common import BURST_S, Allowance

START_S = 5_000.0


def test_audio_in_real_time_is_always_taken() -> None:
    allowance = Allowance("too_much_audio", START_S)
    for number in range(1, 100_000):
        allowance.take(0.02, START_S + 0.02 * number)


def test_a_burst_of_ten_seconds_is_taken_and_more_is_refused_with_found_and_expected() -> None:
    allowance = Allowance("too_much_audio", START_S)
    allowance.take(BURST_S, START_S)
    with pytest.raises(PeerError, match=r"11\.0 s ahead of real time, expected at most 10 s") as caught:
        allowance.take(1.0, START_S)
    assert caught.value.code == "too_much_audio"


def test_audio_a_little_faster_than_real_time_is_refused_in_the_end() -> None:
    allowance, fitting = Allowance("too_much_audio", START_S), int(BURST_S / 0.002)
    for number in range(1, fitting):
        allowance.take(0.022, START_S + 0.02 * number)
    with pytest.raises(PeerError):
        allowance.take(0.03, START_S + 0.02 * fitting)


def test_what_a_stalled_network_held_back_may_come_at_once() -> None:
    allowance = Allowance("too_much_audio", START_S)
    allowance.take(20.0, START_S + 10)


def test_a_long_silence_saves_up_no_more_than_the_burst() -> None:
    allowance = Allowance("too_much_audio", START_S)
    allowance.take(2 * BURST_S, START_S + 3_600)
    with pytest.raises(PeerError):
        allowance.take(0.1, START_S + 3_600)


@given(messages=st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30)), max_size=40))
def test_over_no_time_is_more_taken_than_that_time_and_two_bursts(messages: list[tuple[float, float]]) -> None:
    allowance, now_s = Allowance("too_much_audio", START_S), START_S
    taken: list[tuple[float, float]] = []
    for pause_s, seconds in messages:
        now_s += pause_s
        try:
            allowance.take(seconds, now_s)
        except PeerError:
            break
        taken.append((now_s, seconds))
    for first, (from_s, _) in enumerate(taken):
        audio_s = sum(seconds for _, seconds in taken[first:])
        assert audio_s <= taken[-1][0] - from_s + 2 * BURST_S + 1e-6
