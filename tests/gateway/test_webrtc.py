"""A session carried over WebRTC between two real peers on loopback. The stages are played by the test."""

import asyncio
import contextlib
import json
import socket as sockets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from tests.support.played_stages import PlayedStages
from tests.support.webrtc_caller import AGENT_HZ, MICROPHONE_HZ, RtcCaller, connected, rtc_call
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.cli import default_pipeline
from voice_runtime.errors import PeerError
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.guard import Guard
from voice_runtime.gateway.sessions import Admitted, Sessions
from voice_runtime.gateway.whip import Whip
from voice_runtime.pipeline.config import (
    IceServer,
    PipelineConfig,
    SessionSettings,
    WebRtcSettings,
    load,
)
from voice_runtime.session.events import (
    AgentAudio,
    CallerAudio,
    CallEvent,
    Closing,
    Flush,
    Interrupt,
    Pause,
    Played,
    ReplyStarted,
    ReplyText,
    Resume,
    SessionEvent,
)
from voice_runtime.session.session import Session

SETTINGS = SessionSettings(recognise="asr", reply="thinker")
CONFIG = load(default_pipeline())
PATIENCE_S = 10.0


class Deaf:
    """A voice detector that never hears speech."""

    def push(self, frame: Samples) -> float:
        return 0.0


class Scripted(Session):
    """A session that gives the outputs that the test says, and keeps what it receives."""

    def __init__(self) -> None:
        super().__init__(PlayedStages(time.monotonic), SETTINGS, Deaf(), MICROPHONE_HZ, AGENT_HZ)
        self.script: deque[SessionEvent | AgentAudio] = deque()
        self.received: list[CallEvent] = []
        self.news = asyncio.Event()
        self.is_closed = asyncio.Event()

    def play(self, *outputs: SessionEvent | AgentAudio) -> None:
        self.script.extend(outputs)
        self.wake.set()

    def receive(self, event: CallEvent) -> None:
        self.received.append(event)
        self.news.set()

    def next_output(self) -> SessionEvent | AgentAudio | None:
        return self.script.popleft() if self.script else super().next_output()

    def close(self) -> None:
        super().close()
        self.is_closed.set()

    async def wait_for(self, kind: type[CallEvent]) -> CallEvent:
        """The first event of this kind."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := [event for event in self.received if isinstance(event, kind)]):
                self.news.clear()
                await self.news.wait()
        return found[0]

    def caller_sound(self) -> Samples:
        return np.concatenate([event.samples for event in self.received if isinstance(event, CallerAudio)])


class ScriptedSessions(Sessions):
    """Lets everybody in who comes, to a session of the test's."""

    def __init__(self) -> None:
        self.opened: list[Scripted] = []
        self.refusal: PeerError | None = None

    @contextlib.contextmanager
    def open(
        self, input_hz: int, output_hz: int, resume: str | None = None, *, client: str, lead_ms: int | None = None
    ) -> Iterator[Admitted]:
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(Scripted())
        try:
            yield Admitted("s1", self.opened[-1], "again", False)
        finally:
            self.opened[-1].close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Door:
    """The WebRTC door on a free port."""

    url: str
    sessions: ScriptedSessions
    whip: Whip
    refused: list[str] = field(default_factory=list)

    @property
    def session(self) -> Scripted:
        return self.sessions.opened[-1]


@contextlib.asynccontextmanager
async def door(config: PipelineConfig = CONFIG) -> AsyncIterator[Door]:
    sessions = ScriptedSessions()
    whip = Whip(config, sessions, "127.0.0.1")

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, PeerError)
        return JSONResponse({"code": error.code, "message": str(error)}, 400)

    async def turn_away(socket: WebSocket, error: PeerError) -> None:
        raise AssertionError(error)  # there is no WebSocket here

    inner = Starlette(routes=whip.routes, exception_handlers={PeerError: refuse})
    app = Guard(inner, Access("127.0.0.1"), 1_000, lambda error: None, turn_away)
    server = _Server(uvicorn.Config(app, lifespan="off", log_config=None))
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Door(f"http://127.0.0.1:{listener.getsockname()[1]}", sessions, whip)
        finally:
            await whip.close()
            server.should_exit = True
            await serving


