"""Interruptions at the page, in a real Chromium over WebRTC: from the caller's voice to silence, by the page's clock.

    python -m benchmarks.page [--count 20] [--headphones]

The browser's microphone plays a recording: a question, and in the middle of the answer an interruption. --headphones
turns the page's echo cancellation off, which while the agent speaks takes soft sounds of the caller's away, too. When
the page mutes its loudspeaker, that is taken to be silence at once.
Goal: silence within 250 ms in 95 of 100. Also how well a recogniser reads what the page has played.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from playwright.async_api import Page, async_playwright

from benchmarks._measure import p95
from tests.support.legs import QUIET_S, onsets, record, silence_after_s, take
from tests.support.speech import pooled_word_error_rate, recognise, synthesise, write_wav
from tests.web.chromium import FLAGS, chromium
from voice_runtime.audio.pcm import Samples
from voice_runtime.cli import default_pipeline
from voice_runtime.talk import private_server

RATE_HZ = 16_000
QUESTIONS = ("Tell me a long story about a little dog.", "Tell me about the history of Rome.", "Why is the sky blue?")
INTERRUPTIONS = ("Stop, please wait a moment.", "Hold on, I have another question.", "No, that is not what I meant.")
ANSWER_S = 3.2  # from the end of the question to the interruption
AFTER_S = 6.0


@dataclass(frozen=True, slots=True)
class Found:
    """silent_s: None when the agent was silent already. again: it went on for a moment, in the middle of a pause.

    said, read: the captions of what was heard, and what was recognised.
    """

    silent_s: float | None
    again: bool
    said: str
    read: str


def recording(number: int) -> Samples:
    """A question and an interruption."""
    question = synthesise(QUESTIONS[number % len(QUESTIONS)], "flite")
    interruption = synthesise(INTERRUPTIONS[number % len(INTERRUPTIONS)], "flite")
    gaps = (np.zeros(int(seconds * RATE_HZ), np.float32) for seconds in (1.0, ANSWER_S, AFTER_S))
    return np.concatenate([next(gaps), question, next(gaps), interruption, next(gaps)])


async def one(page: Page, url: str, seconds: float, *, headphones: bool) -> Found:
    await record(page)
    await page.goto(url)
    await page.set_checked("#echo", not headphones)
    await page.click("#talk")
    await page.wait_for_timeout(1_000 * seconds)
    caller, agent = await take(page, "caller"), await take(page, "agent")
    text = page.locator("#log .agent p").first
    said = await text.evaluate("(node) => [...node.childNodes].filter((one) => one.nodeName !== 'S')"
                               ".map((one) => one.textContent).join('')") if await text.count() else ""  # fmt: skip
    spoken = onsets(caller)
    if len(spoken) < 2:
        return Found(None, False, said, "")
    onset_s = spoken[-1]
    silent_s, over_s = silence_after_s(agent, onset_s), silence_after_s(agent, onset_s, QUIET_S)
    played = agent.between(spoken[0], onset_s + (over_s or 0))
    return Found(silent_s, over_s != silent_s, said, recognise(played, RATE_HZ))


async def measure(count: int, *, headphones: bool) -> list[Found]:
    found: list[Found] = []
    async with private_server(default_pipeline()) as url, async_playwright() as playwright:
        for number in range(count):
            with tempfile.TemporaryDirectory() as folder:
                spoken = recording(number)
                write_wav(Path(folder) / "microphone.wav", spoken, RATE_HZ)
                fake = f"--use-file-for-fake-audio-capture={folder}/microphone.wav%noloop"
                browser = await playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, fake])
                page = await browser.new_page()
                found.append(await one(page, url.replace("ws", "http"), spoken.size / RATE_HZ, headphones=headphones))
                await browser.close()
            print(json.dumps(asdict(found[-1])), flush=True)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=20)
    arguments.add_argument("--headphones", action="store_true")
    options = arguments.parse_args()
    found = asyncio.run(measure(options.count, headphones=options.headphones))
    silent_ms = [1_000 * one.silent_s for one in found if one.silent_s is not None]
    print(f"{len(silent_ms)} interruptions, {len(found) - len(silent_ms)} with the agent silent already")
    if len(silent_ms) > 1:
        again = sum(one.again for one in found)
        print(f"in {again} the agent went on for a moment")
        print(f"onset to silence at the page: p50 {statistics.median(silent_ms):.0f} ms, p95 {p95(silent_ms):.0f} ms")
    read = [(one.said, one.read) for one in found if one.said and one.read]
    print(f"captions of heard words against what was recognised: {pooled_word_error_rate(read):.1%} of words differ")


if __name__ == "__main__":
    main()
