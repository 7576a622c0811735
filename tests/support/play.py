"""A call with the real pipeline on a clock of its own: no machine is too slow for it.

The caller's sound reaches a session directly, 20 ms at a time; a loudspeaker plays what the session sends. While no
stage is at work the next 20 ms come at once. While one is, time passes in small steps, each as long as it was meant to
be however late it came, and stands still while a request has given nothing for OWED_S: no result comes later than that.
The pipeline's marks are by another clock: what a play says of a turn's latency means nothing.
"""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import overlaps
from voice_runtime import assets
from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.cli import default_pipeline
from voice_runtime.client import Loudspeaker
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline import wire
from voice_runtime.pipeline.config import SessionSettings, load
from voice_runtime.pipeline.runtime import Listener, Marks, Pipeline, Result
from voice_runtime.pipeline.supervisor import Supervisor
from voice_runtime.schedulers.messages import Chunk
from voice_runtime.session import events
from voice_runtime.session.history import Memory
from voice_runtime.session.recording import Recorder
from voice_runtime.session.session import Session
from voice_runtime.stages.payloads import Payload

RATE_HZ = 16_000
AGENT_HZ = 24_000
TICK_S = 0.02
STEP_S = 0.005
OWED_S = 0.25  # the longest that any result takes, by the call's clock
STUCK_S = 60.0  # by the wall clock; nothing is as slow
REPORT_TICKS = 5
Echo = Callable[[Samples], Samples]  # the agent's sound of 20 ms -> what of it comes back to the microphone
Event = events.SessionEvent


class EchoAtMicrophone:
    """What the caller's microphone, at RATE_HZ, hears of the agent's sound, at AGENT_HZ."""

    def __init__(self, echo: overlaps.Echo) -> None:
        self._path = overlaps.echo_stream(echo, AGENT_HZ)
        self._resampler = Resampler(AGENT_HZ, RATE_HZ)

    def __call__(self, played: Samples) -> Samples:
        return self._resampler.push(self._path.push(played))


@dataclass(slots=True)
class Theatre:
    """A pipeline that is warm, for any number of calls."""

    pipeline: Pipeline
    settings: SessionSettings
    vad: SileroVad

    async def settled(self, within_s: float = STUCK_S) -> dict[str, int]:
        """What the stages hold, all together, once nothing is live any more.

        Raises TimeoutError: something still is.
        """
        end_s = time.monotonic() + within_s
        while True:
            totals: dict[str, int] = (await self.pipeline.resources())["totals"]
            if not totals["live_requests"]:
                return totals
            if time.monotonic() > end_s:
                raise TimeoutError(f"still held: {totals}")

    def call(self, memory: Memory | None = None, recorder: Recorder | None = None, **settings: Any) -> "Call":
        """settings: fields of `SessionSettings` that differ from the pipeline file's."""
        changed = {**{name: getattr(self.settings, name) for name in self.settings.__struct_fields__}, **settings}
        return Call(self.pipeline, SessionSettings(**changed), self.vad, memory, recorder)


@contextlib.asynccontextmanager
async def theatre(pipeline_file: Path | None = None) -> AsyncIterator[Theatre]:
    path = pipeline_file or default_pipeline()
    config = load(path)
    folder = wire.runtime_folder(f"play-{os.getpid()}")
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        stack.enter_context(wire.only_gateway(folder))
        await stack.enter_async_context(Supervisor(config, path, folder))
        pipeline = await stack.enter_async_context(Pipeline(config, folder))
        await pipeline.wait_ready()
        yield Theatre(pipeline, config.session, SileroVad(assets.locate("silero-vad")))


