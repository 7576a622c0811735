"""The playout ledger under a clock of our own: what is sent when, what counts as heard, and that nobody spins."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.resample import RATES_HZ
from voice_runtime.session.playout import FRAME_MS, Playout

RATE_HZ = 8_000
BYTES_A_MS = RATE_HZ // 1000 * 2
START_S = 5_000.0  # as large as a real monotonic clock


def playout(lead_ms: int = 400, rate_hz: int = RATE_HZ) -> Playout:
    return Playout("r1", 0, rate_hz, lead_ms)


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
    reply.append("Hello. ", sound(500))
    frames = sent_at(reply, START_S)
    assert [len(frame) for frame in frames] == [FRAME_MS * BYTES_A_MS] * 5
    assert reply.wait_s(START_S) == pytest.approx(0.02)
    assert ms_at(reply, START_S + 0.019) == 0
    assert ms_at(reply, START_S + 0.0201) == 20
    assert ms_at(reply, START_S + 0.0601) == 40
    assert reply.underruns == 0


def test_a_short_frame_is_filled_up_by_the_next_clause() -> None:
    reply = playout()
    reply.append("Hello. ", sound(30))
    reply.append("Bye.", sound(15))
    assert [len(frame) // BYTES_A_MS for frame in sent_at(reply, START_S)] == [20, 20, 5]


def test_nothing_is_waited_for_while_nothing_is_appended() -> None:
    reply = playout()
    assert reply.wait_s(START_S) == math.inf
    assert reply.next_frame(START_S) is None
    reply.append("Hello. ", sound(20))
    assert ms_at(reply, START_S) == 20
    assert reply.wait_s(START_S + 1) == math.inf
    assert not reply.is_over(START_S + 1)


def test_a_reply_is_over_when_it_is_complete_and_played() -> None:
    reply = playout()
    reply.append("Hello. ", sound(100))
    reply.append_tail(sound(10))
    sent_at(reply, START_S)
    assert not reply.is_over(START_S + 1)
    reply.is_complete = True
    assert reply.wait_s(START_S + 0.01) == pytest.approx(0.1)
    assert not reply.is_over(START_S + 0.109)
    assert reply.is_over(START_S + 0.111)


def test_a_reply_without_sound_is_over_at_once() -> None:
    reply = playout()
    reply.append("…", b"")
    reply.is_complete = True
    assert reply.is_over(START_S)
    assert reply.heard_text(START_S) == ""


def test_audio_that_comes_after_the_client_ran_dry_is_an_underrun_and_plays_from_then() -> None:
    reply = playout(lead_ms=100)
    reply.append("Hello. ", sound(100))
    sent_at(reply, START_S)
    reply.append("Bye.", sound(200))
    assert ms_at(reply, START_S + 3) == 100
    assert reply.underruns == 1
    assert reply.played_ms(START_S + 3) == 100
    assert reply.played_ms(START_S + 3.05) == pytest.approx(150)


def test_audio_that_comes_in_time_is_no_underrun() -> None:
    reply = playout(lead_ms=100)
    reply.append("Hello. ", sound(100))
    sent_at(reply, START_S)
    reply.append("Bye.", sound(200))
    sent_at(reply, START_S + 0.09)
    assert reply.underruns == 0


def test_the_first_frame_is_no_underrun_however_late_it_is() -> None:
    reply = playout()
    reply.append("Hello. ", sound(20))
    sent_at(reply, START_S + 60)
    assert reply.underruns == 0


@pytest.mark.parametrize(("report_ms", "taken_ms"), [(150.0, 150), (0.0, 0), (-5.0, 0), (201.0, 200), (1e300, 200)])
def test_a_report_is_better_evidence_than_the_clock_within_what_was_sent(report_ms: float, taken_ms: float) -> None:
    reply = playout()
    reply.append("Hello. ", sound(200))
    sent_at(reply, START_S)
    reply.reported(report_ms, START_S + 0.1)
    assert reply.played_ms(START_S + 0.1) == taken_ms
    assert reply.played_ms(START_S + 0.11) == pytest.approx(min(taken_ms + 10, 200))


def test_a_report_before_the_first_frame_is_nothing() -> None:
    reply = playout()
    reply.append("Hello. ", sound(200))
    reply.reported(100, START_S)
    assert reply.played_ms(START_S + 1) == 0


def test_a_client_that_plays_late_is_sent_less() -> None:
    reply = playout(lead_ms=100)
    reply.append("Hello. ", sound(500))
    sent_at(reply, START_S)
    reply.reported(10, START_S + 0.1)
    assert ms_at(reply, START_S + 0.1) == 0
    assert ms_at(reply, START_S + 0.1101) == 20


def test_of_a_clause_as_many_words_are_heard_as_its_time_allows() -> None:
    reply = playout()
    reply.append("One two three four. ", sound(200))
    reply.append("Five six.", sound(100))
    assert reply.heard_text(START_S) == ""
    sent_at(reply, START_S)
    heard = {ms: reply.heard_text(START_S + ms / 1000 + 1e-6) for ms in (0, 49, 50, 120, 200, 249, 250, 300)}
    assert heard == {
        0: "",
        49: "",
        50: "One",
        120: "One two",
        200: "One two three four.",
        249: "One two three four.",
        250: "One two three four. Five",
        300: "One two three four. Five six.",
    }


def test_words_that_were_not_sent_were_not_heard_however_late_it_is() -> None:
    reply = playout(lead_ms=100)
    reply.append("One two three four. ", sound(400))
    sent_at(reply, START_S)
    assert reply.heard_text(START_S + 60) == "One"


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@given(samples=st.lists(st.integers(0, 5_000), min_size=1, max_size=6))
def test_of_a_reply_that_is_over_every_word_was_heard(rate_hz: int, samples: list[int]) -> None:
    reply, now_s = playout(rate_hz=rate_hz), START_S
    for size in samples:
        reply.append("one two ", bytes(2 * size))
    reply.is_complete = True
    while not reply.is_over(now_s):
        sent_at(reply, now_s)
        now_s += 0.1
    assert reply.heard_text(now_s).split() == (["one", "two"] * len(samples) if sum(samples) else [])


# Any schedule


@dataclass
class Loop:
    """Sends as the transport does, and checks every law at each step."""

    reply: Playout
    now_s: float = START_S
    appended: bytearray = field(default_factory=bytearray)
    sent: bytearray = field(default_factory=bytearray)

    def act(self, action: str, ms: int) -> None:
        match action:
            case "append":
                self.append(ms)
            case "report":
                self.reply.reported(ms, self.now_s)
            case "late":
                self.now_s += ms / 1000
            case "run":
                self.run_until(self.now_s + ms / 1000)

    def append(self, ms: int) -> None:
        pcm = (len(self.appended) + ms).to_bytes(4, "little") * (ms * BYTES_A_MS // 4)
        self.appended += pcm
        self.reply.append("one two three ", pcm)

    def step(self) -> bool:
        """Send one frame or wait; False when only an append can bring more."""
        assert 0 <= self.reply.played_ms(self.now_s) <= self.reply.sent_ms
        wait_s = self.reply.wait_s(self.now_s)
        frame = self.reply.next_frame(self.now_s)
        assert (frame is not None) == (wait_s == 0 and not self.reply.is_over(self.now_s))
        if frame is not None:
            self.sent += frame
            assert self.reply.sent_ms - self.reply.played_ms(self.now_s) <= self.reply.lead_ms + 1e-6
            return True
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
        steps = 0
        while self.step():
            steps += 1
        return steps


schedules = st.lists(
    st.tuples(st.sampled_from(["append", "append", "report", "late", "run", "run"]), st.integers(0, 900)), max_size=25
)


@given(lead_ms=st.integers(40, 500), schedule=schedules)
def test_on_any_schedule_all_bytes_come_out_in_order_never_too_early_and_without_spinning(
    lead_ms: int, schedule: list[tuple[str, int]]
) -> None:
    loop = Loop(playout(lead_ms))
    for action, ms in schedule:
        loop.act(action, ms)
    steps = loop.finish()
    assert loop.sent == loop.appended
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
    words: list[str] = []
    for number, (action, ms) in enumerate(schedule):
        if action == "append":
            loop.reply.append(f"a{number} b{number} c{number} ", bytes(ms * BYTES_A_MS))
            words += [f"a{number}", f"b{number}", f"c{number}"]
        else:
            loop.act(action, ms)
        heard = loop.reply.heard_text(loop.now_s).split()
        assert heard == words[: len(heard)]
