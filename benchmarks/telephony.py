"""Whole telephone calls of every protocol with the real pipeline, and how many calls a gateway carries.

    python -m benchmarks.telephony [--protocol twilio ...] [--real 1 2 4] [--calls 1 20]

Each call: a question, an answer that is interrupted, a second question, a key, and silence until the agent says goodbye
and hangs up. What the caller heard is recorded at the telephone's end, at the call's rate, and read by a recogniser.
Then real calls at once, with the delay of their answers; and calls at once through a gateway whose pipeline answers
without a model: how evenly its sound leaves, and what a call costs.
"""

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks._gateway import gateway_on_one_core
from benchmarks._measure import p95, print_table
from benchmarks._paced import call_at_once
from tests.support.speech import recognise, resample, synthesise
from voice_runtime import talk
from voice_runtime.carrier.call import Call, dial
from voice_runtime.carrier.registry import SIDES
from voice_runtime.cli import default_pipeline
from voice_runtime.talk import silence_at_end_s

RATE_HZ = 16_000
LONG_QUESTION = "Tell me a long story about a little dog."
INTERRUPTION = "Stop, please wait a moment."
QUESTION = "What is the capital of Italy?"
GOODBYE = "I will hang up now. Goodbye."
ANSWER_S = 60.0
IDLE_S = 6
QUIET_S = 1.0
PAUSE_S = 0.15
VOICE = 0.02  # of full scale
PACED_S = 20.0
CARRIERS = ("twilio", "telnyx", "plivo", "vonage", "exotel", "asterisk", "freeswitch", "jambonz")


@dataclass(slots=True)
class Outcome:
    """What came of a call.

    silent_ms: from the interruption's first sound to silence. again: the agent went on for a moment.
    """

    protocol: str
    silent_ms: float = float("nan")
    again: bool = False
    answer: str = ""
    keys: str = ""
    goodbye: str = ""
    ended_by: str = ""
    faults: list[str] = field(default_factory=list)

    def row(self) -> list[str]:
        silent = f"{self.silent_ms:.0f}{' (again)' if self.again else ''}"
        answer = "Rome" if "rome" in self.answer.lower() else self.answer[:30]
        goodbye = "whole" if "goodbye" in self.goodbye.lower() else self.goodbye[:30]
        keys = "yes" if self.keys else "no"
        return [self.protocol, silent, answer, keys, goodbye, self.ended_by, str(len(self.faults))]


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """The default pipeline with every carrier's door open on this machine; ws://host:port."""
    text = default_pipeline().read_text("utf-8")
    session = f'[session]\nidle_s = {IDLE_S}\nidle_prompts = []\ngoodbye = "{GOODBYE}"\n'
    doors = "".join(f"[telephony.{name}]\n" for name in CARRIERS)
    telephony = f'\n[telephony]\npublic_url = "https://localhost"\n{doors}[telephony.audiosocket]\nport = 0\n'
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "telephony.toml"
        file.write_text(text.replace("[session]\n", session, 1) + telephony)
        async with talk.private_server(file) as url:
            yield url


