"""A caller behind a carrier, live: speaks in real time, hears what the carrier plays, presses keys, hangs up.

Used by `voice-runtime dial` and the tests.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.carrier.base import Terms, Wire
from voice_runtime.carrier.earpiece import Earpiece, Heard, sound
from voice_runtime.carrier.leg import Happened, Leg
from voice_runtime.carrier.links import Link, opened
from voice_runtime.carrier.registry import SIDES

Clock = Callable[[], float]


@dataclass(slots=True)
class Call:
    """Enter it through `dial`. Times are of `clock`.

    late_s: so long the agent's messages take.
    said: the caller's sound as it was sent. ended_by: "agent" or "caller" once the call is over. reason: the agent's,
    where its connection tells one. unheard_s: of the agent's sound that waited when the call ended, and was lost.
    """

    leg: Leg
    clock: Clock
    _link: Link
    late_s: float = 0.0
    said: list[Heard] = field(default_factory=list)
    ended_by: str | None = None
    reason: str = ""
    unheard_s: float = 0.0
    _to_say: deque[Samples] = field(default_factory=deque)  # in frames
    _due: deque[Wire] = field(default_factory=deque)  # to be sent, in order
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)

    # What the caller does

    async def say(self, samples: Samples, rate_hz: int) -> None:
        """Speak, in real time; returns when the last of it was sent. Silence is sent before and after by itself.

        samples: float32, shape (T,), at `rate_hz`, which may be any.
        """
        audio = self.leg.side.audio
        resampler = Resampler(rate_hz, audio.rate_hz)
        line = np.concatenate([resampler.push(samples), resampler.flush()])
        line = np.pad(line, (0, -line.size % audio.frame_samples))
        self._to_say.extend(line.reshape(-1, audio.frame_samples))
        await self._until(lambda: 0.0 if not self._to_say else float("inf"), "the end of what is said", None)

    async def press(self, keys: str) -> None:
        for key in keys:
            self.leg.note("key", self.clock(), key)
            await self._send(self.leg.side.key(key))

    async def hang_up(self) -> None:
        await self._send(self.leg.side.stop())
        self._end("caller")
        await self._link.close()

    def drop(self) -> None:
        """The connection is gone without a word."""
        self._end("caller")
        self._link.drop()

    # What the caller hears

    @property
    def heard(self) -> list[Heard]:
        """All of the agent's sound up to now, in order of time."""
        if self.ended_by is None:
            self._advance()
        return self.leg.earpiece.heard

    def sound(self, start_s: float, end_s: float) -> Samples:
        """What the caller heard between two times, silence included: float32, shape (T,), at `rate_hz`."""
        return sound(self.heard, self.rate_hz, start_s, end_s)

    @property
    def rate_hz(self) -> int:
        return self.leg.side.audio.rate_hz

    @property
    def faults(self) -> list[str]:
        return self.leg.faults

    async def wait_heard(self, seconds: float, timeout_s: float = 30.0) -> None:
        """Until so much of the agent's sound was heard in all. Raises TimeoutError or ConnectionError, as all here."""
        earpiece = self.leg.earpiece

        def left_s() -> float:
            missing_s = seconds - earpiece.heard_s
            return missing_s if missing_s <= 0 or earpiece.is_speaking else float("inf")

        await self._until(left_s, f"{seconds:g} s of sound", timeout_s)

    async def wait_speaking(self, timeout_s: float = 30.0) -> None:
        """Until the agent is heard."""
        await self._until(
            lambda: 0.0 if self.leg.earpiece.is_speaking else float("inf"), "the agent's voice", timeout_s
        )

    async def wait_silent(self, for_s: float = 0.0, timeout_s: float = 30.0) -> None:
        """Until nothing has been heard for so long, or nothing yet."""
        earpiece = self.leg.earpiece

        def left_s() -> float:
            if earpiece.is_speaking:
                return earpiece.queued_s + for_s
            return earpiece.silent_since_s + for_s - self.clock()

        await self._until(left_s, f"{for_s:g} s of silence", timeout_s)

    async def wait_for(self, what: str, count: int = 1, timeout_s: float = 30.0) -> float:
        """Until something, see `Happened`, has happened so often; when the last of it did."""
        await self._until(lambda: 0.0 if len(self.leg.at(what)) >= count else float("inf"), what, timeout_s)
        return self.leg.at(what)[count - 1]

    async def wait_ended(self, timeout_s: float = 30.0) -> None:
        """Until the call is over."""
        await self._until(lambda: 0.0 if self.ended_by else float("inf"), "the end of the call", timeout_s)

    async def _until(self, left_s: Callable[[], float], what: str, timeout_s: float | None) -> None:
        """left_s: 0 or less when it is so, else seconds until it may be."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self.ended_by is None:
                        self._advance()
                    self._news.clear()
                    if (wait_s := left_s()) <= 0:
                        return
                    if self.ended_by is not None:
                        raise ConnectionError(f"the {self.ended_by} has ended the call ({self.reason}) before {what}")
                    await _wait(self._news, wait_s)
        except TimeoutError:
            came = [happened.what for happened in self.leg.happened[-20:]]
            raise TimeoutError(f"{what} did not come within {timeout_s} s; came: {came}") from None

    # The line

    async def read(self) -> None:
        """Take what the agent sends, until the connection ends."""
        async for message in self._arriving():
            if self.ended_by is not None:
                continue
            self._due += self.leg.take(message, self.clock())
            self._stir()
            if self.leg.agent_hung_up:
                self._end("agent")
                await self._link.close()
        self.reason = self._link.reason
        self._end("agent")

    async def _arriving(self) -> AsyncIterator[Wire]:
        """The agent's messages, each `late_s` after it came; the end of the connection too."""
        came: asyncio.Queue[tuple[float, Wire | None]] = asyncio.Queue()

        async def receive() -> None:
            async for message in self._link.messages():
                came.put_nowait((self.clock(), message))
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
            self._advance()
            while self._due:
                await self._link.send(self._due.popleft())
            await _wait(self._stirred, self.leg.earpiece.wait_s())

    async def speak(self) -> None:
        """Send a frame each time that one is due: what is to be said, else silence."""
        audio = self.leg.side.audio
        silence = np.zeros(audio.frame_samples, np.float32)
        next_s = self.clock()
        while self.ended_by is None:
            frame = self._to_say.popleft() if self._to_say else silence
            data = audio.encode(frame)
            if frame is not silence:
                self.said.append(Heard(self.clock(), audio.decode(data)))
            await self._send(self.leg.side.caller(data))
            if not self._to_say:
                self._news.set()
            next_s += audio.frame_ms / 1_000
            await asyncio.sleep(max(0.0, next_s - self.clock()))

    async def _send(self, messages: Sequence[Wire]) -> None:
        for message in messages:
            await self._link.send(message)

    def _advance(self) -> None:
        """What is heard by now; what the agent is told of it is left to `play`."""
        known = len(self.leg.happened)
        self._due += self.leg.advance(self.clock())
        if len(self.leg.happened) > known:
            self._stir()

    def _stir(self) -> None:
        self._stirred.set()
        self._news.set()

    def _end(self, who: str) -> None:
        if self.ended_by is None:
            now_s = self.clock()
            self.leg.advance(now_s)
            self.unheard_s = self.leg.earpiece.queued_s
            self.leg.earpiece.drop(now_s)
            self.ended_by = who
            self.leg.note("ended", now_s, f"by the {who}")
        self._stir()


