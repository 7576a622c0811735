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

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from voice_runtime.audio.pcm import Samples, to_pcm

FRAME_S = 0.02
REPORT_S = 0.1


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the server. event: the JSON event, or None for audio. at_s: time.monotonic() of its arrival."""

    at_s: float
    event: dict[str, Any] | None = None
    pcm: bytes = b""


@dataclass(slots=True)
class Loudspeaker:
    """Plays in real time, on the clock alone: knows how much was played and how often it ran dry.

    rate_hz: of the audio, 16-bit mono.
    """

    rate_hz: int
    played_ms: float = 0.0  # of the present reply
    underruns: int = 0
    _buffered_ms: float = 0.0
    _at_s: float | None = None
    _open: bool = False  # the reply may bring more audio

    def begin(self) -> None:
        self.played_ms = self._buffered_ms = 0.0
        self._at_s, self._open = None, False

    def push(self, pcm: bytes, now_s: float) -> None:
        ran_dry = self._open and self.buffered_ms(now_s) <= 0
        self.underruns += ran_dry
        if self._at_s is None:
            self._at_s = now_s
        self._open = True
        self._buffered_ms += len(pcm) * 500 / self.rate_hz

    def flush(self, now_s: float) -> None:
        """Drop what is buffered."""
        self.buffered_ms(now_s)
        self._buffered_ms, self._open = 0.0, False

    def end(self) -> None:
        """Nothing more will come of this reply."""
        self._open = False

    def buffered_ms(self, now_s: float) -> float:
        """Play up to now; what is left."""
        if self._at_s is not None:
            passed = min((now_s - self._at_s) * 1000, self._buffered_ms)
            self.played_ms += passed
            self._buffered_ms -= passed
            self._at_s = now_s
        return self._buffered_ms


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
                self._take(message, time.monotonic())
                async with self._news:
                    self._news.notify_all()
        self.close_code = self.socket.close_code
        async with self._news:
            self._news.notify_all()

    def _take(self, message: str | bytes, now_s: float) -> None:
        if isinstance(message, bytes):
            self.loudspeaker.push(message, now_s)
            self.received.append(Received(now_s, pcm=message))
            return
        event = json.loads(message)
        self.received.append(Received(now_s, event))
        match event["type"]:
            case "reply_started":
                self._reply = event["reply"]
                self.loudspeaker.begin()
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
                report_s = await self._report(report_s)
                next_s += FRAME_S
                await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _report(self, due_s: float) -> float:
        now_s = time.monotonic()
        if self._reply is None or now_s < due_s:
            return due_s
        self.loudspeaker.buffered_ms(now_s)
        await self.send(type="played", reply=self._reply, ms=self.loudspeaker.played_ms)
        return now_s + REPORT_S


@contextlib.asynccontextmanager
async def call(
    url: str,
    rate_hz: int = 16_000,
    output_hz: int = 24_000,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    token: str | None = None,
) -> AsyncIterator[Caller]:
    """Call a server; hangs up at the end.

    url: ws://host:port. rate_hz: of what is said. output_hz: of the agent's audio. token: the server's, if it has one.

    Raises:
        OSError, websockets.exceptions.InvalidHandshake: there is no server, or it refuses us.
        ConnectionError: it refuses the session; the message has its reason.
    """
    query = f"input_rate={rate_hz}&output_rate={output_hz}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = connect(f"{url}/v1/pcm?{query}", additional_headers=headers, compression=None, max_queue=None)
    async with connection as socket:
        caller = Caller(socket, rate_hz, Loudspeaker(output_hz), on_event)
        # No TaskGroup: it would wrap what the body raises, and the body is the user's.
        running = [asyncio.create_task(caller.read()), asyncio.create_task(caller.speak_forever())]
        try:
            await caller.wait_for("ready")
            yield caller
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
