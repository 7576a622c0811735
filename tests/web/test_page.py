"""The page in a real Chromium with a fake microphone: ask aloud, see and hear the answer, interrupt it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.support.serving import Served
from tests.support.speech import synthesise, with_silence, write_wav
from tests.web.chromium import FLAGS, chromium

ANSWER_MS = 30_000


@pytest.fixture
async def page(server: Served, tmp_path: Path) -> AsyncIterator[Page]:
    """The page, opened, with a microphone that asks for the capital of Italy once."""
    program = chromium()
    spoken = tmp_path / "question.wav"
    write_wav(spoken, with_silence(synthesise("What is the capital of Italy?", "flite"), 1.0, 20.0), 16_000)
    microphone = f"--use-file-for-fake-audio-capture={spoken}%noloop"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*FLAGS, microphone])
        opened = await browser.new_page()
        await opened.goto(f"http://127.0.0.1:{server.port}/")
        yield opened
        await browser.close()


async def test_a_question_to_the_microphone_is_answered_on_the_page(page: Page) -> None:
    await page.click("#talk")
    await expect(page.locator("#log")).to_contain_text("Rome", timeout=ANSWER_MS)
    await expect(page.locator("#log")).to_contain_text("capital")
    await expect(page.locator("#line")).to_have_text("WebRTC")
    await expect(page.locator("#state")).to_have_attribute("data-state", "speaking", timeout=ANSWER_MS)
    await expect(page.locator("#state")).to_have_attribute("data-state", "listening", timeout=ANSWER_MS)


async def test_the_button_interrupts_a_typed_questions_answer(page: Page, server: Served) -> None:
    await page.locator("#question").press_sequentially("Tell me a long story about a little dog.")
    await page.press("#question", "Enter")
    await expect(page.locator("#state")).to_have_attribute("data-state", "speaking", timeout=ANSWER_MS)
    await page.click("#interrupt")
    await expect(page.locator("#state")).not_to_have_attribute("data-state", "speaking", timeout=1_000)
    server.wait_idle()


async def test_nothing_is_loaded_from_elsewhere_and_nothing_is_blocked(page: Page, server: Served) -> None:
    errors: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    await page.reload()
    await page.click("#talk")
    await expect(page.locator("#state")).to_have_attribute("data-state", "listening", timeout=ANSWER_MS)
    assert errors == []
    assert asked
    assert all(f"127.0.0.1:{server.port}" in url for url in asked)
