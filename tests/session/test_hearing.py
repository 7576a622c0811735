"""The caller's ear: whose voice counts, and how much of it is kept. The voice detector hears a voice in every sound."""

import numpy as np
import pytest

from voice_runtime.audio.pcm import Samples
from voice_runtime.models.vad import FRAME_SAMPLES, RATE_HZ
from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.hearing import Hearing
from voice_runtime.session.turn import Input, State

USUAL_DB = -20.0  # the caller's level
FAR_DB, SOFT_DB = USUAL_DB - 17, USUAL_DB - 15  # beside the 16 dB that part them
HISS_DB = USUAL_DB - 28
LEARNT = 20  # frames; 640 ms of voice
VOWEL = np.hanning(32)  # passes what lies below 1 kHz
REPLYING = (State.THINKING, State.SPEAKING, State.CLOSING)


class Keen:
    """A voice detector that takes every sound for a voice."""

    def push(self, frame: Samples) -> float:
        return 0.9 if frame.any() else 0.1


class Ear:
    """A caller's ear, and the voices that come to it as noise of a level: low as vowels, or high as an "s"."""

    def __init__(self, settings: TurnSettings | None = None) -> None:
        self.hearing = Hearing(settings or TurnSettings(), Keen(), RATE_HZ, RATE_HZ)
        self._noise = np.random.default_rng(1)

    def hear(self, level_db: float, frames: int, state: State, *, hisses: bool = False) -> list[Input]:
        """What sound of a level, in dB of full scale, means while the turn machine is in a state."""
        inputs: list[Input] = []
        for _ in range(frames):
            noise = self._noise.standard_normal(FRAME_SAMPLES)
            if not hisses:
                noise = np.convolve(noise, VOWEL, "same")
            frame = noise / np.sqrt(np.square(noise).mean()) * 10 ** (level_db / 20)
            inputs += self.hearing.push(frame.astype(np.float32), b"", state)
        return inputs

    def turn(self, level_db: float = USUAL_DB, frames: int = LEARNT) -> None:
        """A turn of the caller's own, whose words are known."""
        assert self.hear(level_db, frames, State.HEARING)[0] is Input.VOICE
        assert self.hear(-np.inf, 30, State.MAYBE_DONE)[-1] is Input.TURN_OVER
        self.hearing.take_turn()
        self.hearing.recognised()


def acquainted() -> Ear:
    ear = Ear()
    ear.turn()
    return ear


@pytest.mark.parametrize("state", REPLYING)
@pytest.mark.parametrize(("level_db", "counts"), [(USUAL_DB, True), (SOFT_DB, True), (FAR_DB, False), (-60, False)])
def test_over_a_reply_a_voice_much_softer_than_the_callers_does_not_count(
    state: State, level_db: float, counts: bool
) -> None:
    assert acquainted().hear(level_db, 10, state) == [Input.VOICE] * counts


@pytest.mark.parametrize(("level_db", "counts"), [(HISS_DB, True), (HISS_DB - 3, False)])
def test_over_a_reply_the_hiss_of_a_callers_s_counts_though_it_is_much_softer_than_the_vowels(
    level_db: float, counts: bool
) -> None:
    assert acquainted().hear(level_db, 3, State.SPEAKING, hisses=True) == [Input.VOICE] * counts


def test_after_a_hiss_what_is_softer_counts_and_a_far_vowel_does_not() -> None:
    """As in "stop": its "t" is no hiss. As in a far "sun": its vowel is louder."""
    assert [acquainted_with_hiss().hear(HISS_DB + change_db, 1, State.SPEAKING) for change_db in (-10, 8)] == [
        [Input.VOICE],
        [],
    ]


def acquainted_with_hiss() -> Ear:
    """It has just heard one frame of it."""
    ear = acquainted()
    assert ear.hear(HISS_DB, 1, State.SPEAKING, hisses=True) == []
    return ear


@pytest.mark.parametrize("state", [State.LISTENING, State.HEARING])
def test_while_the_agent_is_silent_a_soft_voice_counts(state: State) -> None:
    assert acquainted().hear(FAR_DB, 10, state) == [Input.VOICE]


