"""Who has the floor: scripted interruptions, backchannels, coughs, noise, echo and pauses against the default pipeline.

    python -m benchmarks.turn_taking [--scripts held_out tuning] [--only NAME ...] [--interruptions 40] [--json]

Each script of benchmarks/overlaps/ is a call in virtual time (tests/support/play.py): the agent is asked something, and
while it speaks the script sounds. The agent should yield to interruptions and keep its turn otherwise; it should not
speak in the caller's pauses. Settings are chosen on tuning.toml; held_out.toml was written without knowing them.
Then a caller interrupts over a real socket in real time: from the onset of its voice to silence at its loudspeaker.
Goals: interruptions yielded >= 0.95, backchannels kept >= 0.9, noise and echo kept >= 0.95, pauses cut <= 0.05;
onset to silence p50 <= 150 ms, p95 <= 250 ms.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks._measure import p95
from tests.support import overlaps
from tests.support.overlaps import Overlap
from tests.support.play import AGENT_HZ, Call, EchoAtMicrophone, Theatre, theatre
from tests.support.speech import RATE_HZ, synthesise
from voice_runtime import client
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
            call.echo = EchoAtMicrophone(script.echo)
        try:
            await call.ask(overlaps.asked(script), script.after_ms)
        except TimeoutError:
            return Outcome(script.name, script.category, "void", detail="no answer")
        return await _overlap(call, script)


async def _overlap(call: Call, script: Overlap) -> Outcome:
    """An answer that is over before the overlap is shows nothing: void."""
    reply, since = call.of(events.ReplyStarted)[-1].event.reply, call.mark()
    if script.echo is not None:
        await call.until(lambda: bool(call.of(events.ReplyDone)), 90.0)
        await call.listen(SETTLED_S)
        told = [moment.event for moment in call.told]
        yielded = len(call.of(events.SpeechStarted)) > 1 or bool(call.of(events.Flush))
    else:
        if not _is_over(call, reply):
            await call.say(overlaps.render(script))
        if _is_over(call, reply) and not call.of(events.Flush):
            return Outcome(script.name, script.category, "void", detail="the answer was too short")
        await call.listen(SETTLED_S)
        told = [moment.event for moment in call.told[since:]]
        flushed = any(isinstance(event, events.Flush) and event.reply == reply for event in told)
        cut = any(isinstance(event, events.ReplyDone) and event.status == "interrupted" for event in told)
        answered = any(isinstance(event, events.ReplyStarted) for event in told)
        yielded = (flushed and cut) or answered
    words = " | ".join(event.text for event in told if isinstance(event, events.TranscriptReady))
    verdict: Verdict = "yielded" if yielded else "kept"
    return Outcome(script.name, script.category, verdict, _paused_ms(call), call.fenced_samples, words)


def _is_over(call: Call, reply: str) -> bool:
    return any(moment.event.reply == reply for moment in call.of(events.ReplyDone))


def _paused_ms(call: Call) -> float:
    """All time between a pause and its resume or flush."""
    total, paused_s = 0.0, None
    for moment in call.told:
        if isinstance(moment.event, events.Pause):
            paused_s = moment.at_s
        elif isinstance(moment.event, events.Resume | events.Flush) and paused_s is not None:
            total, paused_s = total + moment.at_s - paused_s, None
    return round(total * 1000)


async def _pause(call: Call, script: Overlap) -> Outcome:
    """A turn that is over before the caller has finished is cut, whether or not the agent was quick enough to speak."""
    await call.say(overlaps.render(script))
    if call.of(events.SpeechStopped):
        words = " | ".join(moment.event.text for moment in call.of(events.TranscriptReady))
        return Outcome(script.name, script.category, "cut in", detail=words)
    try:
        await call.until_told(events.ReplyStarted)
    except TimeoutError:
        return Outcome(script.name, script.category, "void", detail="no answer")
    words = " | ".join(moment.event.text for moment in call.of(events.TranscriptReady))
    return Outcome(script.name, script.category, "waited", detail=words)


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
                "paused_ms_p50": statistics.median(outcome.paused_ms for outcome in counted) if counted else None,
                "old_samples": sum(outcome.fenced_samples for outcome in found),
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
QUESTIONS = ("Tell me a long story about a fox and a bear.", "What should I know about the history of London?")
ONSET_LEVEL = 0.02  # of a voice whose speech has an RMS of 0.08
BEFORE_S = 0.1  # the agent is speaking if it was heard so shortly before the onset
QUIET_S = 0.15  # so much silence is no gap between two of the agent's words


async def silence_after_onset(url: str, number: int) -> tuple[float, bool] | None:
    """Milliseconds from the first sound of an interruption to the agent's silence, and whether the agent went on for a
    while in the middle of it; None when it was silent at the onset."""
    voice: Literal["flite", "festival"] = "flite" if number % 2 else "festival"
    spoken = synthesise(INTERRUPTIONS[number % len(INTERRUPTIONS)], voice)
    lead_s = float(np.argmax(np.abs(spoken) > ONSET_LEVEL)) / RATE_HZ
    async with client.call(url) as caller:
        await caller.say(synthesise(QUESTIONS[number % len(QUESTIONS)], "festival"))
        await caller.wait_for_audio()
        await asyncio.sleep(0.8 + 0.1 * (number % 7))
        since = len(caller.received)
        await caller.say(spoken)
        onset_s = caller.spoken_until_s - spoken.size / RATE_HZ + lead_s
        try:
            paused = await caller.wait_for("pause", since, timeout_s=5.0)
        except TimeoutError:
            return None
        was_speaking = bool(np.any(caller.loudspeaker.sound(onset_s - BEFORE_S, onset_s)))
        until_s = paused.at_s + 1.0  # the next answer takes longer
        sound = np.flatnonzero(caller.loudspeaker.sound(onset_s, min(until_s, time.monotonic())))
    if not was_speaking or not sound.size:
        return None
    gaps = np.flatnonzero(np.diff(sound) > QUIET_S * AGENT_HZ)
    silent_at = sound[gaps[0]] if gaps.size else sound[-1]
    return float(silent_at) / AGENT_HZ * 1000, gaps.size > 0


async def silences(count: int) -> list[tuple[float, bool] | None]:
    async with private_server(default_pipeline()) as url:
        return [await silence_after_onset(url, number) for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", default=["tuning", "held_out"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--interruptions", type=int, default=40)
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
        measured = asyncio.run(silences(options.interruptions))
        found = [one[0] for one in measured if one is not None]
        again = sum(one[1] for one in measured if one is not None)
        print(" ".join(f"{ms:.0f}" for ms in sorted(found)))
        void, middle, high = len(measured) - len(found), statistics.median(found), p95(found)
        result["onset_to_silence_ms"] = {"n": len(found), "void": void, "p50": middle, "p95": high, "again": again}
        print(f"onset to silence: p50 {middle:.0f} ms, p95 {high:.0f} ms, n {len(found)}, void {void}", end="")
        print(f"; went on in between {again} times")
    if options.as_json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
