"""What the agent says without being asked, what it says again, and what a client may set."""

from typing import Any

import pytest

from tests.support.call import (
    DRAFT,
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
    events,
    frames_of,
    kinds,
    settings,
    sound,
    spoken,
    turn,
    utterance,
)
from tests.support.played_stages import Asked
from voice_runtime.errors import PeerError
from voice_runtime.session.events import (
    Closing,
    Configure,
    Flush,
    Interrupt,
    Pause,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    Timing,
    TurnTimeline,
    TypedText,
)
from voice_runtime.session.history import Memory
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Message, Opening, Prompt, Transcript

GREETING = settings(greeting="Good morning.")
IDLE = settings(idle_s=5.0, idle_prompts=("Are you there?", "Hello?"), goodbye="Goodbye then.")
SILENCE = "." * 21


def finish(asked: Asked, ms: int = 200) -> None:
    asked.bring(spoken(asked.text, ms))
    asked.finish()


# Greeting


def test_the_agent_greets_when_nobody_says_anything() -> None:
    call = Call(GREETING)
    assert call.listen(0.29) == []
    assert call.listen(0.02) == [ReplyStarted("r1")]
    greeting = call.stages.last("speech")
    assert (greeting.text, greeting.payload) == ("Good morning.", Opening())
    finish(greeting)
    told = call.listen(1.0)
    assert kinds(told)[-2:] == [Timing, ReplyDone]
    assert (captions(told), audio(told)) == ("Good morning.", sound(200))
    assert call.state() is State.LISTENING
    assert not call.stages.of("thinker")
    call.ask("hello")
    assert call.prompt() == [("assistant", "Good morning."), ("user", "hello")]


def test_without_a_greeting_nothing_is_said() -> None:
    call = Call()
    assert call.listen(60.0) == []
    assert call.stages.asked == []


def test_the_clients_own_greeting_is_said_at_once_and_the_files_is_not() -> None:
    call = Call(GREETING)
    call.listen(0.1)
    assert call.send(Configure({"greeting": "Welcome."})) == [ReplyStarted("r1")]
    assert [asked.text for asked in call.stages.of("speech")] == ["Welcome."]
    finish(call.stages.last("speech"))
    assert ReplyStarted not in kinds(call.listen(5.0))


def test_a_clients_greeting_that_is_long_on_its_way_is_said_if_nothing_was_said_before() -> None:
    call = Call()
    call.listen(2.0)
    assert call.send(Configure({"greeting": "Welcome."})) == [ReplyStarted("r1")]
    finish(call.stages.last("speech"))
    call.listen(1.0)
    call.send(Configure({"greeting": "Welcome again."}))
    call.listen(1.0)
    assert len(call.stages.of("speech")) == 1


def test_nobody_is_greeted_after_being_asked_whether_he_is_there() -> None:
    call = Call(IDLE)
    call.listen(5.1)
    finish(call.stages.last("speech"))
    call.listen(1.0)
    call.send(Configure({"greeting": "Welcome."}))
    call.listen(1.0)
    assert [asked.text for asked in call.stages.of("speech")] == ["Are you there?"]


def test_a_client_may_want_no_greeting() -> None:
    call = Call(GREETING)
    call.send(Configure({"greeting": ""}))
    assert call.listen(5.0) == []


def test_a_caller_who_speaks_first_is_not_greeted() -> None:
    call = Call(GREETING)
    call.hear("VVV")
    call.send(Configure({"greeting": "Welcome."}))
    call.hear("V" * 10 + "." * 4 + SILENCE)
    call.stages.last("asr").finish(Transcript("hello"))
    call.stages.last("thinker").finish()
    call.listen(5.0)
    assert not call.stages.of("speech")


def test_a_caller_whose_first_sound_has_no_words_is_greeted_after_it() -> None:
    call = Call(GREETING)
    call.hear(TURN)
    assert not call.stages.of("speech")
    call.stages.last("asr").finish(Transcript(""))
    assert call.outputs() == [ReplyStarted("r1")]
    assert call.stages.last("speech").text == "Good morning."


def test_a_typed_question_comes_before_the_greeting() -> None:
    call = Call(GREETING)
    call.send(TypedText("Why?"))
    call.stages.last("thinker").finish()
    call.listen(5.0)
    assert not call.stages.of("speech")


