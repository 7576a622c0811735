"""A gateway that every carrier may call, on real sockets, whose stages are played by the test; and callers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tests.support.gateway import Doors, listening
from tests.support.played_stages import Asked, PlayedStages
from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.carrier.call import Call, dial
from voice_runtime.carrier.registry import SIDES
from voice_runtime.cli import shared
from voice_runtime.gateway.app import Gateway
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.carriers import CarrierAccess
from voice_runtime.gateway.server import Server
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import (
    AudioSocketSettings,
    CarrierSettings,
    LimitSettings,
    PipelineConfig,
    PlivoSettings,
    SessionSettings,
    TelephonySettings,
    TelnyxSettings,
    TwilioSettings,
    VonageSettings,
)
from voice_runtime.pipeline.runtime import Pipeline
from voice_runtime.stages.payloads import SpokenClause

PROTOCOLS = tuple(SIDES)
VOICE_HZ = 24_000
WATCHED_S, STALL_S = 0.005, 0.015
LOUD = 0.05  # of the root mean square
SESSION = SessionSettings(recognise="asr", reply="thinker", speak="speech")


@dataclass(slots=True)
class Ears:
    """A voice detector to which whatever is loud is voice, and what opens it; it keeps what it has heard, at 16 kHz."""

    frames: list[Samples] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self) -> "Ears":
        return self

    def push(self, frame: Samples) -> float:
        self.frames.append(frame.copy())
        self.news.set()
        return 1.0 if np.sqrt(np.mean(np.square(frame))) > LOUD else 0.0

    def heard(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *self.frames])


class PhonedStages(PlayedStages):
    """Stages that can be waited for."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        self.news = asyncio.Event()

    def _ask(self, asked: Asked) -> Any:
        self.news.set()
        return super()._ask(asked)

    async def wait_asked(self, stage: str, count: int = 1) -> Asked:
        """The request to a stage that was the count-th."""
        await until(self.news, lambda: len(self.of(stage)) >= count, f"{count} requests to {stage}")
        return self.of(stage)[count - 1]

    def health(self) -> dict[str, str]:
        return {}

    async def resources(self) -> dict[str, Any]:
        return {}


@dataclass(slots=True)
class Exchange:
    """socket_port: AudioSocket's."""

    doors: Doors
    socket_port: int | None
    stages: PhonedStages
    ears: Ears

    def url(self, protocol: str) -> str:
        door = protocol.removesuffix("-json")
        return f"tcp://localhost:{self.socket_port}" if door == "audiosocket" else f"{self.doors.url}/telephony/{door}"

    def dial(self, protocol: str, **options: Any) -> contextlib.AbstractAsyncContextManager[Call]:
        return dial(self.url(protocol), protocol, **options)

    async def sessions(self) -> int:
        return int((await self.doors.ask("GET", "/debug/resources")).json()["gateway"]["sessions"])


@contextlib.asynccontextmanager
async def exchange(
    session: SessionSettings = SESSION, calls: int = 20, limits: LimitSettings | None = None, vad: object = None
) -> AsyncIterator[Exchange]:
    """Everybody may call, from this machine. vad: in place of the exchange's ears."""
    any_carrier = CarrierSettings()
    telephony = TelephonySettings(
        public_url="https://localhost",
        calls=calls,
        twilio=TwilioSettings(),
        plivo=PlivoSettings(),
        telnyx=TelnyxSettings(),
        vonage=VonageSettings(),
        exotel=any_carrier,
        asterisk=any_carrier,
        freeswitch=any_carrier,
        jambonz=any_carrier,
        auto=any_carrier,
        audiosocket=AudioSocketSettings(port=0),
        instructions="The call is $call_id by $carrier for $agent.",
    )
    limits = limits or LimitSettings(sessions=20)
    config = PipelineConfig(name="p", stages={}, session=session, limits=limits, telephony=telephony)
    access, stages, ears = Access("127.0.0.1"), PhonedStages(), Ears()
    pipeline, detector = cast(Pipeline, stages), cast(SileroVad, vad or ears)
    gateway = Gateway(config, pipeline, detector, access, shared("web"), CarrierAccess(telephony, "127.0.0.1"))
    async with gateway.phone.listening("127.0.0.1") as socket_port, listening(Server(gateway, None, ())) as port:
        yield Exchange(Doors(port), socket_port, stages, ears)


@dataclass(slots=True)
class Lateness:
    """How long a busy machine stood still, in all: what is measured in real time may be so much later."""

    late_s: float = 0.0

    async def watch(self) -> None:
        while True:
            due_s = time.monotonic() + WATCHED_S
            await asyncio.sleep(WATCHED_S)
            late_s = time.monotonic() - due_s
            self.late_s += late_s if late_s > STALL_S else 0.0


@contextlib.asynccontextmanager
async def lateness() -> AsyncIterator[Lateness]:
    watched = Lateness()
    task = asyncio.create_task(watched.watch())
    try:
        yield watched
    finally:
        task.cancel()


async def concurrently(scenario: Callable[[str], Awaitable[None]], *protocols: str) -> None:
    """A scenario with every protocol, or these, at the same time; each failure with its protocol's name."""
    names = protocols or PROTOCOLS
    results = await asyncio.gather(*(scenario(name) for name in names), return_exceptions=True)
    failed = {name: result for name, result in zip(names, results, strict=True) if isinstance(result, BaseException)}
    for name, error in failed.items():
        error.add_note(f"protocol {name}")
    if failed:
        raise BaseExceptionGroup(f"{', '.join(failed)} failed", [*failed.values()])


async def until(news: asyncio.Event, is_so: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Until something is so, which `news` wakes for."""
    try:
        async with asyncio.timeout(timeout_s):
            while not is_so():
                news.clear()
                await news.wait()
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {timeout_s} s") from None


def speech(seconds: float, seed: int = 1) -> Samples:
    """Noise in the telephone's band, no two pieces of it alike, at VOICE_HZ."""
    size = int(VOICE_HZ * seconds)
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(0, 1, size))
    frequencies = np.fft.rfftfreq(size, 1 / VOICE_HZ)
    spectrum[(frequencies < 300) | (frequencies > 3_000)] = 0
    samples = np.fft.irfft(spectrum, size)
    return to_samples(to_pcm((0.25 * samples / np.abs(samples).max()).astype(np.float32)))


def clause(text: str, samples: Samples) -> SpokenClause:
    return SpokenClause.spread(text, to_pcm(samples), VOICE_HZ)


def as_heard(call: Call, samples: Samples) -> Samples:
    """What a caller hears of the agent's samples when all is well."""
    audio = call.leg.side.audio
    resampler = Resampler(VOICE_HZ, audio.rate_hz)
    parts = [to_samples(to_pcm(part)) for part in (resampler.push(samples), resampler.flush())]
    return audio.decode(audio.encode(np.concatenate(parts)))


def all_heard(call: Call) -> Samples:
    """What the caller has heard, without the silence between."""
    return np.concatenate([np.zeros(0, np.float32), *(piece.samples for piece in call.heard)])


def place_of(piece: Samples, line: Samples) -> int:
    """Where the same samples begin in a line; -1 when they are not in it."""
    head = piece[:32]
    if not piece.size or piece.size > line.size:
        return -1
    windows = np.lib.stride_tricks.sliding_window_view(line, head.size)[: line.size - piece.size + 1]
    places = np.flatnonzero((windows == head).all(axis=1))
    return next((int(at) for at in places if np.array_equal(line[at : at + piece.size], piece)), -1)
