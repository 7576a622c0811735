"""Who has the floor: scripted interruptions, backchannels, coughs, noise, echo and pauses against the default pipeline.

    python -m benchmarks.turn_taking [--scripts held_out tuning] [--only NAME ...] [--interruptions 20] [--json]

Each script of benchmarks/overlaps/ is a call in virtual time (tests/support/play.py): the agent is asked something, and
while it speaks the script sounds. The agent should yield to interruptions and keep its turn otherwise; it should not
speak in the caller's pauses. Settings are chosen on tuning.toml; held_out.toml was written without knowing them.
Then a caller interrupts over a real socket in real time: from the onset of its voice to silence at its loudspeaker.
"""

import argparse
import asyncio
import json
import statistics
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.support import overlaps
from tests.support.overlaps import Overlap
from tests.support.play import AGENT_HZ, Call, Theatre, theatre
from tests.support.speech import RATE_HZ, synthesise
from voice_runtime import client
from voice_runtime.audio.pcm import Samples
from voice_runtime.audio.resample import Resampler
from voice_runtime.cli import default_pipeline
from voice_runtime.session import events
from voice_runtime.talk import private_server

FOLDER = Path(__file__).parent / "overlaps"
SETTLED_S = 2.0  # after an overlap: whoever yields has done so by then
Verdict = Literal["yielded", "kept", "cut in", "waited", "void"]
RIGHT: dict[str, Verdict] = {"interruption": "yielded", "pause": "waited"}  # all others: "kept"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the agent did.

    paused_ms: how long it was silent for the overlap. fenced_samples: old sound after a flush.
    """

    name: str
    category: str
    verdict: Verdict
    paused_ms: float = 0.0
    fenced_samples: int = 0
    detail: str = ""

    @property
    def is_right(self) -> bool:
        return self.verdict == RIGHT.get(self.category, "kept")


async def play(stage: Theatre, script: Overlap) -> Outcome:
    async with stage.call() as call:
        if script.category == "pause":
            return await _pause(call, script)
        if script.echo is not None:
            call.echo = EchoAt16k(script)
        try:
            await call.ask(overlaps.asked(script), script.after_ms)
        except TimeoutError:
            return Outcome(script.name, script.category, "void", detail="no answer")
        return await _overlap(call, script)


class EchoAt16k:
    """The agent's sound at its own rate -> its echo at the microphone's."""

    def __init__(self, script: Overlap) -> None:
        assert script.echo is not None
        self._stream = overlaps.echo_stream(script.echo, AGENT_HZ)
        self._resampler = Resampler(AGENT_HZ, RATE_HZ)

    def __call__(self, played: Samples) -> Samples:
        return self._resampler.push(self._stream.push(played))


async def _overlap(call: Call, script: Overlap) -> Outcome:
    since, begun_s = call.mark(), call.now_s()
    if call.of(events.ReplyDone) and script.echo is None:
        return Outcome(script.name, script.category, "void", detail="the answer was too short")
    if script.echo is None:
        await call.say(overlaps.render(script))
        await call.listen(SETTLED_S)
    else:
        since = 0
        await call.until(lambda: bool(call.of(events.ReplyDone)), 90.0)
        await call.listen(SETTLED_S)
    flushed = call.of(events.Flush, since)
    told = [
        type(moment.event).__name__ for moment in call.told[since:] if not isinstance(moment.event, events.ReplyText)
    ]
    words = " | ".join(moment.event.text for moment in call.of(events.TranscriptReady, since))
    spoke = script.echo is not None and len(call.of(events.SpeechStarted)) > 1
    verdict: Verdict = "yielded" if flushed or spoke else "kept"
    return Outcome(
        script.name, script.category, verdict, _paused_ms(call, begun_s), call.fenced_samples, f"{told} {words}"
    )


def _paused_ms(call: Call, since_s: float) -> float:
    """All time between a pause and its resume or flush."""
    total, paused_s = 0.0, None
    for moment in call.told:
        if isinstance(moment.event, events.Pause):
            paused_s = moment.at_s
        elif isinstance(moment.event, events.Resume | events.Flush) and paused_s is not None:
            total, paused_s = total + moment.at_s - paused_s, None
    return round(total * 1000)


async def _pause(call: Call, script: Overlap) -> Outcome:
    await call.say(overlaps.render(script))
    said = call.mark()
    cut_in = bool(call.of(events.ReplyStarted)[:1]) and call.of(events.ReplyStarted)[0] in call.told[:said]
    try:
        await call.until_told(events.ReplyDone, said)
    except TimeoutError:
        return Outcome(script.name, script.category, "void", detail="no answer")
    words = " | ".join(moment.event.text for moment in call.of(events.TranscriptReady))
    return Outcome(script.name, script.category, "cut in" if cut_in else "waited", detail=words)


def table(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """A row for each category: how many, what the agent did, the share that is right."""
    rows = []
    by_category: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_category[outcome.category].append(outcome)
    for category, found in by_category.items():
        counted = [outcome for outcome in found if outcome.verdict != "void"]
        right = sum(outcome.is_right for outcome in counted)
        rows.append(
            {
                "category": category,
                "scripts": len(found),
                "verdicts": dict(Counter(outcome.verdict for outcome in found)),
                "right": round(right / len(counted), 3) if counted else None,
                "paused_ms_p50": statistics.median(outcome.paused_ms for outcome in found),
            }
        )
    return rows


async def play_all(scripts: list[Overlap]) -> list[Outcome]:
    outcomes = []
    async with theatre() as stage:
        for script in scripts:
            outcomes.append(await play(stage, script))
            mark = "void" if outcomes[-1].verdict == "void" else "ok" if outcomes[-1].is_right else "WRONG"
            print(f"{mark:<6}{script.category:<14}{script.name:<28}{outcomes[-1].verdict:<9}", end="")
            print(f"{outcomes[-1].paused_ms:6.0f} ms  {outcomes[-1].detail[:150]}", flush=True)
    return outcomes


# Onset to silence, in real time over a real socket

INTERRUPTIONS = (
    "Stop, please.",
    "Wait, I have another question.",
    "No, that is not what I meant.",
    "Hold on a moment.",
)
QUIET_S = 0.06  # silence for so long is no gap between two words' sounds while the reply goes on
ONSET_LEVEL = 0.01


async def silence_after_onset(url: str, number: int) -> float:
    """Milliseconds from the first sound of an interruption to the last of the agent's."""
    voice: Literal["flite", "festival"] = "flite" if number % 2 else "festival"
    spoken = synthesise(INTERRUPTIONS[number % len(INTERRUPTIONS)], voice)
    lead_s = float(np.argmax(np.abs(spoken) > ONSET_LEVEL)) / RATE_HZ
    async with client.call(url) as caller:
        await caller.say(synthesise("Tell me a long story about a fox and a bear.", "festival"))
        await caller.wait_for_audio()
        await asyncio.sleep(0.8 + 0.1 * (number % 7))
        since, begun_s = len(caller.received), asyncio.get_running_loop().time()
        await caller.say(spoken)
        await caller.wait_for("flush", since)
        said_s = caller.spoken_until_s - spoken.size / RATE_HZ
        end_s = asyncio.get_running_loop().time()
        caller.loudspeaker.buffered_ms(end_s)
        last = max((piece.at_s + len(piece.pcm) / 48_000 for piece in caller.loudspeaker.heard), default=begun_s)
    return (last - said_s - lead_s) * 1000


async def silences(count: int) -> list[float]:
    async with private_server(default_pipeline()) as url:
        return [await silence_after_onset(url, number) for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", default=["tuning", "held_out"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--interruptions", type=int, default=20)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    for name in options.scripts:
        scripts = [
            script
            for script in overlaps.load(FOLDER / f"{name}.toml")
            if not options.only or script.name in options.only or script.category in options.only
        ]
        outcomes = asyncio.run(play_all(scripts))
        result[name] = {"table": table(outcomes), "outcomes": [asdict(outcome) for outcome in outcomes]}
        for row in result[name]["table"]:
            print(f"{name:<10} {row}")
    if options.interruptions:
        found = asyncio.run(silences(options.interruptions))
        p95 = statistics.quantiles(found, n=20, method="inclusive")[-1]
        result["onset_to_silence_ms"] = {"n": len(found), "p50": statistics.median(found), "p95": p95}
        print(f"onset to silence: p50 {statistics.median(found):.0f} ms, p95 {p95:.0f} ms, n {len(found)}")
    if options.as_json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
