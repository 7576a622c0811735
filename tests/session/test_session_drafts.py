"""What begins in a pause, before it is known whether the caller has finished: heard by nobody until then."""

import pytest

from tests.support.call import (
    DRAFT,
    SETTINGS,
    TURN,
    Call,
    audio,
    audio_ms,
    captions,
    drafting,
    events,
    frames_of,
    kinds,
    loud,
    settings,
    sound,
    spoken,
    turn,
    utterance,
)
from voice_runtime.session.events import (
    Played,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionError,
    SpeechStarted,
    SpeechStopped,
    Timing,
    TranscriptReady,
)
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Message, Prompt, Transcript, TurnEnd

SILENCE = "." * 21  # what is left of the 800 ms after the pause of a draft


def test_recogniser_and_thinker_begin_in_a_short_pause_and_only_the_words_so_far_are_told() -> None:
    call = Call()
    assert events(call.hear("V" * 10 + "...")) == [SpeechStarted()]
    assert not call.stages.asked
    call.hear(".")
    asr = call.stages.last("asr")
    assert utterance(asr) == b"".join(call.said)
    asr.finish(Transcript("Hello there."))
    assert call.outputs() == [TranscriptReady("Hello there.", is_final=False)]
    thinker = call.stages.last("thinker")
    assert thinker.payload == Prompt([Message("user", "Hello there.")])
    thinker.bring(spoken("Hi. ", 500))
    thinker.finish()
    assert call.hear(SILENCE[1:]) == []
    assert call.state() is State.MAYBE_DONE
    assert call.done == []


def test_when_the_turn_is_over_the_draft_is_the_reply_and_all_of_it_is_told_in_order() -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript("Hello there."))
    thinker = call.stages.last("thinker")
    thinker.bring(spoken("Hi. ", 500))
    thinker.bring(spoken("Bye.", 300))
    thinker.finish()
    told = call.hear(SILENCE)
    assert events(told) == [
        TranscriptReady("Hello there.", is_final=False),
        SpeechStopped(),
        TranscriptReady("Hello there."),
        ReplyStarted("r1"),
        ReplyText("r1", "Hi. "),
    ]
    assert audio_ms(told) == SETTINGS.lead_ms
    told += call.listen(0.9)
    assert audio(told) == sound(500) + sound(300)
    assert captions(told) == "Hi. Bye."
    assert kinds(told)[-2:] == [Timing, ReplyDone]
    assert [len(call.stages.of(stage)) for stage in ("asr", "thinker")] == [1, 1]
    assert call.stages.live() == []


def test_a_caller_who_goes_on_aborts_the_draft_and_is_recognised_once_more_whole() -> None:
    call = Call()
    drafting(call)
    recognised, thinker = call.stages.last("asr"), call.stages.last("thinker")
    thinker.bring(spoken("Hi. ", 500))
    assert call.hear("V" * 5) == []
    assert thinker.is_aborted
    assert call.state() is State.HEARING
    assert call.stages.live() == []
    call.hear("....")
    again = call.stages.last("asr")
    assert again is not recognised
    assert utterance(again) == b"".join(call.said)
    again.finish(Transcript("hello there"))
    assert audio_ms(call.hear(SILENCE)) == 0
    assert call.prompt() == [("user", "hello there")]
    assert [done for done, _ in call.done] == []


def test_a_recognition_that_is_not_done_when_the_caller_goes_on_is_aborted() -> None:
    call = Call()
    call.hear(DRAFT)
    asr = call.stages.last("asr")
    call.hear("V")
    assert asr.is_aborted
    assert call.stages.live() == []


def test_a_recognition_that_is_not_done_when_the_turn_is_over_is_waited_for() -> None:
    call = Call()
    assert kinds(call.hear(TURN)) == [SpeechStarted, SpeechStopped]
    assert len(call.stages.of("asr")) == 1
    call.stages.last("asr").finish(Transcript("hello"))
    assert call.outputs() == [TranscriptReady("hello"), ReplyStarted("r1")]


def test_without_drafts_nothing_begins_until_the_turn_is_over() -> None:
    call = Call(turn(draft=False))
    call.hear(TURN[:-1])
    assert [asked.stage for asked in call.stages.asked] == ["turn_end"]
    call.hear(TURN[-1:])
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


@pytest.mark.parametrize("text", ["I would like to and", "Because, um", "my number is 55"])
def test_words_that_want_more_are_not_answered_yet_and_lengthen_the_silence(text: str) -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript(text))
    assert SpeechStopped() not in call.hear("." * 45)
    assert not call.stages.of("thinker")
    told = events(call.hear("."))
    assert told == [SpeechStopped(), TranscriptReady(text), ReplyStarted("r1")]
    assert call.prompt() == [("user", text)]


