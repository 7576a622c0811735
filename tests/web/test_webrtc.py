"""The page over WebRTC in a real Chromium, and what it does when there is no way through."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from tests.web.conftest import spoken
from tests.web.scripted import TRACK_HZ, RtcPeer, Scripted, SocketPeer, WebRtc

pytestmark = pytest.mark.asyncio(loop_scope="package")  # one browser for all


# Resolves when the loudspeaker was muted so often since the page was loaded, and sounds again as before.
MUTED = """async (times) => {
  const over = () => loudspeaker.mutes.length === 2 * times && !loudspeaker.muted && loudspeaker.volume === 1;
  while (!over()) await new Promise(requestAnimationFrame);
}"""


async def type_question(page: Page, server: Scripted) -> RtcPeer:
    await page.fill("#question", "Tell me something.")
    await page.press("#question", "Enter")
    peer = await server.call()
    assert isinstance(peer, RtcPeer)
    assert (await peer.event("text"))["text"] == "Tell me something."
    return peer


async def hear_a_turn(peer: RtcPeer) -> float:
    """When the caller's voice ended, on the loop's clock; returns after 300 ms of silence."""
    while peer.loud_s is None or asyncio.get_running_loop().time() - peer.loud_s < 0.3:
        await peer.heard()
    return peer.loud_s


async def test_a_spoken_turn_is_answered_and_its_delay_is_measured_from_ear_to_ear(
    page: Page, scripted_server: Scripted
) -> None:
    await page.click("#talk")
    peer: RtcPeer = await scripted_server.call()
    await expect(page.locator("#line")).to_have_text("WebRTC")
    await expect(page.locator("#state")).to_have_attribute("data-state", "listening")
    await peer.tell("speech_started")
    await expect(page.locator("#state")).to_have_attribute("data-state", "hearing")
    ended_s = await hear_a_turn(peer)
    await peer.tell("speech_stopped")
    await peer.tell("transcript", text="What is it?", final=True)
    await expect(page.locator("#state")).to_have_attribute("data-state", "thinking")
    await peer.tell("reply_started", reply="r1")
    peer.voice.put(spoken(1.5, TRACK_HZ))
    await expect(page.locator("#state")).to_have_attribute("data-state", "speaking")
    await expect(page.locator("#agentLevel")).not_to_have_js_property("value", 0)
    assert peer.voice.began_s is not None
    shown_ms = float((await page.locator("#ear").inner_text()).removesuffix(" s")) * 1000
    server_ms = (peer.voice.began_s - ended_s) * 1000
    assert server_ms - 100 < shown_ms < server_ms + 700  # both jitter buffers and this machine's other work
    await peer.tell("timing", reply="r1", ms={"pause": 96, "recognition": 48, "sending": 9, "total": 153})
    await peer.tell("reply_done", reply="r1", status="completed", heard="")
    await expect(page.locator("#state")).to_have_attribute("data-state", "listening")
    await expect(page.locator("#served")).to_have_text("0.15 s")
    await expect(page.locator("#stages li")).to_have_count(4)
    await page.click("#talk")
    async with asyncio.timeout(5):
        await peer.is_hung_up.wait()
    await expect(page.locator("#line")).to_have_text("Not connected")


async def test_it_tells_how_far_the_voice_has_come_while_the_voice_goes_on(
    page: Page, scripted_server: Scripted
) -> None:
    peer = await type_question(page, scripted_server)
    first = await peer.event("playout")
    for _ in range(4):
        last = await peer.event("playout")
    passed = (last["timestamp"] - first["timestamp"]) % 2**32
    assert 0.2 * 48_000 < passed < 2 * 48_000  # five reports, ten a second
    assert 0 <= last["delay_ms"] < 500
    assert all("a=ice-ufrag:" in told and "a=mid:" in told for told in scripted_server.fragments)
    assert "a=end-of-candidates" in "".join(scripted_server.fragments)


async def test_what_is_on_its_way_at_a_pause_or_a_cut_is_muted_until_it_is_over_and_a_paused_page_tells_that_once(
    page: Page, scripted_server: Scripted
) -> None:
    peer = await type_question(page, scripted_server)
    await peer.event("playout")
    await peer.tell("reply_started", reply="r1")
    await peer.tell("pause", reply="r1")
    await see_muted(page, 1)
    while "muted" not in await peer.event("playout"):
        pass
    await page.wait_for_timeout(500)  # in which a page that is not paused reports five times
    assert peer.events.empty()
    await peer.tell("resume", reply="r1")
    assert "muted" not in await peer.event("playout")
    for told in ("flush", "reply_started"):  # at once, as when a question is typed
        await peer.tell(told, reply="r1")
    await see_muted(page, 2)


async def see_muted(page: Page, times: int) -> None:
    async with asyncio.timeout(10):
        await page.evaluate(MUTED, times)


async def test_words_light_up_when_their_sound_comes_and_a_cut_strikes_the_others(
    page: Page, scripted_server: Scripted
) -> None:
    peer = await type_question(page, scripted_server)
    words = page.locator("#log .agent .heard")
    await peer.tell("reply_started", reply="r1")
    await peer.tell("reply_text", reply="r1", text="There was ")
    await expect(words).to_have_text(["There ", "was "])
    await peer.tell("pause", reply="r1")
    await peer.tell("reply_text", reply="r1", text="a dog.")
    await expect(page.locator("#log .agent p")).to_have_text("There was a dog.")
    await peer.tell("resume", reply="r1")
    await expect(words).to_have_count(4)
    await peer.tell("reply_text", reply="r1", text=" He ran away and far away.")
    await peer.tell("flush", reply="r1")
    await peer.tell("reply_done", reply="r1", status="interrupted", heard="There was a dog.")
    await expect(page.locator("#log .agent s")).to_have_text("He ran away and far away.")
    await expect(page.locator("#log .agent .cut")).to_have_attribute("aria-label", "interrupted here; not heard:")


async def test_a_line_that_breaks_is_replaced_by_one_with_its_token(page: Page, scripted_server: Scripted) -> None:
    peer = await type_question(page, scripted_server)
    assert "resume" not in peer.query
    await peer.vanish()
    again: RtcPeer = await scripted_server.call()
    assert again.query["resume"] == "t0ken/+"
    await expect(page.locator("#state")).to_have_attribute("data-state", "listening")
    await expect(page.locator("#line")).to_have_text("WebRTC")
    await again.close()  # the server's own end is not a broken line
    await expect(page.locator("#talk")).to_have_text("Reconnect")
    await expect(page.locator("#notice")).to_contain_text("lost")


async def test_without_a_way_through_the_call_goes_over_a_websocket(page: Page, scripted_server: Scripted) -> None:
    scripted_server.webrtc = WebRtc.BLOCKED
    await page.click("#talk")
    await expect(page.locator("#line")).to_have_text("Connecting")
    peer: SocketPeer = await scripted_server.call()
    assert isinstance(peer, SocketPeer)
    await expect(page.locator("#line")).to_have_text("WebSocket")
    await expect(page.locator("#notice")).to_contain_text("did not get through")
    await peer.tell("reply_started", reply="r1")
    await peer.tell("reply_text", reply="r1", text="Here I am.")
    await peer.sound(spoken(0.5, 24_000))
    assert (await peer.event("played"))["reply"] == "r1"
    await expect(page.locator("#state")).to_have_attribute("data-state", "speaking")
    await expect(page.locator("#log .agent .heard").first).to_have_text("Here ")


async def test_a_refusal_is_shown_and_not_tried_on_another_way(page: Page, scripted_server: Scripted) -> None:
    scripted_server.refusal = (503, "too_many_sessions")
    await page.click("#talk")
    await expect(page.locator("#state")).to_have_attribute("data-state", "error")
    await expect(page.locator("#notice")).to_contain_text("no room for another conversation")


async def test_another_microphone_is_taken_in_the_middle_of_a_call(page: Page, scripted_server: Scripted) -> None:
    peer = await type_question(page, scripted_server)
    await page.uncheck("#echo")
    while peer.loud_s is None:  # typed until now, and now it speaks
        await peer.heard()


async def test_a_refused_microphone_is_told_and_a_question_can_be_typed(page: Page, scripted_server: Scripted) -> None:
    scripted_server.denies_microphone = True
    await page.reload()
    await page.click("#talk")
    await expect(page.locator("#notice")).to_contain_text("microphone is blocked")
    await expect(page.locator("#talk")).to_have_text("Start talking")
    await type_question(page, scripted_server)
