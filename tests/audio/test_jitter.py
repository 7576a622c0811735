"""The jitter buffer under a clock of our own: what goes out when, what is waited for, what is filled in."""

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.line import FIRST_SEQUENCE, FIRST_TIMESTAMP, START_S, Line
from voice_runtime.audio.jitter import LONGEST_GAP_S, MOST_HELD, Lost, Voice

# In order, and nearly


@pytest.mark.parametrize("packet_ms", [10, 20, 60])
def test_what_is_in_order_goes_out_when_it_comes(packet_ms: int) -> None:
    line, rng = Line(packet_ms), random.Random(1)
    for number in range(300):
        line.come(number, number * packet_ms + rng.uniform(0, 9))
        assert line.out[-1] == (line.ms, Voice(number.to_bytes(4)))
    assert line.voices == list(range(300))
    assert line.losses == []


@pytest.mark.parametrize("sequence", [0, 1, 32_767, 65_500, 65_535])
@pytest.mark.parametrize("timestamp", [0, 2**31 - 960, 2**32 - 960])
def test_numbers_and_timestamps_may_wrap_around_anywhere(sequence: int, timestamp: int) -> None:
    line = Line(sequence=sequence, timestamp=timestamp)
    order = [0, 2, 1, 3, 5, 7, 6, *range(8, 60)]
    for number in order:
        line.come(number, max(number * 20, line.ms))
    assert line.voices == [number for number in range(60) if number != 4]
    assert line.losses == [(120, 20, 5)]


def test_the_stream_begins_with_the_first_packet_that_comes_and_nothing_is_waited_for_before() -> None:
    line = Line()
    assert line.buffer.wait_s(START_S) == math.inf
    assert line.buffer.pull(START_S + 60) is None
    line.come(7, 140)
    assert line.timed_voices == [(140, 7)]
    assert line.losses == []


def test_a_packet_out_of_order_waits_for_the_one_before_it() -> None:
    line = Line()
    line.come_in_order([0])
    line.come(2, 40)
    assert line.voices == [0]
    line.come(1, 45)
    assert line.timed_voices[1:] == [(45, 1), (45, 2)]
    assert line.losses == []


def test_a_packet_that_comes_after_its_place_went_to_the_next_is_left_out() -> None:
    line = Line()
    for number, at_ms in [(0, 0), (2, 40), (3, 60), (1, 61), (4, 80)]:
        line.come(number, at_ms)
    assert line.voices == [0, 2, 3, 4]
    assert (line.buffer.counts.late, line.buffer.counts.lost) == (1, 1)
    assert line.length_ms == 100


def test_a_packet_that_comes_twice_goes_out_once() -> None:
    line = Line()
    for number, at_ms in [(0, 0), (0, 1), (2, 40), (2, 41), (1, 45), (1, 46), (2, 47)]:
        line.come(number, at_ms)
    assert line.voices == [0, 1, 2]
    assert line.buffer.counts.repeated == 1  # while it was held: later it is one that comes too late
    assert line.buffer.counts.late == 3


def test_a_packet_without_sound_goes_out_and_what_it_lacks_is_filled_in() -> None:
    line = Line()
    line.come_in_order([0])
    line.now_s += 0.02
    line.buffer.push((FIRST_SEQUENCE + 1) & 0xFFFF, (FIRST_TIMESTAMP + 960) & 0xFFFFFFFF, b"", 0, line.now_s)
    line.pull()
    line.come_in_order([2])
    assert [piece for _, piece in line.out[1:]] == [Voice(b""), Lost(20), Voice((2).to_bytes(4))]


# Losses


def test_a_loss_is_waited_for_as_long_as_depth_says_and_no_longer() -> None:
    line = Line()
    line.come_in_order(n for n in range(10) if n != 5)
    assert line.losses == [(5 * 20 + 40, 20, 6)]
    assert line.timed_voices[4:] == [(80, 4), (140, 6), (140, 7), (160, 8), (180, 9)]  # no delay is left behind


