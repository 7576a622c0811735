"""One browser for all tests of the page, and one server that is scripted anew by each."""

from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from tests.support.speech import write_wav
from tests.web.chromium import FLAGS, chromium
from tests.web.scripted import Scripted, WebRtc, scripted
from voice_runtime.audio.pcm import Samples
from voice_runtime.gateway.transports import upstream

MICROPHONE_HZ = 48_000


def spoken(seconds: float, rate_hz: int) -> Samples:
    """Like a voice to a level meter and to a noise suppressor: harmonics that rise and fall four times a second."""
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    pitch = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * t)) / rate_hz
    harmonics = sum(np.sin(n * pitch) / n for n in range(1, 12))
    envelope = 0.25 + 0.75 * np.abs(np.sin(2 * np.pi * 2 * t))
    return np.asarray(0.2 * harmonics * envelope, np.float32)


# `loudspeaker`: what plays the agent's voice over WebRTC, and how it was muted since the page was loaded.
LOUDSPEAKER = """
window.Audio = class extends Audio {
  mutes = [];
  constructor() {
    super();
    window.loudspeaker = this;
  }
  get muted() {
    return super.muted;
  }
  set muted(value) {
    if (value !== super.muted) this.mutes.push(value);
    super.muted = value;
  }
};
"""


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """Its microphone hears a voice for one second in every three."""
    program = chromium()
    heard = tmp_path_factory.mktemp("microphone") / "voice.wav"
    silence = np.zeros(2 * MICROPHONE_HZ, np.float32)
    write_wav(heard, np.concatenate([spoken(1.0, MICROPHONE_HZ), silence]), MICROPHONE_HZ)
    microphone = f"--use-file-for-fake-audio-capture={heard}"
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=program, args=[*FLAGS, microphone])
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def only_server() -> AsyncIterator[Scripted]:
    upstream.listen_on("127.0.0.1")  # aioice leaves loopback out
    async with scripted() as made:
        yield made


@pytest.fixture
def scripted_server(only_server: Scripted) -> Scripted:
    only_server.webrtc, only_server.refusal, only_server.denies_microphone = WebRtc.CONNECTS, None, False
    only_server.fragments.clear()
    return only_server


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def only_page(browser: Browser) -> AsyncIterator[Page]:
    """A window takes longer to open than most of what is tested in it."""
    opened = await browser.new_page()
    await opened.add_init_script(LOUDSPEAKER)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="package")
async def page(only_page: Page, scripted_server: Scripted) -> AsyncIterator[Page]:
    """The page, loaded anew. An error that it does not catch fails the test."""
    errors: list[str] = []
    await only_page.set_viewport_size({"width": 1280, "height": 720})
    await only_page.goto(f"http://127.0.0.1:{scripted_server.port}/")
    only_page.on("pageerror", listener := lambda error: errors.append(str(error)))
    yield only_page
    await only_page.evaluate("localStorage.clear()")  # the page keeps its settings
    only_page.remove_listener("pageerror", listener)
    assert errors == []