def test_a_caller_who_speaks_with_the_greeting_is_heard() -> None:
    call = Call(GREETING)
    call.listen(0.31)
    call.stages.last("speech").bring(spoken("Good morning.", 1_000))
    call.outputs()
    call.hear("V" * 10 + "....")
    call.stages.last("asr").finish(Transcript("hello, I have a question"))
    assert Flush("r1") in call.outputs()
    assert call.stages.last("speech").is_aborted


def test_a_resumed_session_does_not_greet_and_goes_on_with_the_conversation() -> None:
    memory = Memory([Message("user", "My name is Ann."), Message("assistant", "Hello Ann.")], GREETING)
    call = Call(SETTINGS, memory)
    assert call.listen(5.0) == []
    call.ask("Who am I?")
    assert call.prompt() == [("user", "My name is Ann."), ("assistant", "Hello Ann."), ("user", "Who am I?")]
    assert memory.messages == [Message("user", "My name is Ann."), Message("assistant", "Hello Ann.")]


def test_a_session_leaves_what_another_can_go_on_with() -> None:
    call = Call()
    call.send(Configure({"instructions": "Be brief."}))
    call.answered("Hi there. ", 1_000)
    call.listen(0.4)
    call.session.close()
    assert [(message.text, message.was_cut) for message in call.session.memory.messages] == [
        ("hello", False),
        ("Hi", True),
    ]
    again = Call(SETTINGS, call.session.memory)
    again.ask("and now?")
    payload = again.stages.last("thinker").payload
    assert isinstance(payload, Prompt)
    assert payload.instructions == "Be brief."
    assert [message.text for message in payload.messages] == ["hello", "Hi", "and now?"]


# Nobody there


def test_a_silent_caller_is_asked_and_then_said_goodbye_to() -> None:
    call = Call(IDLE)
    for text in ("Are you there?", "Hello?"):
        assert call.listen(4.98) == []
        assert kinds(call.listen(0.03)) == [ReplyStarted]
        assert call.stages.last("speech").text == text
        finish(call.stages.last("speech"))
        call.listen(0.201)
        assert call.state() is State.LISTENING
    call.listen(5.01)
    assert call.state() is State.CLOSING
    finish(call.stages.last("speech"))
    told = call.listen(0.5)
    assert call.stages.last("speech").text == "Goodbye then."
    assert kinds(told)[-3:] == [Timing, ReplyDone, Closing]
    assert (captions(told), audio_ms(told)) == ("Goodbye then.", 200)
    assert call.state() is State.CLOSED
    assert call.listen(60.0) == []
    assert call.stages.live() == []


def test_nobody_is_asked_while_the_agent_or_the_caller_speaks() -> None:
    call = Call(IDLE)
    thinker = call.ask()
    thinker.bring(spoken("A long story. ", 20_000))
    call.listen(19.9)
    assert not call.stages.of("speech")
    call.hear("V" * 20)
    call.send(Interrupt())
    for _ in range(20):
        call.hear("V" * 10)
    assert not call.stages.of("speech")


def answered(call: Call) -> None:
    call.ask().finish()


def typed(call: Call) -> None:
    call.send(TypedText("Why?"))
    call.stages.last("thinker").finish()


def silenced(call: Call) -> None:
    call.send(Interrupt())


def coughed(call: Call) -> None:
    call.speak().finish(Transcript(""))


def coughed_over_the_prompt(call: Call) -> None:
    finish(begun_again(call))
    call.hear("VV....")
    call.stages.last("asr").finish(Transcript(""))
    call.listen(0.5)


def spoke_for_long_over_the_prompt(call: Call) -> None:
    """It gets the floor, whatever its words are."""
    begun_again(call).bring(spoken("Hello?", 200))
    call.hear("V" * 160 + "." * 25)
    call.stages.last("asr").finish(Transcript(""))
    assert call.state() is State.LISTENING


def begun_again(call: Call) -> Asked:
    """The next prompt, which has begun."""
    call.listen(5.1)
    return call.stages.last("speech")


@pytest.mark.parametrize(("way", "following"), [(answered, "Are you there?"), (typed, "Are you there?")])
def test_a_caller_who_comes_back_is_asked_anew(way: Way, following: str) -> None:
    assert asked_after(way) == ["Are you there?", following]


