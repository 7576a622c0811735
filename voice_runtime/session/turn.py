"""The turn machine: who has the floor. Sans-IO: no clock, no socket, no model.

Voice while the agent answers does not end the answer: it holds it, until it is known whether the caller wants the floor
(YIELD) or only coughed or agreed (KEEP). A turn is over only once, by silence, by a typed question or by its longest
length. A pair of state and input that is in neither table cannot occur: it raises.
"""

from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    LISTENING = auto()  # nobody speaks
    HEARING = auto()  # the caller speaks
    MAYBE_DONE = auto()  # the caller is silent and may go on
    THINKING = auto()  # the turn is over, the reply has no sound yet
    SPEAKING = auto()  # the agent speaks
    HELD = auto()  # the agent has paused, or waits with its reply: somebody may be interrupting
    CLOSING = auto()  # the agent says goodbye
    CLOSED = auto()


class Input(Enum):
    VOICE = auto()  # the caller has begun to speak, or goes on after a pause
    SILENCE = auto()  # the caller has fallen silent
    PAUSE = auto()  # for so long that the words so far may be looked at
    TURN_OVER = auto()  # silence has lasted long enough, or the turn is too long
    YIELD = auto()  # the caller wants the floor
    KEEP = auto()  # what was heard over the agent's reply was no interruption
    TYPED = auto()  # a typed question has come
    SAY = auto()  # the agent has something of its own to say: a greeting, a question whether anybody is there
    GOODBYE = auto()  # the same, and it is the last
    REPLY_SOUND = auto()  # the reply's first sound is there
    REPLY_OVER = auto()  # the reply is played, has failed, or there is none
    INTERRUPT = auto()  # the client asks for silence
    CLOSE = auto()  # the connection is gone


class Effect(Enum):
    CALLER_STARTED = auto()
    CALLER_STOPPED = auto()
    DRAFT = auto()  # begin a reply to the words so far, in case that they are all
    DROP_DRAFT = auto()  # they were not
    HOLD = auto()  # fall silent and keep everything
    RESUME = auto()  # go on from the same sample
    JUDGE = auto()  # find out from what was said over the reply
    ABORT_REPLY = auto()
    ANSWER = auto()  # the draft becomes the reply, or one is begun to what was heard
    ANSWER_TYPED = auto()  # begin a reply to what was typed
    SAY = auto()  # begin to say what is the agent's own
    DROP_HEARD = auto()  # forget the caller's unfinished turn
    DROP_OVERLAP = auto()  # forget what was said over the reply
    HANG_UP = auto()  # the goodbye was heard


S, On, Do = State, Input, Effect
_Next = tuple[State, tuple[Effect, ...]]

_TABLE: dict[tuple[State, Input], _Next] = {
    (S.LISTENING, On.VOICE): (S.HEARING, (Do.CALLER_STARTED,)),
    (S.LISTENING, On.TYPED): (S.THINKING, (Do.ANSWER_TYPED,)),
    (S.LISTENING, On.SAY): (S.THINKING, (Do.SAY,)),
    (S.LISTENING, On.GOODBYE): (S.CLOSING, (Do.SAY,)),
    (S.HEARING, On.SILENCE): (S.MAYBE_DONE, ()),
    (S.HEARING, On.TURN_OVER): (S.THINKING, (Do.CALLER_STOPPED, Do.ANSWER)),
    (S.HEARING, On.TYPED): (S.THINKING, (Do.CALLER_STOPPED, Do.DROP_HEARD, Do.ANSWER_TYPED)),
    (S.MAYBE_DONE, On.PAUSE): (S.MAYBE_DONE, (Do.DRAFT,)),
    (S.MAYBE_DONE, On.VOICE): (S.HEARING, (Do.DROP_DRAFT,)),
    (S.MAYBE_DONE, On.TURN_OVER): (S.THINKING, (Do.CALLER_STOPPED, Do.ANSWER)),
    (S.MAYBE_DONE, On.TYPED): (S.THINKING, (Do.CALLER_STOPPED, Do.DROP_DRAFT, Do.DROP_HEARD, Do.ANSWER_TYPED)),
    (S.THINKING, On.VOICE): (S.HELD, (Do.HOLD,)),
    (S.THINKING, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.ANSWER_TYPED)),
    (S.THINKING, On.REPLY_SOUND): (S.SPEAKING, ()),
    (S.THINKING, On.REPLY_OVER): (S.LISTENING, ()),
    (S.THINKING, On.INTERRUPT): (S.LISTENING, (Do.ABORT_REPLY,)),
    (S.SPEAKING, On.VOICE): (S.HELD, (Do.HOLD,)),
    (S.SPEAKING, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.ANSWER_TYPED)),
    (S.SPEAKING, On.REPLY_OVER): (S.LISTENING, ()),
    (S.SPEAKING, On.INTERRUPT): (S.LISTENING, (Do.ABORT_REPLY,)),
    (S.HELD, On.PAUSE): (S.HELD, (Do.JUDGE,)),
    (S.HELD, On.YIELD): (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED)),
    (S.HELD, On.KEEP): (S.SPEAKING, (Do.DROP_OVERLAP, Do.RESUME)),
    (S.HELD, On.TURN_OVER): (S.HELD, (Do.JUDGE,)),
    (S.HELD, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.DROP_HEARD, Do.ANSWER_TYPED)),
    (S.HELD, On.REPLY_OVER): (S.HEARING, (Do.CALLER_STARTED,)),
    (S.HELD, On.INTERRUPT): (S.HEARING, (Do.ABORT_REPLY, Do.CALLER_STARTED)),
    (S.CLOSING, On.VOICE): (S.HELD, (Do.HOLD,)),  # kept, the goodbye is an answer like any other
    (S.CLOSING, On.TYPED): (S.THINKING, (Do.ABORT_REPLY, Do.ANSWER_TYPED)),
    (S.CLOSING, On.REPLY_OVER): (S.CLOSED, (Do.HANG_UP,)),
    (S.CLOSING, On.INTERRUPT): (S.LISTENING, (Do.ABORT_REPLY,)),
    **{
        (state, On.CLOSE): (S.CLOSED, (Do.ABORT_REPLY, Do.DROP_DRAFT, Do.DROP_HEARD))
        for state in State
        if state is not S.CLOSED
    },
}

# What may come but changes nothing: an interrupt while nobody speaks for the agent, silence that goes on, a second
# sound of a reply, a pause so long that the words of it were asked for when the agent was still held.
_NOTHING = {
    (S.LISTENING, On.INTERRUPT),
    (S.HEARING, On.INTERRUPT),
    (S.MAYBE_DONE, On.INTERRUPT),
    (S.SPEAKING, On.REPLY_SOUND),
    (S.HELD, On.REPLY_SOUND),
    (S.CLOSING, On.REPLY_SOUND),
    (S.MAYBE_DONE, On.SILENCE),
    (S.HELD, On.SILENCE),
    (S.HELD, On.VOICE),
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