@pytest.fixture
async def opened() -> AsyncIterator[Door]:
    async with door() as it:
        yield it


@pytest.fixture
async def caller(opened: Door) -> AsyncIterator[RtcCaller]:
    """One who is connected and has been greeted."""
    async with rtc_call(opened.url) as it:
        await it.wait_for("ready")
        yield it


def tone(seconds: float, rate_hz: int, hz: float = 440.0) -> Samples:
    return (0.3 * np.sin(2 * np.pi * hz * np.arange(int(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def frames(seconds: float, epoch: int = 0) -> list[AgentAudio]:
    pcm = to_pcm(tone(seconds, AGENT_HZ))
    return [AgentAudio(epoch, pcm[at : at + 960]) for at in range(0, len(pcm), 960)]


def pitch_hz(sound: Samples, rate_hz: int) -> float:
    return float(np.abs(np.fft.rfft(sound)).argmax() * rate_hz / sound.size)


def loud(caller: RtcCaller) -> list[bool]:
    return [not packet.is_silent for packet in caller.heard]


async def test_the_first_event_is_ready_and_the_others_come_in_order(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), Pause("r1"), Resume("r1"), Flush("r1"))
    await caller.wait_for("flush")
    assert [event["type"] for _, event in caller.events] == ["ready", "reply_started", "pause", "resume", "flush"]
    assert caller.events[0][1] == {
        "type": "ready", "session": "s1", "input_rate": 16_000, "output_rate": 24_000, "resume": "again",
        "recorded": False,
    }  # fmt: skip


async def test_the_callers_voice_reaches_the_session_whole_and_in_tune(opened: Door, caller: RtcCaller) -> None:
    caller.say(tone(0.6, MICROPHONE_HZ, 523.0))
    await caller.wait_until(lambda: not caller.microphone._queue)
    await caller.wait_until(lambda: np.abs(opened.session.caller_sound()[-640:]).max() < 0.01)
    sound = opened.session.caller_sound()
    spoken = np.flatnonzero(np.abs(sound) > 0.05)
    assert 0.57 < (spoken[-1] - spoken[0]) / MICROPHONE_HZ < 0.63
    assert abs(pitch_hz(sound[spoken[0] : spoken[-1]], MICROPHONE_HZ) - 523) < 3


async def test_the_agents_voice_comes_as_one_stream_without_a_gap_in_time(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(0.3))
    await caller.wait_until(lambda: sum(loud(caller)) >= 15 and loud(caller)[-5:] == [False] * 5)
    steps = np.diff([packet.timestamp for packet in caller.heard])
    assert set(steps.tolist()) == {960}
    first = loud(caller).index(True)
    assert all(loud(caller)[first : first + 15])
    sound = np.concatenate([packet.samples for packet in caller.heard[first + 2 : first + 14]])
    assert abs(pitch_hz(sound, AGENT_HZ) - 440) < 5


async def test_after_a_flush_at_most_one_frame_follows_and_it_fades(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(2.0))
    await caller.wait_until(lambda: sum(loud(caller)) >= 5)
    opened.session.play(Flush("r1"))
    await caller.wait_for("flush")
    at = len(caller.heard)
    await caller.wait_until(lambda: len(caller.heard) >= at + 10)
    assert not any(loud(caller)[at + 2 :])  # one on its way, one that fades
    assert sum(loud(caller)) < 50
    step = np.abs(np.diff(np.concatenate([packet.samples for packet in caller.heard]))).max()
    assert step < 1.5 * np.abs(np.diff(tone(0.1, AGENT_HZ))).max()


async def test_a_pause_keeps_what_is_queued_and_a_resume_plays_all_of_it(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(0.4))
    await caller.wait_until(lambda: sum(loud(caller)) >= 5)
    opened.session.play(Pause("r1"))
    await caller.wait_for("pause")
    at = len(caller.heard)
    await caller.wait_until(lambda: len(caller.heard) >= at + 10)
    assert not any(loud(caller)[at + 2 :])
    opened.session.play(Resume("r1"))
    await caller.wait_until(lambda: sum(loud(caller)) >= 20 and not loud(caller)[-1])
    assert 20 <= sum(loud(caller)) <= 25  # the frame that faded was played again, and the codec rings at both ends


async def test_what_a_client_that_muted_itself_has_not_heard_comes_again(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(0.6))
    await caller.wait_until(lambda: sum(loud(caller)) >= 20)
    opened.session.play(Pause("r1"))
    await caller.wait_for("pause")
    first = loud(caller).index(True)
    opened.session.received.clear()
    caller.send(type="playout", timestamp=caller.heard[first + 10].timestamp, muted=True)
    await caller.wait_until(lambda: any(isinstance(one, Played) and one.ms < 250 for one in opened.session.received))
    at = len(caller.heard)
    await caller.wait_until(lambda: len(caller.heard) >= at + 5)
    before = sum(loud(caller))
    opened.session.play(Resume("r1"))
    await caller.wait_until(lambda: sum(loud(caller)) >= before + 20 and not loud(caller)[-1])
    assert before + 20 <= sum(loud(caller)) <= before + 22  # ten frames of thirty were heard; the codec rings


async def test_words_are_told_when_their_sound_is_sent(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), ReplyText("r1", "one "), *frames(0.5), ReplyText("r1", "two"), *frames(0.2))
    await caller.wait_for("reply_text", text="two")
    told = {event["text"]: at_s for at_s, event in caller.events if event["type"] == "reply_text"}
    packets = [packet for packet in caller.heard if packet.at_s <= told["two"] and not packet.is_silent]
    assert 23 <= len(packets) <= 27


async def test_words_that_a_flush_drops_are_told_before_it(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(1.0), ReplyText("r1", "never heard"))
    await caller.wait_until(lambda: sum(loud(caller)) >= 3)
    opened.session.play(Flush("r1"))
    await caller.wait_for("flush")
    assert [event["type"] for _, event in caller.events][-2:] == ["reply_text", "flush"]


async def test_what_the_client_has_played_is_known_from_its_rtp_timestamp(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(1.0))
    await caller.wait_until(lambda: sum(loud(caller)) >= 30)
    first = loud(caller).index(True)
    opened.session.received.clear()
    caller.send(type="playout", timestamp=caller.heard[first + 20].timestamp, delay_ms=40)
    played = await opened.session.wait_for(Played)
    assert isinstance(played, Played)
    assert played.reply == "r1"
    assert played.ms == pytest.approx(20 * 20 - 40, abs=1)


async def test_a_client_that_reports_nothing_is_taken_to_have_played_what_was_sent(
    opened: Door, caller: RtcCaller
) -> None:
    opened.session.play(ReplyStarted("r1"), *frames(0.4))
    await caller.wait_until(lambda: sum(loud(caller)) >= 20 and not loud(caller)[-1])

    def reports() -> list[float]:
        return [event.ms for event in opened.session.received if isinstance(event, Played)]

    await caller.wait_until(lambda: reports() and reports()[-1] == pytest.approx(400))
    assert reports() == sorted(reports())


async def test_events_of_the_client_reach_the_session_and_a_bad_one_gets_a_named_error(
    opened: Door, caller: RtcCaller
) -> None:
    caller.channel.send("{not json")
    caller.channel.send(b"\x00\x01")
    caller.send(type="interrupt")
    assert isinstance(await opened.session.wait_for(Interrupt), Interrupt)
    errors = [await caller.wait_for("error", since) for since in (0, 2)]
    assert [error["code"] for error in errors] == ["bad_event", "bad_event"]


async def test_a_goodbye_is_told_before_the_connection_ends(opened: Door, caller: RtcCaller) -> None:
    opened.session.play(Closing("idle"))
    assert (await caller.wait_for("closing"))["reason"] == "idle"
    await opened.session.is_closed.wait()


async def test_a_delete_ends_the_session_and_its_location(opened: Door, caller: RtcCaller) -> None:
    async with httpx.AsyncClient(base_url=opened.url) as http:
        assert (await http.delete(caller.location)).status_code == 204
        await opened.whip.settled()
        assert opened.session.is_closed.is_set()
        answer = await http.delete(caller.location)
    assert answer.json()["code"] == "no_such_peer"


async def test_a_client_that_hangs_up_ends_its_session(opened: Door) -> None:
    caller = await connected(opened.url)
    await caller.wait_for("ready")
    await caller.connection.close()
    async with asyncio.timeout(PATIENCE_S):
        await opened.session.is_closed.wait()


@pytest.mark.parametrize(
    ("offer", "found"),
    [
        ("", "media are none"),
        ("v=0\r\n", "media are none"),
        ("v=0\r\nm=video 9 X 0\r\n", "media are video"),
        ("v=0\r\nm=audio 9 X 0\r\n", "no Opus"),
        ("v=0\r\nm=audio 9 X 96\r\na=rtpmap:96 opus/48000/2\r\n", "expected an SDP offer"),
        ("v=0\r\n" + "a=x\r\n" * 10_000, "more than 32768 bytes"),
    ],
)
async def test_a_bad_offer_is_refused_by_name_and_leaves_nothing(opened: Door, offer: str, found: str) -> None:
    async with httpx.AsyncClient(base_url=opened.url) as http:
        answer = await http.post("/v1/webrtc/offer", content=offer, headers={"content-type": "application/sdp"})
    assert answer.json()["code"] == "bad_offer"
    assert found in answer.json()["message"]
    await opened.whip.settled()
    assert all(session.is_closed.is_set() for session in opened.sessions.opened)


async def test_a_refused_session_is_told_in_the_answer(opened: Door) -> None:
    opened.sessions.refusal = PeerError("too_many_sessions", "8 sessions are open, the limit")
    with pytest.raises(ConnectionError, match="too_many_sessions"):
        await connected(opened.url)


async def test_new_ice_credentials_ask_for_a_new_offer(opened: Door, caller: RtcCaller) -> None:
    headers = {"content-type": "application/trickle-ice-sdpfrag"}
    async with httpx.AsyncClient(base_url=opened.url) as http:
        answer = await http.patch(caller.location, content="a=ice-ufrag:other\r\n", headers=headers)
        assert answer.json()["code"] == "ice_restart"
        answer = await http.patch(caller.location, content="a=candidate:nonsense\r\n", headers=headers)
        assert answer.json()["code"] == "bad_candidates"
    opened.session.play(ReplyStarted("r1"))
    await caller.wait_for("reply_started")  # the connection goes on


async def test_a_channel_that_opens_late_begins_with_ready_too(opened: Door) -> None:
    async with rtc_call(opened.url, has_channel=False) as caller:
        await caller.wait_until(lambda: caller.heard)
        opened.session.play(ReplyStarted("r1"), *frames(0.1))
        await caller.wait_until(lambda: any(loud(caller)))  # it is served without one
        caller.open_channel()
        await caller.wait_for("ready")
        opened.session.play(ReplyStarted("r2"))
        await caller.wait_for("reply_started", reply="r2")


async def test_a_client_may_trickle_so_many_candidates_and_no_more(opened: Door, caller: RtcCaller) -> None:
    headers = {"content-type": "application/trickle-ice-sdpfrag"}
    lines = "".join(f"a=candidate:{port} 1 udp 1 127.0.0.1 {port} typ host\r\n" for port in range(9_000, 9_040))
    async with httpx.AsyncClient(base_url=opened.url) as http:
        answers = [await http.patch(caller.location, content=lines, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 400]
    assert answers[1].json()["code"] == "bad_candidates"


async def test_a_dead_stun_server_does_not_delay_a_connection() -> None:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as dead:
        dead.bind(("127.0.0.1", 0))
        dead.setblocking(False)
        server = IceServer(urls=f"stun:127.0.0.1:{dead.getsockname()[1]}")
        async with door(_with(server)) as opened:
            for _ in range(2):
                async with rtc_call(opened.url) as caller:
                    await caller.wait_for("ready")
                    assert opened.whip.is_asking  # the server has been asked, and it is still waited for
            assert dead.recv(100)
            async with httpx.AsyncClient(base_url=opened.url) as http:
                told = (await http.get("/v1/webrtc/config")).json()
            assert told == {"iceServers": [{"urls": server.urls}]}


def _with(server: IceServer) -> PipelineConfig:
    values = {name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__}
    return PipelineConfig(**(values | {"webrtc": WebRtcSettings(ice_servers=(server,))}))


async def test_by_default_no_server_is_told_or_asked(opened: Door) -> None:
    async with httpx.AsyncClient(base_url=opened.url) as http:
        assert json.loads((await http.get("/v1/webrtc/config")).text) == {"iceServers": []}
    assert not opened.whip.is_asking
