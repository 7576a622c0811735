"""Whole conversations with a session under a clock of our own: what it asks and what the client gets, in order."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from tests.support.clock import Clock
from tests.support.played_stages import Asked, PlayedStages
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.models.vad import FRAME_SAMPLES
from voice_runtime.pipeline.config import SessionSettings, TurnSettings
from voice_runtime.session.events import (
    CallerAudio,
    CallEvent,
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
from voice_runtime.session.session import AgentAudio, Session
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Heard, Message, Prompt, SpokenClause, Transcript, TurnEnd, Utterance

FRAME_S = 0.032
RATE_HZ = 8_000
SETTINGS = SessionSettings(recognise="asr", judge_turn="turn_end", reply="thinker")
TURN = "V" * 10 + "." * 25  # 320 ms of speech, and the silence that ends it
Output = SessionEvent | AgentAudio


class Level:
    """Stands in for the voice detector: a frame is speech when it is loud."""

    def push(self, frame: Samples) -> float:
        return 0.9 if np.abs(frame).mean() > 0.1 else 0.1


class Call:
    """A session, its caller and its stages. Every frame of the caller's sound differs from every other.

    said: what the caller has said, frame by frame, silence too. done: what `on_reply_done` was called with.
    """

    def __init__(self, settings: SessionSettings = SETTINGS) -> None:
        self.clock = Clock(5_000.0)
        self.stages = PlayedStages(self.clock)
        self.done: list[tuple[ReplyDone, Timing | None]] = []
        self.session = Session(
            self.stages, settings, Level(), 16_000, RATE_HZ, lambda *done: self.done.append(done), self.clock
        )
        self.said: list[bytes] = []
        self._look_s = self.clock.now_s  # when a transport that is not woken looks again
        self._noise = np.random.default_rng(1)

    def hear(self, frames: str) -> list[Output]:
        """Frames of 32 ms in real time: V voice, . silence. What the client gets by then."""
        outputs = []
        for letter in frames:
            self.clock.now_s += FRAME_S
            loudness = 0.9 if letter == "V" else 0.001
            frame = self._noise.uniform(-loudness, loudness, FRAME_SAMPLES).astype(np.float32)
            self.said.append(to_pcm(frame))
            self.session.receive(CallerAudio(frame))
            outputs += self.outputs()
        return outputs

    def send(self, event: CallEvent) -> list[Output]:
        self.session.receive(event)
        return self.outputs()

    def outputs(self) -> list[Output]:
        """What a transport would send now: it looks when it is woken or has waited for long enough."""
        outputs: list[Output] = []
        while self.session.wake.is_set() or self.clock.now_s >= self._look_s:
            self.session.wake.clear()
            while (output := self.session.next_output()) is not None:
                outputs.append(output)
            self._look_s = self.clock.now_s + max(self.session.wait_s(), 1e-4)
        return outputs

    def listen(self, seconds: float) -> list[Output]:
        """What a transport would send in the next seconds if the caller does nothing."""
        end_s, outputs = self.clock.now_s + seconds, self.outputs()
        while (left_s := end_s - self.clock.now_s) > 0:
            self.clock.now_s += min(left_s, self._look_s - self.clock.now_s)
            outputs += self.outputs()
        return outputs

    # The caller's and the stages' ways to a state

    def speak(self) -> Asked:
        """A turn, until the recogniser has it."""
        self.hear(TURN)
        return self.stages.last("asr")

    def ask(self, text: str = "hello") -> Asked:
        """A recognised turn, until the thinker is asked."""
        self.speak().finish(Transcript(text))
        self.outputs()
        return self.stages.last("thinker")

    def answered(self, text: str = "Hi there. ", ms: int = 1_000) -> Asked:
        """A turn that is answered, until the first 100 ms of the answer are played."""
        thinker = self.ask()
        thinker.bring(spoken(text, ms))
        self.listen(0.1)
        return thinker

    def state(self) -> State:
        return self.session.state

    def prompt(self) -> list[tuple[str, str]]:
        """What the thinker was shown last."""
        payload = self.stages.last("thinker").payload
        assert isinstance(payload, Prompt)
        return [(message.role, message.text) for message in payload.messages]


def spoken(text: str, ms: int) -> SpokenClause:
    return SpokenClause(text, b"\x01\x02" * (RATE_HZ * ms // 1000), RATE_HZ)


def events(outputs: list[Output]) -> list[SessionEvent]:
    return [output for output in outputs if not isinstance(output, AgentAudio)]


def kinds(outputs: list[Output]) -> list[type[SessionEvent]]:
    return [type(event) for event in events(outputs)]


def audio_ms(outputs: list[Output]) -> float:
    return sum(len(output.pcm) for output in outputs if isinstance(output, AgentAudio)) * 500 / RATE_HZ


def turn(**changes: float) -> SessionSettings:
    return msgspec.structs.replace(SETTINGS, turn=msgspec.structs.replace(TurnSettings(), **changes))


def utterance(asked: Asked) -> bytes:
    assert isinstance(asked.payload, Utterance)
    return asked.payload.pcm


# How a call comes into each state


def nothing(call: Call) -> None:
    pass


def hearing(call: Call) -> None:
    call.hear("VVVV")


def paused(call: Call) -> None:
    call.hear("VVVV......")  # Smart Turn is asked


def recognising(call: Call) -> None:
    call.speak()


def replying(call: Call) -> None:
    call.ask()


def speaking(call: Call) -> None:
    call.answered()


Way = Callable[[Call], None]
STATES: dict[Way, State] = {
    nothing: State.LISTENING,
    hearing: State.HEARING,
    paused: State.PAUSED,
    recognising: State.THINKING,
    replying: State.THINKING,
    speaking: State.SPEAKING,
}


@pytest.mark.parametrize("way", STATES)
def test_a_call_comes_into_each_state(way: Way) -> None:
    call = Call()
    way(call)
    assert call.state() is STATES[way]


# A spoken turn


def test_a_spoken_turn_is_recognised_and_answered_and_the_client_is_told_in_order() -> None:
    call = Call()
    assert call.hear("VV") == []
    assert call.hear("V") == [SpeechStarted()]
    assert call.hear("VVVVVVV" + "." * 24) == []
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
    assert events(begun) == [ReplyText("r1", "Hi "), ReplyText("r1", "there.")]
    assert audio_ms(begun) == SETTINGS.lead_ms
    assert call.state() is State.SPEAKING

    thinker.finish()
    rest = call.listen(0.99)
    assert audio_ms(rest) == 1_000 - SETTINGS.lead_ms
    assert events(rest) == []
    assert kinds(call.listen(0.02)) == [Timing, ReplyDone]
    assert call.state() is State.LISTENING
    assert [done for done, _ in call.done] == [ReplyDone("r1", "completed")]
    assert not any(asked.is_aborted for asked in call.stages.asked)


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
    call = Call()
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
    assert list(timing.ms) == ["end_of_turn", "asr", "thinker", "text", "speech", "sending", "total"]
    assert list(timing.ms.values()) == pytest.approx([800, 100, 200, 10, 300, 50, 1_460], abs=0.1)
    assert (timing.tokens, timing.underruns) == ({"completion_tokens": 7}, 0)
    assert done == ReplyDone("r1", "completed")
    assert call.done == [(done, timing)]


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
        thinker.bring(SpokenClause("Hi. ", b"\x01\x02" * 12_000, 24_000))
    thinker.finish()
    assert audio_ms(call.listen(2.0)) == 1_000


def test_a_transports_own_event_keeps_its_place() -> None:
    call = Call()
    call.session.receive(TypedText("hello"))
    call.session.tell(SessionError("bad_event", "found nonsense"))
    call.session.receive(Interrupt())
    assert kinds(call.outputs()) == [ReplyStarted, SessionError, Flush, ReplyDone]


# Voice wins


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (recognising, [SpeechStarted()]),
        (replying, [Flush("r1"), ReplyDone("r1", "interrupted"), SpeechStarted()]),
        (speaking, [Flush("r1"), ReplyDone("r1", "interrupted"), SpeechStarted()]),
    ],
)
def test_voice_aborts_what_the_agent_does_and_nothing_of_it_follows(way: Way, told: list[SessionEvent]) -> None:
    call = Call()
    way(call)
    under_way, epoch = call.stages.asked[-1], call.session.epoch
    before = call.hear("VVVV")
    assert events(before) == []
    assert not under_way.is_aborted
    onset = call.hear("V")
    assert [event for event in events(onset) if not isinstance(event, Timing)] == told
    assert under_way.is_aborted
    assert call.session.epoch > epoch
    assert call.state() is State.HEARING

    under_way.bring(spoken("late", 500))
    under_way.finish(Transcript("late"))
    after = call.hear("V" * 30)
    assert after == []
    assert len(call.done) == (way is not recognising)


def test_an_interrupted_reply_has_its_timing_between_flush_and_reply_done() -> None:
    call = Call()
    call.answered()
    assert kinds(call.hear("VVVVV")) == [Flush, Timing, ReplyDone, SpeechStarted]


def test_speech_that_goes_on_while_the_recogniser_is_at_work_is_recognised_together_with_what_was_before() -> None:
    call = Call()
    first = call.speak()
    call.hear("." * 20 + TURN)
    both = call.stages.last("asr")
    assert first.is_aborted
    assert both is not first
    pcm = utterance(both)
    loud = [frame for frame in call.said if np.abs(np.frombuffer(frame, "<i2")).mean() > 3_000]
    assert [frame for frame in frames_of(pcm) if frame in loud] == loud
    assert len(loud) == 20


def test_a_monologue_longer_than_the_recogniser_takes_loses_no_word() -> None:
    call = Call(turn(longest_turn_s=1.0))
    call.hear("V" * 40)  # 1.28 s: cut at one second, and the caller goes on
    first = call.stages.last("asr")
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
    loud = [frame for frame in call.said if np.abs(np.frombuffer(frame, "<i2")).mean() > 3_000]
    heard = frames_of(utterance(first)) + frames_of(utterance(second))
    assert [frame for frame in heard if frame in loud] == loud


def frames_of(pcm: bytes) -> list[bytes]:
    size = 2 * FRAME_SAMPLES
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def test_speech_that_goes_on_at_once_is_recognised_whole_with_no_frame_twice() -> None:
    call = Call(turn(end_silence_ms=64, likely_end_silence_ms=64))
    call.hear("V" * 10 + "..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)
    call.hear("V" * 10 + "..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


def test_a_recognised_turn_is_not_recognised_again() -> None:
    call = Call()
    call.ask()
    before = len(call.said)
    call.hear(TURN)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


def test_a_turn_is_cut_at_its_longest_length() -> None:
    call = Call(turn(longest_turn_s=1.0))
    assert SpeechStopped() in call.hear("V" * 40)
    frames = frames_of(utterance(call.stages.last("asr")))
    assert frames == call.said[: len(frames)]
    assert len(frames) <= int((1.0 + 0.32) / FRAME_S)


def test_words_after_an_answer_that_was_not_heard_join_the_message() -> None:
    call = Call()
    call.ask("What is")
    call.ask("the capital of Italy?")
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
    assert ("assistant", "One") in call.prompt()


def test_a_late_client_holds_back_the_end_of_the_reply() -> None:
    call = Call()
    thinker = call.answered("Hi there. ", 1_000)
    thinker.finish()
    call.listen(0.7)
    call.send(Played("r1", 300))
    assert ReplyDone not in kinds(call.listen(0.65))
    assert ReplyDone in kinds(call.listen(0.1))


def test_a_prompt_shows_no_more_turns_than_it_should() -> None:
    call = Call(msgspec.structs.replace(SETTINGS, history_turns=1))
    for number in range(3):
        thinker = call.ask(f"question {number}")
        thinker.bring(spoken(f"answer {number}", 100))
        thinker.finish()
        call.listen(0.2)
    call.ask("question 3")
    assert call.prompt() == [("user", "question 2"), ("assistant", "answer 2"), ("user", "question 3")]


# The client's own events, in every state


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (nothing, []),
        (hearing, []),
        (paused, []),
        (recognising, []),
        (replying, [Flush, ReplyDone]),
        (speaking, [Flush, Timing, ReplyDone]),
    ],
)
def test_an_interrupt_silences_the_agent_and_nobody_else(way: Way, told: list[type[SessionEvent]]) -> None:
    call = Call()
    way(call)
    before = len(call.stages.asked)
    assert kinds(call.send(Interrupt())) == told
    agent_worked = STATES[way] in (State.THINKING, State.SPEAKING)
    assert call.state() is (State.LISTENING if agent_worked else STATES[way])
    assert len(call.stages.asked) == before
    if agent_worked:
        assert call.stages.asked[-1].is_aborted
        assert call.listen(2.0) == []
    assert [done.status for done, _ in call.done] == ["interrupted"] * told.count(ReplyDone)


def test_an_interrupted_recognition_is_not_taken_up_again() -> None:
    call = Call()
    call.speak()
    call.send(Interrupt())
    before = len(call.said)
    call.hear(TURN)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


def test_an_interrupt_while_the_caller_goes_on_costs_none_of_the_callers_words() -> None:
    call = Call(turn(end_silence_ms=64, likely_end_silence_ms=64))
    call.hear("V" * 10 + ".." + "V" * 10)
    assert call.state() is State.HEARING
    call.send(Interrupt())
    call.hear("..")
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (nothing, [ReplyStarted]),
        (hearing, [SpeechStopped, ReplyStarted]),
        (paused, [SpeechStopped, ReplyStarted]),
        (recognising, [ReplyStarted]),
        (replying, [Flush, ReplyDone, ReplyStarted]),
        (speaking, [Flush, Timing, ReplyDone, ReplyStarted]),
    ],
)
def test_a_typed_question_is_answered_in_every_state(way: Way, told: list[type[SessionEvent]]) -> None:
    call = Call()
    way(call)
    before = list(call.stages.asked)
    assert kinds(call.send(TypedText("Why?"))) == told
    assert call.state() is State.THINKING
    assert [asked.stage for asked in call.stages.asked[len(before) :]] == ["thinker"]
    assert call.prompt()[-1] == ("user", "hello Why?" if way in (replying, speaking) else "Why?")
    if STATES[way] in (State.THINKING, State.SPEAKING):
        assert before[-1].is_aborted

    thinker = call.stages.last("thinker")
    thinker.bring(spoken("Because.", 200))
    thinker.finish()
    heard = call.listen(0.3)
    assert audio_ms(heard) == 200
    assert kinds(heard) == [ReplyText, Timing, ReplyDone]
    assert [list(event.ms) for event in events(heard) if isinstance(event, Timing)] == [["sending", "total"]]
    assert call.state() is State.LISTENING


@pytest.mark.parametrize("way", [hearing, paused, recognising])
def test_what_was_being_said_is_forgotten_for_a_typed_question(way: Way) -> None:
    call = Call()
    way(call)
    call.send(TypedText("Why?"))
    before = len(call.said)
    call.hear(TURN)
    assert utterance(call.stages.last("asr")) == b"".join(call.said[before:])


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
    call = Call(msgspec.structs.replace(SETTINGS, longest_reply_s=1.0))
    thinker = call.ask()
    thinker.bring(spoken("One two. ", 600))
    assert not thinker.is_aborted
    thinker.bring(spoken("Three four.", 600))
    assert thinker.is_aborted
    thinker.bring(spoken("Five.", 600))
    outputs = call.listen(2.0)
    assert audio_ms(outputs) == 1_200
    assert kinds(outputs) == [ReplyText, ReplyText, Timing, ReplyDone]
    assert [done for done, _ in call.done] == [ReplyDone("r1", "completed")]


# Smart Turn


def test_smart_turn_is_asked_in_the_pause_with_the_sound_of_the_turn() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 5)
    assert not call.stages.asked
    call.hear(".")
    assert call.stages.last("turn_end").payload == Heard(b"".join(call.said))


def test_a_pause_found_complete_ends_the_turn_sooner() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 6)
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert call.hear("." * 4) == []
    assert call.hear(".") == [SpeechStopped()]


def test_an_answer_that_comes_late_in_the_pause_ends_the_turn_at_once() -> None:
    call = Call()
    call.hear("V" * 10 + "." * 15)
    call.stages.last("turn_end").finish(TurnEnd(0.9))
    assert call.outputs() == [SpeechStopped()]
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
    assert call.state() is State.PAUSED
    late.finish(TurnEnd(0.9))
    assert call.hear("." * 12) == []
    assert call.hear(".") == [SpeechStopped()]


def test_without_a_stage_that_judges_turns_none_is_asked() -> None:
    call = Call(msgspec.structs.replace(SETTINGS, judge_turn=None))
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
    call = Call()
    way(call)
    open_requests = [asked for asked in call.stages.asked if not asked.is_over]
    assert bool(open_requests) == (way not in (nothing, hearing))
    call.session.close()
    call.outputs()
    assert call.state() is State.CLOSED
    assert all(asked.is_aborted for asked in open_requests)
    for asked in open_requests:
        asked.finish(Transcript("late"))
    assert call.listen(5.0) == []
    assert [done.status for done, _ in call.done] == ["interrupted"] * (way in (replying, speaking))
    assert [asked for asked in call.stages.asked if not (asked.is_over or asked.is_aborted)] == []