def audiosocket_port(process: psutil.Process, url: str) -> int:
    """The server's listening TCP port that is not HTTP's."""
    ports = {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    (port,) = ports - {int(url.rpartition(":")[2])}
    return int(port)


async def conversation(url: str, protocol: str) -> Outcome:
    outcome = Outcome(protocol)
    async with dial(url, protocol) as call:
        await call.say(synthesise(LONG_QUESTION, "flite"), RATE_HZ)
        await call.wait_heard(2.0, ANSWER_S)
        interruption = synthesise(INTERRUPTION, "flite")
        carried = resample(interruption, RATE_HZ, call.rate_hz)  # a telephone does not carry the "s" of "Stop"
        onset_s = call.clock() + np.flatnonzero(np.abs(carried) > VOICE)[0] / call.rate_hz
        await call.say(interruption, RATE_HZ)
        await call.wait_silent(QUIET_S, ANSWER_S)
        silent_s = last_sound_s(call, onset_s, PAUSE_S)
        outcome.silent_ms = float(1_000 * (silent_s - onset_s))
        outcome.again = bool(last_sound_s(call, onset_s, QUIET_S) > silent_s)
        await call.wait_speaking(ANSWER_S)  # what it says to the interruption itself
        await call.wait_silent(QUIET_S, ANSWER_S)
        outcome.answer = await asked(call, QUESTION)
        begin_s = call.clock()
        await call.press("5#")
        await call.wait_speaking(ANSWER_S)
        await call.wait_silent(QUIET_S, ANSWER_S)
        outcome.keys = heard(call, begin_s)
        begin_s = call.clock()
        await call.wait_ended(ANSWER_S)
        outcome.goodbye = heard(call, begin_s)
        outcome.ended_by = call.ended_by or ""
        outcome.faults = call.faults
    return outcome


def last_sound_s(call: Call, onset_s: float, quiet_s: float) -> float:
    """When the agent's voice that sounded at onset_s was over: before so much silence."""
    last_s = onset_s
    for piece in call.heard:
        if piece.at_s > last_s + quiet_s:
            break
        last_s = max(last_s, piece.at_s + piece.samples.size / call.rate_hz)
    return last_s


async def asked(call: Call, question: str) -> str:
    """Ask; what was heard of the answer."""
    await call.say(synthesise(question, "flite"), RATE_HZ)
    begin_s = call.clock()
    await call.wait_speaking(ANSWER_S)
    await call.wait_silent(QUIET_S, ANSWER_S)
    return heard(call, begin_s)


def heard(call: Call, begin_s: float) -> str:
    return recognise(call.sound(begin_s, call.clock()), call.rate_hz)


async def delay_s(url: str, turns: int) -> list[float]:
    """From the end of the caller's voice to the agent's first sound at the telephone."""
    question = synthesise(QUESTION, "flite")
    found: list[float] = []
    async with dial(url, "twilio") as call:
        for _ in range(turns):
            await call.say(question, RATE_HZ)
            ended_s = call.clock() - silence_at_end_s(question, RATE_HZ)
            await call.wait_heard(call.leg.earpiece.heard_s + 0.02, ANSWER_S)
            found.append(next(one.at_s for one in call.heard if one.at_s > ended_s) - ended_s)
            await call.wait_silent(QUIET_S, ANSWER_S)
    return found


async def real_calls(url: str, counts: Sequence[int]) -> list[list[str]]:
    rows = []
    for count in counts:
        found = await asyncio.gather(*(delay_s(url, 4) for _ in range(count)))
        delays = [1_000 * one for one in itertools.chain(*found)]
        rows.append([str(count), f"{statistics.median(delays):.0f}", f"{p95(delays):.0f}"])
    return rows


async def stubbed_calls(counts: Sequence[int], seconds: float) -> list[list[str]]:
    rows = []
    with gateway_on_one_core() as (url, process):
        for count in counts:
            before = sum(process.cpu_times()[:2])
            off = sorted(1_000 * one for one in await call_at_once(url, count, seconds))
            share = (sum(process.cpu_times()[:2]) - before) / seconds
            rows.append([str(count), f"{off[len(off) // 2]:.1f}", f"{off[int(0.99 * len(off))]:.1f}",
                         f"{share:.1%}", f"{share / count:.1%}"])  # fmt: skip
    return rows


async def run(protocols: Sequence[str], counts: Sequence[int]) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server())
        process = next(child for child in psutil.Process().children() if "serve" in child.cmdline())
        rows = []
        for protocol in protocols:
            where = f"{url}/telephony/{protocol.removesuffix('-json')}"
            if protocol == "audiosocket":
                where = f"tcp://127.0.0.1:{audiosocket_port(process, url)}"
            began_s = time.monotonic()
            outcome = await conversation(where, protocol)
            rows.append(outcome.row())
            print(f"{protocol}: {time.monotonic() - began_s:.0f} s, {outcome}", flush=True)
        heads = ("protocol", "silent after ms", "second answer", "key answered", "goodbye", "ended by", "faults")
        if rows:
            print_table("Whole calls, read again at the telephone", heads, rows)
        if counts:
            names = ("real calls at once", "answer after p50 ms", "p95 ms")
            print_table("Delay at the telephone, Twilio", names, await real_calls(f"{url}/telephony/twilio", counts))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--protocol", nargs="*", default=[*SIDES], choices=[*SIDES])
    arguments.add_argument("--real", nargs="*", type=int, default=[1, 2, 4])
    arguments.add_argument("--calls", nargs="*", type=int, default=[1, 20])
    options = arguments.parse_args()
    if options.calls:
        heads = ("calls at once", "off 20 ms p50", "p99 ms", "of a core", "each")
        print_table("A gateway alone on one core", heads, asyncio.run(stubbed_calls(options.calls, PACED_S)))
    if options.protocol or options.real:
        asyncio.run(run(options.protocol, options.real))


if __name__ == "__main__":
    main()
