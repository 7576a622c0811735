"""Parts of the page by hand, in a real Chromium: clocks, marks, and what a reader without eyes or mouse finds."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.web.scripted import Scripted

pytestmark = pytest.mark.asyncio(loop_scope="package")  # one browser for all

FRAMES_S = 0.05  # of five frames in each message

# steps: ["frames", caller, agent, times] or a method's name and its argument.
EAR = """async (steps) => {
  const { EarToEar } = await import("/latency.js");
  const [ear, told] = [new EarToEar(), []];
  let end = 0;
  for (const [step, caller, agent, times] of steps) {
    if (step !== "frames") ear[step](caller);
    else for (let count = 0; count < times; count++) {
      const frames = (level) => Array(5).fill([level, level]);
      const first = ear.push({ end: (end += 0.05), legs: [frames(caller), frames(agent)] });
      if (first) told.push(first);
    }
  }
  return told;
}"""
MARKS = """async (steps) => {
  const { Marks } = await import("/marks.js");
  const reached = [];
  const marks = new Marks((id) => reached.push(id));
  return steps.map(([step, ...values]) => {
    marks[step](...values);
    return reached.splice(0);
  });
}"""
ROOM, VOICE, SILENCE = 0.001, 0.1, 0.0


async def ear_to_ear(page: Page, *steps: tuple[object, ...]) -> list[dict[str, Any]]:
    return list(await page.evaluate(EAR, [list(step) for step in steps]))


async def test_the_delay_is_from_the_end_of_the_voice_to_the_first_sound_whatever_happens_between(
    page: Page,
) -> None:
    before = [("frames", ROOM, SILENCE, 20), ("frames", VOICE, SILENCE, 20), ("frames", ROOM, SILENCE, 10)]
    turn = [("stopped",), ("frames", VOICE, SILENCE, 2), ("asked",)]  # something fell in the silence
    first, typed = await ear_to_ear(
        page,
        *before,
        *turn,
        ("expect", "r1"),
        ("frames", ROOM, SILENCE, 3),
        ("frames", ROOM, VOICE, 5),
        ("expect", "r2"),  # its sound is not yet that of the reply before
        ("frames", ROOM, VOICE, 2),
        ("frames", ROOM, SILENCE, 2),
        ("frames", ROOM, VOICE, 2),
    )
    assert first["reply"] == "r1"
    assert first["ms"] == pytest.approx((10 + 2 + 3) * FRAMES_S * 1000, abs=1)
    assert typed == {"reply": "r2", "ms": None}


async def test_marks_are_reached_after_the_delay_and_never_while_the_sound_is_held(page: Page) -> None:
    steps = [
        ("add", "r1", 1, 0, 100, 0),
        ("add", "r1", 2, 0, 100, 400),
        ("advance", 99),
        ("advance", 100),  # 1
        ("add", "r1", 3, 150, 100, 0),  # so 2 was due before: at 250
        ("hold", 160),  # what is on its way is not heard, either
        ("add", "r1", 4, 170, 100, 0),
        ("advance", 1000),
        ("release", 1000, 100),  # what was due 90 ms later, at 250, is now due at 1190
        ("advance", 1189),
        ("advance", 1190),  # 2, 3
        ("advance", 1210),  # 4
        ("add", "r1", 5, 1220, 100, 0),
        ("drop", "r1"),
        ("advance", 2000),
    ]
    reached = await page.evaluate(MARKS, [list(step) for step in steps])
    assert [ids for ids in reached if ids] == [[1], [2, 3], [4]]
    assert reached[10] == [2, 3]
    assert reached[11] == [4]


async def test_every_control_has_a_name_and_a_place_in_the_order_of_keys(page: Page) -> None:
    await expect(page.get_by_role("status")).to_be_attached()
    for name in ("You", "Agent"):
        await expect(page.get_by_role("meter", name=name)).to_be_visible()
    log = page.get_by_role("log", name="Conversation")
    start = page.get_by_role("button", name="Start talking")
    question = page.get_by_role("textbox", name="Type a question")
    send = page.get_by_role("button", name="Send")
    microphone = page.get_by_role("combobox", name="Microphone")
    echo = page.get_by_role("checkbox", name="Cancel echo")
    for control in (log, start, question, send, microphone, echo):
        await page.keyboard.press("Tab")
        await expect(control).to_be_focused()


async def test_escape_interrupts_and_a_phone_is_wide_enough(page: Page, scripted_server: Scripted) -> None:
    await page.set_viewport_size({"width": 360, "height": 640})
    await page.fill("#question", "Tell me something with a verylongwordthatnobodyhaseversaidorwillsay.")
    await page.press("#question", "Enter")
    peer = await scripted_server.call()
    await peer.event("text")
    await page.keyboard.press("Escape")
    await peer.event("interrupt")
    await peer.tell("timing", reply="r1", ms={"recognition": 1234.5, "a_stage_with_a_long_name": 9.0, "total": 1243.5})
    await page.locator("summary").click()
    await expect(page.locator("#stages li")).to_have_count(2)
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
