"""Worker processes: one-thread pools, lower priority, and what their death costs."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.serving import Served, descendants, is_idle, running, started
from tests.support.speech import synthesise
from voice_runtime import client
from voice_runtime.cli import shared

WORKERS = {"recognition", "thinker", "talker", "voice"}
LONG = "Tell me a long story about a little dog."


def test_every_compute_pool_of_every_worker_has_one_thread(server: Served) -> None:
    workers = server.resources()["workers"]
    assert set(workers) == WORKERS
    for worker, facts in workers.items():
        assert set(facts["pools"].values()) == {1}, f"{worker}: {facts['pools']}"
        assert "native" in facts["pools"]
    for worker in ("thinker", "talker", "voice"):
        assert workers[worker]["pools"]["torch_interop"] == 1


def test_nothing_listens_but_the_door_and_that_on_loopback(server: Served) -> None:
    """Whatever a library opens: an address other than loopback would be open to the whole network."""
    processes = [psutil.Process(server.process.pid), *descendants(server.process.pid)]
    listening = [found.laddr for one in processes for found in one.net_connections("inet") if found.status == "LISTEN"]
    assert server.port in {address.port for address in listening}
    assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}


def test_workers_yield_to_the_gateway(server: Served) -> None:
    resources = server.resources()
    assert all(facts["nice"] > resources["gateway"]["nice"] for facts in resources["workers"].values())


def kill(server: Served, worker: str) -> int:
    pid = server.worker_pid(worker)
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("worker", ["thinker", "voice"])
async def test_a_killed_worker_fails_the_reply_and_comes_back_and_nobody_is_let_in_until_then(
    server: Served, worker: str
) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="text", text=LONG)
        await caller.wait_for_audio()
        killed = kill(server, worker)
        await caller.wait_for("reply_done", status="failed")
        await caller.wait_for("error", code="stage_failed")
        status, body = await asyncio.to_thread(server.get, "/health")
        assert status == 503, body
        assert '"starting"' in body
        with pytest.raises(ConnectionError, match="1013"):
            async with client.call(server.url):
                raise AssertionError("the session was accepted")

        await asyncio.to_thread(server.wait_ready)
        assert server.worker_pid(worker) != killed
        since = len(caller.received)
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", since, status="completed")


async def test_a_killed_recogniser_costs_the_utterance_and_not_a_reply_that_is_spoken(server: Served) -> None:
    async with client.call(server.url) as spoken_to, client.call(server.url) as speaker:
        await spoken_to.send(type="text", text="What is the capital of Italy?")
        await spoken_to.wait_for("reply_started")
        os.kill(server.worker_pid("recognition"), signal.SIGSTOP)  # so that it holds the utterance when it dies
        await speaker.say(synthesise("What is the capital of Italy?", "flite"))
        await speaker.wait_for("speech_stopped")
        kill(server, "recognition")
        await speaker.wait_for("error", code="stage_failed")
        await spoken_to.wait_for("reply_done", status="completed")

        await asyncio.to_thread(server.wait_ready)
        await speaker.say(synthesise("What is the capital of Italy?", "flite"))
        await speaker.wait_for("reply_done", status="completed")


def test_a_server_that_is_killed_while_it_starts_leaves_no_process() -> None:
    with started() as server:
        server.poll(lambda: len(descendants(server.process.pid)) == len(WORKERS), "the workers start")
        children = descendants(server.process.pid)
        server.process.kill()
        _, alive = psutil.wait_procs(children, timeout=8)
        assert not alive


async def test_a_worker_that_hangs_is_replaced_and_fails_only_what_it_held(server: Served) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="text", text=LONG)
        await caller.wait_for_audio()
        hanging = server.worker_pid("thinker")
        os.kill(hanging, signal.SIGSTOP)
        await caller.send(type="interrupt")
        await caller.wait_for("reply_done", status="interrupted")
        await asyncio.to_thread(server.poll, lambda: server.get("/health")[0] == 503, "it is ended", 30)
        await asyncio.to_thread(server.wait_ready)
        assert server.worker_pid("thinker") != hanging
        since = len(caller.received)
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", since, status="completed")


def test_a_server_that_is_told_to_stop_ends_its_workers_and_exits_cleanly() -> None:
    with started() as server:
        server.poll(lambda: len(descendants(server.process.pid)) == len(WORKERS), "the workers run")
        children = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive
        assert "Traceback" not in "".join(server.log)


async def test_the_parts_can_be_started_one_by_one_and_workers_end_with_their_gateway(tmp_path: Path) -> None:
    pipeline, folder = str(shared("pipelines") / "cascade.toml"), {"VOICE_RUNTIME_DIR": str(tmp_path)}
    with contextlib.ExitStack() as parts:
        # Two workers before the gateway, one after it: the order does not matter.
        workers = [parts.enter_context(running("worker", pipeline, stage, **folder)) for stage in ("asr", "speech")]
        gateway = parts.enter_context(running("gateway", pipeline, "--port", "0", **folder))
        workers.append(parts.enter_context(running("worker", pipeline, "thinker", **folder)))
        gateway.poll(lambda: gateway.port, "the gateway listens")
        gateway.wait_ready()
        async with client.call(gateway.url) as caller:
            await caller.send(type="text", text="What is the capital of Italy?")
            await caller.wait_for("reply_done", status="completed")
        with running("gateway", pipeline, "--port", "0", **folder) as second:
            assert second.process.wait(30) == 1
            assert "another gateway" in "".join(second.log)
        gateway.process.kill()
        for worker in workers:
            worker.process.wait(5)


def test_nothing_is_held_when_nobody_calls(server: Served) -> None:
    assert is_idle(server.resources())


@pytest.mark.last  # no other test has a server after it
def test_a_killed_server_leaves_no_process(server: Served) -> None:
    children = descendants(server.process.pid)
    assert len(children) == len(WORKERS)
    server.process.kill()
    server.process.wait(10)
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert not alive
    assert len(gone) == len(WORKERS)