@pytest.mark.parametrize(
    ("way", "following"),
    [
        (silenced, ["Are you there?"]),
        (coughed, ["Hello?"]),
        (coughed_over_the_prompt, ["Hello?", "Goodbye then."]),
        (spoke_for_long_over_the_prompt, ["Hello?", "Are you there?"]),
    ],
)
def test_words_a_voice_that_lasts_and_the_clients_wish_for_silence_are_somebody_and_noise_is_nobody(
    way: Way, following: list[str]
) -> None:
    assert asked_after(way) == ["Are you there?", *following]


def asked_after(way: Way) -> list[str]:
    """What the agent says unasked, until the next prompt after `way`, which comes after the first one."""
    call = Call(IDLE)
    call.listen(5.1)
    finish(call.stages.last("speech"))
    call.listen(1.0)
    way(call)
    call.outputs()
    call.listen(5.1)
    return [asked.text for asked in call.stages.of("speech")]


@pytest.mark.parametrize(("text", "prompts"), [("", 1), ("...", 1), ("hello", 0)])
def test_noise_does_not_make_the_agent_wait_longer_and_words_do(text: str, prompts: int) -> None:
    call = Call(IDLE)
    call.listen(3.0)
    call.hear(TURN)  # 1,120 ms
    call.stages.last("asr").finish(Transcript(text))
    for thinker in call.stages.of("thinker"):
        thinker.finish()
    call.listen(0.87)
    assert not call.stages.of("speech")
    call.listen(0.02)
    assert len(call.stages.of("speech")) == prompts


def test_a_wish_for_silence_while_all_are_silent_is_a_sign_of_life() -> None:
    call = Call(IDLE)
    call.listen(4.0)
    call.send(Interrupt())
    call.listen(4.99)
    assert not call.stages.of("speech")
    call.listen(0.02)
    assert call.stages.last("speech").text == "Are you there?"


# Goodbye


def test_words_during_the_goodbye_keep_the_session() -> None:
    call = come(closing)
    told = call.hear("VV")
    assert kinds(told)[-1] is Pause
    assert call.state() is State.HELD
    call.hear("V" * 10 + "....")
    call.stages.last("asr").finish(Transcript("wait, I am here"))
    assert kinds(call.outputs())[:4] == [Flush, Timing, ReplyDone, SpeechStarted]
    call.hear(SILENCE)
    assert call.state() is State.THINKING
    call.listen(20.0)
    assert call.state() is State.THINKING


def test_a_cough_during_the_goodbye_costs_nothing_of_it_and_the_session_waits_once_more() -> None:
    call = Call(settings(idle_s=5.0, idle_prompts=()))
    call.listen(5.1)
    finish(call.stages.last("speech"), 1_000)
    told = call.listen(0.1)
    assert call.state() is State.CLOSING
    told += call.hear("VV....")
    call.stages.last("asr").finish(Transcript(""))
    told += call.outputs()
    assert call.state() is State.SPEAKING
    told += call.listen(1.5)
    assert audio(told) == sound(1_000)
    assert Closing not in kinds(told)
    assert call.state() is State.LISTENING
    call.listen(5.0)
    assert call.state() is State.CLOSING
    finish(call.stages.last("speech"))
    assert kinds(call.listen(1.0))[-1] is Closing


def test_a_wish_for_silence_during_the_goodbye_keeps_the_session() -> None:
    call = come(closing)
    assert kinds(call.send(Interrupt())) == [Flush, Timing, ReplyDone]
    assert call.state() is State.LISTENING
    call.ask("hello")
    assert call.state() is State.THINKING
    assert call.prompt()[-1] == ("user", "hello")


def test_a_goodbye_that_cannot_be_said_ends_the_session_as_well() -> None:
    call = Call(settings(idle_s=5.0, idle_prompts=()))
    call.listen(5.1)
    call.stages.last("speech").fail("broken")
    assert kinds(call.outputs())[-1] is Closing
    assert call.state() is State.CLOSED


def test_a_question_that_cannot_be_said_counts_as_said() -> None:
    call = Call(IDLE)
    for _ in range(3):
        call.listen(5.1)
        call.stages.last("speech").fail("broken")
        call.outputs()
    assert call.state() is State.CLOSED


def test_a_client_that_sets_the_wait_of_a_session_that_waits_for_nothing_is_heeded() -> None:
    call = Call()
    call.listen(1.0)
    assert call.session.wait_s() == float("inf")
    call.send(Configure({"idle_s": 5.0}))
    call.listen(5.0)
    assert call.stages.last("speech").text == SETTINGS.idle_prompts[0]


# Say that again


