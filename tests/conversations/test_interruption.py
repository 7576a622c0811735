"""Talking over the agent: it falls silent, nothing of the old reply follows, everything is given back."""

import asyncio
import time

import pytest

from tests.support.serving import Served, is_idle
from tests.support.speech import synthesise
from voice_runtime import client

LONG = "Tell me a long story about a little dog."
SETTLE_S = 0.5


async def speaking(caller: client.Caller, text: str = LONG) -> int:
    """Have the agent speak; the index of `received` from which on its sound came."""
    since = len(caller.received)
    await caller.send(type="text", text=text)
    await caller.wait_for_audio(since)
    return since


def audio_after_flush(caller: client.Caller, flush: client.Received) -> list[client.Received]:
    """Binary frames between a flush and the next reply_started."""
    after = caller.received[caller.received.index(flush) + 1 :]
    ends = next((at for at, one in enumerate(after) if one.event and one.event["type"] == "reply_started"), len(after))
    return [one for one in after[:ends] if one.event is None]


async def settled(server: Served) -> float:
    """Seconds until everything is given back."""
    start_s = time.monotonic()
    while not is_idle(await asyncio.to_thread(server.resources)):
        if time.monotonic() - start_s > 10:
            raise TimeoutError(f"still held: {server.resources()}")
    return time.monotonic() - start_s


async def test_speaking_over_the_agent_silences_it_and_gets_the_new_question_answered(server: Served) -> None:
    async with client.call(server.url) as caller:
        await speaking(caller)
        before = len(caller.received)
        await caller.say(synthesise("What is the capital of Italy?", "flite"))
        flush = await caller.wait_for("flush", before)
        await caller.wait_for("reply_done", before, status="interrupted")
        done = await caller.wait_for("reply_done", before, status="completed")

    assert audio_after_flush(caller, flush) == []
    assert "capital" in caller.events("transcript", before)[0]["text"].lower()
    # What it says depends on how much of the story was heard before; that it says something, and aloud, does not.
    reply = "".join(event["text"] for event in caller.events("reply_text", before) if event["reply"] == done_id(done))
    assert reply.strip()
    assert len(caller.audio(caller.received.index(flush))) > 24_000


def done_id(received: client.Received) -> str:
    assert received.event is not None
    return str(received.event["reply"])


async def test_an_interrupt_gives_every_page_and_slot_back_within_half_a_second(server: Served) -> None:
    async with client.call(server.url) as caller:
        since = await speaking(caller)
        held = server.resources()["stages"]
        assert held["thinker"]["generations"] == 1, "the reply was over before it could be interrupted"
        assert held["code2wav"]["vocoder_slots"] == 1
        await caller.send(type="interrupt")
        flush = await caller.wait_for("flush", since)
        assert await settled(server) < SETTLE_S
        await caller.wait_for("reply_done", since, status="interrupted")

    talker = server.resources()["stages"]["talker"]
    assert talker["kv_available"] == talker["kv_total"], "pages that no other reply can use were kept"
    assert audio_after_flush(caller, flush) == []


async def test_an_interrupt_before_the_first_sound_leaves_no_orphan_reply(server: Served) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="text", text=LONG)
        await caller.wait_for("reply_started")
        await caller.send(type="interrupt")
        await caller.wait_for("reply_done", status="interrupted")
        since = len(caller.received)
        assert await settled(server) < SETTLE_S
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", since, status="completed")

    assert caller.audio(), "the next question has no answer"


async def test_an_interrupt_while_nobody_speaks_changes_nothing(server: Served) -> None:
    async with client.call(server.url) as caller:
        await caller.send(type="interrupt")
        await caller.send(type="text", text="What is the capital of Italy?")
        await caller.wait_for("reply_done", status="completed")

    assert not caller.events("flush")


async def test_hanging_up_in_mid_reply_gives_everything_back(server: Served) -> None:
    async with client.call(server.url) as caller:
        await speaking(caller)

    assert await settled(server) < 1.0
    assert server.resources()["gateway"]["sessions"] == 0


async def interrupt_turns(server: Served, count: int) -> None:
    """Interrupt replies one after the other: every fifth by voice in a call of its own, the others by an event."""
    voice = synthesise("Wait a moment.", "flite")
    for _ in range(count // 5):
        async with client.call(server.url) as caller:
            since = await speaking(caller)
            await caller.say(voice)
            await assert_interrupted(caller, since)
        async with client.call(server.url) as caller:
            for _ in range(4):
                since = await speaking(caller)
                await caller.send(type="interrupt")
                await assert_interrupted(caller, since)


async def assert_interrupted(caller: client.Caller, since: int) -> None:
    flush = await caller.wait_for("flush", since)
    await caller.wait_for("reply_done", since, status="interrupted")
    assert audio_after_flush(caller, flush) == []


def footprint(resources: dict[str, object]) -> dict[str, object]:
    """What must be the same before and after; tasks and handles of the gateway, and what every stage holds."""
    gateway = resources["gateway"]
    stages = resources["stages"]
    assert isinstance(gateway, dict)
    assert isinstance(stages, dict)
    thinker = dict(stages["thinker"])
    thinker["kv_free"] = thinker.pop("kv_available") + thinker.pop("kv_evictable")
    kept = {name: gateway[name] for name in ("sessions", "tasks", "handles")}
    workers = resources["workers"]
    assert isinstance(workers, dict)
    costs = {name: (facts["pid"], facts["handles"], facts["threads"]) for name, facts in workers.items()}
    return {"gateway": kept, **stages, "thinker": thinker, "requests": resources["requests"], "workers": costs}


async def test_a_few_interrupted_turns_leave_resources_at_the_baseline(server: Served) -> None:
    await interrupt_turns(server, 5)
    before = footprint(server.wait_idle())
    await interrupt_turns(server, 5)
    assert footprint(server.wait_idle()) == before


@pytest.mark.soak
async def test_two_hundred_interrupted_turns_leave_resources_at_the_baseline_and_memory_flat(server: Served) -> None:
    await interrupt_turns(server, 100)  # until every reply that is interrupted later is in the radix tree
    before = server.wait_idle()
    await interrupt_turns(server, 200)
    after = server.wait_idle()
    assert footprint(after) == footprint(before)
    for worker, facts in after["workers"].items():
        grown = facts["rss_bytes"] - before["workers"][worker]["rss_bytes"]
        print(f"{worker}: RSS grew by {grown / 1e6:.1f} MB over 200 interrupted turns")
        assert grown < 5e6, f"{worker} grew by {grown} bytes"
    grown = after["gateway"]["rss_bytes"] - before["gateway"]["rss_bytes"]
    print(f"gateway: RSS grew by {grown / 1e6:.1f} MB over 200 interrupted turns")
    assert grown < 5e6
