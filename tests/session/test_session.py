"""Whole conversations with a session under a clock of our own: what it asks and what the client gets, in order."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tests.support.call import (
    AGENTS,
    DRAFT,
    FRAME_S,
    RATE_HZ,
    REPLYING,
    SETTINGS,
    STATES,
    TURN,
    Call,
    Output,
    Way,
    audio,
    audio_ms,
    captions,
    closing,
    come,
    drafting,
    events,
    frames_of,
    hearing,
    held,
    held_unanswered,
    judging,
    kinds,
    loud,
    nothing,
    paused,
    recognising,
    replying,
    settings,
    sound,
    speaking,
    spoken,
    turn,
    utterance,
)
from tests.support.played_stages import Asked
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    Closing,
    Flush,
    Interrupt,
    Played,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionError,
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    Timing,
    TranscriptReady,
    TypedText,
)
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Heard, Message, Prompt, SpokenClause, Transcript, TurnEnd

# A spoken turn


def test_a_spoken_turn_is_recognised_and_answered_and_the_client_is_told_in_order() -> None:
    call = Call(turn(draft=False))
    assert call.hear("VV") == []
    assert call.hear("V") == [SpeechStarted()]
    assert call.hear("VVVVVVV" + "." * 24) == []
    assert not call.stages.of("asr")
    assert call.hear(".") == [SpeechStopped()]

    asr = call.stages.last("asr")
    assert utterance(asr) == b"".join(call.said)
    asr.finish(Transcript("hello"))
    assert call.outputs() == [TranscriptReady("hello"), ReplyStarted("r1")]

    thinker = call.stages.last("thinker")
    assert thinker.payload == Prompt([Message("user", "hello")])
    thinker.bring(spoken("Hi ", 500))
    thinker.bring(spoken("there.", 500))
    begun = call.outputs()
    assert events(begun) == [ReplyText("r1", "Hi ")]
    assert audio_ms(begun) == SETTINGS.lead_ms
    assert call.state() is State.SPEAKING

    thinker.finish()
    rest = call.listen(0.99)
    assert audio_ms(rest) == 1_000 - SETTINGS.lead_ms
    assert events(rest) == [ReplyText("r1", "there.")]
    assert kinds(call.listen(0.02)) == [Timing, ReplyDone]
    assert call.state() is State.LISTENING
    assert [done for done, _ in call.done] == [ReplyDone("r1", "completed", "Hi there.")]
    assert [asked.stage for asked in call.stages.asked if asked.is_aborted] == ["turn_end"]


def test_each_word_is_shown_right_before_the_frame_in_which_it_begins() -> None:
    call = Call()
    thinker = call.ask()
    clause = spoken("One two three four. ", 1_000)
    thinker.bring(clause)
    thinker.finish()
    told = call.listen(2.0)
    assert [output for output in told if isinstance(output, ReplyText)] == [
        ReplyText("r1", word.text) for word in clause.words
    ]
    sample = 0
    for output, following in pairwise(told):
        if isinstance(output, AgentAudio):
            sample += len(output.pcm) // 2
        if isinstance(output, ReplyText):
            assert isinstance(following, AgentAudio)
            begins = next(word.sample for word in clause.words if word.text == output.text)
            assert sample <= begins < sample + len(following.pcm) // 2


def test_of_a_reply_that_is_cut_only_words_whose_sound_was_sent_are_shown() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("One two three four five. ", 1_200))
    told = call.listen(0.1)  # 500 ms are sent
    told += call.send(Interrupt()) + call.listen(2.0)
    assert captions(told) == "One two three "
    assert call.done[0][0] == ReplyDone("r1", "interrupted", "One")


def test_words_without_sound_are_shown_when_the_reply_is_completed() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("Hi. ", 100))
    thinker.bring(SpokenClause.spread("\u2026 ", b"", RATE_HZ))
    thinker.finish()
    told = call.listen(0.5)
    assert captions(told) == "Hi. \u2026 "
    assert kinds(told)[-3:] == [ReplyText, Timing, ReplyDone]
    assert audio(told) == sound(100)


@pytest.mark.parametrize("is_cut", [True, False])
def test_words_without_sound_of_a_reply_that_is_cut_or_fails_are_not_shown(is_cut: bool) -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(SpokenClause.spread("Hi. ", b"", RATE_HZ))
    told = call.outputs()
    if is_cut:
        call.session.receive(Interrupt())
    else:
        thinker.fail("broken")
    assert captions(told + call.listen(1.0)) == ""
    assert len(call.done) == 1


def test_a_piece_of_sound_in_which_no_word_begins_is_sent_at_once() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("Hi. ", 100))
    assert audio_ms(call.outputs()) == 100
    thinker.bring(spoken("", 100))
    assert audio_ms(call.outputs()) == 100
    thinker.finish()
    assert kinds(call.listen(0.25)) == [Timing, ReplyDone]


def test_the_end_of_a_reply_is_told_however_late_the_stages_tell_that_it_was_the_end() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("Hi. ", 100))
    call.listen(3.0)
    thinker.finish()
    assert kinds(call.outputs()) == [Timing, ReplyDone]


def test_the_audio_of_a_reply_has_the_present_epoch_until_it_is_interrupted() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("Hi there. ", 1_000))
    epochs = {output.epoch for output in call.listen(0.2) if isinstance(output, AgentAudio)}
    assert epochs == {call.session.epoch}
    call.send(Interrupt())
    assert max(epochs) < call.session.epoch
    call.ask().bring(spoken("Hi again. ", 1_000))
    epochs = {output.epoch for output in call.outputs() if isinstance(output, AgentAudio)}
    assert epochs == {call.session.epoch}


def test_timing_comes_before_reply_done_and_has_the_stages_in_order() -> None:
    call = Call(turn(draft=False))
    asr = call.speak()
    call.listen(0.1)
    asr.finish(Transcript("hello"))
    thinker = call.stages.last("thinker")
    for stage, pause_s in (("thinker", 0.2), ("text", 0.01), ("speech", 0.3)):
        call.listen(pause_s)
        thinker.mark(stage)
    thinker.marks.metrics["thinker"] = {"completion_tokens": 7}
    thinker.marks.metrics["text"] = {"completion_tokens": 1}
    call.listen(0.05)
    thinker.bring(spoken("Hi.", 40))
    thinker.finish()
    timing, done = events(call.listen(0.5))[-2:]
    assert isinstance(timing, Timing)
    assert list(timing.ms) == ["pause", "asr", "thinker", "text", "speech", "confirming", "sending", "total"]
    assert list(timing.ms.values()) == pytest.approx([800, 100, 200, 10, 300, 0, 50, 1_460], abs=0.1)
    assert (timing.tokens, timing.underruns) == ({"completion_tokens": 7}, 0)
    assert done == ReplyDone("r1", "completed", "Hi.")
    assert call.done == [(done, timing)]


TOLD: dict[str, dict[str, float]] = {
    "asr": {"first_items": 1, "first_compute_ms": 90},
    "thinker": {"completion_tokens": 12, "first_compute_ms": 150, "compute_6_ms": 400},
    "text": {"first_items": 6, "first_compute_ms": 1},
    "talker": {"prompt_tokens": 1, "first_compute_ms": 20, "compute_4_ms": 65},
    "code2wav": {"first_items": 4, "first_compute_ms": 10},
    "speech": {"first_items": 1, "first_compute_ms": 300},
}


def answered_by(*stages: str, without: str = "", cut: bool = False) -> Timing:
    """The timing of a spoken turn whose stages told TOLD at their end; one of them did not end if the reply was cut."""
    call = Call(turn(draft=False))
    asr = call.speak()
    asr.mark("asr")
    asr.marks.metrics["asr"] = TOLD["asr"]
    asr.finish(Transcript("hello"))
    thinker = call.stages.last("thinker")
    for stage in stages:
        thinker.mark(stage)
        if stage != without:
            thinker.marks.metrics[stage] = TOLD[stage]
    thinker.bring(spoken("Hi.", 40))
    call.outputs()
    if cut:
        return next(event for event in events(call.send(Interrupt())) if isinstance(event, Timing))
    thinker.finish()
    return next(event for event in events(call.listen(0.5)) if isinstance(event, Timing))


def test_timing_tells_what_the_models_computed_along_the_chain_until_the_first_sound() -> None:
    timing = answered_by("thinker", "text", "talker", "code2wav")
    assert timing.models_ms == 90 + 400 + 1 + 65 + 10
    assert timing.tokens == {"completion_tokens": 12}


def test_what_the_models_computed_is_told_of_any_chain() -> None:
    assert answered_by("thinker", "text", "speech").models_ms == 90 + 400 + 1 + 300
    assert answered_by("thinker", "text").models_ms == 90 + 400 + 1
    assert answered_by("thinker").models_ms == 90 + 150
    assert answered_by("thinker", "text", "code2wav").models_ms is None  # text does not tell of four results


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("stage", ["thinker", "text", "talker", "code2wav"])
def test_what_the_models_computed_is_not_known_when_a_stage_has_not_told_it(stage: str, cut: bool) -> None:
    assert answered_by("thinker", "text", "talker", "code2wav", without=stage, cut=cut).models_ms is None


def test_a_typed_question_is_not_recognised_by_a_model() -> None:
    call = Call()
    call.send(TypedText("Why?"))
    thinker = call.stages.last("thinker")
    thinker.mark("thinker")
    thinker.marks.metrics["thinker"] = TOLD["thinker"]
    thinker.bring(spoken("Because.", 200))
    thinker.finish()
    assert [event.models_ms for event in events(call.listen(0.5)) if isinstance(event, Timing)] == [150]


def test_audio_that_comes_late_is_counted_as_an_underrun() -> None:
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken("Hi ", 100))
    call.listen(0.5)
    thinker.bring(spoken("there.", 100))
    thinker.finish()
    assert [event.underruns for event in events(call.listen(0.2)) if isinstance(event, Timing)] == [1]


@pytest.mark.parametrize("text", ["", " ", "... -"])
def test_a_turn_without_words_gets_no_reply(text: str) -> None:
    call = Call()
    call.speak().finish(Transcript(text))
    assert call.outputs() == []
    assert call.state() is State.LISTENING
    assert not call.stages.of("thinker")
    assert call.ask("hello").payload == Prompt([Message("user", "hello")])


def test_a_reply_without_sound_is_completed_and_has_no_timing() -> None:
    call = Call()
    call.ask().finish()
    assert call.outputs() == [ReplyDone("r1", "completed")]
    assert call.state() is State.LISTENING
    assert call.done == [(ReplyDone("r1", "completed"), None)]


def test_a_reply_at_another_rate_is_sent_whole() -> None:
    call = Call()
    thinker = call.ask()
    for _ in range(2):
        thinker.bring(SpokenClause.spread("Hi. ", b"\x01\x02" * 12_000, 24_000))
    thinker.finish()
    assert audio_ms(call.listen(2.0)) == 1_000


def test_a_transports_own_event_keeps_its_place() -> None:
    call = Call()
    call.session.receive(TypedText("hello"))
    call.session.tell(SessionError("bad_event", "found nonsense"))
    call.session.receive(Interrupt())
    assert kinds(call.outputs()) == [ReplyStarted, SessionError, Flush, ReplyDone]


# Long turns and turns that go on


def test_speech_that_goes_on_while_the_recogniser_is_at_work_is_recognised_together_with_what_was_before() -> None:
    call = Call()
    first = call.speak()
    call.hear("." * 20 + DRAFT)
    call.stages.last("asr").finish(Transcript("and then"))
    assert events(call.outputs()) == [SpeechStarted()]
    both = call.stages.last("asr")
    assert first.is_aborted
    assert loud(frames_of(utterance(both))) == loud(call.said)
    assert len(loud(call.said)) == 20


def test_speech_that_goes_on_at_once_is_recognised_whole_with_no_frame_twice() -> None:
    call = Call(turn(end_silence_ms=64, likely_end_silence_ms=64, draft_silence_ms=32, interrupt_ms=200, draft=False))
    call.hear("V" * 10 + "..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)
    call.hear("V" * 10 + "..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


def test_a_monologue_longer_than_the_recogniser_takes_loses_no_word() -> None:
    call = Call(turn(longest_turn_s=1.0, interrupt_ms=200, draft=False))
    call.hear("V" * 45)  # 1.44 s: cut at one second, and the caller goes on
    first = call.stages.of("asr")[0]
    assert call.state() is State.HEARING
    assert not first.is_aborted
    first.finish(Transcript("once upon a time"))
    assert kinds(call.outputs()) == [TranscriptReady]
    assert call.state() is State.HEARING
    call.hear("." * 25)
    second = call.stages.last("asr")
    assert second is not first
    second.finish(Transcript("there was a dog"))
    assert call.prompt() == [("user", "once upon a time there was a dog")]
    heard = frames_of(utterance(first)) + frames_of(utterance(second))
    assert loud(heard) == loud(call.said)


def test_what_is_recognised_at_once_is_never_longer_than_a_turn_may_be() -> None:
    call = Call(turn(longest_turn_s=3.0, interrupt_ms=200))
    call.hear("V" * 15 + "." * 25 + "V" * 97)
    assert [asked.is_aborted for asked in call.stages.of("asr")] == [True, False]
    longest_bytes = int((3.0 + SETTINGS.turn.pre_roll_ms / 1000) * 16_000) * 2
    assert max(len(utterance(asked)) for asked in call.stages.of("asr")) <= longest_bytes


def test_a_recognised_turn_is_not_recognised_again() -> None:
    call = Call()
    call.ask().finish()
    call.outputs()
    before = len(call.said)
    call.hear(DRAFT)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


def test_a_turn_is_cut_at_its_longest_length() -> None:
    call = Call(turn(longest_turn_s=1.0))
    assert SpeechStopped() in call.hear("V" * 35)
    frames = frames_of(utterance(call.stages.last("asr")))
    assert frames == call.said[: len(frames)]
    assert len(frames) <= int((1.0 + 0.32) / FRAME_S)


def test_words_after_an_answer_that_was_not_heard_join_the_message() -> None:
    call = Call()
    call.ask("What is")
    call.hear("VVVV....")
    call.stages.last("asr").finish(Transcript("the capital of Italy?"))
    call.hear("." * 21)
    assert call.prompt() == [("user", "What is the capital of Italy?")]


# What was heard


def test_the_next_prompt_holds_only_what_the_client_has_played() -> None:
    call = Call()
    thinker = call.ask("Count.")
    thinker.bring(spoken("One two. ", 1_000))
    thinker.bring(spoken("Three four.", 1_000))
    call.listen(1.9)
    call.send(Played("r1", 1_000))
    call.send(Interrupt())
    call.ask("Go on.")
    assert call.prompt() == [("user", "Count."), ("assistant", "One two."), ("user", "Go on.")]


def test_without_reports_the_clock_tells_what_was_played() -> None:
    call = Call()
    thinker = call.ask("Count.")
    thinker.bring(spoken("One two. ", 1_000))
    thinker.bring(spoken("Three four.", 1_000))
    call.listen(1.6)
    call.send(Interrupt())
    call.ask("Go on.")
    assert call.prompt() == [("user", "Count."), ("assistant", "One two. Three"), ("user", "Go on.")]


def test_a_report_of_another_reply_changes_nothing() -> None:
    call = Call()
    call.answered("One two three four. ", 1_000)
    call.send(Played("r7", 1_000))
    call.listen(0.2)
    call.send(Interrupt())
    call.ask("Go on.")
    assert ("assistant", "One two") in call.prompt()


def test_a_late_client_holds_back_the_end_of_the_reply() -> None:
    call = Call()
    thinker = call.answered("Hi there. ", 1_000)
    thinker.finish()
    call.listen(0.7)
    call.send(Played("r1", 300))
    assert ReplyDone not in kinds(call.listen(0.65))
    assert ReplyDone in kinds(call.listen(0.1))


def test_a_client_that_plays_faster_than_the_clock_is_sent_the_next_frame_at_once() -> None:
    call = Call()
    call.answered()
    assert audio_ms(call.send(Played("r1", 400))) == 300  # of which it knew 100 to be played


def test_a_prompt_shows_no_more_turns_than_it_should() -> None:
    call = Call(settings(history_turns=1))
    for number in range(3):
        thinker = call.ask(f"question {number}")
        thinker.bring(spoken(f"answer {number}", 100))
        thinker.finish()
        call.listen(0.2)
    call.ask("question 3")
    assert call.prompt() == [("user", "question 2"), ("assistant", "answer 2"), ("user", "question 3")]


# The client's own events, in every state


@pytest.mark.parametrize(
    ("way", "told", "state"),
    [
        (nothing, [], State.LISTENING),
        (hearing, [], State.HEARING),
        (paused, [], State.MAYBE_DONE),
        (drafting, [], State.MAYBE_DONE),
        (recognising, [], State.LISTENING),
        (replying, [Flush, ReplyDone], State.LISTENING),
        (speaking, [Flush, Timing, ReplyDone], State.LISTENING),
        (held, [Flush, Timing, ReplyDone, SpeechStarted], State.HEARING),
        (judging, [Flush, Timing, ReplyDone, SpeechStarted], State.MAYBE_DONE),
        (held_unanswered, [SpeechStarted], State.HEARING),
        (closing, [Flush, Timing, ReplyDone], State.LISTENING),
    ],
)
def test_an_interrupt_silences_the_agent_and_nobody_else(
    way: Way, told: list[type[SessionEvent]], state: State
) -> None:
    call = come(way)
    worked = call.stages.live()
    assert kinds(call.send(Interrupt())) == told
    assert call.state() is state
    assert all(asked.is_aborted == (STATES[way] in AGENTS) for asked in worked)
    assert audio_ms(call.listen(0.9)) == 0
    assert [done.status for done, _ in call.done] == ["interrupted"] * told.count(ReplyDone)


def test_an_interrupted_recognition_is_not_taken_up_again() -> None:
    call = Call()
    call.speak()
    call.send(Interrupt())
    before = len(call.said)
    call.hear(DRAFT)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


def test_an_interrupt_while_the_caller_goes_on_costs_none_of_the_callers_words() -> None:
    quick = turn(end_silence_ms=64, likely_end_silence_ms=64, draft_silence_ms=32, draft=False)
    call = Call(quick)
    call.hear("V" * 10 + ".." + "V" * 10)
    assert call.state() is State.HELD
    assert kinds(call.send(Interrupt())) == [SpeechStarted]
    call.hear("..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (nothing, [ReplyStarted]),
        (hearing, [SpeechStopped, ReplyStarted]),
        (paused, [SpeechStopped, ReplyStarted]),
        (drafting, [SpeechStopped, ReplyStarted]),
        (recognising, [ReplyStarted]),
        (replying, [Flush, ReplyDone, ReplyStarted]),
        (speaking, [Flush, Timing, ReplyDone, ReplyStarted]),
        (held, [Flush, Timing, ReplyDone, ReplyStarted]),
        (judging, [Flush, Timing, ReplyDone, ReplyStarted]),
        (held_unanswered, [ReplyStarted]),
        (closing, [Flush, Timing, ReplyDone, ReplyStarted]),
    ],
)
def test_a_typed_question_is_answered_in_every_state(way: Way, told: list[type[SessionEvent]]) -> None:
    call = come(way)
    before = call.stages.live()
    assert kinds(call.send(TypedText("Why?"))) == told
    assert call.state() is State.THINKING
    assert [asked.stage for asked in call.stages.live()] == ["thinker"]
    assert all(asked.is_aborted for asked in before)
    assert call.prompt()[-1] == ("user", "hello Why?" if way in (replying, speaking) else "Why?")

    thinker = call.stages.last("thinker")
    thinker.bring(spoken("Because.", 200))
    thinker.finish()
    heard = call.listen(0.3)
    assert audio_ms(heard) == 200
    assert kinds(heard) == [ReplyText, Timing, ReplyDone]
    assert call.done[-1] == (ReplyDone(heard_id(heard), "completed", "Because."), None)
    timing = next(event for event in events(heard) if isinstance(event, Timing))
    assert timing.ms == {"confirming": 0, "sending": 0, "total": 0}
    assert call.state() is State.LISTENING


def heard_id(outputs: list[Output]) -> str:
    """The reply that ended."""
    return next(event.reply for event in events(outputs) if isinstance(event, ReplyDone))


@pytest.mark.parametrize("way", [hearing, paused, drafting, recognising, held, judging, held_unanswered])
def test_what_was_being_said_is_forgotten_for_a_typed_question(way: Way) -> None:
    call = come(way)
    call.send(TypedText("Why?"))
    call.stages.last("thinker").finish()
    call.outputs()
    before = len(call.said)
    call.hear("." * 12 + DRAFT)  # who is still speaking is heard again after a pause
    assert b"".join(call.said[before:]).endswith(utterance(call.stages.last("asr")))


# Failures


def test_a_failed_recognition_is_told_and_the_session_goes_on() -> None:
    call = Call()
    call.speak().fail("stage asr: RequestError: too long")
    assert call.outputs() == [SessionError("stage_failed", "stage asr: RequestError: too long")]
    assert call.state() is State.LISTENING
    call.ask("hello")
    assert call.prompt() == [("user", "hello")]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (replying, [SessionError("stage_failed", "broken"), ReplyDone("r1", "failed")]),
        (speaking, [SessionError("stage_failed", "broken"), ReplyDone("r1", "failed")]),
    ],
)
def test_a_failed_reply_is_told_and_the_session_goes_on(way: Way, told: list[SessionEvent]) -> None:
    call = Call()
    way(call)
    epoch = call.session.epoch
    call.stages.last("thinker").fail("broken")
    after = call.listen(2.0)
    assert audio_ms(after) == 0
    assert [event for event in events(after) if not isinstance(event, Timing)] == told
    assert (Timing in kinds(after)) == (way is speaking)
    assert call.session.epoch > epoch
    assert call.state() is State.LISTENING
    assert [done for done, _ in call.done] == [ReplyDone("r1", "failed")]
    assert call.ask() is not None
    assert call.state() is State.THINKING


def test_a_reply_longer_than_allowed_is_cut_and_completed() -> None:
    call = Call(settings(longest_reply_s=1.0))
    thinker = call.ask()
    thinker.bring(spoken("One two. ", 600))
    assert not thinker.is_aborted
    thinker.bring(spoken("Three four.", 600))
    assert thinker.is_aborted
    thinker.bring(spoken("Five.", 600))
    outputs = call.listen(2.0)
    assert audio_ms(outputs) == 1_200
    assert captions(outputs) == "One two. Three four."
    assert kinds(outputs)[-2:] == [Timing, ReplyDone]
    assert [done for done, _ in call.done] == [ReplyDone("r1", "completed", "One two. Three four.")]


# Smart Turn


def test_smart_turn_is_asked_in_the_pause_with_the_sound_of_the_turn() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 5)
    assert not call.stages.of("turn_end")
    call.hear(".")
    assert call.stages.last("turn_end").payload == Heard(b"".join(call.said))


def test_a_pause_found_complete_ends_the_turn_sooner() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 6)
    call.stages.last("asr").finish(Transcript("hello"))
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert kinds(call.hear("." * 4)) == [TranscriptReady]
    assert call.hear(".")[0] == SpeechStopped()


def test_smart_turn_does_not_end_a_turn_whose_words_are_not_known_yet() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 6)
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert call.hear("." * 10) == []
    call.stages.last("asr").finish(Transcript("my name is the"))
    assert kinds(call.hear("." * 10)) == [TranscriptReady]


def test_an_answer_that_comes_late_in_the_pause_ends_the_turn_at_once() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 15)
    call.stages.last("asr").finish(Transcript("hello"))
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert SpeechStopped() in call.outputs()
    assert call.state() is State.THINKING


def incomplete(asked: Asked) -> None:
    asked.finish(TurnEnd(0.1))


def failed(asked: Asked) -> None:
    asked.fail("broken")


@pytest.mark.parametrize("answer", [incomplete, failed])
def test_a_pause_that_is_not_found_complete_ends_the_turn_by_its_length(answer: Callable[[Asked], None]) -> None:
    call = Call()
    call.hear("V" * 10 + "." * 6)
    answer(call.stages.last("turn_end"))
    assert call.hear("." * 18) == []
    assert call.hear(".") == [SpeechStopped()]


def test_an_answer_after_the_turn_changes_nothing() -> None:
    call = Call()
    call.speak()
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert call.outputs() == []
    assert call.state() is State.THINKING
    assert len(call.stages.of("asr")) == 1


@pytest.mark.parametrize("between", ["V" * 5, "." * 25 + "V" * 5], ids=["later in the turn", "in the next turn"])
def test_an_answer_in_a_later_pause_changes_nothing(between: str) -> None:
    call = Call(turn(interrupt_ms=96))
    call.hear("V" * 10 + "." * 6)
    late = call.stages.last("turn_end")
    call.hear(between + "." * 12)
    assert call.state() is State.MAYBE_DONE
    late.finish(TurnEnd(0.9))
    assert call.hear("." * 12) == []
    assert call.hear(".") == [SpeechStopped()]


def test_without_a_stage_that_judges_turns_none_is_asked() -> None:
    call = Call(settings(judge_turn=None))
    call.hear(TURN)
    assert [asked.stage for asked in call.stages.asked] == ["asr"]


# The end


@pytest.mark.parametrize("frames", ["VVVV", "VVVV..."])
def test_a_client_that_sends_no_more_audio_has_fallen_silent(frames: str) -> None:
    call = Call()
    call.hear(frames)
    assert call.session.wait_s() == pytest.approx(1.0)
    assert call.listen(0.99) == []
    assert call.listen(0.02) == [SpeechStopped()]
    assert utterance(call.stages.last("asr")) == b"".join(call.said)
    assert call.session.wait_s() == float("inf")


@pytest.mark.parametrize("way", STATES)
def test_a_closed_session_has_aborted_everything_and_what_still_comes_changes_nothing(way: Way) -> None:
    call = come(way)
    working = call.stages.live()
    assert bool(working) == (way not in (nothing, hearing))
    call.session.close()
    call.outputs()
    assert call.state() is State.CLOSED
    assert not call.stages.live()
    for asked in working:
        asked.finish(Transcript("late"))
    assert call.listen(5.0) == []
    assert [done.status for done, _ in call.done] == ["interrupted"] * (way in REPLYING)
    assert not call.stages.live()
    call.session.close()


def test_what_still_comes_after_the_goodbye_changes_nothing() -> None:
    call = come(closing)
    call.stages.last("speech").finish()
    assert kinds(call.listen(1.0))[-1] is Closing
    assert call.state() is State.CLOSED
    call.session.receive(TypedText("Wait!"))
    call.session.receive(Interrupt())
    for _ in range(10):
        call.session.receive(CallerAudio(np.full(512, 0.9, np.float32)))
    assert call.outputs() == []
    assert not call.stages.live()


def test_a_typed_question_is_not_cut_by_the_rest_of_the_sentence_that_it_replaces() -> None:
    call = Call()
    call.hear("V" * 6)
    call.send(TypedText("What color is the sky?"))
    call.hear("V" * 40)
    assert call.state() is State.THINKING
    call.stages.last("thinker").bring(spoken("Blue. ", 1_000))
    call.hear("V" * 5)
    assert call.state() is State.SPEAKING
    call.hear("....")
    call.hear("VVV")
    assert call.state() is State.HELD