def test_a_caller_who_asks_for_it_hears_the_last_answer_again_from_its_words_alone() -> None:
    call = Call()
    finish_answer = call.answered("Hi there. ", 1_000)
    finish_answer.bring(spoken("All is well.", 500))
    finish_answer.finish()
    call.listen(2.0)
    call.hear(DRAFT)
    call.stages.last("asr").finish(Transcript("Can you say that again?"))
    told = call.hear(SILENCE)
    assert ReplyStarted("r2") in told
    assert len(call.stages.of("thinker")) == 1
    assert call.stages.last("speech").text == "Hi there. All is well."
    finish(call.stages.last("speech"), 1_500)
    assert audio(call.listen(3.0)) == sound(1_500)
    call.ask("and now?")
    assert call.prompt() == [
        ("user", "hello"),
        ("assistant", "Hi there. All is well."),
        ("user", "Can you say that again?"),
        ("assistant", "Hi there. All is well."),
        ("user", "and now?"),
    ]


def test_after_an_interruption_the_whole_answer_is_said_again() -> None:
    call = Call()
    call.answered("One two three four. ", 1_000)
    call.hear("V" * 10 + "....")
    call.stages.last("asr").finish(Transcript("what was that?"))
    call.hear(SILENCE)
    assert call.stages.last("speech").text == "One two three four."


def test_a_typed_wish_is_heeded_as_well() -> None:
    call = Call()
    call.answered("Hi there. ", 300).finish()
    call.listen(1.0)
    assert call.send(TypedText("Say that again, please."))[:1] == [ReplyStarted("r2")]
    assert call.stages.last("speech").text == "Hi there."
    assert len(call.stages.of("thinker")) == 1
    finish(call.stages.last("speech"))
    call.listen(1.0)
    call.send(TypedText("And now?"))
    assert call.prompt()[2:] == [
        ("user", "Say that again, please."),
        ("assistant", "Hi there."),
        ("user", "And now?"),
    ]


def test_what_is_said_again_is_the_answer_not_what_was_asked_since_and_can_be_said_once_more() -> None:
    call = Call(IDLE)
    call.answered("Hi there. ", 300).finish()
    call.listen(5.5)
    assert call.stages.last("speech").text == "Are you there?"
    finish(call.stages.last("speech"))
    call.listen(1.0)
    for _ in range(2):
        call.send(TypedText("Say that again."))
        assert call.stages.last("speech").text == "Hi there."
        finish(call.stages.last("speech"))
        call.listen(1.0)
    assert len(call.stages.of("thinker")) == 1


def test_a_resumed_session_can_repeat_what_was_answered_before() -> None:
    call = Call()
    call.answered("One two three four. ", 1_000)
    call.session.close()
    assert call.session.memory.last_answer == "One two three four."
    again = Call(SETTINGS, call.session.memory)
    again.send(TypedText("Say that again."))
    assert again.stages.last("speech").text == "One two three four."
    assert not again.stages.of("thinker")


def test_what_nobody_has_spoken_to_hear_is_no_turns_latency() -> None:
    call = Call(GREETING)
    call.listen(0.31)
    finish(call.stages.last("speech"))
    call.listen(1.0)
    call.answered().finish()
    call.listen(1.0)
    call.send(TypedText("Why?"))
    call.stages.last("thinker").bring(spoken("Because.", 200))
    call.stages.last("thinker").finish()
    call.listen(1.0)
    assert [(done.status, timing is not None) for done, timing in call.done] == [
        ("completed", False),
        ("completed", True),
        ("completed", False),
    ]


@pytest.mark.parametrize("speak", ["speech", None])
def test_without_an_answer_or_a_voice_to_repeat_it_the_thinker_is_asked(speak: str | None) -> None:
    call = Call(settings(speak=speak))
    if speak is None:
        call.answered().finish()
        call.listen(2.0)
    call.ask("Say that again.")
    assert call.prompt()[-1] == ("user", "Say that again.")
    assert not call.stages.of("speech")


# Settings of a session


def test_instructions_reach_the_next_prompt() -> None:
    call = Call()
    call.send(Configure({"instructions": "Be brief."}))
    thinker = call.ask()
    assert thinker.payload == Prompt([Message("user", "hello")], "Be brief.")
    thinker.finish()
    call.outputs()
    call.send(Configure({"instructions": ""}))
    call.ask()
    payload = call.stages.last("thinker").payload
    assert isinstance(payload, Prompt)
    assert payload.instructions is None


