"""The door of /v1/pcm over real sockets: bad input costs its own session and nothing else."""

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.serving import Served, running, serving
from voice_runtime import client
from voice_runtime.cli import default_pipeline
from voice_runtime.gateway.server import PING_S

CAPITAL = "What is the capital of Italy?"


async def answered(caller: client.Caller) -> None:
    since = len(caller.received)
    await caller.send(type="text", text=CAPITAL)
    await caller.wait_for("reply_done", since, status="completed")


MALFORMED = {
    '{"type":"dance"}': "dance",
    "{not json": "JSON",
    '{"type":"played","reply":7,"ms":"x"}': "reply",
    '{"type":"text","text":""}': "0 characters",
    '{"type":"text","text":"' + "a" * 3_000 + '"}': "3000 characters",
    '{"type":"interrupt","now":true}': "now",
    '{"type":"configure","turn":{"end_silence":1}}': "end_silence",
    '{"type":"configure","idle_s":-1}': "idle_s",
}


async def test_unknown_and_malformed_events_get_named_errors_and_the_session_goes_on(server: Served) -> None:
    async with client.call(server.url) as caller:
        for sent, found in MALFORMED.items():
            since = len(caller.received)
            await caller.socket.send(sent)
            error = (await caller.wait_for("error", since, code="bad_event")).event
            assert error is not None
            assert found in error["message"]
        await answered(caller)


@pytest.mark.parametrize("query", ["input_rate=44100", "output_rate=11025", "input_rate=", "input_rate=-8000"])
async def test_a_bad_rate_is_refused_by_name(server: Served, query: str) -> None:
    async with connect(f"{server.url}/v1/pcm?{query}") as socket:
        error = json.loads(await socket.recv())
        assert error["code"] == "bad_rate"
        assert "expected one of 8000, 16000, 24000, 48000" in error["message"]
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert (socket.close_code, socket.close_reason) == (1008, "bad_rate")


async def test_a_conversation_can_be_gone_on_with_once_after_its_connection_was_lost(server: Served) -> None:
    async with connect(f"{server.url}/v1/pcm") as socket:
        token = json.loads(await socket.recv())["resume"]
        await socket.send(json.dumps({"type": "configure", "greeting": "Good morning."}))
        while (message := await socket.recv()) is not None:
            if isinstance(message, str) and json.loads(message)["type"] == "reply_done":
                break
    await asyncio.to_thread(server.wait_idle)
    async with connect(f"{server.url}/v1/pcm?resume={token}") as socket:
        ready = json.loads(await socket.recv())
        assert ready["type"] == "ready"
        assert ready["resume"] != token
    async with connect(f"{server.url}/v1/pcm?resume={token}") as socket:
        assert json.loads(await socket.recv())["code"] == "bad_resume"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert (socket.close_code, socket.close_reason) == (1008, "bad_resume")


@pytest.mark.parametrize("message", [bytes(1 << 20) + b"\0", "x" * ((1 << 20) + 1)])
async def test_a_message_over_a_mebibyte_closes_its_session_alone(server: Served, message: bytes | str) -> None:
    async with client.call(server.url) as other, connect(f"{server.url}/v1/pcm") as socket:
        await socket.recv()
        await socket.send(message)
        await socket.wait_closed()
        assert socket.close_code == 1009
        await answered(other)


async def test_audio_faster_than_real_time_is_refused_by_name(server: Served) -> None:
    async with connect(f"{server.url}/v1/pcm") as socket:
        await socket.recv()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(100):
                await socket.send(bytes(32_000))
        await socket.wait_closed()
        assert socket.close_reason == "too_much_audio"


async def test_a_flood_of_events_is_refused_by_name(server: Served) -> None:
    async with connect(f"{server.url}/v1/pcm") as socket:
        await socket.recv()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(2_000):
                await socket.send('{"type":"interrupt"}')
        await socket.wait_closed()
        assert socket.close_reason == "too_many_events"


