"""A session carried over a real socket: order, ends, and whose fault an end was. The stages are played by the test."""

import asyncio
import contextlib
import json
import socket as sockets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.played_stages import PlayedStages
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.gateway.transports import websocket
from voice_runtime.gateway.transports.common import MOST_BAD_EVENTS
from voice_runtime.gateway.transports.websocket import SLICE_S
from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    CallEvent,
    Closing,
    ReplyStarted,
    SessionEvent,
    SpeechStarted,
)
from voice_runtime.session.session import Session
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import SpokenClause

PATIENCE_S = 10.0
RATE_HZ = 16_000
SETTINGS = SessionSettings(recognise="asr", reply="thinker")
SPEAKING = SessionSettings(recognise="asr", reply="thinker", speak="speech")


class Deaf:
    """A voice detector that never hears speech."""

    def push(self, frame: Samples) -> float:
        return 0.0


def session(stages: PlayedStages) -> Session:
    return Session(stages, SETTINGS, Deaf(), RATE_HZ, RATE_HZ)


class Scripted(Session):
    """A session that gives the outputs that the test says, and keeps what it receives."""

    now: int | None = None  # the epoch, when the test says it

    def __init__(self, *outputs: SessionEvent | AgentAudio) -> None:
        super().__init__(PlayedStages(time.monotonic), SETTINGS, Deaf(), RATE_HZ, RATE_HZ)
        self.script = deque(outputs)
        self.received: list[CallEvent] = []

    @property
    def epoch(self) -> int:
        return super().epoch if self.now is None else self.now

    def receive(self, event: CallEvent) -> None:
        self.received.append(event)

    def next_output(self) -> SessionEvent | AgentAudio | None:
        return self.script.popleft() if self.script else super().next_output()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Line:
    """A client's connection, and the end of `websocket.serve`: its result or what it has raised."""

    client: ClientConnection
    served: asyncio.Future[None]

    async def next(self) -> dict[str, Any] | bytes:
        """An event, or a frame of audio."""
        async with asyncio.timeout(PATIENCE_S):
            message = await self.client.recv()
        return message if isinstance(message, bytes) else dict(json.loads(message))

    async def kinds(self, count: int) -> list[str]:
        """The kinds of the next messages."""
        return [kind(await self.next()) for _ in range(count)]

    async def closed(self) -> tuple[int | None, str | None]:
        """Wait for the server's goodbye: its code and reason."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self.client.recv()
            await self.ended()
        return self.client.close_code, self.client.close_reason

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.served


def kind(message: dict[str, Any] | bytes) -> str:
    return "audio" if isinstance(message, bytes) else str(message["type"])


@contextlib.asynccontextmanager
async def line(carried: Session, session_s: float = 60.0) -> AsyncIterator[Line]:
    """A server on a free port that carries one session, and its client."""
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def carry(socket: WebSocket) -> None:
        await socket.accept()
        try:
            await websocket.serve(socket, carried, RATE_HZ, send_s=PATIENCE_S, session_s=session_s)
        except Exception as error:
            served.set_exception(error)
        else:
            served.set_result(None)

    app = Starlette(routes=[WebSocketRoute("/", carry)])
    server = _Server(uvicorn.Config(app, ws="websockets-sansio", lifespan="off", log_config=None))
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            async with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/") as client:
                yield Line(client, served)
            server.should_exit = True


async def test_a_session_that_is_too_long_is_closed_by_name() -> None:
    carried = session(PlayedStages(time.monotonic))
    async with line(carried, session_s=0.2) as call:
        assert await call.closed() == (1000, "session_too_long")
    assert carried.state is State.CLOSED


async def test_a_client_that_leaves_closes_its_session_and_what_it_asked_is_aborted() -> None:
    stages = PlayedStages(time.monotonic)
    carried = session(stages)
    async with line(carried) as call:
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
        await call.client.close()
        await call.ended()
    assert carried.state is State.CLOSED
    assert [(asked.stage, asked.is_aborted) for asked in stages.asked] == [("thinker", True)]


async def test_bad_events_are_told_and_more_than_the_limit_of_them_end_the_session() -> None:
    carried = session(PlayedStages(time.monotonic))
    async with line(carried) as call:
        for _ in range(MOST_BAD_EVENTS):
            await call.client.send("nonsense")
        for _ in range(MOST_BAD_EVENTS):
            error = await call.next()
            assert isinstance(error, dict)
            assert (error["type"], error["code"]) == ("error", "bad_event")
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
        await call.client.send("nonsense")
        assert await call.closed() == (1008, "bad_event")
    assert carried.state is State.CLOSED


async def test_a_frame_of_an_old_epoch_is_not_sent() -> None:
    carried = Scripted(AgentAudio(0, b"old"), AgentAudio(1, b"new"), AgentAudio(0, b"old"), SpeechStarted())
    carried.now = 1
    async with line(carried) as call:
        assert [await call.next(), kind(await call.next())] == [b"new", "speech_started"]


async def test_events_and_audio_keep_their_order() -> None:
    first, second, third = (AgentAudio(0, pcm) for pcm in (b"1", b"2", b"3"))
    async with line(Scripted(ReplyStarted("r1"), first, second, SpeechStarted(), third)) as call:
        assert [await call.next() for _ in range(5)] == [
            {"type": "reply_started", "reply": "r1"},
            b"1",
            b"2",
            {"type": "speech_started"},
            b"3",
        ]


async def test_after_the_goodbye_the_client_is_told_and_hung_up_on() -> None:
    carried = Scripted(AgentAudio(0, b"bye"), Closing("idle"), SpeechStarted())
    async with line(carried) as call:
        assert await call.next() == b"bye"
        assert await call.next() == {"type": "closing", "reason": "idle"}
        assert await call.closed() == (1000, "goodbye")
    assert carried.state is State.CLOSED


async def test_a_session_that_is_gone_on_with_elsewhere_tells_how_its_reply_ended_and_hangs_up() -> None:
    carried = session(PlayedStages(time.monotonic))
    async with line(carried) as call:
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
        carried.close()
        assert await call.kinds(2) == ["flush", "reply_done"]
        assert await call.closed() == (1000, "resumed_elsewhere")


async def test_settings_that_do_not_fit_are_told_and_the_session_goes_on() -> None:
    carried = session(PlayedStages(time.monotonic))
    async with line(carried) as call:
        await call.client.send('{"type":"configure","turn":{"end_silence_ms":0}}')
        error = await call.next()
        assert isinstance(error, dict)
        assert (error["type"], error["code"]) == ("error", "bad_event")
        assert "end_silence_ms" in error["message"]
        await call.client.send('{"type":"configure","instructions":"Be brief."}')
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
    assert carried.memory.settings.instructions == "Be brief."


async def test_a_setting_wakes_a_session_that_waited_for_nothing() -> None:
    stages = PlayedStages(time.monotonic)
    carried = Session(stages, SPEAKING, Deaf(), RATE_HZ, RATE_HZ)
    async with line(carried) as call:
        await call.client.send('{"type":"configure","greeting":"Welcome."}')
        assert await call.kinds(1) == ["reply_started"]
        assert stages.last("speech").text == "Welcome."
        stages.last("speech").finish()
        assert await call.kinds(1) == ["reply_done"]
        await call.client.send('{"type":"configure","idle_s":0.05}')
        assert await call.kinds(1) == ["reply_started"]


async def test_an_interrupted_reply_is_text_then_audio_then_flush_and_no_audio_after_it() -> None:
    stages = PlayedStages(time.monotonic)
    async with line(session(stages)) as call:
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
        stages.last("thinker").bring(SpokenClause.spread("Hi there. ", b"\x01\x02" * 2 * RATE_HZ, RATE_HZ))
        lead_frames = SETTINGS.lead_ms // 20
        assert await call.kinds(1 + lead_frames) == ["reply_text"] + ["audio"] * lead_frames
        await call.client.send('{"type":"interrupt"}')
        while (told := await call.next()) and isinstance(told, bytes):
            pass
        assert [kind(told), *await call.kinds(2)] == ["flush", "timing", "reply_done"]
        await call.client.send('{"type":"text","text":"Hello again."}')
        assert await call.kinds(1) == ["reply_started"]


async def test_audio_is_paced_and_not_sent_at_once() -> None:
    stages = PlayedStages(time.monotonic)
    async with line(session(stages)) as call:
        await call.client.send('{"type":"text","text":"Hello."}')
        assert await call.kinds(1) == ["reply_started"]
        since_s = time.monotonic()
        thinker = stages.last("thinker")
        thinker.bring(SpokenClause.spread("Hi there. ", b"\x01\x02" * (RATE_HZ * 8 // 10), RATE_HZ))
        thinker.finish()
        told = await call.kinds(2 + 40)
        assert (told[0], Counter(told)) == ("reply_text", {"reply_text": 2, "audio": 40})
        assert 0.35 < time.monotonic() - since_s  # 800 ms, of which 400 are sent ahead
        assert await call.kinds(2) == ["timing", "reply_done"]
        assert 0.75 < time.monotonic() - since_s


@pytest.mark.parametrize("odd", [0, 1])
async def test_a_long_message_is_heard_whole_and_in_slices(odd: int) -> None:
    carried = Scripted()
    samples = np.linspace(-0.5, 0.5, RATE_HZ + 1_000, dtype=np.float32)
    async with line(carried) as call:
        pcm = to_pcm(samples)
        await call.client.send(pcm[: len(pcm) - odd])
        await call.client.send(pcm[len(pcm) - odd :] + b"\0" * odd)
        await call.client.send('{"type":"interrupt"}')
        await call.client.close()
        await call.ended()
    heard = [event.samples for event in carried.received if isinstance(event, CallerAudio)]
    assert max(part.size for part in heard) == RATE_HZ * SLICE_S
    assert to_pcm(np.concatenate(heard)) == pcm


async def test_a_fault_of_ours_is_not_hidden_and_closes_the_session() -> None:
    class Faulty(Scripted):
        def receive(self, event: CallEvent) -> None:
            raise ZeroDivisionError("a fault of ours")

    carried = Faulty()
    async with line(carried) as call:
        await call.client.send('{"type":"interrupt"}')
        with pytest.raises(ExceptionGroup) as raised:
            await call.closed()
        assert raised.group_contains(ZeroDivisionError)
    assert carried.state is State.CLOSED
