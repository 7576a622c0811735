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
REPLYING = (S.THINKING, S.SPEAKING)
IN_TURN = (S.HEARING, S.PAUSED)


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


@pytest.mark.parametrize("state", REPLYING)
def test_voice_aborts_the_reply_and_gives_the_caller_the_floor(state: State) -> None:
    assert after(state, On.VOICE) == (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED))


@pytest.mark.parametrize("state", IN_TURN)
def test_a_turn_ends_in_recognition(state: State) -> None:
    assert after(state, On.TURN_OVER) == (S.THINKING, (Do.CALLER_STOPPED, Do.RECOGNISE))


@pytest.mark.parametrize("state", [state for state in State if state is not S.CLOSED])
def test_a_typed_question_is_answered_in_every_state_and_drops_what_it_replaces(state: State) -> None:
    dropped = {S.LISTENING: (), **dict.fromkeys(IN_TURN, (Do.CALLER_STOPPED, Do.DROP_HEARD))}
    expected = (*dropped.get(state, (Do.ABORT_REPLY,)), Do.ANSWER_TYPED)
    assert after(state, On.TYPED) == (S.THINKING, expected)


@pytest.mark.parametrize("state", State)
def test_an_interrupt_silences_a_reply_and_is_nothing_to_anybody_else(state: State) -> None:
    if state is S.CLOSED:
        assert after(state, On.INTERRUPT) is None
    else:
        assert after(state, On.INTERRUPT) == ((S.LISTENING, (Do.ABORT_REPLY,)) if state in REPLYING else (state, ()))


def test_a_closed_machine_takes_nothing_more() -> None:
    assert all(after(S.CLOSED, given) is None for given in Input)


def test_a_conversation_with_a_pause_and_an_interruption_goes_this_way() -> None:
    machine = TurnMachine()
    walk = [On.VOICE, On.SILENCE, On.VOICE, On.SILENCE, On.TURN_OVER, On.REPLY_SOUND, On.REPLY_SOUND, On.VOICE]
    effects = [effect for given in walk for effect in machine.on(given)]
    assert effects == [Do.CALLER_STARTED, Do.CALLER_STOPPED, Do.RECOGNISE, Do.ABORT_REPLY, Do.CALLER_STARTED]
    assert machine.state is S.HEARING


@dataclass
class Floor:
    """Who speaks, as the effects tell it."""

    caller_speaks: bool = False
    replying: bool = False

    def apply(self, effect: Effect) -> None:
        match effect:
            case Do.CALLER_STARTED:
                assert not self.caller_speaks
                assert not self.replying
                self.caller_speaks = True
            case Do.CALLER_STOPPED:
                assert self.caller_speaks
                self.caller_speaks = False
            case Do.RECOGNISE | Do.ANSWER_TYPED:
                assert not self.replying
                self.replying = True
            case Do.ABORT_REPLY:
                self.replying = False
            case Do.DROP_HEARD:
                pass


@given(walk=st.lists(st.sampled_from([given for given in Input if given is not On.CLOSE]), max_size=60))
def test_on_any_walk_starts_and_stops_alternate_and_no_two_replies_are_made_at_once(walk: list[Input]) -> None:
    machine, floor = TurnMachine(), Floor()
    for given_input in walk:
        with contextlib.suppress(IllegalInputError):
            for effect in machine.on(given_input):
                floor.apply(effect)
            floor.replying &= given_input is not On.REPLY_OVER
        assert floor.replying == (machine.state in REPLYING)
        assert floor.caller_speaks == (machine.state in IN_TURN)
    assert machine.on(On.CLOSE) == (Do.ABORT_REPLY, Do.DROP_HEARD)
