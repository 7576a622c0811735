"""End of the caller's speech to the agent's first sample, over spoken turns, by stage.

    python -m benchmarks.turn_latency [--turns 20] [--url ws://host:port] [--pipeline FILE] [--json]

Without --url a private server is started. Every stage is also given as its share of the whole, which holds when the
machine's speed does not. Callers are synthetic voices (see tests/support/speech.py); one call at a time.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
from pathlib import Path
from typing import Any

from tests.support.questions import QUESTIONS, Question
from tests.support.speech import synthesise
from voice_runtime import client
from voice_runtime.cli import default_pipeline
from voice_runtime.talk import private_server, silence_at_end_s

RATE_HZ = 16_000


async def one_turn(url: str, question: Question) -> dict[str, float]:
    """Milliseconds: "total" as the client measures it, and the server's stages."""
    samples = synthesise(question.text, question.voice)
    async with client.call(url, RATE_HZ) as caller:
        await caller.say(samples)
        voice_end_s = caller.spoken_until_s - silence_at_end_s(samples, RATE_HZ)
        first = await caller.wait_for_audio()
        await caller.wait_for("reply_done")
    stages: dict[str, float] = dict(caller.events("timing")[0]["ms"])
    stages.pop("total")
    return {"total": (first.at_s - voice_end_s) * 1000, **stages, "underruns": caller.loudspeaker.underruns}


async def measure(turns: int, url: str | None, pipeline: Path) -> list[dict[str, float]]:
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(private_server(pipeline)) if url is None else url
        return [await one_turn(address, QUESTIONS[turn % len(QUESTIONS)]) for turn in range(turns)]


def summary(turns: list[dict[str, float]]) -> dict[str, Any]:
    """Median, 95th percentile and share of the total's median, by stage."""
    total = statistics.median(turn["total"] for turn in turns)
    rows = {}
    for stage in (name for name in turns[0] if name != "underruns"):
        values = [turn[stage] for turn in turns]
        p95 = statistics.quantiles(values, n=20, method="inclusive")[-1]
        middle = statistics.median(values)
        rows[stage] = {"p50_ms": round(middle, 1), "p95_ms": round(p95, 1), "share": round(middle / total, 3)}
    return {"turns": len(turns), "underruns": sum(turn["underruns"] for turn in turns), "stages": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--url")
    parser.add_argument("--pipeline", type=Path, default=default_pipeline())
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    result = summary(asyncio.run(measure(options.turns, options.url, options.pipeline)))
    if options.as_json:
        print(json.dumps(result))
        return
    print(f"{result['turns']} turns, {result['underruns']:.0f} underruns")
    print(f"{'stage':<12} {'p50 ms':>8} {'p95 ms':>8} {'share':>6}")
    for stage, row in result["stages"].items():
        print(f"{stage:<12} {row['p50_ms']:>8} {row['p95_ms']:>8} {row['share']:>6}")


if __name__ == "__main__":
    main()
