"""End of the caller's speech to the agent's first sample, over spoken turns, by stage.

    python -m benchmarks.turn_latency [--turns 20] [--url ws://host:port] [--pipeline FILE]... [--json]

Without --url a private server is started. Of two pipelines (`--pipeline A --pipeline B`) each question is put to one
and then to the other, so that both meet the machine as it is then, and the ratio of their totals is printed, too.
Every stage is also given as its share of the whole, which holds when the machine's speed does not. Callers are
synthetic voices (see tests/support/speech.py); one call at a time.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks._measure import p95
from tests.support.questions import QUESTIONS, Question
from tests.support.speech import synthesise
from voice_runtime import client
from voice_runtime.cli import default_pipeline
from voice_runtime.talk import private_server, silence_at_end_s

RATE_HZ = 16_000
SERVER_BYTES = 4e9  # what one server may take; two in less memory than twice that would be measured swapping
Turn = dict[str, float]


async def one_turn(url: str, question: Question) -> Turn:
    """Milliseconds: "total" as the client measures it, and the server's stages."""
    samples = synthesise(question.text, question.voice)
    async with client.call(url, RATE_HZ) as caller:
        await caller.say(samples)
        voice_end_s = caller.spoken_until_s - silence_at_end_s(samples, RATE_HZ)
        first = await caller.wait_for_audio()
        await caller.wait_for("reply_done")
    stages: Turn = dict(caller.events("timing")[0]["ms"])
    stages.pop("total")
    return {"total": (first.at_s - voice_end_s) * 1000, **stages, "underruns": caller.loudspeaker.underruns}


async def measure(turns: int, urls: Sequence[str]) -> list[list[Turn]]:
    """The turns with each server. Every question goes to all of them, each time beginning with another."""
    came: list[list[Turn]] = [[] for _ in urls]
    for turn in range(turns):
        for at in range(len(urls)):
            server = (turn + at) % len(urls)
            came[server].append(await one_turn(urls[server], QUESTIONS[turn % len(QUESTIONS)]))
    return came


async def measure_pipelines(turns: int, pipelines: Sequence[Path]) -> list[list[Turn]]:
    """All servers at once and by turns where the memory allows, else one after the other."""
    if psutil.virtual_memory().available > SERVER_BYTES * len(pipelines):
        async with all_served(pipelines) as urls:
            return await measure(turns, urls)
    came = []
    for pipeline in pipelines:
        async with private_server(pipeline) as url:
            came += await measure(turns, [url])
    return came


@contextlib.asynccontextmanager
async def all_served(pipelines: Sequence[Path]) -> AsyncIterator[list[str]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(private_server(pipeline)) for pipeline in pipelines]


def summary(turns: list[Turn]) -> dict[str, Any]:
    """Median, 95th percentile and share of the total's median, by stage."""
    total = statistics.median(turn["total"] for turn in turns)
    rows = {}
    for stage in (name for name in turns[0] if name != "underruns"):
        values = [turn[stage] for turn in turns]
        middle = statistics.median(values)
        rows[stage] = {"p50_ms": round(middle, 1), "p95_ms": round(p95(values), 1), "share": round(middle / total, 3)}
    return {"turns": len(turns), "underruns": sum(turn["underruns"] for turn in turns), "stages": rows}


def ratio(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Totals of the second over those of the first."""
    first, second = (result["stages"]["total"] for result in results)
    return {name: round(second[f"{name}_ms"] / first[f"{name}_ms"], 3) for name in ("p50", "p95")}


def show(name: str, result: dict[str, Any]) -> None:
    print(f"{name}: {result['turns']} turns, {result['underruns']:.0f} underruns")
    print(f"{'stage':<12} {'p50 ms':>8} {'p95 ms':>8} {'share':>6}")
    for stage, row in result["stages"].items():
        print(f"{stage:<12} {row['p50_ms']:>8} {row['p95_ms']:>8} {row['share']:>6}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--url")
    parser.add_argument("--pipeline", type=Path, action="append", help="twice: compares the second with the first")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    pipelines: list[Path] = options.pipeline or [default_pipeline()]
    if len(pipelines) > 2:
        parser.error("--pipeline was given more than twice")
    names = [options.url] if options.url else [str(pipeline) for pipeline in pipelines]
    measured = measure(options.turns, names) if options.url else measure_pipelines(options.turns, pipelines)
    results = [summary(turns) for turns in asyncio.run(measured)]
    compared = {"ratio": ratio(results)} if len(results) == 2 else {}
    if options.as_json:
        named = [{"name": name, **result} for name, result in zip(names, results, strict=True)]
        print(json.dumps({"pipelines": named, **compared}))
        return
    for name, result in zip(names, results, strict=True):
        show(name, result)
    for over in compared.values():
        print(f"totals, {names[1]} over {names[0]}: p50 {over['p50']}, p95 {over['p95']}")


if __name__ == "__main__":
    main()
