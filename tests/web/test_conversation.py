"""A whole conversation at the page, in a real Chromium over WebRTC, with the real pipeline: recorded on both legs."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.support.legs import onsets, record, silence_after_s, take
from tests.support.serving import Served
from tests.support.speech import recognise, synthesise, with_silence, word_error_rate, write_wav
from tests.web.chromium import FLAGS, chromium

RATE_HZ = 16_000
QUESTION = "Tell me a long story about a little dog."
INTERRUPTION = "Stop, please wait a moment."
UNTIL_INTERRUPTED_S = 8.0  # a busy machine begins its answer late
ANSWER_MS = 30_000


@pytest.fixture
async def page(server: Served, tmp_path: Path) -> AsyncIterator[Page]:
    """The page, whose microphone asks for a story and interrupts it after some seconds."""
    asked = with_silence(synthesise(QUESTION, "flite"), 1.0, UNTIL_INTERRUPTED_S)
    write_wav(
        tmp_path / "microphone.wav",
        np.concatenate([asked, with_silence(synthesise(INTERRUPTION, "flite"), 0.0, 30.0)]),
        RATE_HZ,
    )
    microphone = f"--use-file-for-fake-audio-capture={tmp_path}/microphone.wav%noloop"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, microphone])
        opened = await browser.new_page()
        await record(opened)
        await opened.goto(f"http://127.0.0.1:{server.port}/")
        yield opened
        await browser.close()


async def test_a_story_is_heard_as_its_captions_say_and_cut_where_the_caller_interrupts(page: Page) -> None:
    await page.click("#talk")
    answer = page.locator("#log .agent").first
    await expect(answer.locator("small").first).to_have_text("interrupted", timeout=ANSWER_MS)
    await expect(page.locator("#log .caller p").first).to_contain_text("long story", timeout=ANSWER_MS)
    await expect(page.locator("#line")).to_have_text("WebRTC")
    heard = await answer.locator("p").evaluate(
        "(node) => [...node.childNodes].filter((one) => one.nodeName !== 'S').map((one) => one.textContent).join('')"
    )
    await page.wait_for_timeout(1_000)  # of sound: the recording is to have the silence after the cut
    caller, agent = await take(page, "caller"), await take(page, "agent")
    interrupted_s = onsets(caller)[-1]
    silent_s = silence_after_s(agent, interrupted_s)
    assert silent_s is not None  # it spoke when it was interrupted
    played = agent.between(agent.start_s, interrupted_s + silent_s)
    assert len(heard.split()) > 5
    assert word_error_rate(heard, recognise(played, RATE_HZ)) < 0.4  # the last word may be half of one