class _Watched:
    """The pipeline, and which requests a session has in it: live, id -> when it gave something, by the call's clock."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float]) -> None:
        self.live: dict[str, float] = {}
        self._pipeline = pipeline
        self._clock = clock
        self.new_id = pipeline.new_id

    @property
    def owes(self) -> bool:
        return any(self._clock() - gave_s >= OWED_S for gave_s in self.live.values())

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks:
        return self._pipeline.submit(entry, request_id, payload, self._watch(request_id, listener))

    def say(self, entry: str, request_id: str, text: str, listener: Listener) -> Marks:
        return self._pipeline.say(entry, request_id, text, self._watch(request_id, listener))

    def abort(self, request_id: str) -> object:
        self.live.pop(request_id, None)
        return self._pipeline.abort(request_id)

    def _watch(self, request_id: str, listener: Listener) -> Listener:
        self.live[request_id] = self._clock()

        def heard(result: Result) -> None:
            if not isinstance(result, Chunk):
                self.live.pop(request_id, None)
            elif request_id in self.live:
                self.live[request_id] = self._clock()
            listener(result)

        return heard


@dataclass(slots=True)
class Moment:
    """Something that the client was told. event: a `SessionEvent`. at_s: when, by the call's clock."""

    at_s: float
    event: Any


