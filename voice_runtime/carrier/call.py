"""A caller behind a carrier, live: speaks in real time, hears what the carrier plays, presses keys, hangs up.

Used by `voice-runtime dial` and the tests.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import numpy as np

from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.carrier.base import Terms
from voice_runtime.carrier.earpiece import Earpiece, Heard, sound
from voice_runtime.carrier.leg import Happened, Leg
from voice_runtime.carrier.line import Clock, Line
from voice_runtime.carrier.links import opened
from voice_runtime.carrier.registry import SIDES


@dataclass(frozen=True, slots=True)
class Call:
    """Enter it through `dial`. Times are of `clock`. line: what runs it, and what is known once it is over."""

    line: Line
    leg: Leg
    clock: Clock

    # What the caller does

    async def say(self, samples: Samples, rate_hz: int) -> None:
        """Speak, in real time; returns when the last of it was sent. Silence is sent before and after by itself.

        samples: float32, shape (T,), at `rate_hz`, which may be any.
        """
        audio = self.leg.side.audio
        resampler = Resampler(rate_hz, audio.rate_hz)
        line = np.concatenate([resampler.push(samples), resampler.flush()])
        line = np.pad(line, (0, -line.size % audio.frame_samples))
        self.line.to_say.extend(line.reshape(-1, audio.frame_samples))
        await self.line.until(lambda: 0.0 if not self.line.to_say else float("inf"), "the end of what is said", None)
        self.leg.note("said", self.clock())

    async def press(self, keys: str) -> None:
        for key in keys:
            self.leg.note("key", self.clock(), key)
            await self.line.send(self.leg.side.key(key))

    async def hang_up(self) -> None:
        await self.line.send(self.leg.side.stop())
        self.line.end("caller")
        await self.line.link.close()

    def drop(self) -> None:
        """The connection is gone without a word."""
        self.line.end("caller")
        self.line.link.drop()

    # What the caller hears

    @property
    def heard(self) -> list[Heard]:
        """All of the agent's sound up to now, in order of time."""
        self.line.advance()
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

    @property
    def ended_by(self) -> str | None:
        """ "agent" or "caller" once the call is over."""
        return self.line.ended_by

    async def wait_heard(self, seconds: float, timeout_s: float = 30.0) -> None:
        """Until so much of the agent's sound was heard in all. Raises TimeoutError or ConnectionError, as all here."""
        earpiece = self.leg.earpiece

        def left_s() -> float:
            missing_s = seconds - earpiece.heard_s
            return missing_s if missing_s <= 0 or earpiece.is_speaking else float("inf")

        await self.line.until(left_s, f"{seconds:g} s of sound", timeout_s)

    async def wait_speaking(self, timeout_s: float = 30.0) -> None:
        """Until the agent is heard."""
        earpiece = self.leg.earpiece
        await self.line.until(lambda: 0.0 if earpiece.is_speaking else float("inf"), "the agent's voice", timeout_s)

    async def wait_silent(self, for_s: float = 0.0, timeout_s: float = 30.0) -> None:
        """Until nothing has been heard for so long, or nothing yet."""
        earpiece = self.leg.earpiece

        def left_s() -> float:
            if earpiece.is_speaking:
                return earpiece.queued_s + for_s
            return earpiece.silent_since_s + for_s - self.clock()

        await self.line.until(left_s, f"{for_s:g} s of silence", timeout_s)

    async def wait_for(self, what: str, count: int = 1, timeout_s: float = 30.0) -> float:
        """Until something, see `Happened`, has happened so often; when the last of it did."""
        leg = self.leg
        await self.line.until(lambda: 0.0 if len(leg.at(what)) >= count else float("inf"), what, timeout_s)
        return leg.at(what)[count - 1]

    async def wait_ended(self, timeout_s: float = 30.0) -> None:
        """Until the call is over."""
        await self.line.until(lambda: 0.0 if self.ended_by else float("inf"), "the end of the call", timeout_s)


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
        line = Line(leg, link, clock, late_s)
        # No TaskGroup: it would wrap what the body raises, and the body is the user's.
        running = [asyncio.create_task(line.read())]
        try:
            leg.note("began", clock())
            for message in side.begin():
                await link.send(message)
            running += [asyncio.create_task(line.play()), asyncio.create_task(line.speak())]
            call = Call(line, leg, clock)
            yield call
            if call.ended_by is None:
                await call.hang_up()
        finally:
            for task in running:
                task.cancel()
            results = await asyncio.gather(*running, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