def test_words_that_want_more_outweigh_smart_turn() -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript("I would like to and"))
    call.hear("..")
    call.stages.last("turn_end").finish(TurnEnd(1.0))
    assert SpeechStopped() not in call.hear("." * 30)


def test_smart_turn_and_a_draft_answer_at_352_ms() -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript("hello"))
    call.stages.last("thinker").bring(spoken("Hi. ", 500))
    call.hear("..")
    call.stages.last("turn_end").finish(TurnEnd(1.0))
    told = call.hear("." * 5)
    assert SpeechStopped() in told
    assert audio_ms(told) == SETTINGS.lead_ms


def test_the_time_from_the_callers_voice_to_the_first_sound_is_all_accounted_for() -> None:
    call = Call()
    call.hear(DRAFT)
    call.listen(0.05)
    call.stages.last("asr").finish(Transcript("hello"))
    thinker = call.stages.last("thinker")
    call.listen(0.1)
    thinker.mark("thinker")
    thinker.bring(spoken("Hi.", 500))
    thinker.finish()
    call.hear(SILENCE)
    call.listen(1.0)
    timing = call.done[0][1]
    assert timing is not None
    total_ms = 25 * 32 + 150
    assert timing.ms == pytest.approx(
        {
            "pause": 128,
            "asr": 50,
            "thinker": 100,
            "confirming": total_ms - 278,
            "sending": 0,
            "total": total_ms,
        },
        abs=0.2,
    )


def test_a_draft_without_words_is_no_reply() -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript(""))
    assert events(call.hear(SILENCE)) == [SpeechStopped()]
    assert call.state() is State.LISTENING
    assert not call.stages.of("thinker")


def test_a_draft_that_failed_is_told_when_it_is_the_reply() -> None:
    call = Call()
    drafting(call)
    call.stages.last("thinker").fail("broken")
    assert call.hear(SILENCE[1:]) == []
    assert events(call.hear(".")) == [
        SpeechStopped(),
        TranscriptReady("hello"),
        ReplyStarted("r1"),
        SessionError("stage_failed", "broken"),
        ReplyDone("r1", "failed"),
    ]
    assert call.state() is State.LISTENING


def test_a_draft_that_failed_and_was_dropped_is_never_told() -> None:
    call = Call()
    drafting(call)
    call.stages.last("thinker").fail("broken")
    call.hear("V" * 5 + "....")
    call.stages.last("asr").finish(Transcript("hello again"))
    assert SessionError not in kinds(call.hear(SILENCE))


def test_a_recognition_that_failed_in_the_pause_is_told_once() -> None:
    call = Call()
    call.hear(DRAFT)
    call.stages.last("asr").fail("broken")
    assert events(call.hear(SILENCE)) == [SessionError("stage_failed", "broken"), SpeechStopped()]
    assert call.state() is State.LISTENING


def test_a_draft_longer_than_a_reply_may_be_is_cut_and_played() -> None:
    call = Call(settings(longest_reply_s=1.0))
    drafting(call)
    thinker = call.stages.last("thinker")
    thinker.bring(spoken("One two. ", 1_200))
    assert thinker.is_aborted
    told = call.hear(SILENCE) + call.listen(2.0)
    assert audio(told) == sound(1_200)
    assert [done.status for done, _ in call.done] == ["completed"]


def test_a_pause_after_a_pause_is_a_new_draft_of_all_words() -> None:
    call = Call()
    for _ in range(3):
        call.hear(DRAFT)
    asked = call.stages.of("asr")
    assert [other.is_aborted for other in asked] == [True, True, False]
    assert loud(frames_of(utterance(asked[-1]))) == loud(call.said)


def test_a_draft_sees_the_conversation_and_leaves_it_as_it_was() -> None:
    call = Call()
    thinker = call.answered()
    thinker.finish()
    call.listen(1.0)
    drafting(call)
    assert call.prompt() == [("user", "hello"), ("assistant", "Hi there."), ("user", "hello")]
    call.hear("V" * 5 + "....")
    call.stages.last("asr").finish(Transcript("hello again"))
    assert call.prompt() == [("user", "hello"), ("assistant", "Hi there."), ("user", "hello again")]
    call.send(Played("r1", 5))
    assert call.prompt()[-1] == ("user", "hello again")
