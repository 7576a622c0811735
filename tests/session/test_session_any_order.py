"""A session under anything that a caller, a client and the stages may do, in any order and at any time."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.support.call import SETTINGS, Call, Output, settings, spoken
from tests.support.played_stages import Asked
from voice_runtime.pipeline.config import SessionSettings, TurnSettings
from voice_runtime.session.events import (
    AgentAudio,
    Configure,
    Flush,
    Interrupt,
    Pause,
    Played,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Resume,
    SpeechStarted,
    SpeechStopped,
    Timing,
    TypedText,
)
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Heard, Transcript, TurnEnd, Utterance

TEXTS = ["", "yeah", "stop", "hello there", "I would like to and", "say that again"]
CHATTY = settings(greeting="Good morning.", idle_s=3.0, idle_prompts=("Hello?",))
SHORT = settings(turn=TurnSettings(longest_turn_s=1.0, interrupt_ms=600, end_silence_ms=200, likely_end_silence_ms=160))
NO_DRAFT = settings(judge_turn=None, turn=TurnSettings(draft=False))


@dataclass
class Client:
    """Checks each thing that it is sent against what came before."""

    caller_speaks: bool = False
    reply: str | None = None
    paused: bool = False
    captioned: bool = False  # by the last output

    def take(self, output: Output) -> None:
        if self.captioned:  # words come with their sound, or at the end of a reply without it
            assert isinstance(output, AgentAudio | Timing | ReplyDone)
        self.captioned = isinstance(output, ReplyText)
        match output:
            case AgentAudio():
                assert self.reply is not None
                assert not self.paused
            case SpeechStarted():
                assert not self.caller_speaks
                self.caller_speaks = True
            case SpeechStopped():
                assert self.caller_speaks
                self.caller_speaks = False
            case ReplyStarted(reply):
                assert self.reply is None
                self.reply, self.paused = reply, False
            case Pause(reply):
                assert reply == self.reply
                assert not self.paused
                self.paused = True
            case Resume(reply):
                assert reply == self.reply
                assert self.paused
                self.paused = False
            case ReplyText(reply) | Flush(reply):
                assert reply == self.reply
            case ReplyDone(reply):
                assert reply == self.reply
                self.reply = None


def answer(asked: Asked, number: int) -> None:
    """Something that its stage may bring: a part, the whole, or a failure."""
    kind = number % 4
    if kind == 0:
        asked.fail("broken")
    elif isinstance(asked.payload, Utterance):
        asked.finish(Transcript(TEXTS[number // 4 % len(TEXTS)]))
    elif isinstance(asked.payload, Heard):
        asked.finish(TurnEnd(number % 11 / 10))
    elif kind == 1:
        asked.finish()
    else:
        asked.bring(spoken("One two. " if kind == 2 else "", 20 * (number % 60)))


def act(call: Call, kind: str, number: int) -> list[Output]:
    match kind:
        case "voice":
            return call.hear("V" * (1 + number % 30))
        case "silence":
            return call.hear("." * (1 + number % 30))
        case "mixed":
            return call.hear(f"{number:08b}".replace("1", "V").replace("0", "."))
        case "time":
            return call.listen(number / 60)
        case "stage":
            if live := call.stages.live():
                answer(live[number % len(live)], number // 3)
            return call.outputs()
        case "typed":
            return call.send(TypedText(f"Question {number}"))
        case "interrupt":
            return call.send(Interrupt())
        case "played":
            return call.send(Played(f"r{1 + number % 3}", number * 5.0))
        case _:
            changes: list[dict[str, Any]] = [
                {"instructions": "Be brief."},
                {"greeting": "Hi."},
                {"idle_s": 1.0},
                {"turn": {"draft": False}},
            ]
            return call.send(Configure(changes[number % 4], timeline=number % 2 == 0))


KINDS = (
    ["voice"] * 4 + ["silence"] * 4 + ["stage"] * 8 + ["mixed", "time", "time", "typed", "interrupt", "played", "set"]
)
actions = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 255)), max_size=40)


def without_idle_time(steps: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The same, of which none lets the agent hang up."""
    return [(kind, number) for kind, number in steps if kind != "set" or number % 4 != 2]


def check(call: Call) -> None:
    activity, state = call.session._hearing.activity, call.state()
    if state in (State.HEARING, State.MAYBE_DONE):
        assert activity.in_turn
    elif state is not State.HELD:
        assert not activity.in_turn
    elif not activity.in_turn:  # the turn is over: whoever is to judge it is at work
        assert call.stages.of("asr")[-1] in call.stages.live()
    if state in (State.LISTENING, State.CLOSED):
        assert [asked.stage for asked in call.stages.live() if asked.stage != "asr"] == []
    working = [asked.stage for asked in call.stages.live()]
    assert working.count("thinker") + working.count("speech") <= 1
    assert working.count("turn_end") <= 1
    assert call.session.wait_s() > 0 or call.session.wake.is_set()


@examples(max_examples=150, deadline=None)
@given(chosen=st.sampled_from([SETTINGS, CHATTY, SHORT, NO_DRAFT]), steps=actions)
def test_whatever_happens_the_session_holds_its_rules_and_once_closed_nothing_is_live(
    chosen: SessionSettings, steps: list[tuple[str, int]]
) -> None:
    call, client = Call(chosen), Client()
    for kind, number in steps:
        for output in act(call, kind, number):
            client.take(output)
        check(call)
    call.session.close()
    for output in call.outputs():
        client.take(output)
    assert call.stages.live() == []
    assert client.reply is None
    assert (call.state(), call.session.wait_s()) == (State.CLOSED, float("inf"))


@examples(max_examples=60, deadline=None)
@given(chosen=st.sampled_from([SETTINGS, SHORT, NO_DRAFT]), steps=actions.map(without_idle_time))
def test_whatever_has_happened_a_session_whose_stages_answer_comes_to_rest_and_hears_the_next_question(
    chosen: SessionSettings, steps: list[tuple[str, int]]
) -> None:
    call = Call(chosen)
    for kind, number in steps:
        act(call, kind, number)
    for _ in range(12):
        call.hear("." * 60)
        for asked in call.stages.live():
            asked.finish(Transcript("") if isinstance(asked.payload, Utterance) else None)
        call.listen(10.0)
    assert call.state() is State.LISTENING
    assert call.stages.live() == []
    call.send(TypedText("Are you well?"))
    assert call.prompt()[-1][1].endswith("Are you well?")
