"""What many WebRTC connections leave behind: nothing. Both peers live in this process, so both are counted."""

import asyncio
import gc
import threading
from dataclasses import dataclass

import psutil
import pytest

from tests.gateway.test_webrtc import Door, door
from tests.support.webrtc_caller import connected

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Held:
    """Of this process."""

    tasks: int
    handles: int
    threads: int
    rss_bytes: int


async def held() -> Held:
    """What is held once all that was let go of is gone."""
    for _ in range(20):  # callbacks of closed sockets, each of which may schedule another
        await asyncio.sleep(0)
        gc.collect()
    process = psutil.Process()
    return Held(len(asyncio.all_tasks()), process.num_fds(), threading.active_count(), process.memory_info().rss)


async def come_and_go(opened: Door, ways: int) -> None:
    """Connect, be greeted, and leave: by hanging up, by DELETE, or in the middle of connecting."""
    caller = await connected(opened.url)
    if ways % 5:
        await caller.wait_for("ready")
    if ways % 2:
        opened.whip.end(caller.location)
    await caller.connection.close()
    opened.whip.end(caller.location)
    await opened.whip.settled()
    opened.sessions.opened.clear()


async def measure(connects: int) -> tuple[Held, Held]:
    """Before and after so many connects, when a fifth as many have warmed everything up."""
    async with door() as opened:
        for index in range(max(5, connects // 5)):
            await come_and_go(opened, index)
        before = await held()
        for index in range(connects):
            await come_and_go(opened, index)
        return before, await held()


def assert_nothing_is_left(before: Held, after: Held, most_bytes: int) -> None:
    assert after.tasks == before.tasks
    assert after.handles == before.handles
    assert after.threads == before.threads
    assert after.rss_bytes - before.rss_bytes < most_bytes


async def test_a_few_connects_leave_no_task_handle_or_thread_behind() -> None:
    before, after = await measure(10)
    assert_nothing_is_left(before, after, 8 * MEBIBYTE)


@pytest.mark.soak
async def test_500_connects_leave_nothing_behind() -> None:
    before, after = await measure(500)
    print(f"before {before}, after {after}")
    assert_nothing_is_left(before, after, 16 * MEBIBYTE)