def test_of_several_lost_in_a_row_each_has_its_time_and_the_last_is_asked_of_the_packet_after_it() -> None:
    line = Line()
    line.come_in_order([0, 1, 5, 6, 7])
    assert line.losses == [(80, 20, None), (100, 20, None), (120, 20, 5)]
    assert line.voices == [0, 1, 5, 6, 7]
    assert line.buffer.counts.lost == 3


def test_a_packet_out_of_order_behind_a_loss_is_not_lost_with_it() -> None:
    line = Line()
    line.come_in_order([0])
    line.come(3, 60)
    line.come(2, 70)
    line.come_in_order([4])
    assert line.voices == [0, 2, 3, 4]
    assert line.losses == [(60, 20, None)]


def test_a_loss_of_a_long_packet_is_filled_in_with_its_length() -> None:
    line = Line(packet_ms=60)
    line.come_in_order(n for n in range(10) if n != 5)
    assert line.losses == [(340, 20, None), (360, 20, None), (380, 20, 6)]


def test_of_a_loss_filled_in_at_once_only_the_last_piece_is_asked_of_the_packet_after_it() -> None:
    line = Line(packet_ms=60)
    line.come_in_order(range(4))
    line.come(4, 4 * 60 + 70)
    line.come_in_order([6, 7])
    assert line.losses[-3:] == [(370, 20, None), (370, 20, None), (370, 20, 6)]


def test_depth_follows_the_jitter_between_40_and_120_ms_and_shrinks_again() -> None:
    line, rng = Line(), random.Random(3)
    for number, (worst_ms, least, most) in enumerate([(5, 40, 40), (90, 80, 90), (400, 120, 120), (5, 40, 40)]):
        begin, end = number * 600, (number + 1) * 600
        arrivals = sorted((n * 20 + rng.uniform(0, worst_ms), n) for n in range(begin, end))
        for at_ms, n in arrivals:
            line.come(n, max(at_ms, line.ms))
        assert least <= line.buffer.depth_ms <= most


def test_a_loss_is_waited_for_longer_where_packets_come_late() -> None:
    line = Line()
    for number in range(300):
        line.come(number, max(number * 20 + 60 * (number % 10 == 9), line.ms))
    line.come_in_order(range(301, 310))
    assert line.losses[-1][0] == pytest.approx(300 * 20 + line.buffer.depth_ms)
    assert line.buffer.depth_ms == pytest.approx(60)


@pytest.mark.parametrize("drift", [-300e-6, 300e-6])
def test_a_clock_that_drifts_costs_nothing_in_ten_minutes(drift: float) -> None:
    line, rng = Line(packet_ms=60), random.Random(4)
    lost = set(range(200, 10_000, 200))
    for number in range(10_000):
        if number not in lost:
            line.come(number, number * 60 * (1 + drift) + rng.uniform(0, 10))
    assert line.voices == [number for number in range(10_000) if number not in lost]
    assert line.length_ms == 600_000
    gave_up_ms = [at_ms for at_ms, _, _ in line.losses][::3]
    waited_ms = [at - number * 60 * (1 + drift) for at, number in zip(gave_up_ms, sorted(lost), strict=True)]
    assert 36 < min(waited_ms) <= max(waited_ms) < 42


# Stalls and gaps


@pytest.mark.parametrize("pulls_between", [True, False])
def test_of_a_stall_whose_packets_come_late_nothing_is_lost_and_nothing_is_filled_twice(pulls_between: bool) -> None:
    line = Line()
    line.come_in_order(range(50))
    line.run_until(2_000)
    assert line.filled_ms == pytest.approx(1_000 - 40, abs=20)
    for number in range(50, 101):
        line.push(number)
        if pulls_between:
            line.pull()
    line.pull()
    filled_ms = line.filled_ms
    line.come_in_order(range(101, 150))
    assert line.voices == list(range(150))
    assert line.filled_ms == filled_ms < 1_000
    assert line.out[-1][0] == pytest.approx(149 * 20)
    line.come_in_order(range(151, 160))
    assert line.losses[-1] == (150 * 20 + line.buffer.depth_ms, 20, 151)


