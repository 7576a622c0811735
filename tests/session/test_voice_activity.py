"""From voice probabilities to the beginning, the pauses and the end of a turn."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.turn import Input, State, TurnMachine
from voice_runtime.session.voice_activity import FRAME_MS, VoiceActivity

VOICE, QUIET, UNSURE = 0.9, 0.1, 0.4
LETTERS = {"V": VOICE, ".": QUIET, "?": UNSURE}


def heard(frames: str, *, agent_speaks: bool = False, settings: TurnSettings | None = None) -> list[tuple[int, Input]]:
    """What the frames mean, each with the milliseconds of audio that it took: V voice, . quiet, ? in between."""
    return listen(VoiceActivity(settings or TurnSettings()), frames, agent_speaks=agent_speaks)


def listen(activity: VoiceActivity, frames: str, *, agent_speaks: bool = False) -> list[tuple[int, Input]]:
    return [
        (number * FRAME_MS, given)
        for number, letter in enumerate(frames, 1)
        for given in activity.push(LETTERS[letter], agent_speaks=agent_speaks)
    ]


def speaking() -> VoiceActivity:
    activity = VoiceActivity(TurnSettings())
    listen(activity, "VVV")
    return activity


def test_a_turn_begins_after_96_ms_of_voice() -> None:
    assert heard("VV") == []
    assert heard("VVV") == [(96, Input.VOICE)]


def test_the_agent_is_held_after_64_ms_of_voice() -> None:
    assert heard("V", agent_speaks=True) == []
    assert heard("VV", agent_speaks=True) == [(64, Input.VOICE)]


def test_a_single_dropped_frame_costs_its_own_length_and_not_the_voice_before_it() -> None:
    assert heard("VV.VV") == [(160, Input.VOICE)]
    settings = TurnSettings(hold_ms=160)
    assert heard("VVVV.VV", agent_speaks=True, settings=settings) == [(224, Input.VOICE)]


def test_clicks_do_not_begin_a_turn() -> None:
    assert heard("V." * 50) == []
    assert heard("VV....VV..VV..." * 5) == []


def test_a_turn_never_begins_in_a_silent_frame() -> None:
    activity = VoiceActivity(TurnSettings())
    assert listen(activity, "V", agent_speaks=True) == []
    assert listen(activity, "V", agent_speaks=False) == []
    assert listen(activity, ".", agent_speaks=True) == []


def test_between_the_thresholds_a_frame_is_what_the_one_before_was() -> None:
    assert heard("???") == []
    assert heard("V??") == [(96, Input.VOICE)]
    assert heard("V.????????") == []


def test_a_turn_ends_after_800_ms_of_silence_and_no_sooner() -> None:
    pause = [(96, Input.VOICE), (128, Input.SILENCE), (96 + 96, Input.PAUSE)]
    assert heard("VVV" + "." * 24) == pause
    assert heard("VVV" + "." * 25) == [*pause, (96 + 800, Input.TURN_OVER)]


@pytest.mark.parametrize(("draft_ms", "frames"), [(1, 1), (32, 1), (33, 2), (352, 11)])
def test_the_words_are_looked_at_once_in_a_pause_of_the_length_that_was_set(draft_ms: int, frames: int) -> None:
    settings = TurnSettings(draft_silence_ms=draft_ms, ask_silence_ms=100)
    paused = [at_ms for at_ms, given in heard("VVV" + "." * 24, settings=settings) if given is Input.PAUSE]
    assert paused == [96 + frames * FRAME_MS]


def test_voice_in_a_pause_is_said_and_the_silence_is_counted_anew() -> None:
    assert heard("VVV" + "." * 24 + "V" + "." * 24) == [
        (96, Input.VOICE),
        (128, Input.SILENCE),
        (96 + 3 * 32, Input.PAUSE),
        (96 + 25 * 32, Input.VOICE),
        (96 + 26 * 32, Input.SILENCE),
        (96 + 28 * 32, Input.PAUSE),
    ]


def test_words_that_want_more_lengthen_the_silence_to_1600_ms() -> None:
    activity = speaking()
    listen(activity, "." * 5)
    assert activity.read(unfinished=True) == []
    assert listen(activity, "." * 44) == []
    assert listen(activity, ".") == [(FRAME_MS, Input.TURN_OVER)]


def test_words_that_want_more_weigh_more_than_smart_turn() -> None:
    activity = speaking()
    listen(activity, "." * 6)
    activity.read(unfinished=True)
    assert activity.judged(1.0) == []
    assert listen(activity, "." * 20) == []


def test_words_that_are_found_finished_late_end_the_turn_at_once() -> None:
    activity = speaking()
    listen(activity, "." * 6)
    activity.read(unfinished=True)
    listen(activity, "." * 20)
    assert activity.read(unfinished=False) == [Input.TURN_OVER]


def test_words_from_before_more_voice_mean_nothing_to_the_next_pause() -> None:
    activity = speaking()
    listen(activity, "." * 6 + "V")
    assert activity.read(unfinished=True) == []
    assert (25 * FRAME_MS, Input.TURN_OVER) in listen(activity, "." * 25)


def test_voice_is_counted_without_the_pauses() -> None:
    activity = VoiceActivity(TurnSettings())
    listen(activity, "VVVVV" + "." * 10 + "VV")
    assert activity.voiced_ms == 7 * FRAME_MS


@pytest.mark.parametrize(("silent_frames", "ended_by"), [(6, "frame"), (11, "judgement"), (20, "judgement")])
def test_a_pause_judged_complete_ends_the_turn_at_352_ms(silent_frames: int, ended_by: str) -> None:
    activity = speaking()
    listen(activity, "." * silent_frames)
    found = activity.judged(0.5)
    assert found == ([Input.TURN_OVER] if ended_by == "judgement" else [])
    if ended_by == "frame":
        assert listen(activity, "." * (11 - silent_frames)) == [((11 - silent_frames) * FRAME_MS, Input.TURN_OVER)]


def test_a_pause_judged_incomplete_ends_the_turn_at_800_ms() -> None:
    activity = speaking()
    listen(activity, "." * 6)
    assert activity.judged(0.49) == []
    assert listen(activity, "." * 19) == [(19 * FRAME_MS, Input.TURN_OVER)]


def test_voice_after_the_judgement_makes_it_void() -> None:
    activity = speaking()
    listen(activity, "." * 6)
    activity.judged(1.0)
    assert listen(activity, "V" + "." * 24) == [(32, Input.VOICE), (64, Input.SILENCE), (128, Input.PAUSE)]


def test_a_judgement_that_comes_after_the_pause_does_not_shorten_the_next_one() -> None:
    activity = speaking()
    listen(activity, "." * 6 + "V")
    assert activity.judged(1.0) == []
    assert listen(activity, "." * 24) == [(32, Input.SILENCE), (96, Input.PAUSE)]


def test_a_judgement_outside_a_turn_is_nothing() -> None:
    activity = VoiceActivity(TurnSettings())
    assert activity.judged(1.0) == []
    assert listen(activity, "VVV" + "." * 24) == [(96, Input.VOICE), (128, Input.SILENCE), (192, Input.PAUSE)]


def test_a_turn_is_cut_at_its_longest_length() -> None:
    found = heard("V" * 100, settings=TurnSettings(longest_turn_s=2.0))
    assert found[:2] == [(96, Input.VOICE), (96 + 2016, Input.TURN_OVER)]


def test_a_stalled_client_ends_its_turn_and_only_its_turn() -> None:
    assert speaking().stalled() == [Input.TURN_OVER]
    assert VoiceActivity(TurnSettings()).stalled() == []


@given(ask_ms=st.integers(1, 700), pauses=st.lists(st.integers(1, 24), max_size=5))
def test_smart_turn_is_asked_exactly_once_in_a_pause_that_is_long_enough(ask_ms: int, pauses: list[int]) -> None:
    activity = VoiceActivity(TurnSettings(ask_silence_ms=ask_ms))
    for letter in "VVV":
        activity.push(LETTERS[letter], agent_speaks=False)
        assert not activity.asks
    for frames in pauses:
        asked_ms = []
        for number in range(1, frames + 1):
            activity.push(QUIET, agent_speaks=False)
            asked_ms += [number * FRAME_MS] if activity.asks else []
        first_ms = -(-ask_ms // FRAME_MS) * FRAME_MS
        assert asked_ms == ([first_ms] if frames * FRAME_MS >= ask_ms else [])
        activity.push(VOICE, agent_speaks=False)
        assert not activity.asks


def test_a_turn_over_a_reply_that_goes_on_before_it_is_judged_is_counted_together() -> None:
    activity = VoiceActivity(TurnSettings())
    assert (64 + 800, Input.TURN_OVER) in listen(activity, "VV" + "." * 25, agent_speaks=True)
    assert listen(activity, "VVV") == [(96, Input.VOICE)]
    assert (activity.voiced_ms, activity.silence_ms) == (64 + 96, 0)
    assert listen(activity, "V.") == [(64, Input.SILENCE)]


def test_a_reset_forgets_the_turn() -> None:
    activity = speaking()
    listen(activity, "...")
    activity.reset()
    assert activity == VoiceActivity(TurnSettings())


@given(
    frames=st.text("VVV.?", max_size=150),
    judged=st.dictionaries(st.integers(0, 149), st.floats(0, 1)),
    read=st.dictionaries(st.integers(0, 149), st.booleans()),
    replies=st.booleans(),
)
def test_whatever_is_heard_is_defined_for_the_turn_machine(
    frames: str, judged: dict[int, float], read: dict[int, bool], replies: bool
) -> None:
    """replies: a turn gets one; it goes on for as long as nobody speaks over it."""
    activity, machine = VoiceActivity(TurnSettings(longest_turn_s=1.5)), TurnMachine()
    for number, letter in enumerate(frames):
        agent_speaks = machine.state is State.THINKING
        inputs = activity.push(LETTERS[letter], agent_speaks=agent_speaks)
        inputs += activity.judged(judged[number]) if number in judged else []
        inputs += activity.read(unfinished=read[number]) if number in read else []
        for given_input in inputs:
            machine.on(given_input)
        assert activity.in_turn <= (machine.state in (State.HEARING, State.MAYBE_DONE, State.HELD))
        assert activity.in_turn >= (machine.state in (State.HEARING, State.MAYBE_DONE))
        if Input.TURN_OVER in inputs and machine.state is State.THINKING:
            activity.reset()
        if machine.state is State.HELD and (number % 2 or not activity.in_turn):
            machine.on(Input.KEEP)
            activity.reset()
        if machine.state is State.SPEAKING or (machine.state is State.THINKING and not replies):
            machine.on(Input.REPLY_OVER)


@given(frames=st.text("V.?", max_size=150))
def test_every_turn_begins_with_voice_and_has_one_end(frames: str) -> None:
    borders = [given for _, given in heard(frames) if given in (Input.VOICE, Input.TURN_OVER)]
    assert borders[:1] in ([], [Input.VOICE])
    assert (Input.TURN_OVER, Input.TURN_OVER) not in pairwise(borders)
