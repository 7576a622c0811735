"""The stream that never stops: when its frames leave, what is in them, how it is cut, and what was heard of it."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.gateway.transports.outgoing import FRAME_S, FRAME_TICKS, MOST_BEHIND_S, Outgoing, Pacer
from voice_runtime.session.events import Played, ReplyText

RATE_HZ = 8_000
FRAME = RATE_HZ // 50
SILENCE = bytes(2 * FRAME)
START_S = 5_000.0


# Pacing


def test_for_an_hour_of_late_wake_ups_no_frame_is_early_none_is_missing_and_nothing_drifts() -> None:
    pacer, now_s, rng = Pacer(START_S), START_S, random.Random(1)
    for number in range(180_000):
        due_s = pacer.due_s(now_s)
        now_s = max(now_s, due_s) + rng.choice([0.0, 0.0003, 0.002, 0.015, 0.06 * (number % 50 == 0)])
        assert abs(due_s - (START_S + number * FRAME_S)) < 1e-6
        assert pacer.take() == number
    assert now_s - START_S == pytest.approx(3_600, abs=0.1)


def test_frames_that_are_a_little_late_are_sent_all_the_same() -> None:
    pacer = Pacer(START_S)
    now_s = START_S + MOST_BEHIND_S - 0.001
    sent = []
    while pacer.due_s(now_s) <= now_s:
        sent.append(pacer.take())
    assert sent == list(range(10))


@pytest.mark.parametrize("stall_s", [0.3, 1.0, 3_600.0])
def test_after_a_stall_the_frames_that_are_overdue_are_left_out(stall_s: float) -> None:
    pacer = Pacer(START_S)
    pacer.take()
    now_s = START_S + stall_s + 0.005
    assert now_s - FRAME_S < pacer.due_s(now_s) <= now_s
    assert pacer.take() == pytest.approx(stall_s / FRAME_S, abs=1)
    assert pacer.due_s(now_s) > now_s


# Sound


@dataclass
class Ear:
    """What a stream of Outgoing brings, frame by frame."""

    outgoing: Outgoing = field(default_factory=lambda: Outgoing(RATE_HZ))
    ticks: int = 0
    frames: list[bytes] = field(default_factory=list)
    captions: list[tuple[int, str]] = field(default_factory=list)

    def say(self, reply: str, sound: Samples, text: str = "") -> None:
        """As a session does: words come right before the frame in which they begin."""
        for at in range(0, sound.size, FRAME):
            if text:
                self.outgoing.caption(ReplyText(reply, f"{text}{at // FRAME}"))
            self.outgoing.append(reply, to_pcm(sound[at : at + FRAME]))

    def hear(self, count: int = 1) -> Samples:
        for _ in range(count):
            pcm, captions = self.outgoing.take(self.ticks)
            assert len(pcm) == 2 * FRAME
            self.captions += [(len(self.frames), words.text) for words in captions]
            self.frames.append(pcm)
            self.ticks += FRAME_TICKS
        return to_samples(b"".join(self.frames[-count:])) if count else np.zeros(0, np.float32)

    def played(self, ticks: float) -> tuple[str, float] | None:
        played = self.outgoing.played(ticks)
        return None if played is None else (played.reply, round(played.ms, 6))

    @property
    def is_quiet(self) -> bool:
        """Nothing is queued."""
        return not self.outgoing._queue and not self.outgoing._fading

    @property
    def sound(self) -> Samples:
        return to_samples(b"".join(self.frames))


def tone(frames: float, hz: float = 100) -> Samples:
    """Loud, of whole samples of 16 bits: what is not changed comes back exactly."""
    size = round(frames * FRAME)
    return to_samples(to_pcm((0.8 * np.cos(np.arange(size) * 2 * np.pi * hz / RATE_HZ)).astype(np.float32)))


def steepest(sound: Samples) -> float:
    return float(np.abs(np.diff(sound)).max())


def test_before_between_and_after_replies_there_is_silence() -> None:
    ear = Ear()
    ear.hear(2)
    ear.say("r1", tone(3))
    ear.hear(5)
    ear.say("r2", tone(2, hz=250))
    ear.hear(4)
    quiet = np.zeros(2 * FRAME, np.float32)
    assert np.array_equal(ear.sound, np.concatenate([quiet, tone(3), quiet, tone(2, hz=250), quiet]))
    assert ear.is_quiet


def test_a_short_frame_is_filled_up_with_silence() -> None:
    ear = Ear()
    ear.say("r1", tone(0.25))
    assert np.array_equal(ear.hear(), np.concatenate([tone(0.25), np.zeros(FRAME * 3 // 4, np.float32)]))


def test_a_flush_fades_out_within_a_frame_without_a_click_and_tells_what_was_not_heard() -> None:
    ear = Ear()
    ear.say("r1", tone(10), "word")
    ear.hear(3)
    unheard = ear.outgoing.flush()
    ear.hear(3)
    assert [words.text for words in unheard] == [f"word{number}" for number in range(3, 10)]
    assert {words.reply for words in unheard} == {"r1"}
    assert steepest(ear.sound[FRAME:]) < 1.1 * steepest(tone(10))
    assert ear.sound[3 * FRAME] == tone(4)[3 * FRAME]
    assert ear.frames[4:] == [SILENCE] * 2
    assert ear.outgoing.flush() == []


def test_a_flush_of_silence_is_silent() -> None:
    ear = Ear()
    assert ear.outgoing.flush() == []
    ear.hear(2)
    assert ear.frames == [SILENCE] * 2


def test_after_a_flush_the_next_reply_begins_behind_the_fade() -> None:
    ear = Ear()
    ear.say("r1", tone(10))
    ear.hear(2)
    ear.outgoing.flush()
    ear.say("r2", tone(2, hz=250))
    assert not np.array_equal(ear.hear(), tone(1, hz=250))
    assert np.array_equal(ear.hear(2), tone(2, hz=250))


def test_a_pause_keeps_what_follows_and_a_resume_goes_on_from_the_sample_of_the_fade() -> None:
    ear = Ear()
    ear.say("r1", tone(6), "word")
    ear.hear(2)
    ear.outgoing.pause()
    ear.hear(4)
    assert ear.frames[3:] == [SILENCE] * 3
    ear.outgoing.resume()
    ear.hear(5)
    assert steepest(ear.sound[FRAME:-FRAME]) < 1.1 * steepest(tone(10))
    falling, rising = (to_samples(ear.frames[number]) for number in (2, 6))
    assert np.abs(falling + rising - tone(6)[2 * FRAME : 3 * FRAME]).max() < 3 / 32_768
    assert np.array_equal(to_samples(b"".join(ear.frames[7:10])), tone(6)[3 * FRAME :])
    assert ear.captions == [(0, "word0"), (1, "word1"), (6, "word2"), (7, "word3"), (8, "word4"), (9, "word5")]


def test_a_pause_twice_and_a_resume_twice_are_one() -> None:
    once, twice = Ear(), Ear()
    for ear, times in [(once, 1), (twice, 2)]:
        ear.say("r1", tone(6))
        ear.hear(2)
        for _ in range(times):
            ear.outgoing.pause()
        ear.hear(2)
        for _ in range(times):
            ear.outgoing.resume()
        ear.hear(4)
    assert once.frames == twice.frames


def test_a_pause_that_is_over_before_the_next_frame_dips_and_goes_on() -> None:
    ear = Ear()
    ear.say("r1", tone(6))
    ear.hear(2)
    ear.outgoing.pause()
    ear.outgoing.resume()
    ear.hear(6)
    falling, rising = (to_samples(ear.frames[number]) for number in (2, 3))
    assert np.abs(falling + rising - tone(6)[2 * FRAME : 3 * FRAME]).max() < 3 / 32_768
    assert np.array_equal(to_samples(b"".join(ear.frames[4:7])), tone(6)[3 * FRAME :])


def test_a_flush_right_after_a_resume_does_not_click() -> None:
    ear = Ear()
    ear.say("r1", tone(6))
    ear.hear(2)
    ear.outgoing.pause()
    ear.hear(2)
    ear.outgoing.resume()
    ear.outgoing.flush()
    ear.hear(2)
    assert ear.frames[3:] == [SILENCE] * 3
    ear.say("r2", tone(1))
    assert np.array_equal(ear.hear(), tone(1))


@pytest.mark.parametrize("end", [Outgoing.pause, Outgoing.flush])
def test_a_cut_that_comes_while_another_one_waits_for_its_frame_fades_all_the_same(
    end: Callable[[Outgoing], object],
) -> None:
    ear = Ear()
    ear.say("r1", tone(6))
    ear.hear(2)
    ear.outgoing.pause()
    ear.outgoing.resume()
    end(ear.outgoing)
    ear.hear(2)
    assert steepest(ear.sound[FRAME:]) < 1.1 * steepest(tone(6))
    assert ear.frames[3] == SILENCE != ear.frames[2]


def test_a_new_reply_ends_the_pause_of_the_one_before_with_its_own_captions() -> None:
    ear = Ear()
    ear.say("r1", tone(6), "old")
    ear.hear(2)
    ear.outgoing.pause()
    ear.hear(2)
    ear.say("r2", tone(2, hz=250), "new")
    assert np.array_equal(ear.hear(2), tone(2, hz=250))
    assert ear.captions[2:] == [(4, "new0"), (5, "new1")]


def test_a_reply_that_is_paused_before_its_first_frame_keeps_all_of_it() -> None:
    ear = Ear()
    ear.say("r1", tone(2))
    ear.outgoing.pause()
    ear.say("r1", tone(2))
    ear.hear(3)
    assert ear.frames[1:] == [SILENCE] * 2
    ear.outgoing.resume()
    ear.hear(4)
    assert np.array_equal(to_samples(b"".join(ear.frames[4:])), np.concatenate([tone(2)[FRAME:], tone(2)]))


# Captions


def test_captions_leave_with_the_frame_in_which_their_words_begin() -> None:
    ear = Ear()
    ear.outgoing.caption(ReplyText("r1", "One "))
    ear.outgoing.caption(ReplyText("r1", "two "))
    ear.say("r1", tone(3))
    ear.outgoing.caption(ReplyText("r1", "three"))
    ear.say("r1", tone(1))
    ear.hear(5)
    assert ear.captions == [(0, "One "), (0, "two "), (3, "three")]


def test_words_without_sound_leave_after_the_sound_before_them() -> None:
    ear = Ear()
    ear.say("r1", tone(2))
    ear.outgoing.caption(ReplyText("r1", "…"))
    ear.hear(4)
    assert ear.captions == [(2, "…")]


# What was heard


def test_what_was_heard_of_two_replies_is_known_from_the_time_of_the_stream() -> None:
    ear = Ear()
    ear.hear(5)
    ear.say("r1", tone(10))
    ear.hear(15)
    ear.say("r2", tone(10))
    ear.hear(15)

    def heard(ms: float) -> tuple[str, float] | None:
        return ear.played(ms * 48)

    assert heard(-1) is heard(0) is heard(99) is None
    for ms in (0, 1, 10, 20, 133.5, 199.9):
        assert heard(100 + ms) == ("r1", ms)
        assert heard(400 + ms) == ("r2", ms)
    assert heard(300) == heard(350) == heard(399) == ("r1", 200)
    assert heard(600) == heard(700) == heard(1e9) == ("r2", 200)


def test_what_is_heard_stands_still_in_a_pause_and_its_fade_is_not_counted() -> None:
    ear = Ear()
    ear.say("r1", tone(10))
    ear.hear(3)
    ear.outgoing.pause()
    ear.hear(5)
    ear.outgoing.resume()
    ear.hear(3)
    heard = [ear.played(number * FRAME_TICKS) for number in range(12)]
    ms = [0, 20, 40, *[60] * 5, 60, 80, 100, 120]
    assert heard == [("r1", at) for at in ms]


def test_frames_that_were_left_out_after_a_stall_were_not_heard() -> None:
    ear = Ear()
    ear.say("r1", tone(4))
    ear.hear(2)
    ear.ticks += 50 * FRAME_TICKS
    ear.hear(2)
    assert ear.played(40 * FRAME_TICKS) == ("r1", 40)
    assert ear.played(53 * FRAME_TICKS) == ("r1", 60)


def test_what_was_sent_is_forgotten_after_ten_seconds() -> None:
    ear = Ear()
    ear.say("r1", tone(10))
    ear.hear(505)
    assert ear.played(4 * FRAME_TICKS) is None
    assert ear.played(5 * FRAME_TICKS) == ("r1", 100)
    assert len(ear.outgoing._sent) == 500


def test_what_a_peer_that_muted_itself_has_not_heard_is_sent_again_from_the_beginning_of_its_frame() -> None:
    ear, whole = Ear(), tone(10)
    ear.say("r1", whole, "w")
    ear.hear(5)
    ear.outgoing.pause()
    ear.hear(2)
    ear.outgoing.mute_from(2.5 * FRAME_TICKS)
    ear.outgoing.resume()
    assert ear.played(4 * FRAME_TICKS) == ear.played(6 * FRAME_TICKS) == ("r1", 40)
    again = ear.hear(8)
    assert np.abs(again[FRAME:] - whole[3 * FRAME :]).max() < 1 / 32_768
    assert again[0] == 0  # it rises
    assert ear.played(7.5 * FRAME_TICKS) == ("r1", 50)
    assert ear.played(ear.ticks) == ("r1", 200)
    assert [words for _, words in ear.captions] == [f"w{number}" for number in range(10)]


def test_nothing_is_sent_again_to_who_mutes_itself_too_late_or_after_a_flush() -> None:
    ear = Ear()
    ear.say("r1", tone(10))
    ear.hear(5)
    ear.outgoing.mute_from(2 * FRAME_TICKS)  # nobody is paused
    ear.outgoing.pause()
    ear.outgoing.resume()
    ear.hear(2)
    assert ear.played(ear.ticks) == ("r1", 120)
    ear.outgoing.pause()
    ear.outgoing.mute_from(2 * FRAME_TICKS)
    ear.outgoing.flush()
    ear.say("r2", whole := tone(3, 200))
    ear.outgoing.resume()
    assert not ear.hear(1)[-1:].any()  # the end of the fade
    assert np.array_equal(ear.hear(3), whole)


def test_a_reply_that_is_muted_before_anything_of_it_was_heard_comes_again_from_its_beginning() -> None:
    ear, first, whole = Ear(), tone(3), tone(6, 200)
    ear.say("r1", first)
    ear.hear(5)
    ear.say("r2", whole)
    ear.hear(2)
    ear.outgoing.pause()
    ear.hear(1)
    assert ear.outgoing.mute_from(4 * FRAME_TICKS) == Played("r2", 0)
    ear.outgoing.resume()
    assert np.array_equal(ear.hear(6)[FRAME:], whole[FRAME:])
    assert ear.played(ear.ticks) == ("r2", 120)


def test_a_second_is_sent_again_at_most() -> None:
    ear = Ear()
    ear.say("r1", tone(70))
    ear.hear(60)
    ear.outgoing.pause()
    assert ear.outgoing.mute_from(0.5 * FRAME_TICKS) == Played("r1", 10)
    ear.outgoing.resume()
    assert ear.played(ear.ticks) == ("r1", 200)


def test_what_is_said_of_a_moment_long_ago_is_not_believed() -> None:
    ear = Ear()
    ear.hear(5)
    ear.say("r1", tone(600))
    ear.hear(550)
    ear.outgoing.pause()
    assert ear.outgoing.mute_from(2 * FRAME_TICKS) is None
    ear.outgoing.resume()
    assert ear.played(ear.ticks) == ("r1", 550 * 20)


def test_a_reply_that_is_paused_before_its_first_frame_brings_nothing_back_of_the_one_before() -> None:
    ear, whole = Ear(), tone(3, 200)
    ear.say("r1", tone(10))
    ear.hear(5)
    ear.outgoing.flush()
    ear.say("r2", whole)
    ear.outgoing.pause()
    ear.hear(1)
    ear.outgoing.mute_from(2 * FRAME_TICKS)
    ear.outgoing.resume()
    assert np.array_equal(ear.hear(3)[FRAME:], whole[FRAME:])


# Any course


@given(
    steps=st.lists(st.sampled_from(["hear", "hear", "hear", "pause", "resume"]), max_size=40), frames=st.integers(1, 12)
)
def test_however_it_is_paused_nothing_of_a_reply_is_missing_or_heard_twice(steps: list[str], frames: int) -> None:
    ear, whole = Ear(), tone(frames)
    ear.say("r1", whole, "w")
    for step in steps:
        if step == "hear":
            ear.hear()
        else:
            getattr(ear.outgoing, step)()
    ear.outgoing.resume()
    while not ear.is_quiet:
        ear.hear()
    ear.hear()
    assert ear.captions == sorted(ear.captions)
    assert [words for _, words in ear.captions] == [f"w{number}" for number in range(frames)]
    assert np.abs(unfaded(ear) - whole).max() < 3 / 32_768
    assert ear.played(ear.ticks) == ("r1", 20 * frames)


@given(
    steps=st.lists(st.sampled_from(["hear", "hear", "hear", "pause", "resume"]), max_size=40),
    frames=st.integers(1, 12),
    lag=st.integers(0, 4),
)
def test_an_ear_that_is_behind_and_mutes_itself_at_each_pause_hears_every_frame_once(
    steps: list[str], frames: int, lag: int
) -> None:
    ear = Ear()
    ear.say("r1", np.repeat(np.arange(1, frames + 1), FRAME).astype(np.float32) / np.float32(100))
    on_its_way: deque[bytes] = deque([SILENCE] * lag)
    heard: list[int] = []

    def hear(count: int = 1) -> None:
        for _ in range(count):
            ear.hear()
            on_its_way.append(ear.frames[-1])
            heard.append(round(100 * to_samples(on_its_way.popleft())[-1]))  # 0 of silence, and of what fades

    for step in [*steps, "resume"]:
        if step == "hear":
            hear()
        elif step == "resume":
            hear(lag)  # a pause is longer
            ear.outgoing.resume()
        elif not ear.outgoing._is_paused:
            ear.outgoing.pause()
            ear.outgoing.mute_from(ear.ticks - lag * FRAME_TICKS)
            on_its_way.extend([SILENCE] * lag)
            for _ in range(lag):
                on_its_way.popleft()
    hear(frames + lag + 1)
    assert [number for number in heard if number] == [*range(1, frames + 1)]


def unfaded(ear: Ear) -> Samples:
    """The frames that count as sent; one that rose has what fell before it added."""
    counted, fallen = [], np.zeros(FRAME, np.float32)
    for (before, after), pcm in zip(pairwise(sent_ms(ear)), ear.frames, strict=True):
        if after == before:
            fallen = fallen + to_samples(pcm)
        else:
            rises = to_samples(pcm)[0] == 0
            counted.append(to_samples(pcm) + fallen * rises)
            fallen = np.zeros(FRAME, np.float32)
    return np.concatenate(counted)


def sent_ms(ear: Ear) -> list[float]:
    heard = [ear.played(number * FRAME_TICKS) for number in range(len(ear.frames) + 1)]
    return [0.0 if played is None else played[1] for played in heard]
