"""Somebody makes a sound while the agent answers: it is held, until it is known whether that was an interruption."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.call import (
    DRAFT,
    RATE_HZ,
    SETTINGS,
    Call,
    Output,
    audio,
    captions,
    come,
    drafting,
    events,
    frames_of,
    held,
    held_unanswered,
    is_loud,
    judging,
    kinds,
    loud,
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
    Flush,
    Interrupt,
    Pause,
    Played,
    ReplyDone,
    ReplyStarted,
    Resume,
    SessionError,
    SpeechStarted,
    SpeechStopped,
    Timing,
    TranscriptReady,
    TypedText,
)
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import SpokenClause, Transcript

SILENCE = "." * 21  # what is left of the 800 ms after the pause in which the words are looked at
MORE_COMES = "." * 7  # and of the 352 ms in which more may come of words that were not clear
TEXT, MS = "One two three four five six seven eight. ", 3_000


def answering() -> tuple[Call, list[Output]]:
    """An agent that speaks for three seconds, and what of it was sent by now."""
    call = Call()
    thinker = call.ask()
    thinker.bring(spoken(TEXT, MS))
    thinker.finish()
    return call, call.listen(0.5)


def test_voice_over_a_reply_pauses_it_within_two_frames_and_nothing_is_sent_while_it_is_held() -> None:
    call, _ = answering()
    epoch = call.session.epoch
    assert Pause not in kinds(call.hear("V"))
    told = call.hear("V")
    assert events(told) == [Pause("r1")]
    assert call.state() is State.HELD
    assert call.hear("V" * 10) == []
    assert call.session.epoch == epoch
    assert call.session.wait_s() == pytest.approx(1.0)
    assert call.done == []


@pytest.mark.parametrize("text", ["", "...", "mm-hm", "M-hmm.", "Yeah.", "okay, okay", "Yes please go on."])
@pytest.mark.parametrize("frames", ["VV" + "....", "V" * 9 + "....", "VV.VV..VVV...."])
def test_a_cough_or_an_agreement_costs_the_reply_nothing_and_asks_the_thinker_nothing(text: str, frames: str) -> None:
    call, told = answering()
    asked = len(call.stages.asked)
    told += call.hear(frames)
    judged = call.stages.last("asr")
    judged.finish(Transcript(text))
    after = call.outputs()
    assert events(after)[0] == Resume("r1")
    assert call.state() is State.SPEAKING
    told += after + call.listen(5.0)
    assert audio(told) == sound(MS)
    assert kinds(told)[-2:] == [Timing, ReplyDone]
    assert call.done[0][0] == ReplyDone("r1", "completed", TEXT.strip())
    assert {other.stage for other in call.stages.asked[asked:]} <= {"asr", "turn_end"}
    assert call.stages.live() == []
    assert TranscriptReady not in kinds(after)


def test_the_time_of_a_held_reply_stands_still() -> None:
    call, told = answering()
    told += call.hear("VV....")
    call.listen(0.9)
    call.stages.last("asr").finish(Transcript(""))
    told += call.outputs()
    assert len(audio(told)) < len(sound(1_200))
    timing = [event for event in events(call.listen(5.0)) if isinstance(event, Timing)]
    assert [event.underruns for event in timing] == [0]


def test_words_over_a_reply_cut_it_and_are_answered_whole() -> None:
    call, _ = answering()
    before = len(call.said)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("Stop, what about Rome?"))
    told = events(call.outputs())
    assert told[0] == Flush("r1")
    assert isinstance(told[1], Timing)
    assert told[2] == ReplyDone("r1", "interrupted", "One two")
    assert told[3:] == [SpeechStarted(), TranscriptReady("Stop, what about Rome?", is_final=False)]
    assert call.state() is State.MAYBE_DONE
    call.hear(SILENCE)
    assert call.prompt()[1:] == [("assistant", "One two"), ("user", "Stop, what about Rome?")]
    whole = call.stages.last("asr")
    assert [frame for frame in frames_of(utterance(whole)) if is_loud(frame)] == loud(call.said[before:])
    thinker = call.stages.last("thinker")
    thinker.bring(spoken("Rome is old.", 200))
    thinker.finish()
    answer = call.listen(0.5)
    assert captions(answer) == "Rome is old."
    assert kinds(answer)[-2:] == [Timing, ReplyDone]


def test_words_that_were_judged_are_not_recognised_again() -> None:
    call, _ = answering()
    call.hear("V" * 8 + "....")
    recognised = len(call.stages.of("asr"))
    call.stages.last("asr").finish(Transcript("Stop."))
    call.hear(SILENCE)
    assert len(call.stages.of("asr")) == recognised
    assert call.prompt()[-1] == ("user", "Stop.")


def test_the_answer_that_was_cut_is_marked_in_the_next_prompt() -> None:
    call, _ = answering()
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("Stop."))
    payload = call.stages.last("thinker").payload
    assert [message.was_cut for message in getattr(payload, "messages", [])] == [False, True, False]


def test_what_the_client_reports_of_a_held_reply_is_what_was_heard() -> None:
    call, _ = answering()
    call.hear("V" * 8)
    call.send(Played("r1", 60))
    call.hear("....")
    call.stages.last("asr").finish(Transcript("Stop."))
    call.outputs()
    assert call.done[0][0] == ReplyDone("r1", "interrupted", "")


def test_a_long_voice_is_judged_while_it_goes_on() -> None:
    call, _ = answering()
    before = len(call.said)
    call.hear("V" * 13)  # 416 ms
    judged = call.stages.last("asr")
    assert loud(frames_of(utterance(judged))) == loud(call.said[before:])
    judged.finish(Transcript("but what about"))
    assert Flush("r1") in call.outputs()
    assert call.state() is State.HEARING
    call.hear("V" * 5 + "....")
    whole = call.stages.last("asr")
    assert loud(frames_of(utterance(whole))) == loud(call.said[before:])
    whole.finish(Transcript("but what about Rome"))
    call.hear(SILENCE)
    assert call.prompt()[-1] == ("user", "but what about Rome")


def test_a_long_agreement_is_judged_again_and_again_and_kept_at_its_end() -> None:
    call, told = answering()
    for frames in ("V" * 13, "V" * 13, "V" * 13):
        told += call.hear(frames)
        call.stages.last("asr").finish(Transcript("yeah"))
        told += call.outputs()
        assert call.state() is State.HELD
    assert len(call.stages.of("asr")) == 1 + 3
    told += call.hear("....")
    assert call.state() is State.SPEAKING
    assert audio(told + call.listen(5.0)) == sound(MS)


def test_an_agreement_that_becomes_a_question_interrupts() -> None:
    call, _ = answering()
    call.hear("V" * 13)
    call.stages.last("asr").finish(Transcript("yeah"))
    call.hear("V" * 13)
    call.stages.last("asr").finish(Transcript("yeah but why is"))
    assert Flush("r1") in call.outputs()


def test_voice_that_lasts_interrupts_whatever_the_words_are() -> None:
    call, _ = answering()
    assert SpeechStarted not in kinds(call.hear("V" * 156))
    judgement = call.stages.last("asr")
    told = call.hear("V")  # 5,024 ms
    assert kinds(told) == [Flush, Timing, ReplyDone, SpeechStarted]
    assert judgement.is_aborted
    assert call.state() is State.HEARING
    assert call.stages.live() == []


def test_a_recogniser_slower_than_the_voice_is_asked_once_at_a_time() -> None:
    call, _ = answering()
    call.hear("V" * 40)
    judged = call.stages.of("asr")[1:]
    assert len(judged) == 1
    judged[0].finish(Transcript("stop it now"))
    assert Flush("r1") in call.outputs()


def test_words_that_are_known_before_the_voice_stops_are_judged_when_it_does() -> None:
    """The recogniser answers between two frames: nobody has fallen silent yet."""
    call, told = answering()
    told += call.hear("V" * 13)
    call.stages.last("asr").finish(Transcript("okay"))
    assert call.outputs() == []
    told += call.hear("....")
    assert call.state() is State.SPEAKING
    assert audio(told + call.listen(5.0)) == sound(MS)


def test_words_that_are_known_before_the_sound_stalls_are_judged_when_it_does() -> None:
    call, told = answering()
    told += call.hear("V" * 13)
    call.stages.last("asr").finish(Transcript("okay"))
    assert audio(told + call.listen(7.0)) == sound(MS)
    assert call.state() is State.LISTENING


@pytest.mark.parametrize(("text", "state"), [("stop", State.THINKING), ("mm-hm", State.SPEAKING)])
def test_a_judgement_that_comes_after_the_turn_is_over_is_still_waited_for(text: str, state: State) -> None:
    call, _ = answering()
    call.hear("VVVV...." + SILENCE)
    assert call.state() is State.HELD
    assert call.listen(3.0) == []
    call.stages.last("asr").finish(Transcript(text))
    assert (SpeechStopped() in call.outputs()) == (state is State.THINKING)
    assert call.state() is state
    if state is State.THINKING:
        call.stages.last("asr").finish(Transcript(text))
        assert call.prompt()[-1] == ("user", text)


def test_a_word_and_a_muted_microphone_are_an_interruption_as_well() -> None:
    call, _ = answering()
    call.hear("VVVV")
    call.listen(1.1)
    assert call.state() is State.HELD
    call.stages.last("asr").finish(Transcript("stop"))
    call.outputs()
    assert call.state() is State.THINKING


def test_voice_that_comes_back_before_a_slow_judgement_is_heard_and_judged_with_what_was_before() -> None:
    call, _ = answering()
    before = len(call.said)
    call.hear("VVVV...." + SILENCE + "..")
    first = call.stages.last("asr")
    call.hear("VVVV")
    first.finish(Transcript(""))
    assert call.outputs() == []
    assert call.state() is State.HELD
    call.hear("....")
    both = call.stages.last("asr")
    assert loud(frames_of(utterance(both))) == loud(call.said[before:])
    both.finish(Transcript("stop"))
    assert Flush("r1") in call.outputs()


def test_voice_after_a_kept_turn_holds_the_reply_again_and_is_judged_by_itself() -> None:
    call, told = answering()
    told += call.hear("VVVV....")
    call.stages.last("asr").finish(Transcript("mm-hm"))
    told += call.hear("." * 5)
    before = len(call.said)
    told += call.hear("VVVV....")
    assert kinds(told).count(Pause) == 2
    again = call.stages.last("asr")
    assert loud(frames_of(utterance(again))) == loud(call.said[before:])
    again.finish(Transcript("mm-hm"))
    assert audio(told + call.listen(5.0)) == sound(MS)


def test_a_judgement_that_never_comes_is_waited_for_no_longer_than_a_voice_may_last() -> None:
    call, told = answering()
    told += call.hear("VV")
    held_s = call.clock.now_s
    assert call.state() is State.HELD
    told += call.hear("....")
    judgement = call.stages.last("asr")
    told += call.listen(2.0)  # its sound has stalled by then, too: nothing but the clock can bring the end
    longest_s = SETTINGS.turn.interrupt_ms / 1000
    assert call.session.wait_s() == pytest.approx(held_s + longest_s - call.clock.now_s)
    told += call.listen(held_s + longest_s - call.clock.now_s - 0.01)
    assert call.state() is State.HELD
    assert kinds(told)[-1] is Pause
    told += call.listen(0.02)
    assert kinds(told)[-1] is Resume
    assert call.state() is State.SPEAKING
    assert judgement.is_aborted
    assert audio(told + call.listen(5.0)) == sound(MS)
    assert call.state() is State.LISTENING


def test_a_hold_ends_as_late_for_a_caller_who_sends_silence() -> None:
    call = Call(turn(interrupt_ms=2_000))
    thinker = call.answered(TEXT, MS)
    thinker.finish()
    call.hear("VV")
    assert Resume not in kinds(call.hear("." * 62))  # 1,984 ms
    assert Resume("r1") in call.hear(".")


def test_each_hold_has_its_own_end() -> None:
    call, _ = answering()
    call.hear("VV....")
    call.stages.last("asr").finish(Transcript("mm-hm"))
    call.hear("." * 10)
    call.hear("VV....")
    assert Resume not in kinds(call.listen(4.85))
    assert Resume("r1") in call.listen(0.1)


def test_the_end_of_a_hold_that_is_over_wakes_nobody() -> None:
    call = Call(turn(interrupt_ms=500))
    call.answered(TEXT, MS)
    call.hear("VV....")
    call.stages.last("asr").finish(Transcript("mm-hm"))
    call.listen(1.0)
    assert call.state() is State.SPEAKING
    assert call.session.wait_s() > 0


def test_a_hold_does_not_end_while_the_caller_speaks() -> None:
    call = Call(turn(interrupt_ms=1_000))
    call.answered(TEXT, MS)
    call.hear("VV" + "." * 25 + "V" * 8)  # 1,120 ms after the hold, of which 320 ms are voice
    assert call.state() is State.HELD
    call.hear("." * 5)
    assert call.state() is State.SPEAKING


def test_a_recogniser_that_fails_lets_the_agent_go_on() -> None:
    call, told = answering()
    told += call.hear("VVVV....")
    call.stages.last("asr").fail("broken")
    told += call.outputs()
    assert call.state() is State.SPEAKING
    assert audio(told + call.listen(5.0)) == sound(MS)


def test_an_interrupt_while_held_needs_no_words() -> None:
    call, _ = answering()
    call.hear("VVVV....")
    pending = call.stages.last("asr")
    assert kinds(call.send(Interrupt())) == [Flush, Timing, ReplyDone, SpeechStarted]
    assert call.state() is State.MAYBE_DONE
    assert pending.is_aborted
    call.stages.last("asr").finish(Transcript("what about Rome"))
    call.hear(SILENCE)
    assert call.prompt()[-1] == ("user", "what about Rome")


@pytest.mark.parametrize("way", [held, judging])
def test_a_reply_that_fails_while_held_gives_the_caller_the_floor(way: Callable[[Call], None]) -> None:
    call = come(way)
    before = call.stages.of("asr")
    call.stages.last("thinker").fail("broken")
    told = events(call.outputs())
    assert told[:2] == [SessionError("stage_failed", "broken"), Flush("r1")]  # or the client would stay paused
    assert [type(event) for event in told[2:]] == [Timing, ReplyDone, SpeechStarted]
    assert all(asked.is_over or asked.is_aborted for asked in before)
    call.hear("V" * 3 + "....")
    call.stages.last("asr").finish(Transcript("hello again"))
    assert ReplyStarted("r2") in call.hear(SILENCE)


def test_a_typed_question_while_held_is_answered_and_what_was_said_is_forgotten() -> None:
    call, _ = answering()
    call.hear("VVVV....")
    assert kinds(call.send(TypedText("Why?"))) == [Flush, Timing, ReplyDone, ReplyStarted]
    assert [asked.stage for asked in call.stages.live()] == ["thinker"]
    call.stages.last("thinker").finish()
    call.outputs()
    before = len(call.said)
    call.hear(DRAFT)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


def test_a_reply_whose_sound_comes_while_it_is_held_begins_when_it_was_nothing() -> None:
    call = come(replying)
    assert call.hear("VV") == []
    thinker = call.stages.last("thinker")
    thinker.bring(spoken(TEXT, MS))
    thinker.finish()
    assert call.hear("....") == []
    call.stages.last("asr").finish(Transcript(""))
    told = call.outputs()
    assert len(audio(told)) == len(sound(SETTINGS.lead_ms))
    assert Resume not in kinds(told)
    told += call.listen(5.0)
    assert (captions(told), audio(told)) == (TEXT, sound(MS))


def test_a_reply_that_begins_while_somebody_coughs_waits_and_is_then_heard() -> None:
    call = come(held_unanswered)
    call.stages.of("asr")[0].finish(Transcript("hello"))
    assert events(call.outputs()) == [TranscriptReady("hello"), ReplyStarted("r1")]
    thinker = call.stages.last("thinker")
    thinker.bring(spoken(TEXT, MS))
    thinker.finish()
    assert call.hear("....") == []
    call.stages.last("asr").finish(Transcript(""))
    told = call.listen(5.0)
    assert (captions(told), audio(told)) == (TEXT, sound(MS))


def test_a_turn_without_words_leaves_the_floor_to_who_spoke_meanwhile() -> None:
    call = come(held_unanswered)
    call.stages.of("asr")[0].finish(Transcript(""))
    assert events(call.outputs()) == [SpeechStarted()]
    assert call.state() is State.HEARING
    call.hear("VVV....")
    call.stages.last("asr").finish(Transcript("hello"))
    assert ReplyStarted("r1") in call.hear(SILENCE)


def test_a_caller_who_says_only_half_of_an_answer_over_the_reply_needs_as_many_words_as_were_set() -> None:
    call = Call(turn(interrupt_words=3))
    call.answered(TEXT, MS)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("no stop"))
    assert Resume("r1") in call.hear(MORE_COMES)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("no stop now"))
    assert Flush("r1") in call.outputs()


@pytest.mark.parametrize("text", ["stop", ""])
def test_with_the_silence_of_a_draft_as_long_as_that_of_a_turn_the_words_still_count(text: str) -> None:
    call = Call(turn(draft_silence_ms=352, likely_end_silence_ms=352, end_silence_ms=352))
    call.answered(TEXT, MS)
    call.hear("VVVV" + "." * 11)
    assert call.state() is State.HELD
    call.stages.last("asr").finish(Transcript(text))
    assert call.state() is (State.THINKING if text else State.SPEAKING)


def test_both_start_at_once() -> None:
    """The caller goes on in the frame in which the agent begins."""
    call = Call()
    drafting(call)
    thinker = call.stages.last("thinker")
    thinker.bring(spoken(TEXT, MS))
    thinker.finish()
    told = call.hear(SILENCE + "VV")
    assert kinds(told)[-1] is Pause
    told += call.hear("V" * 11)
    call.stages.last("asr").finish(Transcript("and another thing"))
    told += call.outputs()
    assert ReplyDone("r1", "interrupted", "") in events(told)
    call.hear("....")
    call.stages.last("asr").finish(Transcript("and another thing I wanted"))
    call.hear(SILENCE)
    assert call.prompt() == [("user", "hello and another thing I wanted")]


UNSURE = Transcript("Rome, perhaps", 0.5, 0.05)  # of its second word


@pytest.mark.parametrize(("way", "state"), [(replying, State.MAYBE_DONE), (speaking, State.SPEAKING)])
def test_before_a_reply_is_heard_words_interrupt_of_which_the_recogniser_is_less_sure(
    way: Callable[[Call], None], state: State
) -> None:
    call = come(way)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(UNSURE)
    call.hear(MORE_COMES)
    assert call.state() is state


def test_words_that_were_not_clear_hold_the_reply_until_more_could_have_come() -> None:
    call = come(speaking)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(UNSURE)
    assert Resume("r1") not in call.outputs() + call.hear(MORE_COMES[1:])
    assert Resume("r1") in call.hear(".")


def test_words_that_were_not_clear_interrupt_with_those_that_come_after_a_short_pause() -> None:
    call = come(speaking)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(UNSURE)
    told = call.hear(MORE_COMES[1:] + "V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("stop, please wait"))
    told += call.outputs()
    assert Flush("r1") in told
    assert Resume("r1") not in told


def test_words_before_the_reply_is_heard_join_those_that_it_would_have_answered() -> None:
    call = come(replying)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(UNSURE)
    call.hear(SILENCE)
    assert call.prompt() == [("user", "hello Rome, perhaps")]


@pytest.mark.parametrize("way", [held, judging, held_unanswered])
def test_a_lost_connection_frees_a_held_reply_and_its_judgement(way: Callable[[Call], None]) -> None:
    call = come(way)
    assert call.stages.live()
    call.session.close()
    assert call.stages.live() == []


def test_no_frame_of_an_interrupted_reply_has_the_present_epoch() -> None:
    call, told = answering()
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("stop"))
    told += call.outputs()
    assert all(output.epoch < call.session.epoch for output in told if isinstance(output, AgentAudio))


def test_a_voice_that_is_too_short_holds_nothing() -> None:
    call = come(speaking)
    asked: list[Asked] = call.stages.live()
    assert Pause not in kinds(call.hear("V..V.."))
    assert call.stages.live() == asked


def test_while_held_a_reply_is_made_no_longer_than_is_allowed() -> None:
    call = Call(settings(longest_reply_s=2.0))
    thinker = call.answered()
    call.hear("VV")
    for _ in range(3):
        thinker.bring(spoken("More. ", 600))
    assert thinker.is_aborted


coughs = st.lists(
    st.tuples(st.text("VV.", min_size=1, max_size=20), st.integers(0, 40), st.sampled_from(["", "yeah", "mm-hm"])),
    max_size=8,
)


@given(coughs=coughs, pieces=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_whatever_is_coughed_over_a_reply_all_of_its_sound_comes_out_once_and_in_order(
    coughs: list[tuple[str, int, str]], pieces: list[int]
) -> None:
    call, told = Call(turn(interrupt_ms=60_000)), []
    thinker = call.ask()
    waiting = [SpokenClause.spread("One two. ", sound(20 * size, size), RATE_HZ) for size in pieces]
    whole = b"".join(piece.pcm for piece in waiting)
    for frames, quiet, text in coughs:
        if waiting:
            thinker.bring(waiting.pop(0))
        told += call.hear(frames + "." * quiet)
        for asked in call.stages.live():
            if asked.stage == "asr":
                asked.finish(Transcript(text))
    for piece in waiting:
        thinker.bring(piece)
    thinker.finish()
    for _ in range(3):
        told += call.hear("." * 30)
        for asked in call.stages.live():
            asked.finish(Transcript(""))
    told += call.listen(10.0)
    assert audio(told) == whole
    assert ReplyDone("r1", "completed", " ".join(["One two."] * len(pieces))) in told
    assert not {SpeechStarted, Flush} & set(kinds(told))


def test_a_caller_who_speaks_on_with_short_gaps_is_not_taken_for_silent() -> None:
    call, told = answering()
    for frames in ("V" * 10, ".") * 16:
        told += call.hear(frames)
        for asked in call.stages.live() if frames != "." else []:
            if asked.stage == "asr":
                asked.finish(Transcript("I do not want that", 0.55, 0.3))
    assert Resume not in kinds(told)