async def test_audio_in_pieces_of_any_odd_size_is_heard_like_audio_in_frames(server: Served) -> None:
    from tests.support.speech import synthesise
    from voice_runtime.audio.pcm import to_pcm

    pcm = to_pcm(synthesise(CAPITAL, "flite"))
    cuts = random.Random(1)
    async with connect(f"{server.url}/v1/pcm") as socket:
        while pcm:
            size = cuts.randrange(1, 4_000)
            piece, pcm = pcm[:size], pcm[size:]
            await socket.send(piece)
        async with asyncio.timeout(20):
            while (message := await socket.recv()) is not None:
                if isinstance(message, str) and (event := json.loads(message))["type"] == "transcript":
                    break
    assert "capital" in event["text"].lower()


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_another_page_cannot_open_a_socket(server: Served, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{server.url}/v1/pcm", additional_headers={"Origin": origin}):
            pass
    assert refused.value.response.status_code == 403


def test_a_name_that_was_made_to_resolve_to_us_is_refused(server: Served) -> None:
    status, body = server.get("/health", {"Host": f"evil.example:{server.port}"})
    assert status == 403
    assert "bad_host" in body


async def test_our_own_page_may_open_a_socket(server: Served) -> None:
    origin = f"http://127.0.0.1:{server.port}"
    async with connect(f"{server.url}/v1/pcm", additional_headers={"Origin": origin}) as socket:
        assert json.loads(await socket.recv())["type"] == "ready"


async def test_more_sessions_than_the_limit_are_refused_by_name(server: Served) -> None:
    async with asyncio.TaskGroup() as tasks:
        opened = [tasks.create_task(connect(f"{server.url}/v1/pcm").__aenter__()) for _ in range(8)]
    sockets = [task.result() for task in opened]
    try:
        for socket in sockets:
            assert json.loads(await socket.recv())["type"] == "ready"
        async with connect(f"{server.url}/v1/pcm") as ninth:
            assert json.loads(await ninth.recv())["code"] == "too_many_sessions"
    finally:
        for socket in sockets:
            await socket.close()


def test_the_page_is_served_with_a_policy_that_loads_nothing_from_elsewhere(server: Served) -> None:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/") as response:
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert b"<script" in response.read()


async def test_logs_hold_no_transcript_and_no_typed_text(server: Served) -> None:
    async with client.call(server.url) as caller:
        await answered(caller)
        assert "Rome" in "".join(event["text"] for event in caller.events("reply_text"))
    log = "".join(server.log)
    assert "capital of Italy" not in log
    assert "Rome" not in log


TOKEN = "s3cr3t-t0ken"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for a token, is impatient with who reads nothing, and logs all it can."""
    impatient = tmp_path_factory.mktemp("pipeline") / "impatient.toml"
    impatient.write_text(default_pipeline().read_text() + "\n[limits]\nsend_s = 1.0\n")
    with serving(impatient, VOICE_RUNTIME_TOKEN=TOKEN, VOICE_RUNTIME_LOG="DEBUG") as server:
        server.headers = {"Authorization": f"Bearer {TOKEN}"}
        yield server


async def test_a_client_that_reads_nothing_is_dropped_and_costs_only_its_own_session(guarded: Served) -> None:
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    small.connect(("127.0.0.1", guarded.port))
    query = f"input_rate=48000&output_rate=48000&token={TOKEN}"
    async with connect(f"{guarded.url}/v1/pcm?{query}", sock=small, max_queue=1) as deaf:
        await deaf.send(json.dumps({"type": "text", "text": "Tell me a long story about a little dog."}))
        async with client.call(guarded.url, token=TOKEN) as other:
            await asyncio.to_thread(guarded.poll, lambda: "slow_client" in "".join(guarded.log), "it is dropped")
            await answered(other)
        assert guarded.wait_idle()["gateway"]["sessions"] == 0
    assert "Traceback" not in "".join(guarded.log)


@pytest.mark.soak
def test_a_client_that_is_gone_without_a_word_is_noticed_by_its_silence_to_pings(server: Served) -> None:
    upgrade = (
        f"GET /v1/pcm HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as gone:
        gone.sendall(upgrade.encode())
        server.poll(lambda: server.resources()["gateway"]["sessions"] == 1, "it is connected")
        server.poll(lambda: server.resources()["gateway"]["sessions"] == 0, "it is given up", 2 * PING_S + 5)


async def test_with_a_token_nobody_connects_without_it(guarded: Served) -> None:
    for query in ("", "?token=wrong"):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{guarded.url}/v1/pcm{query}"):
                pass
        assert refused.value.response.status_code == 401
    async with connect(f"{guarded.url}/v1/pcm?token={TOKEN}") as socket:
        assert json.loads(await socket.recv())["type"] == "ready"
    assert guarded.get("/debug/resources", {})[0] == 401
    assert guarded.get("/debug/resources")[0] == 200
    assert guarded.get("/health", {})[0] == 200
    async with client.call(guarded.url, token=TOKEN) as caller:
        await answered(caller)
    log = "".join(guarded.log)
    assert TOKEN not in log
    assert "capital of Italy" not in log
    assert "Rome" not in log


async def test_a_caller_who_is_back_before_its_loss_was_noticed_goes_on_and_the_old_connection_ends(
    server: Served,
) -> None:
    async with client.call(server.url) as lost:
        await lost.send(type="text", text="What is the capital of Italy?")
        await lost.wait_for_audio()
        token = lost.events("ready")[0]["resume"]
        async with client.call(server.url, resume=token) as caller:
            assert caller.events("ready")[0]["resume"] != token
            await lost.wait_for("reply_done", status="interrupted")
            await lost.socket.wait_closed()
            await answered(caller)
    assert lost.socket.close_code == 1000


def test_a_recording_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    pipeline = tmp_path / "recorded.toml"
    pipeline.write_text(default_pipeline().read_text() + '\n[recording]\nfolder = "/proc/nothing"\n')
    with running("serve", str(pipeline), "--port", "0") as server:
        assert server.process.wait(60) != 0
        server.poll(lambda: "recording.folder is /proc/nothing" in "".join(server.log), "the reason is told", 5)