def test_turn_settings_are_merged_and_act_at_once() -> None:
    call = Call(turn(draft=False))
    call.send(Configure({"turn": {"end_silence_ms": 400}}))
    call.hear("VVV" + "." * 12)
    assert call.state() is State.HEARING or call.state() is State.MAYBE_DONE
    assert not call.stages.of("asr")
    call.hear(".")
    assert call.state() is State.THINKING


def test_the_sound_kept_from_before_the_onset_can_be_set() -> None:
    call = Call(turn(draft=False))
    call.hear("." * 40)
    call.send(Configure({"turn": {"pre_roll_ms": 32 * 28}}))
    call.hear("." * 40 + "VVV" + "." * 25)
    assert len(frames_of(utterance(call.stages.last("asr")))) == 28 + 1 + 25


def test_a_longer_turn_can_be_set_and_is_recognised_whole() -> None:
    call = Call(turn(draft=False, longest_turn_s=1.0))
    call.send(Configure({"turn": {"longest_turn_s": 4.0}}))
    call.hear("V" * 100 + "." * 25)
    assert utterance(call.stages.last("asr")) == b"".join(call.said)


def test_the_callers_own_backchannels_can_be_set() -> None:
    call = Call()
    call.send(Configure({"turn": {"backchannels": ["roger that"]}}))
    call.answered("One two three four. ", 3_000)
    call.hear("V" * 8 + "....")
    call.stages.last("asr").finish(Transcript("Roger that."))
    call.outputs()
    assert call.state() is State.SPEAKING


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"speak": "speech"}, "'speak'"),
        ({"lead_ms": 100}, "'lead_ms'"),
        ({"resume_s": 1}, "'resume_s'"),
        ({"instructions": 7}, "instructions"),
        ({"instructions": "x" * 2_001}, "instructions"),
        ({"greeting": "x" * 501}, "greeting"),
        ({"goodbye": ""}, "goodbye"),
        ({"idle_s": -1.0}, "idle_s"),
        ({"idle_s": float("nan")}, "idle_s"),
        ({"idle_s": float("inf")}, "idle_s"),
        ({"idle_prompts": [""]}, "idle_prompts"),
        ({"idle_prompts": "hello"}, "idle_prompts"),
        ({"turn": []}, "list"),
        ({"turn": {"end_silence": 400}}, "end_silence"),
        ({"turn": {"end_silence_ms": 0}}, "end_silence_ms"),
        ({"turn": {"end_silence_ms": "400"}}, "end_silence_ms"),
        ({"turn": {"end_silence_ms": 200}}, "likely_end_silence_ms is 352, expected at most 200"),
        ({"turn": {"voice_threshold": 0.1}}, "quiet_threshold is 0.35, expected at most 0.1"),
        ({"turn": {"longest_turn_s": 29.1}}, "longest_turn_s"),
        ({"turn": {"pre_roll_ms": 901}}, "pre_roll_ms"),
        ({"turn": {"hold_ms": 60_001}}, "hold_ms"),
        ({"turn": {"backchannels": ["x"] * 101}}, "backchannels"),
        ({"idle_prompts": ["x"] * 21}, "idle_prompts"),
        ({"turn": {"backchannels": ["x" * 41]}}, "backchannels"),
        ({"greeting": "Welcome.", "turn": {"hold_ms": None}}, "hold_ms"),
    ],
    ids=str,
)
def test_a_setting_that_does_not_fit_is_refused_by_name_and_changes_nothing(
    changes: dict[str, Any], found: str
) -> None:
    call = Call(GREETING)
    before = call.session.memory.settings
    with pytest.raises(PeerError) as refused:
        call.session.receive(Configure(changes, timeline=True))
    assert refused.value.code == "bad_event"
    assert found in str(refused.value)
    assert call.session.memory.settings is before
    assert call.session._hearing.activity.settings is before.turn
    assert not call.session.timeline.is_wanted
    assert call.listen(0.29) == []
    call.listen(0.02)
    assert call.stages.last("speech").text == "Good morning."


@pytest.mark.parametrize("changes", [{"greeting": "Hi."}, {"idle_s": 1.0}])
def test_what_the_agent_cannot_say_is_refused(changes: dict[str, Any]) -> None:
    call = Call(settings(speak=None))
    with pytest.raises(PeerError, match="speak is missing"):
        call.session.receive(Configure(changes))


