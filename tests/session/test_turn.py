"""The turn machine: what every input does in every state, and the rules that no walk breaks."""

import contextlib
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.session import turn
from voice_runtime.session.turn import Effect, IllegalInputError, Input, State, TurnMachine

S, On, Do = State, Input, Effect
AGENTS = (S.THINKING, S.SPEAKING, S.HELD, S.CLOSING)  # there is a reply, or one is coming
IN_TURN = (S.HEARING, S.MAYBE_DONE)
OPEN = [state for state in State if state is not S.CLOSED]


def after(state: State, given: Input) -> tuple[State, tuple[Effect, ...]] | None:
    """State and effects of one input; None when it is refused."""
    machine = TurnMachine(state)
    try:
        effects = machine.on(given)
    except IllegalInputError:
        assert machine.state is state
        return None
    return machine.state, effects


@pytest.mark.parametrize(("state", "given"), list(product(State, Input)))
def test_every_input_in_every_state_is_in_the_table_or_changes_nothing_or_is_refused_by_name(
    state: State, given: Input
) -> None:
    found = after(state, given)
    assert ((state, given) in turn._TABLE) + ((state, given) in turn._NOTHING) == (found is not None)
    if (state, given) in turn._NOTHING:
        assert found == (state, ())
    if found is None:
        with pytest.raises(IllegalInputError, match=f"{given.name} came in state {state.name}"):
            TurnMachine(state).on(given)


@pytest.mark.parametrize("state", [S.THINKING, S.SPEAKING, S.CLOSING])
def test_voice_over_a_reply_holds_it_and_ends_nothing(state: State) -> None:
    assert after(state, On.VOICE) == (S.HELD, (Do.HOLD,))


def test_a_held_reply_is_ended_only_by_whoever_wants_the_floor() -> None:
    assert after(S.HELD, On.YIELD) == (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED))
    assert after(S.HELD, On.INTERRUPT) == (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED))
    assert after(S.HELD, On.KEEP) == (S.SPEAKING, (Do.DROP_OVERLAP, Do.RESUME))
    assert after(S.HELD, On.VOICE) == after(S.HELD, On.SILENCE) == (S.HELD, ())
    assert after(S.HELD, On.PAUSE) == after(S.HELD, On.TURN_OVER) == (S.HELD, (Do.JUDGE,))


def test_only_a_goodbye_that_was_heard_without_a_break_hangs_up() -> None:
    assert after(S.CLOSING, On.REPLY_OVER) == (S.CLOSED, (Do.HANG_UP,))
    assert after(S.CLOSING, On.INTERRUPT) == (S.LISTENING, (Do.ABORT_REPLY,))
    machine = TurnMachine(S.CLOSING)
    effects = [effect for given in (On.VOICE, On.KEEP, On.REPLY_OVER) for effect in machine.on(given)]
    assert effects == [Do.HOLD, Do.DROP_OVERLAP, Do.RESUME]
    assert machine.state is S.LISTENING


@pytest.mark.parametrize("state", IN_TURN)
def test_a_turn_ends_in_an_answer(state: State) -> None:
    assert after(state, On.TURN_OVER) == (S.THINKING, (Do.CALLER_STOPPED, Do.ANSWER))


def test_a_draft_is_begun_in_a_pause_and_dropped_when_the_caller_goes_on() -> None:
    assert after(S.MAYBE_DONE, On.PAUSE) == (S.MAYBE_DONE, (Do.DRAFT,))
    assert after(S.MAYBE_DONE, On.VOICE) == (S.HEARING, (Do.DROP_DRAFT,))


@pytest.mark.parametrize("state", OPEN)
def test_a_typed_question_is_answered_in_every_state_and_drops_what_it_replaces(state: State) -> None:
    dropped: dict[State, tuple[Effect, ...]] = {
        S.LISTENING: (),
        S.HEARING: (Do.CALLER_STOPPED, Do.DROP_HEARD),
        S.MAYBE_DONE: (Do.CALLER_STOPPED, Do.DROP_DRAFT, Do.DROP_HEARD),
        S.HELD: (Do.ABORT_REPLY, Do.DROP_HEARD),
    }
    expected = (*dropped.get(state, (Do.ABORT_REPLY,)), Do.ANSWER_TYPED)
    assert after(state, On.TYPED) == (S.THINKING, expected)