@contextlib.asynccontextmanager
async def dial(  # noqa: PLR0913 - what a call is set up with, each by its name
    url: str,
    protocol: str,
    parameters: Mapping[str, str] | None = None,
    *,
    rate_hz: int | None = None,
    seed: int | None = None,
    headers: Mapping[str, str] | None = None,
    late_s: float = 0.0,
    on_event: Callable[[Happened], None] = lambda happened: None,
    clock: Clock = time.monotonic,
) -> AsyncIterator[Call]:
    """Call an agent as a carrier does; hangs up at the end.

    url: ws://host:port/path, or tcp://host:port for AudioSocket. protocol: a name in `SIDES`.
    parameters, rate_hz, seed: see `Terms`. headers: of the handshake, such as Authorization.
    late_s: so long the agent's messages take to a distant carrier, and the caller's none.

    Raises:
        OSError, websockets.exceptions.InvalidHandshake: nobody is there, or refuses the carrier.
    """
    side = SIDES[protocol](Terms(dict(parameters or {}), rate_hz, seed))
    leg = Leg(side, Earpiece(side.audio.rate_hz, side.queue), on_event)
    async with opened(url, headers or {}) as link:
        call = Call(leg, clock, link, late_s)
        # No TaskGroup: it would wrap what the body raises, and the body is the user's.
        running = [asyncio.create_task(call.read())]
        try:
            for message in side.begin():
                await link.send(message)
            running += [asyncio.create_task(call.play()), asyncio.create_task(call.speak())]
            yield call
            if call.ended_by is None:
                await call.hang_up()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == float("inf") else seconds):
            await event.wait()