@pytest.mark.parametrize(("level_db", "goes_on"), [(SOFT_DB, True), (FAR_DB, False)])
def test_while_a_reply_is_held_a_far_voice_is_silence(level_db: float, goes_on: bool) -> None:
    ear = acquainted()
    assert ear.hear(USUAL_DB, 5, State.SPEAKING) == [Input.VOICE]
    assert (ear.hear(level_db, 10, State.HELD) == []) is goes_on
    assert (ear.hearing.activity.silence_ms == 0) is goes_on


def test_a_soft_sound_between_two_loud_ones_is_the_callers() -> None:
    ear = acquainted()
    ear.hear(USUAL_DB, 5, State.SPEAKING)
    for _ in range(5):
        assert ear.hear(FAR_DB, 2, State.HELD) == []
        assert ear.hear(USUAL_DB, 1, State.HELD) == []


def test_of_a_caller_who_has_hardly_spoken_every_voice_counts() -> None:
    ear = Ear()
    ear.turn(frames=10)
    assert ear.hear(-60, 10, State.SPEAKING) == [Input.VOICE]


@pytest.mark.parametrize("state", [*REPLYING, State.HELD])
@pytest.mark.parametrize("level_db", [USUAL_DB + 20, SOFT_DB])
def test_what_is_said_over_a_reply_teaches_nothing_about_the_caller(state: State, level_db: float) -> None:
    """Else a loud bystander would make the caller too soft, and a soft one would let all others count."""
    ear = acquainted()
    ear.hear(level_db, 200, state)
    ear.hear(-np.inf, 3, state)
    ear.hearing.drop_overlap()
    assert ear.hear(FAR_DB, 10, State.SPEAKING) == []
    assert ear.hear(SOFT_DB, 10, State.SPEAKING) == [Input.VOICE]


def test_silence_within_a_turn_and_before_it_teaches_nothing() -> None:
    ear = Ear()
    for _ in range(5):
        ear.hear(-np.inf, 100, State.LISTENING)
        ear.turn()
    assert ear.hear(FAR_DB, 10, State.SPEAKING) == []


@pytest.mark.parametrize("state", [*REPLYING, State.HELD])
def test_what_is_given_of_a_held_reply_ahead_of_its_time_is_not_on_the_recording(state: State) -> None:
    kept: list[Samples] = []
    hearing = Hearing(TurnSettings(), Keen(), RATE_HZ, RATE_HZ, lambda caller, agent: kept.append(agent))
    sound = np.full(2 * FRAME_SAMPLES, 8_000, "<i2").tobytes()
    for state_then in (State.SPEAKING, state):
        hearing.push(np.zeros(FRAME_SAMPLES, np.float32), sound if state_then is State.SPEAKING else b"", state_then)
    assert [bool(agent.any()) for agent in kept] == [True, state is not State.HELD]


def test_a_caller_who_moves_away_is_known_after_some_turns() -> None:
    ear = acquainted()
    for _ in range(20):
        ear.turn(FAR_DB, 100)
    assert ear.hear(FAR_DB, 10, State.SPEAKING) == [Input.VOICE]


@pytest.mark.parametrize("longest_turn_s", [1.0, 29.0])
def test_the_longest_turn_with_all_that_is_kept_from_before_it_is_less_than_the_recogniser_takes(
    longest_turn_s: float,
) -> None:
    ear = Ear(TurnSettings(longest_turn_s=longest_turn_s, pre_roll_ms=900))
    ear.hear(-np.inf, 100, State.LISTENING)
    assert ear.hear(USUAL_DB, int(longest_turn_s * 1000 / 32) + 4, State.HEARING)[:2] == [Input.VOICE, Input.TURN_OVER]
    kept_s = len(ear.hearing.turn_so_far()) / 2 / RATE_HZ
    assert longest_turn_s + 0.8 < kept_s <= min(30.0, longest_turn_s + 0.9)
