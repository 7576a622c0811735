"""The page over a WebSocket, and its playback, in a real Chromium against a server whose every message is written here.

The server has no WebRTC: that the page speaks to it at all is the plainest of its ways back.
"""

from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, expect

from tests.web.scripted import Scripted, SocketPeer, WebRtc
from voice_runtime.audio.pcm import Samples, to_pcm, to_samples
from voice_runtime.client import FADE_MS, Loudspeaker

pytestmark = pytest.mark.asyncio(loop_scope="package")  # one browser for all

RATE_HZ = 24_000
FADE = RATE_HZ * FADE_MS // 1000

# Runs the processor by hand, sample by sample, so that an order comes between two samples that the test has chosen.
PLAY = """async ([contextHz, rateHz, steps]) => {
  const [told, out] = [[], []];
  globalThis.sampleRate = contextHz;
  globalThis.AudioWorkletProcessor = class { port = { postMessage: (message) => told.push(message) } };
  globalThis.registerProcessor = (_name, made) => (globalThis.Playback = made);
  await import("/playback-worklet.js");
  const playback = new Playback({ processorOptions: { rateHz } });
  for (const [order, value] of steps) {
    const channel = new Float32Array(order === "run" ? value : 0);
    if (order === "run") playback.process([], [[channel]]);
    else if (order === "push") playback.port.onmessage({ data: { ...value, pcm: new Int16Array(value.pcm).buffer } });
    else if (order === "mark") playback.port.onmessage({ data: value });
    else playback.port.onmessage({ data: { [order]: value } });
    out.push(...channel);
  }
  return [out, told];
}"""


@pytest.fixture
def server(scripted_server: Scripted) -> Scripted:
    scripted_server.webrtc = WebRtc.MISSING
    return scripted_server


def sound(samples: int, seed: int = 0) -> Samples:
    """No two neighbours alike, so that a sample played twice or left out is seen."""
    drawn = np.random.default_rng(seed).uniform(0.1, 0.9, samples).astype(np.float32)
    return to_samples(to_pcm(drawn))


def push(samples: Samples, reply: str = "r1") -> tuple[str, object]:
    return "push", {"reply": reply, "pcm": np.frombuffer(to_pcm(samples), "<i2").tolist()}


async def play(page: Page, *steps: tuple[str, object], context_hz: int = RATE_HZ) -> tuple[Samples, list[Any]]:
    """What comes out, and what is told. At equal rates the worklet is one sample late, which is left out here."""
    await page.goto(page.url + "blank")
    out, told = await page.evaluate(PLAY, [context_hz, RATE_HZ, steps])
    return np.array(out[1:], np.float32), told


async def test_the_playback_pauses_and_resumes_to_the_sample_as_the_python_client_does(page: Page) -> None:
    samples = sound(9_000)
    steps: list[tuple[str, object]] = [push(samples[:5_000]), push(samples[5_000:])]
    loudspeaker, now = Loudspeaker(RATE_HZ), 0
    loudspeaker.begin(0.0)
    loudspeaker.push(to_pcm(samples), 0.0)
    orders = [(4_700, "pause"), (3_000, "resume"), (200, "pause"), (100, "resume"), (50, "pause"), (1_000, "resume")]
    for size, order in [*orders, (100, "resume"), (2_000, "pause"), (10, "pause"), (1_000, "resume")]:
        now += size
        steps += [("run", size), (order, "r1")]
        (loudspeaker.pause if order == "pause" else loudspeaker.resume)(now / RATE_HZ)
    out, told = await play(page, *steps, ("run", 5_001))
    loudspeaker.buffered_ms((now + 5_000) / RATE_HZ)
    np.testing.assert_allclose(out, loudspeaker.sound(0.0, (now + 5_000) / RATE_HZ), atol=1.01 / 32_768)
    assert told[-1] == {"reply": "r1", "ms": 375}