def test_an_outage_whose_packets_never_come_is_filled_once() -> None:
    line = Line()
    line.come_in_order([*range(50), *range(100, 150)])
    assert line.voices == [*range(50), *range(100, 150)]
    assert line.filled_ms == 1_000
    assert line.length_ms == 150 * 20
    assert [following for _, _, following in line.losses if following] == [100]
    assert line.buffer.counts.lost == 50


def test_a_peer_that_goes_on_where_it_stopped_is_filled_once_and_then_followed() -> None:
    line = Line()
    line.come_in_order(range(50))
    line.come_in_order(range(50, 1_500), late_ms=1_000)
    assert line.voices == list(range(1_500))
    assert line.filled_ms == pytest.approx(1_000 - 40, abs=20)
    line.come_in_order([1_501, 1_502, 1_503, 1_504, 1_505, 1_506], late_ms=1_000)
    assert line.losses[-1][0] == pytest.approx(31_000 + line.buffer.depth_ms)
    assert line.buffer.depth_ms == 40


def test_where_a_peer_sends_nothing_on_purpose_the_stream_is_as_long_as_the_time() -> None:
    line = Line()
    shift_ms = 0
    for number in range(50):
        if number % 10 == 9:
            shift_ms += 380
        line.come(number, number * 20 + shift_ms, shift_ms)
    assert line.voices == list(range(50))
    assert line.length_ms == 50 * 20 + 5 * 380
    assert line.buffer.counts.lost == 0
    assert {following for _, _, following in line.losses} == {None}


def test_what_is_filled_in_is_made_of_pieces_that_opus_can_conceal() -> None:
    line = Line()
    line.come_in_order([0])
    for number in range(1, 6):
        line.come(number, number * 20, shift_ms=33 * number)
    assert {ms % 2.5 for _, ms, _ in line.losses} == {0}
    assert max(ms for _, ms, _ in line.losses) == 20
    assert line.filled_ms == pytest.approx(5 * 33, abs=5 * 2.5)


@pytest.mark.parametrize("goes_on_ms", [0, 180_000])
@pytest.mark.parametrize("is_pulled", [True, False])
def test_a_peer_that_is_away_for_minutes_is_filled_for_two_seconds(goes_on_ms: int, is_pulled: bool) -> None:
    line = Line()
    line.come_in_order(range(50))
    if is_pulled:
        line.run_until(100_000)
        assert line.buffer.wait_s(line.now_s) == math.inf
    line.now_s = START_S + 181
    line.come_in_order(range(50, 100), late_ms=180_000, shift_ms=goes_on_ms)
    assert line.voices == list(range(100))
    assert line.filled_ms <= LONGEST_GAP_S * 1000
    assert line.out[-1][0] == pytest.approx(99 * 20 + 180_000)


# Other streams, and enemies


def test_two_packets_in_a_row_far_off_begin_a_new_stream() -> None:
    line = Line()
    line.come_in_order([*range(10), 12])
    far = Line(sequence=20_000, timestamp=77, buffer=line.buffer, now_s=line.now_s)
    far.come_in_order(range(13, 20), late_ms=-25)
    assert far.losses == []
    far.run_until(4_000)
    assert line.voices == list(range(10))
    assert far.voices == list(range(14, 20))  # what was held of the old one is of no use any more
    assert line.buffer.counts.strange == 1


