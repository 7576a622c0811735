"""Pictures of the page in its states, for docs/screenshots: `python -m tests.web.screenshots`."""

import asyncio
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aioice.ice
import numpy as np
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.speech import resample, synthesise, write_wav
from tests.web.chromium import FLAGS, chromium
from tests.web.scripted import TRACK_HZ, RtcPeer, Scripted, scripted

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SPEECH_HZ = 16_000
QUESTION = "What should I look at first in the night sky?"
ANSWER = "Start with the Moon. Through any binoculars you will see its craters, "
UNHEARD = "and beside it you may find a planet or two."
STAGES = {
    "pause": 96,
    "recognition": 48,
    "thinker": 87,
    "text": 104,
    "talker": 17,
    "voice": 41,
    "confirming": 20,
    "sending": 2,
    "total": 415,
}


KEPT = {
    "1-idle-light",
    "1-idle-phone-dark",
    "2-listening-light",
    "3-speaking-dark",
    "3-speaking-phone-light",
    "4-interrupted-light",
    "4-interrupted-phone-dark",
    "5-error-light",
    "5-error-phone-light",
}


@dataclass(frozen=True, slots=True)
class View:
    """A window. scale: device pixels per pixel of the page."""

    name: str
    width: int
    height: int
    scheme: str
    scale: float = 1.0


DESKTOP_LIGHT, DESKTOP_DARK = View("light", 820, 760, "light"), View("dark", 820, 760, "dark")
PHONE_LIGHT, PHONE_DARK = View("phone-light", 360, 740, "light", 2), View("phone-dark", 360, 740, "dark", 2)


async def shoot(page: Page, view: View, state: str) -> None:
    """As few colours as the eye needs, so that the files stay small."""
    if f"{state}-{view.name}" not in KEPT:
        return
    png = await page.screenshot()
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    picture.save(FOLDER / f"{state}-{view.name}.png", optimize=True)


async def question(page: Page, server: Scripted, view: View) -> RtcPeer:
    """A spoken one, up to the beginning of its answer."""
    await page.click("#talk")
    peer: RtcPeer = await server.call()
    await page.wait_for_function("callerLevel.value > 0.5")
    await shoot(page, view, "2-listening")
    await peer.tell("speech_started")
    await page.wait_for_function("callerLevel.value < 0.1")
    await peer.tell("speech_stopped")
    await peer.tell("transcript", text=QUESTION, final=True)
    return peer


async def answer(page: Page, peer: RtcPeer) -> None:
    await peer.tell("reply_started", reply="r1")
    await peer.tell("reply_text", reply="r1", text=ANSWER)
    peer.voice.put(resample(synthesise(ANSWER + UNHEARD, "flite"), SPEECH_HZ, TRACK_HZ))
    await peer.tell("timing", reply="r1", ms=STAGES, tokens={}, underruns=0)
    await page.locator("#log .agent .heard").nth(8).wait_for()


async def interrupt(page: Page, peer: RtcPeer) -> None:
    await peer.tell("reply_text", reply="r1", text=UNHEARD)
    await page.locator("#log .agent .heard").nth(12).wait_for()
    peer.voice.frames.clear()
    await peer.tell("flush", reply="r1")
    await peer.tell("reply_done", reply="r1", status="interrupted", heard=ANSWER)
    await peer.tell("speech_started")
    await peer.tell("transcript", text="Wait, which binoculars", final=False)
    await expect(page.locator("#log .partial")).to_be_visible()
    await page.wait_for_function("agentLevel.value === 0 && callerLevel.value > 0.5")
    await page.wait_for_function("callerLevel.value < 0.1")


async def story(browser: Browser, server: Scripted, view: View) -> None:
    size = {"width": view.width, "height": view.height}
    context = await browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme=view.scheme,  # type: ignore[arg-type]
        device_scale_factor=view.scale,
        bypass_csp=True,  # wait_for_function evaluates text
    )
    page = await context.new_page()
    await page.goto(f"http://127.0.0.1:{server.port}/")
    await expect(page.locator("#state")).to_have_attribute("data-state", "idle")
    await shoot(page, view, "1-idle")
    peer = await question(page, server, view)
    await answer(page, peer)
    await shoot(page, view, "3-speaking")
    await interrupt(page, peer)
    await shoot(page, view, "4-interrupted")
    await peer.close()
    await expect(page.locator("#talk")).to_have_text("Reconnect")
    await shoot(page, view, "5-error")
    await context.close()


async def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]  # it leaves loopback out
    with tempfile.TemporaryDirectory() as folder:
        heard = Path(folder) / "question.wav"
        speech = np.concatenate([synthesise(QUESTION, "flite"), np.zeros(SPEECH_HZ, np.float32)])
        write_wav(heard, resample(speech, SPEECH_HZ, 48_000), 48_000)
        flags = [*FLAGS, f"--use-file-for-fake-audio-capture={heard}"]
        async with scripted() as server, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium(), args=flags)
            for view in (DESKTOP_LIGHT, DESKTOP_DARK, PHONE_LIGHT, PHONE_DARK):
                await story(browser, server, view)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