async def test_a_paused_reply_fades_out_stays_silent_and_goes_on_with_the_faded_samples(page: Page) -> None:
    samples = sound(6_000)
    out, told = await play(
        page, push(samples), ("run", 2_401), ("pause", "r1"), ("run", 2_400), ("resume", "r1"), ("run", 3_600)
    )
    ramp = np.arange(1, FADE + 1) / FADE
    np.testing.assert_array_equal(out[:2_400], samples[:2_400])
    paused, resumed, rest = out[2_400:4_800], out[4_800:], samples[2_401:]
    np.testing.assert_allclose(paused[1 : FADE + 1], rest[:FADE] * (1 - ramp), atol=1e-6)
    assert not paused[FADE + 1 :].any()
    np.testing.assert_allclose(resumed[1 : FADE + 1], rest[:FADE] * ramp, atol=1e-6)
    np.testing.assert_array_equal(resumed[FADE + 1 :], rest[FADE : resumed.size - 1])
    assert {"reply": "r1", "ms": 100} in told


async def test_a_reply_that_is_flushed_while_paused_stays_silent_and_the_next_is_played(page: Page) -> None:
    samples, following = sound(6_000), sound(1_000, 1)
    flushed = [push(samples), ("run", 100), ("pause", "r1"), ("run", 1_000), ("flush", "r1"), ("resume", "r1")]
    out, told = await play(page, *flushed, ("run", 1_000), push(following, "r2"), ("run", 1_001))
    assert not out[100 + FADE : 2_100].any()
    np.testing.assert_array_equal(out[2_100:], following)
    assert told[-2:] == [{"reply": "r1", "ms": 4}, {"reply": "r2", "ms": 42}]


async def test_a_flush_fades_out_and_drops_the_rest(page: Page) -> None:
    samples = sound(6_000)
    out, _ = await play(page, push(samples), ("run", 1_000), ("flush", "r1"), ("run", 2_000))
    assert out[: 1_000 + FADE - 2].all()
    assert out[1_000 + FADE - 50 : 1_000 + FADE].max() < 0.15
    assert not out[1_000 + FADE :].any()


async def test_a_pause_of_another_reply_is_over_when_the_next_brings_sound(page: Page) -> None:
    following = sound(1_000, 1)
    out, _ = await play(
        page, push(sound(500)), ("run", 100), ("pause", "r1"), ("run", 900), push(following, "r2"), ("run", 1_001)
    )
    np.testing.assert_array_equal(out[1_000:], following)


async def test_at_another_rate_a_resumed_reply_is_played_to_its_end_once(page: Page) -> None:
    paused = [push(sound(6_000)), ("run", 2_000), ("pause", "r1"), ("run", 9_000), ("resume", "r1")]
    out, told = await play(page, *paused, ("run", 12_000), context_hz=48_000)
    assert told[-1] == {"reply": "r1", "ms": 250}
    assert np.flatnonzero(out).size == pytest.approx(2 * (6_000 + FADE), abs=8)


def mark(id_: int, ahead_ms: int = 0, reply: str = "r1") -> tuple[str, object]:
    return "mark", {"mark": id_, "reply": reply, "aheadMs": ahead_ms}


async def test_a_word_is_told_when_its_sample_is_played_and_not_while_paused(page: Page) -> None:
    first = [mark(1), mark(2, 200), push(sound(2_400)), mark(3), push(sound(2_400))]  # 2 was guessed after 3
    steps = [*first, ("run", 1), ("run", 2_399), ("pause", "r1"), ("run", 9_000), ("resume", "r1"), ("run", 2)]
    _, told = await play(page, *steps, mark(4), push(sound(100)), ("flush", "r1"), ("run", 9_000))
    assert [message for message in told if message != {"reply": "r1", "ms": 100}] == [
        {"reached": 1},
        {"reached": 2},
        {"reached": 3},
    ]


async def test_words_of_a_reply_that_ended_before_its_guess_are_told_when_the_next_begins(page: Page) -> None:
    steps = [mark(1, 900), push(sound(100)), mark(2, reply="r2"), push(sound(100), "r2")]
    _, told = await play(page, *steps, ("run", 300))
    assert [message["reached"] for message in told if "reached" in message] == [1, 2]


