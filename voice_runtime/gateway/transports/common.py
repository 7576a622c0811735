"""What every transport needs: limits on what a client sends, and a session's outputs in order."""

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

from voice_runtime.errors import PeerError
from voice_runtime.session.events import AgentAudio, SessionEvent
from voice_runtime.session.session import Session
from voice_runtime.session.turn import State

# Caller audio may come faster than real time for a moment (a stalled network catching up), not for long.
BURST_S = 10.0
EVENT_S = 0.02  # what an event counts for: 50 a second; a client reports what it has played 10 times a second
MOST_BAD_EVENTS = 20


@dataclass(slots=True)
class Allowance:
    """A leaky bucket: real time on average, `BURST_S` ahead of it at most. Sans-IO.

    code: of the error when it is overdrawn: "too_much_audio" or "too_many_events".
    """

    code: str
    since_s: float
    received_s: float = 0.0

    def take(self, seconds: float, now_s: float) -> None:
        """Raises PeerError."""
        self.received_s = max(self.received_s, now_s - self.since_s - BURST_S) + seconds
        ahead_s = self.received_s - (now_s - self.since_s)
        if ahead_s > BURST_S:
            raise PeerError(self.code, f"{ahead_s:.1f} s ahead of real time, expected at most {BURST_S:g} s")


class HungUp(Exception):
    """The session is over, and its connection with it; the text is the reason."""


async def carry(
    session: Session, longest_s: float, *work: Coroutine[Any, Any, None], leaving: tuple[type[Exception], ...] = ()
) -> Exception:
    """Run a connection's tasks until one of them ends it, then close its session; why it ended.

    That is a PeerError (session_too_long, when it is over after longest_s), a HungUp, or one of `leaving`, by which a
    transport says that the client has left: it tells more than what failed because of that. Faults of ours are raised.
    """
    try:
        async with asyncio.timeout(longest_s), asyncio.TaskGroup() as tasks:
            for one in work:
                tasks.create_task(one)
        return HungUp("ended")
    except TimeoutError:
        return PeerError("session_too_long", f"{longest_s:g} s are over, the limit")
    except ExceptionGroup as group:
        if group.split((PeerError, HungUp, *leaving))[1] is not None:
            raise
        return next((error for error in group.exceptions if isinstance(error, leaving)), group.exceptions[0])
    finally:
        session.close()


async def outputs(session: Session) -> AsyncIterator[SessionEvent | AgentAudio]:
    """What a session gives to its client, as it comes; sound of a reply that was cut meanwhile is left out.

    Raises:
        HungUp: somebody else goes on with the conversation.
    """
    while True:
        session.wake.clear()
        output = session.next_output()
        if output is None and session.state is State.CLOSED:
            raise HungUp("resumed_elsewhere")
        if output is None:
            await wait(session.wake, session.wait_s())
        elif not isinstance(output, AgentAudio) or output.epoch == session.epoch:
            yield output


async def wait(wake: asyncio.Event, longest_s: float) -> None:
    """For the event, or so long; inf: only for the event."""
    try:
        async with asyncio.timeout(None if math.isinf(longest_s) else longest_s):
            await wake.wait()
    except TimeoutError:
        pass