@pytest.mark.parametrize("state", OPEN)
def test_an_interrupt_silences_a_reply_and_is_nothing_to_anybody_else(state: State) -> None:
    found = after(state, On.INTERRUPT)
    assert found is not None
    assert (Do.ABORT_REPLY in found[1]) == (state in AGENTS)
    assert found[0] not in AGENTS
    if state not in AGENTS:
        assert found == (state, ())


@pytest.mark.parametrize("state", OPEN)
def test_a_lost_connection_frees_everything_in_every_state(state: State) -> None:
    assert after(state, On.CLOSE) == (S.CLOSED, (Do.ABORT_REPLY, Do.DROP_DRAFT, Do.DROP_HEARD))


@pytest.mark.parametrize("state", OPEN)
def test_the_agent_says_its_own_only_while_nobody_has_the_floor(state: State) -> None:
    assert (after(state, On.SAY) is not None) == (after(state, On.GOODBYE) is not None) == (state is S.LISTENING)


def test_a_closed_machine_takes_nothing_more() -> None:
    assert all(after(S.CLOSED, given) is None for given in Input)


def test_a_conversation_with_a_pause_a_cough_and_an_interruption_goes_this_way() -> None:
    machine = TurnMachine()
    question = [On.VOICE, On.SILENCE, On.PAUSE, On.VOICE, On.SILENCE, On.PAUSE, On.TURN_OVER]
    cough = [On.REPLY_SOUND, On.REPLY_SOUND, On.VOICE, On.SILENCE, On.PAUSE, On.KEEP]
    interruption = [On.VOICE, On.REPLY_SOUND, On.YIELD]
    effects = [effect for given in question + cough + interruption for effect in machine.on(given)]
    assert effects == [
        *(Do.CALLER_STARTED, Do.DRAFT, Do.DROP_DRAFT, Do.DRAFT, Do.CALLER_STOPPED, Do.ANSWER),
        *(Do.HOLD, Do.JUDGE, Do.DROP_OVERLAP, Do.RESUME),
        *(Do.HOLD, Do.ABORT_REPLY, Do.CALLER_STARTED),
    ]
    assert machine.state is S.HEARING


@dataclass
class Floor:
    """Who speaks, as the effects tell it."""

    caller_speaks: bool = False
    replying: bool = False
    held: bool = False
    hung_up: bool = False

    def apply(self, effect: Effect) -> None:
        match effect:
            case Do.CALLER_STARTED:
                assert not self.caller_speaks
                assert not self.replying
                self.caller_speaks = True
            case Do.CALLER_STOPPED:
                assert self.caller_speaks
                self.caller_speaks = False
            case Do.ANSWER | Do.ANSWER_TYPED | Do.SAY:
                assert not self.replying
                assert not self.caller_speaks
                self.replying = True
            case Do.HOLD:
                assert self.replying
                assert not self.held
                self.held = True
            case Do.RESUME:
                assert self.held
                self.held = False
            case Do.ABORT_REPLY:
                self.replying = self.held = False
            case Do.HANG_UP:
                assert not self.hung_up
                self.hung_up = True

    def take(self, machine: TurnMachine, given: Input) -> None:
        effects = machine.on(given)
        if given is On.REPLY_OVER:
            self.replying = self.held = False
        for effect in effects:
            self.apply(effect)


@given(walk=st.lists(st.sampled_from(list(Input)), max_size=80))
def test_on_any_walk_starts_and_stops_alternate_one_reply_is_made_at_once_and_a_held_one_is_let_go(
    walk: list[Input],
) -> None:
    machine, floor = TurnMachine(), Floor()
    for given_input in walk:
        with contextlib.suppress(IllegalInputError):
            floor.take(machine, given_input)
        assert floor.replying == (machine.state in AGENTS)
        assert floor.held == (machine.state is S.HELD)
        assert floor.caller_speaks == (machine.state in IN_TURN) or machine.state is S.CLOSED
        assert not floor.hung_up or machine.state is S.CLOSED
