"""Agent: answers. Caller: interrupts, at any moment, again and again."""

import statistics

import jiwer
import numpy as np
import pytest

from tests.support.overlaps import spoken
from tests.support.play import AGENT_HZ, Call, Theatre
from tests.support.questions import QUESTIONS
from tests.support.speech import normalised, recognise
from voice_runtime.session import events

VOICED_EVERY = 5  # the other interruptions are a button


async def interrupted(call: Call, number: int, after_ms: float) -> events.ReplyDone | None:
    """Ask, listen for a while, interrupt; None when the answer was over before."""
    before = call.mark()
    call.session.receive(events.TypedText(f"Tell me a long story. {QUESTIONS[number % len(QUESTIONS)].text}"))
    await call.hear_answer(after_ms, before)
    if call.of(events.ReplyDone, before):
        return None
    if number % VOICED_EVERY:
        call.session.receive(events.Interrupt())
    else:
        await call.say(spoken("Stop! That is enough.", "festival"))
    done: events.ReplyDone = await call.until_told(events.ReplyDone, before)
    if not number % VOICED_EVERY:  # what was said is answered, too: that is not wanted here
        await call.until(lambda: len(call.of(events.ReplyStarted, before)) > 1)
        call.session.receive(events.Interrupt())
    await call.listen(0.3)
    return done


def heard_by_recogniser(call: Call, reply: str) -> list[str]:
    """The words in what came out of the loudspeaker of one reply."""
    begun = next(moment.at_s for moment in call.of(events.ReplyStarted) if moment.event.reply == reply)
    over = next(moment.at_s for moment in call.of(events.ReplyDone) if moment.event.reply == reply)
    return words(recognise(call.loudspeaker.sound(begun, over), AGENT_HZ))


def words(text: str) -> list[str]:
    return normalised(text).split()


def words_in_common(reply: list[str], heard: list[str]) -> int:
    """How many words of the reply the recogniser has got to: the beginning of it that is most like what it found."""
    distances = [edit_distance(reply[:count], heard) for count in range(len(reply) + 1)]
    return distances.index(min(distances))


def edit_distance(left: list[str], right: list[str]) -> int:
    if not left or not right:
        return len(left) + len(right)
    found = jiwer.process_words(" ".join(left), " ".join(right))
    return int(found.substitutions + found.deletions + found.insertions)


@pytest.mark.parametrize("count", [6, pytest.param(500, marks=pytest.mark.soak)])
async def test_no_old_sound_follows_a_flush_however_often_and_whenever_the_caller_interrupts(
    stage: Theatre, count: int
) -> None:
    rng = np.random.default_rng(5)
    made, fenced = 0, 0
    for number in range(count):
        async with stage.call() as call:
            done = await interrupted(call, number, float(rng.uniform(0, 1_500)))
            made += done is not None and done.status == "interrupted"
            fenced += call.fenced_samples
    held = await stage.settled()
    assert held["vocoder_slots"] == held["generations"] == 0
    print(f"{made} of {count} interrupted, {fenced} old samples")
    assert made >= 0.9 * count
    assert fenced == 0


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.soak)])
async def test_the_history_has_the_words_that_a_recogniser_finds_in_what_was_played(stage: Theatre, count: int) -> None:
    rng = np.random.default_rng(6)
    off = []
    for number in range(count):
        async with stage.call() as call:
            done = await interrupted(call, number, float(rng.uniform(800, 3_000)))
            if done is None or done.status != "interrupted":
                continue
            kept = call.session.memory.messages[1]
            assert kept.was_cut
            assert kept.text == done.heard
            shown = "".join(
                moment.event.text for moment in call.of(events.ReplyText) if moment.event.reply == done.reply
            )
            found = words_in_common(words(shown), heard_by_recogniser(call, done.reply))
            assert words(shown)[: len(words(done.heard))] == words(done.heard)
            off.append(abs(len(words(done.heard)) - found))
    assert len(off) >= 0.75 * count
    within = sum(words <= 1 for words in off) / len(off)
    print(f"{len(off)} interruptions: {within:.3f} within one word, mean {statistics.mean(off):.2f} words off")
    assert within >= 0.9