@pytest.mark.parametrize("way", STATES)
def test_settings_may_come_in_every_state(way: Way) -> None:
    call = come(way)
    call.session.receive(Configure({"instructions": "Be brief.", "turn": {"draft": False}}, timeline=True))
    assert call.state() is STATES[way]
    assert call.session.memory.settings.instructions == "Be brief."


# The timeline


def test_a_client_that_wants_it_gets_a_timeline_after_each_reply_in_the_order_of_time_and_without_words() -> None:
    call = Call()
    call.send(Configure({}, timeline=True))
    call.hear(TURN)
    call.stages.last("asr").finish(Transcript("secret question"))
    thinker = call.stages.last("thinker")
    thinker.bring(spoken("secret answer", 300))
    thinker.finish()
    told = events(call.listen(1.0))
    assert [type(event) for event in told[-2:]] == [ReplyDone, TurnTimeline]
    timeline = told[-1]
    assert isinstance(timeline, TurnTimeline)
    assert "secret" not in str(timeline)
    assert [at_ms for at_ms, _, _ in timeline.entries] == sorted(at_ms for at_ms, _, _ in timeline.entries)
    names = [what for _, what, _ in timeline.entries]
    for first, then in (
        ("SpeechStarted", "SpeechStopped"),
        ("SpeechStopped", "TranscriptReady"),
        ("ReplyText", "ReplyDone"),
    ):
        assert names.index(first) < names.index(then)
    assert timeline.entries[names.index("SpeechStarted")][0] == pytest.approx(96)
    assert ("TranscriptReady", {"characters": 15}) in [entry[1:] for entry in timeline.entries]
    call.send(TypedText("another"))
    call.stages.last("thinker").finish()
    second = [event for event in events(call.outputs()) if isinstance(event, TurnTimeline)]
    assert "SpeechStarted" not in [what for _, what, _ in second[0].entries]
    assert ("ReplyStarted", {"reply": "r2"}) in [entry[1:] for entry in second[0].entries]


def test_a_timeline_holds_what_the_turn_machine_was_given_and_the_state_after_it() -> None:
    call = Call()
    call.send(Configure({}, timeline=True))
    thinker = call.answered("Hi there. ", 300)
    call.hear("VV....")
    call.stages.last("asr").finish(Transcript("mm-hm"))
    thinker.finish()
    given = [(what, details["state"]) for _, what, details in timeline(call.listen(1.0)) if "state" in details]
    assert given == [
        ("voice", "hearing"),
        ("silence", "maybe_done"),
        ("pause", "maybe_done"),
        ("turn_over", "thinking"),
        ("reply_sound", "speaking"),
        ("voice", "held"),
        ("silence", "held"),
        ("pause", "held"),
        ("keep", "speaking"),
        ("reply_sound", "speaking"),
    ]


def test_a_timeline_holds_when_each_stage_of_a_reply_brought_its_first_result() -> None:
    call = Call()
    call.send(Configure({}, timeline=True))
    begun_s = call.clock.now_s
    thinker = call.ask()
    marked = {}
    for stage in ("thinker", "text", "speech"):
        call.listen(0.1)
        thinker.mark(stage)
        marked[stage] = round((call.clock.now_s - begun_s) * 1000, 1)
    thinker.bring(spoken("Hi.", 100))
    thinker.finish()
    entries = timeline(call.listen(1.0))
    assert {what: at_ms for at_ms, what, details in entries if what in marked and details == {"reply": "r1"}} == marked


def timeline(outputs: list[Output]) -> list[tuple[float, str, dict[str, Any]]]:
    return next(event.entries for event in events(outputs) if isinstance(event, TurnTimeline))


def test_without_asking_for_it_nobody_gets_a_timeline_and_it_does_not_grow_for_ever() -> None:
    call = Call()
    for _ in range(700):
        call.send(TypedText("Why?"))
        call.stages.last("thinker").finish()
        assert TurnTimeline not in kinds(call.outputs())
    assert len(call.session.timeline.take().entries) == 1_000


def test_a_repetition_that_is_cut_early_leaves_the_whole_answer() -> None:
    call = Call(GREETING)
    thinker = call.answered("One two. ", 500)
    thinker.bring(spoken("Three four.", 500))
    thinker.finish()
    call.listen(2.0)
    call.send(TypedText("Say that again."))
    call.stages.last("speech").bring(spoken("One two. ", 500))
    call.listen(0.1)
    call.send(Interrupt())
    call.send(TypedText("Say that again."))
    assert call.stages.last("speech").text == "One two. Three four."
