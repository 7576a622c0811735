"""A live caller over /v1/pcm: sends audio in real time, plays what comes against the clock, keeps what happened.

Used by `voice-runtime talk`, the benchmarks and the tests.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voice_runtime.audio.pcm import Samples, to_pcm, to_samples

FRAME_S = 0.02
REPORT_S = 0.1
FADE_MS = 20  # of a pause


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the server. event: the JSON event, or None for audio. at_s: time.monotonic() of its arrival."""

    at_s: float
    event: dict[str, Any] | None = None
    pcm: bytes = b""


@dataclass(frozen=True, slots=True)
class Heard:
    """Sound that came out. at_s: of its first sample. pcm: 16-bit little-endian mono."""

    at_s: float
    pcm: bytes


@dataclass(slots=True)
class Loudspeaker:
    """Plays in real time, on the clock alone: knows how much was played, when, and how often it ran dry.

    rate_hz: of the audio, 16-bit mono. heard: all that came out, fades included, in order of time.
    """

    rate_hz: int
    underruns: int = 0
    heard: list[Heard] = field(default_factory=list)
    _at: int = 0  # the clock in samples: up to here everything is decided
    _played: int = 0  # samples of the present reply; below zero while the one before it still sounds
    _buffer: bytearray = field(default_factory=bytearray)
    _fading: bytearray = field(default_factory=bytearray)  # the end of a sound that is being paused
    _rising: int = 0  # samples until a fade-in is over
    _paused: bool = False
    _open: bool = False  # the reply may bring more audio

    def begin(self, now_s: float) -> None:
        """A reply: what is left of the one before is played first, unless that one is paused."""
        if self._paused:
            self.flush(now_s)
        self.buffered_ms(now_s)
        self._played = -(len(self._buffer) // 2)
        self._open = False

    def push(self, pcm: bytes, now_s: float) -> None:
        dry = self.buffered_ms(now_s) <= 0
        self.underruns += dry and self._open and not self._paused
        self._open = True
        self._buffer += pcm

    def pause(self, now_s: float) -> None:
        """Fall silent within FADE_MS. What fades out does not count as played: `resume` begins with it."""
        self.buffered_ms(now_s)
        if not self._paused and not self._fading:
            ahead = to_samples(bytes(self._buffer[: 2 * self._fade]))
            ramp = np.arange(ahead.size - 1, -1, -1, dtype=np.float32) / np.float32(max(ahead.size, 1))
            self._fading += to_pcm(ahead * self._gain(1) * ramp)
        self._paused = True

    def resume(self, now_s: float) -> None:
        """Go on from where the fade began, with a fade-in; a fade-out that still sounds ends first."""
        self.buffered_ms(now_s)
        if self._paused:
            self._rising = self._fade
        self._paused = False

    def flush(self, now_s: float) -> None:
        """Drop what is buffered."""
        self.buffered_ms(now_s)
        self._buffer.clear()
        self._fading.clear()
        self._rising = 0
        self._paused = self._open = False

    def end(self) -> None:
        """Nothing more will come of this reply."""
        self._open = False

    def buffered_ms(self, now_s: float) -> float:
        """Play up to now; what is left."""
        until = round(now_s * self.rate_hz)
        self._put_out(self._due(self._fading, until))
        if not self._paused:
            samples = to_samples(self._due(self._buffer, until))
            self._put_out(to_pcm(samples * self._gain(samples.size)))
            self._played += samples.size
            self._rising = max(0, self._rising - samples.size)
        self._at = max(self._at, until)
        return len(self._buffer) * 500 / self.rate_hz

    @property
    def played_ms(self) -> float:
        """Of the present reply, when time was last told."""
        return max(0, self._played) * 1000 / self.rate_hz

    def sound(self, start_s: float, end_s: float) -> Samples:
        """What was heard between two times, silence included: float32, shape (T,), at `rate_hz`."""
        first = round(start_s * self.rate_hz)
        line = np.zeros(round(end_s * self.rate_hz) - first, np.float32)
        for piece in self.heard:
            at = round(piece.at_s * self.rate_hz) - first
            samples = to_samples(piece.pcm)[max(0, -at) : max(0, line.size - at)]
            line[max(0, at) :][: samples.size] = samples
        return line

    def _due(self, source: bytearray, until: int) -> bytes:
        """Take what sounds until then."""
        size = 2 * max(0, until - self._at)
        pcm = bytes(source[:size])
        del source[:size]
        return pcm

    def _put_out(self, pcm: bytes) -> None:
        if pcm:
            self.heard.append(Heard(self._at / self.rate_hz, pcm))
            self._at += len(pcm) // 2

    def _gain(self, size: int) -> Samples:
        """Of the next samples: less than 1 while they fade in."""
        steps = np.arange(self._fade - self._rising + 1, self._fade - self._rising + size + 1, dtype=np.float32)
        return np.minimum(steps / self._fade, np.float32(1))

    @property
    def _fade(self) -> int:
        return self.rate_hz * FADE_MS // 1000


@dataclass(slots=True)
class Caller:
    """One call. Enter it through `call`.

    received: everything in order of arrival. spoken_until_s: when the last sound passed to `say` was sent.
    """

    socket: ClientConnection
    rate_hz: int
    loudspeaker: Loudspeaker
    on_event: Callable[[dict[str, Any]], None] | None = None
    received: list[Received] = field(default_factory=list)
    spoken_until_s: float = 0.0
    close_code: int | None = None
    _to_say: list[Samples] = field(default_factory=list)
    _said: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _reply: str | None = None

    async def say(self, samples: Samples) -> None:
        """Speak, in real time; returns when the last of it was sent. Silence is sent before and after by itself.

        samples: float32, shape (T,), at `rate_hz`.
        """
        self._said.clear()
        self._to_say.append(samples)
        await self._said.wait()

    async def send(self, **event: object) -> None:
        await self.socket.send(json.dumps(event))

    async def wait_for(self, type_: str, since: int = 0, timeout_s: float = 30.0, **fields: object) -> Received:
        """The first event of this type (and these fields) from index `since` of `received` on.

        Raises:
            TimeoutError: it did not come; the message lists what came.
        """

        def found() -> Received | None:
            for one in self.received[since:]:
                event = one.event
                if event and event["type"] == type_ and all(event.get(name) == fields[name] for name in fields):
                    return one
            return None

        return await self._until(found, f"{type_} {fields or ''}", since, timeout_s)

    async def wait_for_audio(self, since: int = 0, timeout_s: float = 30.0) -> Received:
        """The first agent audio from index `since` of `received` on."""

        def found() -> Received | None:
            return next((one for one in self.received[since:] if one.event is None), None)

        return await self._until(found, "audio", since, timeout_s)

    def events(self, type_: str, since: int = 0) -> list[dict[str, Any]]:
        return [one.event for one in self.received[since:] if one.event and one.event["type"] == type_]

    def audio(self, since: int = 0) -> bytes:
        return b"".join(one.pcm for one in self.received[since:])

    async def _until(self, found: Callable[[], Received | None], what: str, since: int, timeout_s: float) -> Received:
        try:
            async with asyncio.timeout(timeout_s), self._news:
                while (one := found()) is None:
                    if self.close_code is not None:
                        told = "".join(f" ({event['message']})" for event in self.events("error", since))
                        raise ConnectionError(f"closed with {self.close_code}{told} while waiting for {what}")
                    await self._news.wait()
                return one
        except TimeoutError:
            came = [one.event["type"] if one.event else "audio" for one in self.received[since:]]
            raise TimeoutError(f"{what} did not come within {timeout_s} s; came: {came[-30:]}") from None

    async def read(self) -> None:
        """Take what comes until the connection ends."""
        with contextlib.suppress(ConnectionClosed):
            async for message in self.socket:
                await self._take(message, time.monotonic())
                async with self._news:
                    self._news.notify_all()
        self.close_code = self.socket.close_code
        async with self._news:
            self._news.notify_all()

    async def _take(self, message: str | bytes, now_s: float) -> None:
        if isinstance(message, bytes):
            self.loudspeaker.push(message, now_s)
            self.received.append(Received(now_s, pcm=message))
            return
        event = json.loads(message)
        self.received.append(Received(now_s, event))
        match event["type"]:
            case "reply_started":
                self._reply = event["reply"]
                self.loudspeaker.begin(now_s)
            case "pause" if event["reply"] == self._reply:
                self.loudspeaker.pause(now_s)
                with contextlib.suppress(ConnectionClosed):  # what came before the end is still to be read
                    await self._report(now_s)
            case "resume" if event["reply"] == self._reply:
                self.loudspeaker.resume(now_s)
            case "flush":
                self.loudspeaker.flush(now_s)
            case "reply_done":
                self.loudspeaker.end()
        if self.on_event is not None:
            self.on_event(event)

    async def speak_forever(self) -> None:
        """Send 20 ms every 20 ms: what is to be said, else silence; and report what was played."""
        size = int(self.rate_hz * FRAME_S)
        silence = np.zeros(size, np.float32)
        next_s = report_s = time.monotonic()
        line = np.zeros(0, np.float32)
        with contextlib.suppress(ConnectionClosed):
            while True:
                if not line.size and self._to_say:
                    line = self._to_say.pop(0)
                frame, line = (line[:size], line[size:]) if line.size else (silence, line)
                await self.socket.send(to_pcm(frame))
                if frame is not silence:
                    self.spoken_until_s = time.monotonic()
                if not line.size and not self._to_say:
                    self._said.set()
                if (now_s := time.monotonic()) >= report_s:
                    await self._report(now_s)
                    report_s = now_s + REPORT_S
                next_s += FRAME_S
                await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _report(self, now_s: float) -> None:
        if self._reply is not None:
            self.loudspeaker.buffered_ms(now_s)
            await self.send(type="played", reply=self._reply, ms=self.loudspeaker.played_ms)


@contextlib.asynccontextmanager
async def call(  # noqa: PLR0913 - the parts of the address, and what a call may bring along
    url: str,
    rate_hz: int = 16_000,
    output_hz: int = 24_000,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    token: str | None = None,
    configure: dict[str, Any] | None = None,
    resume: str | None = None,
) -> AsyncIterator[Caller]:
    """Call a server; hangs up at the end.

    url: ws://host:port. rate_hz: of what is said. output_hz: of the agent's audio. token: the server's, if it has one.
    configure: fields of a `configure` event, sent before any sound once the session is ready.
    resume: the token from an earlier call's `ready`, to go on with its conversation.

    Raises:
        OSError, websockets.exceptions.InvalidHandshake: there is no server, or it refuses us.
        ConnectionError: it refuses the session; the message has its reason.
    """
    query = urlencode({"input_rate": rate_hz, "output_rate": output_hz, **({"resume": resume} if resume else {})})
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = connect(f"{url}/v1/pcm?{query}", additional_headers=headers, compression=None, max_queue=None)
    async with connection as socket:
        caller = Caller(socket, rate_hz, Loudspeaker(output_hz), on_event)
        # No TaskGroup: it would wrap what the body raises, and the body is the user's.
        running = [asyncio.create_task(caller.read())]
        try:
            await caller.wait_for("ready")
            if configure is not None:
                await caller.send(type="configure", **configure)
            running.append(asyncio.create_task(caller.speak_forever()))
            yield caller
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