async def begin(page: Page, server: Scripted) -> SocketPeer:
    """A call without a microphone, and its reply under way."""
    await page.fill("#question", "Tell me something.")
    await page.press("#question", "Enter")
    peer: SocketPeer = await server.call()
    assert (await peer.event())["type"] == "text"
    await peer.tell("reply_started", reply="r1")
    return peer


async def test_a_paused_page_reports_at_once_and_after_the_resume_to_the_end(page: Page, server: Scripted) -> None:
    peer = await begin(page, server)
    await peer.sound(sound(RATE_HZ * 2))
    await peer.tell("pause", reply="r0")  # no reply of this call
    assert (await peer.event())["ms"] >= 100
    places = []
    for _ in range(5):
        await peer.tell("pause", reply="r1")
        places.append((await peer.event())["ms"])
        await peer.tell("resume", reply="r1")
    assert places == sorted(places)
    assert places[-1] - places[0] < 300  # at the usual reports each would be 100 ms further
    while (last := await peer.event())["ms"] < 2_000:
        assert last["reply"] == "r1"


async def test_words_still_being_said_are_grey_and_replaced_by_the_final_ones(page: Page, server: Scripted) -> None:
    peer = await begin(page, server)
    said = page.locator("#log .caller").nth(1)
    await peer.tell("transcript", text="what is", final=False)
    await expect(said.locator("p")).to_have_text("what is")
    await expect(said).to_have_class("caller partial")
    await peer.tell("transcript", text="what is the cat", final=False)
    await expect(said.locator("p")).to_have_text("what is the cat")
    await peer.tell("transcript", text="What is the capital?", final=True)
    await expect(said.locator("p")).to_have_text("What is the capital?")
    await expect(said).to_have_class("caller")
    await expect(page.locator("#log .caller")).to_have_count(2)


async def test_the_words_of_an_interrupted_reply_that_were_not_heard_are_struck_out(
    page: Page, server: Scripted
) -> None:
    peer = await begin(page, server)
    await peer.tell("reply_text", reply="r1", text="There was a dog. ")
    await peer.tell("reply_text", reply="r1", text="He ran away.")
    await peer.tell("reply_done", reply="r1", status="interrupted", heard="There was a dog. He")
    await expect(page.locator("#log .agent s")).to_have_text("ran away.")
    await expect(page.locator("#log .agent p")).to_have_text("There was a dog. He ran away.")
    await peer.tell("reply_started", reply="r2")
    await peer.tell("reply_text", reply="r2", text="All of it.")
    await peer.tell("reply_done", reply="r2", status="completed", heard="All of it.")
    await expect(page.locator("#log .agent p").nth(1)).to_have_text("All of it.")
    await expect(page.locator("#log s")).to_have_count(1)


async def test_a_polite_end_is_shown_as_the_servers_and_not_as_a_fault(page: Page, server: Scripted) -> None:
    peer = await begin(page, server)
    await peer.tell("closing", reason="session_too_long")
    await expect(page.locator("#notice")).to_contain_text("session too long")
    await peer.close()
    await expect(page.locator("#talk")).to_have_text("Start talking")
    await expect(page.locator("#state")).to_have_attribute("data-state", "idle")
    await expect(page.locator("#notice")).to_contain_text("session too long")


async def test_a_lost_connection_is_made_again_with_its_token_and_a_stopped_one_is_not(
    page: Page, server: Scripted
) -> None:
    peer = await begin(page, server)
    assert "resume" not in peer.query
    await peer.close(1011)
    await expect(page.locator("#talk")).to_have_text("Reconnect")
    await expect(page.locator("#notice")).to_contain_text("lost")
    await page.click("#talk")
    assert (await server.call()).query["resume"] == "t0ken/+"
    await expect(page.locator("#log")).to_contain_text("Tell me something.")
    await expect(page.locator("#talk")).to_have_text("Stop")
    await page.click("#talk")
    await expect(page.locator("#talk")).to_have_text("Start talking")
    await page.click("#talk")
    assert "resume" not in (await server.call()).query