def test_a_single_packet_far_off_is_left_out_and_disturbs_nothing() -> None:
    line = Line()
    for number in range(50):
        line.come(number, number * 20)
        if number % 7 == 0:
            line.push(20_000 + number // 7)
            assert line.pull() == 0
    assert line.voices == list(range(50))
    assert line.losses == []
    assert line.buffer.counts.strange == 8


@pytest.mark.parametrize("shift_ms", [-40_000_000, -3_000, 3_000, 40_000_000])
def test_one_timestamp_that_is_nonsense_costs_a_gap_and_no_more(shift_ms: int) -> None:
    line = Line()
    line.come_in_order(range(100))
    line.come(100, 2_000, shift_ms)
    line.come_in_order(range(101, 400))
    assert line.voices == list(range(400))
    assert line.filled_ms <= 2 * LONGEST_GAP_S * 1000


def test_a_flood_is_bounded_in_memory_and_in_what_is_filled_in() -> None:
    line, rng = Line(), random.Random(5)
    for _ in range(5_000):
        before_ms = line.filled_ms
        sequence, timestamp = rng.choice([rng.getrandbits(16), rng.randrange(600)]), rng.getrandbits(32)
        line.buffer.push(sequence, timestamp, b"x", rng.choice([0, 20, 120]), line.now_s)
        line.pull()
        assert line.filled_ms - before_ms <= MOST_HELD * LONGEST_GAP_S * 1000
        line.out.clear()
        line.buffer.counts.filled_ms = 0.0
    assert not line.buffer._ready


def test_as_many_packets_are_held_as_may_be_and_then_the_missing_one_is_given_up() -> None:
    line = Line()
    line.come_in_order([0])
    for number in range(2, MOST_HELD + 1):
        line.push(number, shift_ms=40 - 20 * number)  # all of one time, or the clock would be what ends the wait
        assert line.pull() == 0
    line.push(MOST_HELD + 1, shift_ms=20 - 20 * MOST_HELD)
    line.pull()
    assert line.voices == [0, *range(2, MOST_HELD + 2)]


# Any arrival


@dataclass(frozen=True)
class Journey:
    """Of one packet: how late each of its copies comes, none when it is lost."""

    late_ms: tuple[float, ...]


def journeys(worst_ms: float) -> st.SearchStrategy[list[Journey]]:
    late = st.one_of(st.just(0.0), st.floats(0, worst_ms, width=16))
    copies = st.one_of(st.tuples(late), st.tuples(late), st.tuples(late, late), st.just(()))
    return st.lists(st.builds(Journey, copies), max_size=60)


def carry(ways: list[Journey], rest_ms: float) -> Line:
    """A first and a last packet come in time, those between as they may. rest_ms: from the last one on."""
    line, last = Line(), len(ways) + 1
    arrivals = [(n * 20 + late_ms, n) for n, way in enumerate(ways, start=1) for late_ms in way.late_ms]
    for at_ms, number in sorted([(0.0, 0), *arrivals, (last * 20.0, last)]):
        line.come(number, at_ms)
    line.run_until(last * 20 + rest_ms)
    return line


@given(ways=journeys(worst_ms=39))
def test_every_packet_that_comes_in_its_time_goes_out_once_in_order_in_its_place(ways: list[Journey]) -> None:
    line, last = carry(ways, rest_ms=41), len(ways) + 1
    assert line.voices == [0, *(number for number, way in enumerate(ways, start=1) if way.late_ms), last]
    assert line.length_ms == (last + 1) * 20
    place_ms = 0.0
    for _, piece in line.out:
        assert not isinstance(piece, Voice) or place_ms == int.from_bytes(piece.payload) * 20
        place_ms += piece.ms if isinstance(piece, Lost) else 20


@given(ways=journeys(worst_ms=400))
def test_however_late_packets_come_none_goes_out_twice_or_out_of_order_and_all_are_counted(ways: list[Journey]) -> None:
    line = carry(ways, rest_ms=800)
    counts = line.buffer.counts
    assert line.voices == sorted(set(line.voices))
    assert line.voices[-1] == len(ways) + 1
    assert counts.received == len(line.voices) + counts.late + counts.repeated
    assert counts.lost == len(ways) + 2 - len(line.voices)
    assert line.length_ms >= (len(ways) + 2) * 20
