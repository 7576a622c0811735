"""A call over its connection: what the agent sends in, what the caller says out, answers when their time has come."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from voice_runtime.audio.pcm import Samples
from voice_runtime.carrier.base import Wire
from voice_runtime.carrier.earpiece import Heard
from voice_runtime.carrier.leg import Leg
from voice_runtime.carrier.links import Link

Clock = Callable[[], float]


@dataclass(slots=True)
class Line:
    """Its tasks are `read`, `play` and `speak`. late_s: so long the agent's messages take.

    to_say: frames that the caller is to say. said: the caller's sound as it was sent.
    ended_by: "agent" or "caller" once the call is over. reason: the agent's, where its connection tells one.
    unheard_s: of the agent's sound that waited when the call ended, and was lost.
    """

    leg: Leg
    link: Link
    clock: Clock
    late_s: float = 0.0
    to_say: deque[Samples] = field(default_factory=deque)
    said: list[Heard] = field(default_factory=list)
    ended_by: str | None = None
    reason: str = ""
    unheard_s: float = 0.0
    _due: deque[Wire] = field(default_factory=deque)  # to be sent, in order
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        """Take what the agent sends, until the connection ends."""
        try:
            async for message in self._arriving():
                if self.ended_by is not None:
                    continue
                self._due += self.leg.take(message, self.clock())
                self._stir()
                if self.leg.agent_hung_up:
                    self.end("agent")
                    await self.link.close()
        finally:
            self.reason = self.link.reason
            self.end("agent")

    async def _arriving(self) -> AsyncIterator[Wire]:
        """The agent's messages, each `late_s` after it came; the end of the connection too."""
        came: asyncio.Queue[tuple[float, Wire | None]] = asyncio.Queue()

        async def receive() -> None:
            try:
                async for message in self.link.messages():
                    came.put_nowait((self.clock(), message))
            finally:
                came.put_nowait((self.clock(), None))

        receiving = asyncio.create_task(receive())
        try:
            while True:
                came_s, message = await came.get()
                if (wait_s := came_s + self.late_s - self.clock()) > 0:
                    await asyncio.sleep(wait_s)
                if message is None:
                    return
                yield message
        finally:
            receiving.cancel()

    async def play(self) -> None:
        """Tell the agent what was played, when it was."""
        while self.ended_by is None:
            self._stirred.clear()
            self.advance()
            while self._due:
                await self.link.send(self._due.popleft())
            await _wait(self._stirred, self.leg.earpiece.wait_s())

    async def speak(self) -> None:
        """Send a frame each time that one is due: what is to be said, else silence."""
        audio = self.leg.side.audio
        silence = np.zeros(audio.frame_samples, np.float32)
        next_s = self.clock()
        while self.ended_by is None:
            frame = self.to_say.popleft() if self.to_say else silence
            data = audio.encode(frame)
            if frame is not silence:
                self.said.append(Heard(self.clock(), audio.decode(data)))
            await self.send(self.leg.side.caller(data))
            if not self.to_say:
                self._news.set()
            next_s += audio.frame_ms / 1_000
            await asyncio.sleep(max(0.0, next_s - self.clock()))

    async def send(self, messages: Sequence[Wire]) -> None:
        for message in messages:
            await self.link.send(message)

    def advance(self) -> None:
        """What is heard by now; what the agent is told of it is left to `play`."""
        if self.ended_by is not None:
            return
        known = len(self.leg.happened)
        self._due += self.leg.advance(self.clock())
        if len(self.leg.happened) > known:
            self._stir()

    def _stir(self) -> None:
        self._stirred.set()
        self._news.set()

    def end(self, who: str) -> None:
        if self.ended_by is None:
            now_s = self.clock()
            self.leg.advance(now_s)
            self.unheard_s = self.leg.earpiece.queued_s
            self.leg.earpiece.drop(now_s)
            self.ended_by = who
            self.leg.note("ended", now_s, f"by the {who}")
        self._stir()

    async def until(self, left_s: Callable[[], float], what: str, timeout_s: float | None) -> None:
        """Wait until something is so. left_s: 0 or less when it is, else seconds until it may be.

        Raises:
            TimeoutError: it did not come so; the message lists what came. ConnectionError: the call has ended.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self.advance()
                    self._news.clear()
                    if (wait_s := left_s()) <= 0:
                        return
                    if self.ended_by is not None:
                        raise ConnectionError(f"the {self.ended_by} has ended the call ({self.reason}) before {what}")
                    await _wait(self._news, wait_s)
        except TimeoutError:
            came = [happened.what for happened in self.leg.happened[-20:]]
            raise TimeoutError(f"{what} did not come within {timeout_s} s; came: {came}") from None


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == float("inf") else seconds):
            await event.wait()
