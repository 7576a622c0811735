"""The turn machine: who has the floor. Sans-IO: no clock, no socket, no model.

Two rules. Voice always wins: whenever the caller speaks, the agent's reply is aborted. A turn is over only once, by
silence, by a typed question or by its longest length. A pair of state and input that is in neither table cannot occur:
it raises.
"""

from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    LISTENING = auto()  # nobody speaks
    HEARING = auto()  # the caller speaks
    PAUSED = auto()  # the caller is silent and may go on
    THINKING = auto()  # the turn is over, the reply has no sound yet
    SPEAKING = auto()  # the agent speaks
    CLOSED = auto()


class Input(Enum):
    VOICE = auto()  # the caller has begun to speak, or goes on after a pause
    SILENCE = auto()  # the caller has fallen silent
    TURN_OVER = auto()  # silence has lasted long enough, or the turn is too long
    TYPED = auto()  # a typed question has come
    REPLY_SOUND = auto()  # the reply's first sound is there
    REPLY_OVER = auto()  # the reply is played, has failed, or there is none
    INTERRUPT = auto()  # the client asks for silence
    CLOSE = auto()  # the connection is gone


class Effect(Enum):
    CALLER_STARTED = auto()
    CALLER_STOPPED = auto()
    ABORT_REPLY = auto()
    RECOGNISE = auto()  # begin a reply to what was heard
    ANSWER_TYPED = auto()  # begin a reply to what was typed
    DROP_HEARD = auto()  # forget the caller's unfinished turn


S, On, Do = State, Input, Effect
_Next = tuple[State, tuple[Effect, ...]]

_TABLE: dict[tuple[State, Input], _Next] = {
    (S.LISTENING, On.VOICE): (S.HEARING, (Do.CALLER_STARTED,)),
    (S.LISTENING, On.TYPED): (S.THINKING, (Do.ANSWER_TYPED,)),
    (S.HEARING, On.SILENCE): (S.PAUSED, ()),
    (S.HEARING, On.TURN_OVER): (S.THINKING, (Do.CALLER_STOPPED, Do.RECOGNISE)),
    (S.HEARING, On.TYPED): (S.THINKING, (Do.CALLER_STOPPED, Do.DROP_HEARD, Do.ANSWER_TYPED)),
    (S.PAUSED, On.VOICE): (S.HEARING, ()),
    (S.PAUSED, On.TURN_OVER): (S.THINKING, (Do.CALLER_STOPPED, Do.RECOGNISE)),
    (S.PAUSED, On.TYPED): (S.THINKING, (Do.CALLER_STOPPED, Do.DROP_HEARD, Do.ANSWER_TYPED)),
    (S.THINKING, On.VOICE): (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED)),
    (S.THINKING, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.ANSWER_TYPED)),
    (S.THINKING, On.REPLY_SOUND): (S.SPEAKING, ()),
    (S.THINKING, On.REPLY_OVER): (S.LISTENING, ()),
    (S.THINKING, On.INTERRUPT): (S.LISTENING, (Do.ABORT_REPLY,)),
    (S.SPEAKING, On.VOICE): (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED)),
    (S.SPEAKING, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.ANSWER_TYPED)),
    (S.SPEAKING, On.REPLY_OVER): (S.LISTENING, ()),
    (S.SPEAKING, On.INTERRUPT): (S.LISTENING, (Do.ABORT_REPLY,)),
    **{(state, On.CLOSE): (S.CLOSED, (Do.ABORT_REPLY, Do.DROP_HEARD)) for state in State if state is not S.CLOSED},
}

# What may come but changes nothing: an interrupt while nobody speaks for the agent, silence that goes on, a second
# sound of a reply.
_NOTHING = {
    (S.LISTENING, On.INTERRUPT),
    (S.HEARING, On.INTERRUPT),
    (S.PAUSED, On.INTERRUPT),
    (S.SPEAKING, On.REPLY_SOUND),
    (S.LISTENING, On.SILENCE),
    (S.THINKING, On.SILENCE),
    (S.SPEAKING, On.SILENCE),
    (S.PAUSED, On.SILENCE),
    (S.HEARING, On.VOICE),
}


class IllegalInputError(Exception):
    """An input that cannot occur in this state: a fault of ours."""


@dataclass(slots=True)
class TurnMachine:
    """Holds the state; `on` moves it and tells what is to be done, in order."""

    state: State = State.LISTENING

    def on(self, given: Input) -> tuple[Effect, ...]:
        """Raises IllegalInputError when `given` is not defined in the present state."""
        if (self.state, given) in _NOTHING:
            return ()
        try:
            self.state, effects = _TABLE[self.state, given]
        except KeyError:
            raise IllegalInputError(f"{given.name} came in state {self.state.name}, which does not take it") from None
        return effects
