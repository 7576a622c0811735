"""What WebRTC sessions cost the gateway, how many one core carries, and whether a long call drifts.

    python -m benchmarks.webrtc [--seconds 15] [--minutes 0]

The gateway runs in a process of its own on one core, with a pipeline that answers at once: sockets, ICE, DTLS, SRTP,
Opus, voice activity, the echo guard and the session are real. The callers run on the other core; they do not decode.
Idle: nobody speaks. Talking: the caller says a sentence, the agent answers for three seconds, and so on.
Late is a frame that leaves the gateway when the next one is already due.
"""

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Callable

import httpx
import numpy as np
import psutil
import uvloop

from benchmarks._gateway import gateway_on_one_core
from benchmarks._measure import p95, print_table
from tests.support.speech import synthesise
from tests.support.webrtc_caller import RtcCaller, connected
from voice_runtime.pipeline import pools

SESSIONS = (1, 4, 8, 12, 16, 24, 32)
LATE_SHARE = 0.01
QUESTION = "What is the capital of Italy?"


async def talk(caller: RtcCaller, is_talking: Callable[[], bool]) -> None:
    """A question, its answer, and again. Callers begin at different times."""
    question = synthesise(QUESTION, "flite")
    await asyncio.sleep(3.0 * np.random.default_rng(id(caller)).random())
    while is_talking():
        since = len(caller.events)
        caller.say(question)
        await caller.wait_for("reply_done", since)


async def measure(url: str, server: psutil.Process, count: int, seconds: float, *, talking: bool) -> list[str]:
    """A row of the table: `count` sessions for so long."""
    callers = [await connected(url) for _ in range(count)]
    for caller in callers:
        await caller.wait_for("ready")
        caller.decodes = False
    end_s = time.monotonic() + seconds + 4
    talks = [asyncio.create_task(talk(one, lambda: time.monotonic() < end_s)) for one in callers if talking]
    await asyncio.sleep(4)  # the talks are under way
    late, cpu, began = await late_frames(url), sum(server.cpu_times()[:2]), time.monotonic()
    own = time.process_time()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    share, own_share = (sum(server.cpu_times()[:2]) - cpu) / took, (time.process_time() - own) / took
    late_share = (await late_frames(url) - late) / (count * took * 50)
    for task in talks:
        task.cancel()
    await asyncio.gather(*talks, return_exceptions=True)
    for caller in callers:
        await caller.connection.close()
    row = (count, "talking" if talking else "idle", f"{share:.1%}", f"{share / count:.1%}", f"{late_share:.2%}")
    return [*map(str, row), f"{own_share:.0%}"]


async def late_frames(url: str) -> float:
    async with httpx.AsyncClient(base_url=url) as http:
        metrics = (await http.get("/metrics")).text
    found = re.search(r"^voice_late_frames_total (\S+)", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def long_call(url: str, minutes: float) -> None:
    """The stream's clock against ours over a long call: both count the same frames, or it drifts."""
    caller = await connected(url)
    await caller.wait_for("ready")
    caller.decodes = False
    end_s = time.monotonic() + minutes * 60
    await talk(caller, lambda: time.monotonic() < end_s)
    heard = caller.heard
    # By timestamp: after a stall of the gateway's machine the frames that were due meanwhile are left out.
    ticks = [(one.timestamp - heard[0].timestamp) % (1 << 32) for one in heard]
    behind = [(one.at_s - heard[0].at_s) * 1_000 - at / 48 for one, at in zip(heard, ticks, strict=True)]
    left_out = ticks[-1] // 960 + 1 - len(heard)
    first, last = statistics.median(behind[:500]), statistics.median(behind[-500:])
    underruns = sum(event["underruns"] for _, event in caller.events if event["type"] == "timing")
    answers = sum(event["type"] == "timing" for _, event in caller.events)
    off = np.abs(np.diff([one.at_s for one in heard]) - 0.02) * 1_000
    print(
        f"\n{minutes:g} minutes, {len(heard)} packets: {last - first:+.2f} ms of drift, {left_out} frames left out; "
        f"{underruns} underruns in {answers} answers; 95 % came within {p95(off.tolist()):.1f} ms of 20"
    )
    await caller.connection.close()


async def run(seconds: float, minutes: float) -> None:
    with gateway_on_one_core() as (url, server):
        rows = [await measure(url, server, 1, seconds, talking=False)]
        for count in SESSIONS:
            rows.append(await measure(url, server, count, seconds, talking=True))
            if float(rows[-1][4].rstrip("%")) / 100 > LATE_SHARE:
                break
        heads = ("sessions", "", "of a core", "each", "late frames", "callers' core")
        print_table("WebRTC sessions on one core", heads, rows)
        if minutes:
            await long_call(url, minutes)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=15.0)
    arguments.add_argument("--minutes", type=float, default=0.0)
    options = arguments.parse_args()
    uvloop.run(run(options.seconds, options.minutes))


if __name__ == "__main__":
    pools.set_to_one_thread()
    main()
