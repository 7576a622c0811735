"""The playout ledger under a clock of our own: what is sent when, what counts as heard, and that nobody spins."""

import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.session.playout import FRAME_MS, Playout
from voice_runtime.stages.payloads import SpokenClause

RATE_HZ = 8_000
BYTES_A_MS = RATE_HZ // 1000 * 2
START_S = 5_000.0  # as large as a real monotonic clock


def playout(lead_ms: int = 400, rate_hz: int = RATE_HZ) -> Playout:
    return Playout(rate_hz, lead_ms)


def words(text: str, samples: int) -> list[tuple[str, int]]:
    """Each as long as it has letters."""
    return [(word.text, word.sample) for word in SpokenClause.spread(text, bytes(2 * samples), RATE_HZ).words]


def say(reply: Playout, text: str, ms: int) -> None:
    reply.append(words(text, ms * RATE_HZ // 1000), sound(ms))


def sound(ms: int) -> bytes:
    return bytes(range(1, BYTES_A_MS + 1)) * ms


def sent_at(reply: Playout, now_s: float) -> list[bytes]:
    """The frames that are due."""
    frames = []
    while (frame := reply.next_frame(now_s)) is not None:
        frames.append(frame)
    return frames


def ms_at(reply: Playout, now_s: float) -> float:
    return len(b"".join(sent_at(reply, now_s))) / BYTES_A_MS


def test_audio_is_sent_in_frames_of_20_ms_up_to_the_lead_and_then_as_it_is_played() -> None:
    reply = playout(lead_ms=100)
    say(reply, "Hello. ", 500)
    frames = sent_at(reply, START_S)
    assert [len(frame) for frame in frames] == [FRAME_MS * BYTES_A_MS] * 5
    assert reply.wait_s(START_S) == pytest.approx(0.02)
    assert ms_at(reply, START_S + 0.019) == 0
    assert ms_at(reply, START_S + 0.0201) == 20
    assert ms_at(reply, START_S + 0.0601) == 40
    assert reply.underruns == 0


def test_a_short_frame_is_filled_up_by_the_next_clause() -> None:
    reply = playout()
    say(reply, "Hello. ", 30)
    say(reply, "Bye.", 15)
    assert [len(frame) // BYTES_A_MS for frame in sent_at(reply, START_S)] == [20, 20, 5]


def test_nothing_is_waited_for_while_nothing_is_appended() -> None:
    reply = playout()
    assert reply.wait_s(START_S) == math.inf
    assert reply.next_frame(START_S) is None
    say(reply, "Hello. ", 20)
    assert ms_at(reply, START_S) == 20
    assert reply.wait_s(START_S + 1) == math.inf
    assert not reply.is_over(START_S + 1)


def test_a_reply_is_over_when_it_is_complete_and_played() -> None:
    reply = playout()
    say(reply, "Hello. ", 100)
    reply.append([], sound(10))
    sent_at(reply, START_S)
    assert not reply.is_over(START_S + 1)
    reply.is_complete = True
    assert reply.wait_s(START_S + 0.01) == pytest.approx(0.1)
    assert not reply.is_over(START_S + 0.109)
    assert reply.is_over(START_S + 0.111)


def test_a_reply_without_sound_is_over_at_once() -> None:
    reply = playout()
    reply.append([("…", 0)], b"")
    reply.is_complete = True
    assert reply.is_over(START_S)
    assert reply.heard_text(START_S) == ""


def test_audio_that_comes_after_the_client_ran_dry_is_an_underrun_and_plays_from_then() -> None:
    reply = playout(lead_ms=100)
    say(reply, "Hello. ", 100)
    sent_at(reply, START_S)
    say(reply, "Bye.", 200)
    assert ms_at(reply, START_S + 3) == 100
    assert reply.underruns == 1
    assert reply.played_ms(START_S + 3) == 100
    assert reply.played_ms(START_S + 3.05) == pytest.approx(150)


def test_audio_that_comes_in_time_is_no_underrun() -> None:
    reply = playout(lead_ms=100)
    say(reply, "Hello. ", 100)
    sent_at(reply, START_S)
    say(reply, "Bye.", 200)
    sent_at(reply, START_S + 0.09)
    assert reply.underruns == 0


def test_the_first_frame_is_no_underrun_however_late_it_is() -> None:
    reply = playout()
    say(reply, "Hello. ", 20)
    sent_at(reply, START_S + 60)
    assert reply.underruns == 0


@pytest.mark.parametrize(("report_ms", "taken_ms"), [(150.0, 150), (0.0, 0), (-5.0, 0), (201.0, 200), (1e300, 200)])
def test_a_report_is_better_evidence_than_the_clock_within_what_was_sent(report_ms: float, taken_ms: float) -> None:
    reply = playout()
    say(reply, "Hello. ", 200)
    sent_at(reply, START_S)
    reply.reported(report_ms, START_S + 0.1)
    assert reply.played_ms(START_S + 0.1) == taken_ms
    assert reply.played_ms(START_S + 0.11) == pytest.approx(min(taken_ms + 10, 200))


def test_a_report_before_the_first_frame_is_nothing() -> None:
    reply = playout()
    say(reply, "Hello. ", 200)
    reply.reported(100, START_S)
    assert reply.played_ms(START_S + 1) == 0


def test_a_client_that_plays_late_is_sent_less() -> None:
    reply = playout(lead_ms=100)
    say(reply, "Hello. ", 500)
    sent_at(reply, START_S)
    reply.reported(10, START_S + 0.1)
    assert ms_at(reply, START_S + 0.1) == 0
    assert ms_at(reply, START_S + 0.1101) == 20


def test_a_word_is_heard_once_half_of_it_was_played() -> None:
    reply = playout(lead_ms=500)
    ms = RATE_HZ // 1000
    reply.append([("One ", 0), ("two ", 100 * ms), ("three", 300 * ms)], sound(500))
    sent_at(reply, START_S)
    heard = {at: reply.heard_text(START_S + at / 1000 + 1e-6) for at in (0, 49, 50, 199, 200, 300, 399, 400, 500)}
    assert heard == {
        0: "",
        49: "",
        50: "One",
        199: "One",
        200: "One two",
        300: "One two",
        399: "One two",
        400: "One two three",
        500: "One two three",
    }


def test_a_word_that_goes_on_in_the_next_piece_is_as_long_as_both() -> None:
    reply = playout()
    reply.append([("Hello ", 0)], sound(100))
    reply.append([("there.", 100 * RATE_HZ // 1000)], sound(200))
    sent_at(reply, START_S)
    assert reply.heard_text(START_S + 0.099) == ""
    assert reply.heard_text(START_S + 0.101) == "Hello"
    assert reply.heard_text(START_S + 0.251) == "Hello there."


def test_the_text_is_all_that_was_appended() -> None:
    reply = playout()
    say(reply, "One two. ", 100)
    reply.append([], sound(100))
    say(reply, "Three. ", 100)
    assert reply.text == "One two. Three."


@given(
    lengths=st.lists(st.integers(0, 3_000), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 24_000), max_size=6),
    report_ms=st.floats(0, 4_000),
)
def test_however_the_sound_is_cut_the_words_heard_are_those_of_which_half_was_played(
    lengths: list[int], cuts: list[int], report_ms: float
) -> None:
    starts = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    borders = [0, *sorted(cut for cut in cuts if cut < starts[-1]), starts[-1]]
    reply = playout(lead_ms=10_000)
    for since, until in pairwise(borders):
        begun = [(f"w{n} ", at - since) for n, at in enumerate(starts[:-1]) if since <= at < until]
        reply.append(begun, bytes(2 * (until - since)))
    sent_at(reply, START_S)
    reply.reported(report_ms, START_S)
    played = reply.played_ms(START_S) * RATE_HZ / 1000
    heard = [
        f"w{n}"
        for n, (since, until) in enumerate(pairwise(starts))
        if since < starts[-1] and played and (since + until) / 2 <= played
    ]
    assert reply.heard_text(START_S).split() == heard


def test_words_that_were_not_sent_were_not_heard_however_late_it_is() -> None:
    reply = playout(lead_ms=100)
    say(reply, "One two three four. ", 400)
    sent_at(reply, START_S)
    assert reply.heard_text(START_S + 60) == "One"


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@given(samples=st.lists(st.integers(0, 5_000), min_size=1, max_size=6))
def test_of_a_reply_that_is_over_every_word_was_heard(rate_hz: int, samples: list[int]) -> None:
    reply, now_s = playout(rate_hz=rate_hz), START_S
    for size in samples:
        reply.append(words("one two ", size), bytes(2 * size))
    reply.is_complete = True
    while not reply.is_over(now_s):
        sent_at(reply, now_s)
        now_s += 0.1
    assert reply.heard_text(now_s).split() == (["one", "two"] * len(samples) if sum(samples) else [])


# Held


def test_a_held_reply_sends_nothing_counts_nothing_and_goes_on_from_the_same_sample() -> None:
    reply = playout(lead_ms=100)
    say(reply, "One two three four. ", 400)
    sent = sent_at(reply, START_S)
    reply.hold(START_S + 0.05)
    assert reply.next_frame(START_S + 1) is None
    assert reply.wait_s(START_S + 1) == math.inf
    assert reply.played_ms(START_S + 1) == pytest.approx(50)
    assert not reply.is_over(START_S + 1)
    reply.resume(START_S + 2)
    assert reply.played_ms(START_S + 2) == pytest.approx(50)
    assert reply.played_ms(START_S + 2.02) == pytest.approx(70)
    sent += sent_at(reply, START_S + 2.0001)
    assert b"".join(sent) == sound(140)
    assert reply.underruns == 0


def test_a_reply_that_is_held_before_its_first_sound_begins_when_it_is_let_go() -> None:
    reply = playout(lead_ms=100)
    reply.hold(START_S)
    say(reply, "Hello. ", 200)
    reply.is_complete = True
    assert reply.next_frame(START_S + 1) is None
    reply.resume(START_S + 2)
    assert ms_at(reply, START_S + 2) == 100
    assert reply.played_ms(START_S + 2.05) == pytest.approx(50)


def test_a_reply_that_is_held_at_its_last_sample_is_over_when_it_is_let_go() -> None:
    reply = playout()
    say(reply, "Hello. ", 100)
    reply.is_complete = True
    sent_at(reply, START_S)
    reply.hold(START_S + 0.2)
    assert not reply.is_over(START_S + 1)
    reply.resume(START_S + 2)
    assert reply.is_over(START_S + 2)


def test_what_the_client_reports_of_a_held_reply_is_taken() -> None:
    reply = playout()
    say(reply, "Hello. ", 300)
    sent_at(reply, START_S)
    reply.hold(START_S + 0.1)
    reply.reported(130, START_S + 0.2)
    assert reply.played_ms(START_S + 0.3) == 130
    reply.resume(START_S + 1)
    assert reply.played_ms(START_S + 1.01) == pytest.approx(140)


# Captions


def test_a_word_is_shown_once_before_the_frame_in_which_it_begins() -> None:
    reply = playout(lead_ms=60)
    ms = RATE_HZ // 1000
    reply.append([("One ", 0), ("two ", 19 * ms), ("three ", 20 * ms), ("four", 40 * ms)], sound(60))
    shown = []
    for _ in range(3):
        shown += [reply.take_caption(START_S), reply.take_caption(START_S)]
        assert reply.next_frame(START_S) is not None
    assert shown == ["One two ", "", "three ", "", "four", ""]
    assert reply.take_rest() == ""


def test_no_word_is_shown_before_its_frame_is_due() -> None:
    reply = playout(lead_ms=60)
    assert reply.take_caption(START_S) == ""
    reply.append([("One ", 0), ("two", 60 * RATE_HZ // 1000)], sound(80))
    assert reply.take_caption(START_S) == "One "
    assert ms_at(reply, START_S) == 60
    assert reply.take_caption(START_S + 0.019) == ""
    reply.hold(START_S + 0.02)
    assert reply.take_caption(START_S + 1) == ""
    reply.resume(START_S + 2)
    assert reply.take_caption(START_S + 2.001) == "two"


def test_the_rest_is_what_was_not_shown() -> None:
    reply = playout()
    reply.append([("One ", 0), ("two ", 100 * RATE_HZ // 1000)], sound(100))
    assert reply.take_caption(START_S) == "One "
    assert reply.take_rest() == "two "
    assert (reply.take_caption(START_S), reply.take_rest()) == ("", "")


# What may come back as an echo


def test_what_was_played_is_given_once_with_a_little_ahead() -> None:
    reply = playout(lead_ms=200)
    assert reply.take_played(START_S, 100) == b""
    say(reply, "Hello. ", 300)
    assert reply.take_played(START_S, 100) == b""
    sent_at(reply, START_S)
    assert reply.take_played(START_S, 50) == sound(50)
    assert reply.take_played(START_S + 0.030001, 50) == sound(80)[-30 * BYTES_A_MS :]
    assert reply.take_played(START_S + 9, 50) == sound(200)[-120 * BYTES_A_MS :]
    assert reply.take_played(START_S + 9, 50) == b""


def test_what_was_given_ahead_of_a_pause_is_given_again_after_it() -> None:
    reply = playout(lead_ms=200)
    say(reply, "Hello. ", 300)
    sent_at(reply, START_S)
    assert reply.take_played(START_S + 0.050001, 100) == sound(150)
    reply.hold(START_S + 0.060001)
    assert reply.take_played(START_S + 2, 100) == sound(160)[-10 * BYTES_A_MS :]
    reply.resume(START_S + 2)
    assert reply.take_played(START_S + 2.02, 100) == sound(180)[60 * BYTES_A_MS :]


# Any schedule


@dataclass
class Loop:
    """Sends as the transport does, and checks every law at each step."""

    reply: Playout
    now_s: float = START_S
    appended: bytearray = field(default_factory=bytearray)
    sent: bytearray = field(default_factory=bytearray)
    taken: bytearray = field(default_factory=bytearray)
    words: list[tuple[str, int]] = field(default_factory=list)
    captions: str = ""

    def act(self, action: str, ms: int) -> None:
        match action:
            case "append":
                self.append(ms)
            case "report":
                self.reply.reported(ms, self.now_s)
            case "late":
                self.now_s += ms / 1000
            case "hold":
                self.reply.hold(self.now_s)
            case "resume":
                was_held = self.reply.is_held
                self.reply.resume(self.now_s)
                played = int(self.reply.played_ms(self.now_s) * RATE_HZ / 1000)
                assert not was_held or self.reply._taken <= played
                del self.taken[2 * self.reply._taken :]  # it is given again
            case "take":
                self.taken += self.reply.take_played(self.now_s, ms)
                assert self.sent[: len(self.taken)] == self.taken
                played_bytes = int((self.reply.played_ms(self.now_s) + ms) * RATE_HZ / 1000) * 2
                assert len(self.taken) >= min(len(self.sent), played_bytes)
            case "run":
                self.run_until(self.now_s + ms / 1000)

    def append(self, ms: int, text: str = "one two three ") -> None:
        pcm = (len(self.appended) + ms).to_bytes(4, "little") * (ms * BYTES_A_MS // 4)
        begun = words(text, len(pcm) // 2)
        self.words += [(word, len(self.appended) // 2 + at) for word, at in begun]
        self.appended += pcm
        self.reply.append(begun, pcm)

    def step(self) -> bool:
        """Send one frame or wait; False when only an append can bring more."""
        assert 0 <= self.reply.played_ms(self.now_s) <= self.reply.sent_ms
        wait_s = self.reply.wait_s(self.now_s)
        caption = self.reply.take_caption(self.now_s)
        frame = self.reply.next_frame(self.now_s)
        assert (frame is not None) == (wait_s == 0 and not self.reply.is_over(self.now_s))
        if frame is not None:
            assert not self.reply.is_held
            self.sent += frame
            self.captions += caption
            assert self.captions == "".join(word for word, at in self.words if at < len(self.sent) // 2)
            assert self.reply.sent_ms - self.reply.played_ms(self.now_s) <= self.reply.lead_ms + 1e-6
            return True
        assert not caption
        if wait_s == math.inf or self.reply.is_over(self.now_s):
            return False
        self.now_s = max(self.now_s + wait_s, math.nextafter(self.now_s, math.inf))
        return True

    def run_until(self, end_s: float) -> None:
        while self.now_s < end_s and self.step():
            pass
        self.now_s = max(self.now_s, end_s)

    def finish(self) -> int:
        """Steps that it takes from here to the end of the reply."""
        self.reply.is_complete = True
        if self.reply.is_held:
            self.reply.resume(self.now_s)
        steps = 0
        while self.step():
            steps += 1
        return steps


ACTIONS = ["append", "append", "report", "late", "run", "run", "hold", "resume", "take"]
schedules = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 900)), max_size=25)


@given(lead_ms=st.integers(40, 500), schedule=schedules)
def test_on_any_schedule_all_bytes_come_out_in_order_never_too_early_and_without_spinning(
    lead_ms: int, schedule: list[tuple[str, int]]
) -> None:
    loop = Loop(playout(lead_ms))
    for action, ms in schedule:
        loop.act(action, ms)
    steps = loop.finish()
    assert loop.sent == loop.appended
    assert loop.captions + loop.reply.take_rest() == "".join(word for word, _ in loop.words)
    assert loop.reply.is_over(loop.now_s)
    # Each frame takes a step and a wait or two: floating point may wake the sender just before a frame is due.
    assert steps <= 4 * (len(loop.appended) // (FRAME_MS * BYTES_A_MS) + 2)


@given(schedule=schedules)
def test_without_reports_what_was_played_never_becomes_less(schedule: list[tuple[str, int]]) -> None:
    loop, played_ms = Loop(playout()), 0.0
    for action, ms in schedule:
        if action != "report":
            loop.act(action, ms)
        assert loop.reply.played_ms(loop.now_s) >= played_ms
        played_ms = loop.reply.played_ms(loop.now_s)


@given(schedule=schedules)
def test_the_words_heard_are_the_first_words_of_the_reply(schedule: list[tuple[str, int]]) -> None:
    loop = Loop(playout())
    said: list[str] = []
    for number, (action, ms) in enumerate(schedule):
        if action == "append":
            loop.append(ms, f"a{number} b{number} c{number} ")
            said += [f"a{number}", f"b{number}", f"c{number}"]
        else:
            loop.act(action, ms)
        heard = loop.reply.heard_text(loop.now_s).split()
        assert heard == said[: len(heard)]


@given(schedule=schedules)
def test_without_reports_no_word_that_was_heard_is_taken_back(schedule: list[tuple[str, int]]) -> None:
    """Each piece begins with a word: how long the last one is, is then known."""
    loop, heard = Loop(playout()), ""
    for action, ms in schedule:
        if action != "report":
            loop.act(action, ms)
        now = loop.reply.heard_text(loop.now_s)
        assert now.startswith(heard)
        heard = now