@dataclass(slots=True)
class Call:
    """One call.

    told: what the client was told, in order. fenced_samples: sound that came after a flush and before the next reply.
    """

    pipeline: Pipeline
    settings: SessionSettings
    vad: SileroVad
    memory: Memory | None = None
    recorder: Recorder | None = None
    told: list[Moment] = field(default_factory=list)
    loudspeaker: Loudspeaker = field(default_factory=lambda: Loudspeaker(AGENT_HZ))
    fenced_samples: int = 0
    echo: Echo | None = None
    session: Session = field(init=False)
    _began_s: float = field(init=False)
    _stages: _Watched = field(init=False)
    _now_s: float = field(default_factory=time.monotonic)
    _ticks: int = 0
    _line: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    _echo: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    _echoed_s: float | None = None
    _reply: str | None = None
    _is_fenced: bool = True

    def __post_init__(self) -> None:
        self._stages = _Watched(self.pipeline, self.now_s)
        self._began_s = self._now_s
        vad = self.vad.open()
        self.session = Session(
            self._stages,
            self.settings,
            vad,
            RATE_HZ,
            AGENT_HZ,
            clock=self.now_s,
            memory=self.memory,
            recorder=self.recorder,
        )

    async def __aenter__(self) -> "Call":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.session.close()

    def now_s(self) -> float:
        return self._now_s

    # What the caller does

    async def say(self, samples: Samples) -> None:
        """Speak; returns when the last of it was sent."""
        self.begin_to_say(samples)
        await self.until(lambda: not self._line.size)

    def begin_to_say(self, samples: Samples) -> None:
        """The same, without waiting."""
        self._line = np.concatenate([self._line, samples])

    async def ask(self, samples: Samples, after_ms: int = 0) -> None:
        """Speak, and listen until so much of the answer was heard."""
        since = self.mark()
        await self.say(samples)
        await self.hear_answer(after_ms, since)

    async def hear_answer(self, ms: float, since: int = 0) -> None:
        """Listen until so much of a reply that began after `since` was heard."""
        await self.until(lambda: any(self._is_sounding(moment) for moment in self.told[since:]))
        begun_s = self.now_s()
        await self.until(lambda: self.now_s() >= begun_s + ms / 1000)

    async def listen(self, seconds: float) -> None:
        end_s = self.now_s() + seconds
        await self.until(lambda: self.now_s() >= end_s, seconds + 1)

    async def until(self, true: Callable[[], bool], within_s: float = 40.0) -> None:
        """Listen until something is so.

        Raises TimeoutError: it did not become so; the message lists what was told.
        """
        end_s = self.now_s() + within_s
        while not true():
            if self.now_s() > end_s:
                told = [type(moment.event).__name__ for moment in self.told[-20:]]
                raise TimeoutError(f"it did not come to that within {within_s} s; told: {told}")
            await self._tick()

    async def until_told(self, kind: type[Event], since: int = 0, within_s: float = 40.0) -> Any:
        """The first event of a kind that was told after `since` others."""
        await self.until(lambda: bool(self.of(kind, since)), within_s)
        return self.of(kind, since)[0].event

    # What came of it

    def mark(self) -> int:
        """How much was told until now, for `since`."""
        return len(self.told)

    def of(self, kind: type[Event], since: int = 0) -> list[Moment]:
        return [moment for moment in self.told[since:] if isinstance(moment.event, kind)]

    def heard(self, start_s: float) -> Samples:
        """The agent's sound since then, at AGENT_HZ."""
        self.loudspeaker.buffered_ms(self.now_s())
        return self.loudspeaker.sound(start_s, self.now_s())

    @property
    def is_free(self) -> bool:
        """No stage works for this call any more."""
        return not self._stages.live

    def _is_sounding(self, moment: Moment) -> bool:
        event = moment.event
        started = isinstance(event, events.ReplyStarted) and event.reply == self._reply
        return started and self.loudspeaker.played_ms > 0

    # Time

    async def _tick(self) -> None:
        """20 ms: the caller's sound, with what comes back of the agent's, then what the session sends."""
        now_s = self.now_s()
        size = int(RATE_HZ * TICK_S)
        frame, self._line = np.pad(self._line[:size], (0, max(0, size - self._line.size))), self._line[size:]
        if self.echo is not None:
            frame = frame + self._come_back(now_s, size)
        self.session.receive(events.CallerAudio(frame.astype(np.float32)))
        self._take_outputs()
        self._ticks += 1
        if self._ticks % REPORT_TICKS == 0:
            self._report()
        await self._wait_until(self._began_s + self._ticks * TICK_S)

    def _come_back(self, now_s: float, size: int) -> Samples:
        """The next samples of the echo; of a clock that jitters, what is too much waits."""
        assert self.echo is not None
        since_s, self._echoed_s = self._echoed_s or now_s, now_s
        self.loudspeaker.buffered_ms(now_s)
        echo = np.concatenate([self._echo, self.echo(self.loudspeaker.sound(since_s, now_s))])
        self._echo = echo[size:]
        return np.pad(echo[:size], (0, max(0, size - echo.size)))

    async def _wait_until(self, at_s: float) -> None:
        stuck_s = time.monotonic() + STUCK_S
        while (left_s := at_s - self._now_s) > 0:
            if not self._stages.live:
                self._now_s = at_s
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(STEP_S)
                if not self._stages.owes:
                    self._now_s += min(left_s, STEP_S)
                elif time.monotonic() > stuck_s:
                    raise TimeoutError(f"a stage has given nothing for {STUCK_S} s: {self._stages.live}")
            self._take_outputs()

    def _take_outputs(self) -> None:
        while (output := self.session.next_output()) is not None:
            now_s = self.now_s()
            if isinstance(output, events.AgentAudio):
                if output.epoch == self.session.epoch:
                    self.fenced_samples += len(output.pcm) // 2 if self._is_fenced else 0
                    self.loudspeaker.push(output.pcm, now_s)
                continue
            self.told.append(Moment(now_s, replace(output)))
            self._obey(output, now_s)

    def _obey(self, event: Event, now_s: float) -> None:
        match event:
            case events.ReplyStarted(reply):
                self._reply, self._is_fenced = reply, False
                self.loudspeaker.begin(now_s)
            case events.Pause():
                self.loudspeaker.pause(now_s)
                self._report()
            case events.Resume():
                self.loudspeaker.resume(now_s)
            case events.Flush():
                self._is_fenced = True
                self.loudspeaker.flush(now_s)
            case events.ReplyDone():
                self.loudspeaker.end()

    def _report(self) -> None:
        if self._reply is not None:
            self.loudspeaker.buffered_ms(self.now_s())
            self.session.receive(events.Played(self._reply, self.loudspeaker.played_ms))
