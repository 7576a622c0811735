"""End of the caller's speech to the agent's first sample, over spoken turns, by stage.

    python -m benchmarks.turn_latency [--turns 20] [--url ws://host:port] [--pipeline FILE]... [--json]
                                      [--without-draft]

Without --url a private server is started. Of two pipelines (`--pipeline A --pipeline B`) each question is put to one
and then to the other, so that both meet the machine as it is then, and the ratio of their totals is printed, too.
With --without-draft each question is put to one server twice, with the speculative draft and without, and the ratio is
that of these two. The second time the radix cache has the question, about 100 ms less; the two take turns in being
second, so their ratio is fair and their totals are a little low.
Every stage is also given as its share of the whole, which holds when the machine's speed does not. So does what the
runtime adds: what the stages and the sending took beyond the models' own computing, over that computing. Callers are
synthetic voices (see tests/support/speech.py); one call at a time.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
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
WAITING = ("pause", "confirming")  # for the caller, not for a stage
WITHOUT_DRAFT = {"turn": {"draft": False}}


@dataclass(frozen=True, slots=True)
class Way:
    """What a question is put to: a server, and what its `configure` event asks for."""

    url: str
    configure: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """ms: "total" as the client measures it, and the server's stages. models_ms: as in `events.Timing`."""

    ms: dict[str, float]
    models_ms: float | None
    underruns: int

    @property
    def runtime_share(self) -> float | None:
        """What was added to the models' own computing, over that."""
        if self.models_ms is None:
            return None
        stages_ms = sum(ms for stage, ms in self.ms.items() if stage not in ("total", *WAITING))
        return stages_ms / self.models_ms - 1


async def one_turn(way: Way, question: Question) -> Turn:
    samples = synthesise(question.text, question.voice)
    async with client.call(way.url, RATE_HZ, configure=way.configure) as caller:
        await caller.say(samples)
        voice_end_s = caller.spoken_until_s - silence_at_end_s(samples, RATE_HZ)
        first = await caller.wait_for_audio()
        since = caller.received.index(first)  # a reply that was given up before its first sound has no timing
        await caller.wait_for("reply_done", since)
    timing = caller.events("timing", since)[0]
    ms = {**timing["ms"], "total": (first.at_s - voice_end_s) * 1000}
    return Turn(ms, timing["models_ms"], caller.loudspeaker.underruns)


async def measure(turns: int, ways: Sequence[Way]) -> list[list[Turn]]:
    """The turns of each way. Every question goes to all of them, each time beginning with another."""
    came: list[list[Turn]] = [[] for _ in ways]
    for turn in range(turns):
        for number in range(len(ways)):
            at = (turn + number) % len(ways)
            came[at].append(await one_turn(ways[at], QUESTIONS[turn % len(QUESTIONS)]))
    return came


async def measure_pipelines(
    turns: int, pipelines: Sequence[Path], asked: Sequence[dict[str, Any] | None]
) -> list[list[Turn]]:
    """All servers at once and by turns where the memory allows, else one after the other. asked: of each of them."""
    if psutil.virtual_memory().available > SERVER_BYTES * len(pipelines):
        async with all_served(pipelines) as urls:
            return await measure(turns, [Way(url, configure) for url in urls for configure in asked])
    came = []
    for pipeline in pipelines:
        async with private_server(pipeline) as url:
            came += await measure(turns, [Way(url, configure) for configure in asked])
    return came


@contextlib.asynccontextmanager
async def all_served(pipelines: Sequence[Path]) -> AsyncIterator[list[str]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(private_server(pipeline)) for pipeline in pipelines]


def summary(turns: list[Turn]) -> dict[str, Any]:
    """Median, 95th percentile and share of the total's median, by stage; medians of what concerns the models.

    These are None when no turn has told it.
    """
    total = statistics.median(turn.ms["total"] for turn in turns)
    rows = {}
    for stage in ("total", *(name for name in turns[0].ms if name != "total")):
        values = [turn.ms[stage] for turn in turns]
        middle = statistics.median(values)
        rows[stage] = {"p50_ms": round(middle, 1), "p95_ms": round(p95(values), 1), "share": round(middle / total, 3)}
    return {
        "turns": len(turns),
        "underruns": sum(turn.underruns for turn in turns),
        "models_p50_ms": known_median(turn.models_ms for turn in turns),
        "runtime_share_p50": known_median(turn.runtime_share for turn in turns),
        "stages": rows,
    }


def known_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 3) if known else None


def ratio(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Totals of the second over those of the first."""
    first, second = (result["stages"]["total"] for result in results)
    return {name: round(second[f"{name}_ms"] / first[f"{name}_ms"], 3) for name in ("p50", "p95")}


def show(name: str, result: dict[str, Any]) -> None:
    print(f"{name}: {result['turns']} turns, {result['underruns']} underruns")
    print(f"{'stage':<12} {'p50 ms':>8} {'p95 ms':>8} {'share':>6}")
    for stage, row in result["stages"].items():
        print(f"{stage:<12} {row['p50_ms']:>8} {row['p95_ms']:>8} {row['share']:>6}")
    if result["runtime_share_p50"] is not None:
        share, models_ms = result["runtime_share_p50"], result["models_p50_ms"]
        print(f"the runtime adds {share:.1%} (p50) to the models' own {models_ms:.0f} ms")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--url")
    parser.add_argument("--pipeline", type=Path, action="append", help="twice: compares the second with the first")
    parser.add_argument("--without-draft", action="store_true", help="compares with turns without the draft")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    options.pipeline = options.pipeline or [default_pipeline()]
    if len(options.pipeline) > 2:
        parser.error("--pipeline was given more than twice")
    if len(options.pipeline) == 2 and options.without_draft:
        parser.error("--without-draft was given with two pipelines, expected one")
    return options


def main() -> None:
    options = parsed()
    asked = [None, WITHOUT_DRAFT] if options.without_draft else [None]
    served = [options.url] if options.url else [str(pipeline) for pipeline in options.pipeline]
    names = [f"{name}, no draft" if configure else name for name in served for configure in asked]
    if options.url:
        measured = measure(options.turns, [Way(options.url, configure) for configure in asked])
    else:
        measured = measure_pipelines(options.turns, options.pipeline, asked)
    results = [summary(turns) for turns in asyncio.run(measured)]
    compared = {"ratio": ratio(results)} if len(results) == 2 else {}
    if options.as_json:
        named = [{"name": name, **result} for name, result in zip(names, results, strict=True)]
        print(json.dumps({"pipelines": named, **compared}))
        return
    for name, result in zip(names, results, strict=True):
        show(name, result)
    for over in compared.values():
        print(f"totals, {names[1]}, over {names[0]}: p50 {over['p50']}, p95 {over['p95']}")


if __name__ == "__main__":
    main()
